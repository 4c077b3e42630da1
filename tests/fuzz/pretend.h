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
