/* Shared by the cgroup_*.c files only. */
#ifndef CARREL_SYS_CGROUP_IMPL_H
#define CARREL_SYS_CGROUP_IMPL_H

#include "sys/cgroup.h"

/* Names of the controllers, in the order of the enum. */
extern const char *const cgroup_controller_names[CG_CONTROLLERS];

/* Who this process is. 0 or -errno. */
MUST_CHECK int cgroup_owner_self(struct cgroup_owner *ret);

/* What /proc/<pid>/stat says. 0 or -errno. who is "self" or a number. */
struct cgroup_process {
    pid_t    pid;
    uint64_t start;
    bool     dead;              /* a zombie without living threads */
};
MUST_CHECK int cgroup_process_read(const char *who, struct cgroup_process *ret);

/* The path of this process's cgroup in the v2 tree that is mounted at tree. Its length, or -errno. */
MUST_CHECK int cgroup_own_path(const char *tree, char *path, size_t size);
/* The directory above it, if systemd has given it to this service: an O_PATH fd, or -errno. */
int cgroup_open_given(const char *tree);

/* Opens the base of a v1 hierarchy at its usual place, or -1. */
int cgroup_open_usual_v1(enum cgroup_controller controller);

/* Sends SIGKILL to whatever the leaf holds in any hierarchy, one by one; for kernels and trees without cgroup.kill. */
void cgroup_kill_each(struct cgroup *leaf);

/* SIGKILL to all that the leaf lists now; returns how many there were. */
size_t cgroup_kill_pass(const struct cgroup *leaf);

/* One try to remove every directory of the leaf that is still there: 0, or the last -errno. */
int cgroup_remove_try(const struct cgroup_host *host, const struct cgroup *leaf);
/* Tries until deadline_us (monotonic). */
int cgroup_remove_until(const struct cgroup_host *host, const struct cgroup *leaf, uint64_t deadline_us);

#endif
