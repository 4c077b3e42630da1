/* Processes by descriptor: clone3, pidfd, wait. Never signals a bare pid. All return 0 or -errno. */
#ifndef CARREL_SYS_PROCESS_H
#define CARREL_SYS_PROCESS_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"

struct process {
    pid_t pid;      /* 0: none */
    int   pidfd;    /* owned; -1: none */
};

struct process_end {
    int      code;      /* exit status, or -1 */
    int      signal;    /* signal that ended it, or 0 */
    uint64_t cpu_us;    /* its own and that of all children it waited for */
    uint64_t peak_bytes;
};

/* If the kernel is set to spare this process when memory runs out, its children are not spared: from now on they are
 * born with an oom_score_adj of 0 and cannot go below it. Call it once, early. */
void process_spare_only_self(void);

/* clone3 with a copied address space. flags are CLONE_NEW* bits; cgroup is a v2 directory to be born in, or -1;
 * pid_namespace an fd of a descendant pid namespace to be born in, or -1. Returns 0 in the child, 1 in the parent, or
 * -errno. */
MUST_CHECK int process_clone(uint64_t flags, int cgroup, int pid_namespace, struct process *ret);

/* Like process_clone() for a process with a new user namespace that belongs to owner: limits that the kernel counts per
 * user (inotify instances, for example) then count for that id alone. owner 0: the caller. Needs CAP_SETUID and
 * CAP_SETPCAP. */
MUST_CHECK int process_clone_for(uid_t owner, uint64_t flags, struct process *ret, struct err *e);

/* 1 if it exited and was reaped, 0 if it still runs, or -errno. block: wait for it. */
MUST_CHECK int process_reap(struct process *process, int block, struct process_end *ret);

MUST_CHECK int process_signal(const struct process *process, int signal);

/* Signals the process group that the process leads. Safe until it is reaped, because its pid cannot be reused
 * before. */
MUST_CHECK int process_signal_group(const struct process *process, int signal);

MUST_CHECK int process_map_ids(pid_t pid, const char *uid_map, const char *gid_map, int deny_setgroups);

#endif
