/* Shared by the cgroup_*.c files only. */
#ifndef CARREL_SYS_CGROUP_IMPL_H
#define CARREL_SYS_CGROUP_IMPL_H

#include "sys/cgroup.h"

enum { CGROUP_CPU_PERIOD_US = 100000 };     /* the kernel's default */

/* Names of the controllers, in the order of the enum. */
extern const char *const cgroup_controller_names[CG_CONTROLLERS];

/* The identity of this process. 0 or -errno. */
MUST_CHECK int cgroup_owner_self(struct cgroup_owner *ret);

/* Contents of /proc/<who>/stat. 0 or -errno. who is "self" or a number. */
struct cgroup_process {
    pid_t    pid;
    uint64_t start;
    bool     dead;              /* a zombie without living threads */
};
MUST_CHECK int cgroup_process_read(const char *who, struct cgroup_process *ret);

/* The path of this process's cgroup in the v2 tree that is mounted at tree. Its length, or -errno. */
MUST_CHECK int cgroup_own_path(const char *tree, char *path, size_t size);
/* The directory above the process's own cgroup, if systemd has given it to this service: an O_PATH fd, or -errno. */
int cgroup_open_given(const char *tree);

/* Opens the base of a v1 hierarchy at its usual place, or -1. */
int cgroup_open_usual_v1(enum cgroup_controller controller);

/* Processor time (cgroup_cpu.c): the most that a leaf gets, and its weight beside its siblings. */
MUST_CHECK int cgroup_write_cpu(struct cgroup *leaf, const struct cgroup_limits *limits, struct err *e);
/* The weight for a request, in cgroup v2's unit (1 to 10,000, usually 100); request 0: of a leaf without one. */
uint32_t cgroup_cpu_weight(uint32_t request_milli, uint32_t processors);
/* Writes a number into a file of a leaf. */
MUST_CHECK int cgroup_write_number(int dir, const char *file, uint64_t value, struct err *e);

/* Sends SIGKILL to every process of the leaf in any hierarchy, one by one; for kernels and trees without
 * cgroup.kill. */
void cgroup_kill_each(struct cgroup *leaf);

/* Sends SIGKILL to every process that the leaf lists now; returns how many there were. */
size_t cgroup_kill_pass(const struct cgroup *leaf);

/* Tries once to remove every directory of the leaf that still exists: 0, or the last -errno. */
int cgroup_remove_try(const struct cgroup_host *host, const struct cgroup *leaf);
/* Retries until deadline_us (monotonic). */
int cgroup_remove_until(const struct cgroup_host *host, const struct cgroup *leaf, uint64_t deadline_us);

#endif
