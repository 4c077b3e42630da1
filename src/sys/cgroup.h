/* cgroups: pure v2, hybrid (limits on v1, life-cycle on v2) and v1. One struct cgroup is one box's leaf in every
 * hierarchy.
 *
 * A leaf is a directory directly below the base of each hierarchy, called carrel-<pid namespace>-<owner pid>-<owner
 * start time>-<n>. (In the pids hierarchy of v1 those of a family's boxes are within the family's.) The owner is the
 * process that made it. A leaf whose owner is gone is nobody's and may be swept by anybody.
 *
 * Joining must not stall: on v1 the payload, while single-threaded, writes "0" to `tasks` (35 us; `cgroup.procs` takes
 * 10 ms after idleness); on v2 it is born inside with CLONE_INTO_CGROUP. */
#ifndef CARREL_SYS_CGROUP_H
#define CARREL_SYS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* CG_CPUACCT counts and limits nothing; it is looked for only where v2 does not count (cgroup_host_for_joining). */
enum cgroup_controller { CG_MEMORY, CG_PIDS, CG_CPU, CG_FREEZER, CG_CPUACCT, CG_CONTROLLERS };
enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

#define CG_NONE { -1, -1, -1, -1, -1 }      /* no descriptor for any of them */

/* Who made a leaf; the pid alone could be another process by now. */
struct cgroup_owner {
    uint64_t pid_namespace;         /* its inode number */
    uint64_t start;                 /* clock ticks since boot */
    pid_t    pid;
};

/* What this host gives to this process; opened once. Owns the fds. */
struct cgroup_host {
    struct cgroup_owner owner;      /* the process that opened it */
    enum cgroup_mode mode;
    int  v2;                        /* base directory in the v2 tree, or -1 */
    int  v1[CG_CONTROLLERS];        /* base directories on v1, or -1 */
    bool can[CG_CONTROLLERS];       /* can be limited (CG_FREEZER: can be frozen): on v1 if v1[] is there, else on v2 */
    bool v2_controllers;            /* some limit is given by v2 */
    char why[CG_CONTROLLERS][160];  /* why not, and what to do, if !can */
};

/* 0 = leave alone in an update, not limited at creation. */
struct cgroup_limits {
    uint64_t memory_bytes;
    uint32_t pids;
    uint32_t cpu_milli;
    bool     freezer;               /* the leaf can be frozen */
};

struct cgroup {
    char name[80];
    int  v2;                        /* directory fd for CLONE_INTO_CGROUP, or -1 */
    int  dir[CG_CONTROLLERS];       /* directory fds on v1, or -1 */
    int  tasks[CG_CONTROLLERS];     /* `tasks` files on v1, open for writing, or -1 */
    uint32_t cpu_period_us;
};

struct cgroup_usage {
    uint64_t memory_bytes, memory_peak_bytes, cpu_us, oom_kills, pids_refused;
    uint32_t pids, pids_peak;
    bool     has_memory, has_pids, has_cpu, has_pids_peak;
};

/* A service whose cgroup was given to it with all below (Delegate=) goes into a leaf there, so that leaves of boxes can
 * be made beside it. For every other process this does nothing. */
void            cgroup_settle(void);
/* A host without usable cgroups is no error: then can[] is false everywhere and why[] says what to do. */
MUST_CHECK int  cgroup_host_open(struct cgroup_host *ret, struct err *e);
void            cgroup_host_close(struct cgroup_host *host);

/* The same host for processes that cannot be born in a leaf and so must join it (those of a zygote). On a hybrid host
 * they would have to be moved into the v2 leaf by another, which stalls for 10 ms; what v2 does there, v1 can do, too:
 * it freezes and counts. False: there is nothing better than the host as it is. ret is closed as the host is. */
bool            cgroup_host_for_joining(const struct cgroup_host *host, struct cgroup_host *ret);

/* True if processes must be born in the leaf (CLONE_INTO_CGROUP), so that it must be there before them. */
bool            cgroup_needs_birth(const struct cgroup_host *host, const struct cgroup_limits *limits);

/* Makes leaf number n with its limits written before anybody is inside. On failure nothing is left. */
MUST_CHECK int cgroup_create(const struct cgroup_host *host, uint32_t n, const struct cgroup_limits *limits,
                             struct cgroup *ret, struct err *e);
/* Changes the limits that are not 0. A memory limit below what is in use: v1 -EBUSY, v2 the kernel kills inside. */
MUST_CHECK int cgroup_update(const struct cgroup_host *host, struct cgroup *leaf, const struct cgroup_limits *limits,
                             struct err *e);
/* Called by the payload itself, single-threaded, after fork. Only async-signal-safe calls. 0 or -errno. On v2 it does
 * nothing. */
MUST_CHECK int  cgroup_join_self(const struct cgroup *leaf);
/* Returns when every task stands still (or runs again); -ETIMEDOUT, with the leaf running, if that takes too long. */
MUST_CHECK int  cgroup_freeze(struct cgroup *leaf, bool frozen, struct err *e);
/* Freezing for who must not wait for it: 1: every task stands still; 0: not yet after so long, call it again. Thawing
 * needs no waiting: whoever gives up calls cgroup_freeze. */
MUST_CHECK int  cgroup_freeze_step(const struct cgroup *leaf, uint64_t wait_us, struct err *e);
/* Processor time alone; false, and nothing written: it is not counted here. */
bool            cgroup_cpu_read(const struct cgroup *leaf, uint64_t *ret_us);
void            cgroup_usage_read(const struct cgroup *leaf, struct cgroup_usage *ret);
/* Of it only what was most and what was refused, for half the price. */
void            cgroup_peaks_read(const struct cgroup *leaf, struct cgroup_usage *ret);
/* Of that only what the kernel has refused or ended; what is not counted here is left as it is. */
void            cgroup_refusals_read(const struct cgroup *leaf, uint64_t *ret_oom_kills, uint64_t *ret_pids_refused);
/* Nobody is in the part of the leaf that counts memory. */
bool            cgroup_is_empty(const struct cgroup *leaf);
/* When memory runs out, the kernel ends all in the leaf. */
bool            cgroup_kills_together(const struct cgroup *leaf);
/* For who reads it often: the files of processor time and of the most memory. -1: there is none. */
void            cgroup_open_meter(const struct cgroup *leaf, int *ret_cpu, bool *ret_is_ns, int *ret_peak);
/* v1 ends one process when memory runs out and goes on with the others; v2 ends all. An eventfd that becomes readable
 * when memory has run out, so that whoever watches it can end all; -1 where it is not needed or not to be had. */
int             cgroup_watch_oom(const struct cgroup *leaf);
/* SIGKILL to every process that is in the leaf now. The leaf can be used again. */
void            cgroup_kill_members(const struct cgroup *leaf);
/* Kills every process in the leaf, frozen or not. The leaf can then only be removed: on v2, Linux (seen on 6.18) kills
 * at birth whoever is cloned into a cgroup that cgroup.kill was ever written to. */
void            cgroup_kill(struct cgroup *leaf);
/* Removes the leaf, waiting up to a second for dying processes; closes its fds. 0 or -errno. */
int             cgroup_remove(const struct cgroup_host *host, struct cgroup *leaf);
/* The same while the dying may need longer: on -EBUSY the leaf is still open and must be removed later. */
MUST_CHECK int  cgroup_remove_early(const struct cgroup_host *host, struct cgroup *leaf);
/* Closes the fds only: for a child process that must not hold them. */
void            cgroup_close(struct cgroup *leaf);

/* Ends and removes leaves: those of the given owner, or (owner_pid 0) those whose owner is gone. Thaws, kills, removes.
 * Returns how many. Leaves of another pid namespace are never touched. */
int             cgroup_sweep(const struct cgroup_host *host, int owner_pid);
/* The same, telling each leaf: result is 0 or what kept it from being removed, -errno. tell may be NULL. */
int             cgroup_sweep_each(const struct cgroup_host *host, int owner_pid,
                                  void (*tell)(const char *name, pid_t owner, int result, void *data), void *data);

/* The means, for reports: "cgroup v2 memory", "cgroup v1 pids". */
const char     *cgroup_means(const struct cgroup_host *host, enum cgroup_controller controller);

#endif
