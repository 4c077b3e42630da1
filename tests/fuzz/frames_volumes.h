/* The part of fuzz_frames.c that pretends to be box/volume. */
#ifndef CARREL_TESTS_FUZZ_FRAMES_VOLUMES_H
#define CARREL_TESTS_FUZZ_FRAMES_VOLUMES_H

int volume_change(const struct volumes *volumes, int keeper, enum volume_task task, uint64_t number, uint64_t bytes,
                  struct volume_job *ret, struct err *e)
{
    (void)keeper;
    *ret = (struct volume_job){ .process.pidfd = -1, .link = -1, .task = task, .number = number, .bytes = bytes };
    if (number == 0 || whim % 4 == 1)
        return err_at(e, ENOSPC, STEP_USAGE, 0, "volume");
    if (!volumes->are_folders) {
        ret->process = (struct process){ .pid = 1, .pidfd = new_fd() };
        ret->link = new_fd();
    }
    return 0;
}

int volume_changed(const struct volumes *volumes, struct volume_job *job, bool is_wanted, struct err *e)
{
    HOLDS(job->process.pidfd < 0 && volumes);
    job->link = fd_close(job->link);
    return is_wanted && whim % 8 == 2 ? err_at(e, EIO, STEP_HOST, 0, "volume") : 0;
}

int volumes_mount(const struct volumes *volumes, int keeper, const struct volume_use *use, size_t n, uid_t uid,
                  gid_t gid, struct store_job *ret, struct err *e)
{
    (void)keeper;
    (void)uid;
    (void)gid;
    HOLDS(!volumes->are_folders && n > 0 && n <= KEEPER_VOLUMES && ret->process.pidfd < 0);
    for (size_t i = 0; i < n; i++)
        HOLDS(use[i].number && use[i].tree == -1);
    if (whim % 8 == 3)
        return err_at(e, ENOMEM, STEP_CLONE, 0, "volume");
    *ret = (struct store_job){ .process = { .pid = 1, .pidfd = new_fd() }, .link = new_fd() };
    return 0;
}

int volumes_mounted(struct store_job *job, struct volume_use *use, size_t n, struct err *e)
{
    HOLDS(job->process.pidfd < 0);
    job->link = fd_close(job->link);
    if (whim % 4 == 1)
        return err_at(e, EUCLEAN, STEP_HOST, 0, "volume");
    for (size_t i = 0; i < n; i++) {
        use[i].tree = new_fd();
        use[i].device = whim;
    }
    return 0;
}

int volume_open_folder(const struct volumes *volumes, uint64_t number, int *ret, struct err *e)
{
    HOLDS(volumes->are_folders);
    if (number == 3)
        return err_at(e, ENOENT, STEP_HOST, 0, "volume");
    *ret = new_fd();
    return 0;
}

int volume_remove(const struct volumes *volumes, uint64_t number, struct process *ret, struct err *e)
{
    HOLDS(volumes);
    *ret = (struct process){ .pidfd = -1 };
    if (number == 2)
        *ret = (struct process){ .pid = 1, .pidfd = new_fd() };
    return number == 13 ? err_at(e, EIO, STEP_HOST, 0, "volume") : 0;
}

int volume_look(const struct volumes *volumes, uint64_t number, struct volume_facts *ret, struct err *e)
{
    HOLDS(volumes);
    *ret = (struct volume_facts){ .number = number };
    return number == 13 ? err_at(e, ENOENT, STEP_HOST, 0, "volume") : 0;
}

void volumes_each(const struct volumes *volumes, void (*call)(const struct volume_facts *facts, void *arg), void *arg)
{
    HOLDS(volumes);
    call(&(struct volume_facts){ .number = 1 }, arg);
}

#endif
