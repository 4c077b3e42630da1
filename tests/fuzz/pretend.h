/* For fuzz_frames.c: devices that are as many nodes as the input says, and no files of the host. */
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

/* For a box's network: a child that is done, not yet, or fails, as the input says. */
int egress_job_start(const struct engine_box *box, struct egress_job *ret, struct err *e)
{
    HOLDS(box->state == BOX_READY);
    if (whim % 8 == 6)
        return err_at(e, EAGAIN, STEP_CLONE, 0, "egress");
    *ret = (struct egress_job){ .process.pidfd = new_fd(), .link = new_fd() };
    return 0;
}

int egress_job_take(struct egress_job *job, struct egress_sockets *ret, struct err *e)
{
    HOLDS(job->link >= 0);
    if (whim % 3 == 0)
        return 0;
    job->link = fd_close(job->link);
    if (whim % 3 == 1)
        return err_at(e, ENOTSUP, STEP_NETWORK, 0, "nf_tables");
    *ret = (struct egress_sockets){ .n = 1, .has = 1, .fd = { new_fd() } };
    return 1;
}

void egress_sockets_close(struct egress_sockets *sockets)
{
    for (size_t i = 0; i < sockets->n; i++)
        sockets->fd[i] = fd_close(sockets->fd[i]);
    sockets->n = 0;
}

int desk_hear(const struct engine_box *box, char ret[NET_NAME_SIZE])
{
    (void)box;
    memcpy(ret, "example.org", 12);
    return whim % 5 == 0;
}

void desk_close_resolver(const struct engine_box *box)
{
    (void)box;
}
