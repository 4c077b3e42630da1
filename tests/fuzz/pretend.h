/* For fuzz_frames.c: devices that are as many nodes as the input says, no files of the host, and a box's network. */
void devices_read(bool rootless, struct devices *ret)
{
    (void)rootless;
    ret->n = 0;
}

void devices_free(struct devices *devices)
{
    HOLDS(devices->n == 0);
}

/* A device is as many nodes as the input says. */
int device_add(struct box_spec *spec, const struct host_facts *facts, const struct devices *devices, const char *name,
               struct device_files *files, struct err *e)
{
    (void)facts;
    (void)devices;
    HOLDS(cdi_name_is_valid(name));
    for (unsigned i = 0; i < whim % 4u * 40; i++) {
        if (spec->n_mounts == SPEC_LIST_MAX)
            return err_at(e, E2BIG, STEP_USAGE, 0, "device");
        spec->mount[spec->n_mounts++] = (struct mount_spec){
            .kind = MOUNT_DEVICE, .source = "/dev/null", .target = i % 2 ? "/dev/x/y" : "/dev/x/z", .fd = -1
        };
    }
    files->n = 0;
    return 0;
}

void device_close(struct device_files *files)
{
    HOLDS(files->n == 0);
}

int keeper_connect(const struct box *box, const struct request_connect *q, struct err *e)
{
    (void)box;
    (void)q;
    return whim % 2 ? err_at(e, ECONNREFUSED, STEP_NETWORK, 0, "port") : new_fd();
}

int keeper_open_inlet(struct box *box, struct err *e)
{
    (void)box;
    return whim % 2 ? err_at(e, EADDRINUSE, STEP_NETWORK, 0, "inlet") : new_fd();
}

void box_reap_init(struct box *box, struct process_end *ret)
{
    *ret = (struct process_end){ .signal = SIGKILL };
    box->init.pidfd = fd_close(box->init.pidfd);
}

bool cgroup_is_empty(const struct cgroup *leaf)
{
    (void)leaf;
    return whim % 2;
}

bool cgroup_kills_together(const struct cgroup *leaf)
{
    (void)leaf;
    return whim % 4 == 3;
}

void cgroup_refusals_read(const struct cgroup *leaf, uint64_t *ret_oom_kills, uint64_t *ret_pids_refused)
{
    (void)leaf;
    *ret_oom_kills = whim % 3;
    *ret_pids_refused = whim % 5;
}
