/* Processes by descriptor: clone3, pidfd, wait. A bare pid is never signalled. All return 0 or -errno. */
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
    uint64_t cpu_us;    /* of itself and of all it has waited for */
    uint64_t peak_bytes;
};

/* If the kernel is told to spare this process when memory runs out, then not its children: from now on they are born
 * with an oom_score_adj of 0, and cannot go below it. Called once, early. */
void process_spare_only_self(void);

/* clone3 with a copied address space. flags are CLONE_NEW* bits; cgroup is a v2 directory to be born in, or -1;
 * pid_namespace an fd of a descendant pid namespace to be born in, or -1. Returns 0 in the child, 1 in the parent, or
 * -errno. */
MUST_CHECK int process_clone(uint64_t flags, int cgroup, int pid_namespace, struct process *ret);

/* The same for a process with a new user namespace that belongs to owner: what the kernel counts per user (inotify
 * instances, for example) is then counted for that id alone. owner 0: the caller. Needs CAP_SETUID and CAP_SETPCAP. */
MUST_CHECK int process_clone_for(uid_t owner, uint64_t flags, struct process *ret, struct err *e);

/* 1 if it ended and was reaped, 0 if it still runs, or -errno. With block, waits. */
MUST_CHECK int process_reap(struct process *process, int block, struct process_end *ret);

MUST_CHECK int process_signal(const struct process *process, int signal);

/* To the process group that the process leads. Safe while it is not reaped, because its pid cannot be given
 * to another. */
MUST_CHECK int process_signal_group(const struct process *process, int signal);

MUST_CHECK int process_map_ids(pid_t pid, const char *uid_map, const char *gid_map, int deny_setgroups);

#endif
