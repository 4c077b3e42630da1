/* cgroups: pure v2, hybrid (limits on v1, life-cycle on v2) and v1. One struct cgroup is one box's leaf in every
 * hierarchy.
 *
 * A leaf is a directory directly below the base of each hierarchy, called carrel-<pid namespace>-<owner pid>-<owner
 * start time>-<n>. (In v1's pids hierarchy the leaves of a family's boxes lie in the family's leaf.) The owner is the
 * process that made it. Any keeper may sweep a leaf whose owner is gone.
 *
 * Joining must not stall: on v1 the payload, while single-threaded, writes "0" to `tasks` (35 us; `cgroup.procs` takes
 * 10 ms after idleness); on v2 it is born inside with CLONE_INTO_CGROUP. */
#ifndef CARREL_SYS_CGROUP_H
#define CARREL_SYS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* CG_CPUACCT only counts; it is used only where v2 does not count (cgroup_host_for_joining). */
enum cgroup_controller { CG_MEMORY, CG_PIDS, CG_CPU, CG_FREEZER, CG_CPUACCT, CG_CONTROLLERS };
enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_HYBRID, CGROUP_V2 };

#define CG_NONE { -1, -1, -1, -1, -1 }      /* no descriptors */

/* The maker of a leaf; a pid alone could be reused. */
struct cgroup_owner {
    uint64_t pid_namespace;         /* its inode number */
    uint64_t start;                 /* clock ticks since boot */
    pid_t    pid;
};

/* The cgroups that this process can use on this host; opened once. Owns the fds. */
struct cgroup_host {
    struct cgroup_owner owner;      /* the process that opened it */
    enum cgroup_mode mode;
    int  v2;                        /* base directory in the v2 tree, or -1 */
    int  v1[CG_CONTROLLERS];        /* base directories on v1, or -1 */
    bool can[CG_CONTROLLERS];       /* can limit (CG_FREEZER: can freeze): on v1 if v1[] is open, else on v2 */
    bool v2_controllers;            /* v2 gives at least one limit */
    char why[CG_CONTROLLERS][160];  /* if !can: the reason and the remedy */
};

/* 0 = leave alone in an update, not limited at creation. */
struct cgroup_limits {
    uint64_t memory_bytes;
    uint32_t pids;
    uint32_t cpu_milli;
    uint32_t cpu_request_milli;     /* guaranteed: its weight beside other leaves when the processors are busy */
    bool     freezer;               /* the leaf can be frozen */
};

struct cgroup {
    char name[80];
    int  v2;                        /* directory fd for CLONE_INTO_CGROUP, or -1 */
    int  dir[CG_CONTROLLERS];       /* directory fds on v1, or -1 */
    int  tasks[CG_CONTROLLERS];     /* `tasks` files on v1, open for writing, or -1 */
    uint32_t cpu_period_us;
    bool has_weight;                /* it was written, or is the usual one */
};

struct cgroup_usage {
    uint64_t memory_bytes, memory_peak_bytes, cpu_us, oom_kills, pids_refused;
    uint32_t pids, pids_peak;
    bool     has_memory, has_pids, has_cpu, has_pids_peak;
};

/* If systemd gave a service its cgroup with everything below it (Delegate=), moves the service into a leaf there, so
 * that leaves of boxes can be made beside it. A no-op in every other process. */
void            cgroup_settle(void);
/* A host without usable cgroups is no error: can[] is then false everywhere, and why[] says what to do. */
MUST_CHECK int  cgroup_host_open(struct cgroup_host *ret, struct err *e);
void            cgroup_host_close(struct cgroup_host *host);

/* The same host for processes that cannot be born in a leaf and must join it (the children of a zygote). On a hybrid
 * host another process would have to move them into the v2 leaf, which stalls for 10 ms; v1's freezer and cpuacct do
 * the same work. False: use the host as it is. ret is closed as the host is. */
bool            cgroup_host_for_joining(const struct cgroup_host *host, struct cgroup_host *ret);

/* The bytes of memory that boxes can have in all because of this host's cgroups; 0: they set no bound. */
uint64_t        cgroup_memory_bound(const struct cgroup_host *host);

/* True if processes must be born in the leaf (CLONE_INTO_CGROUP), so that it must exist before them. */
bool            cgroup_needs_birth(const struct cgroup_host *host, const struct cgroup_limits *limits);

/* Makes leaf number n and writes its limits before any process is inside. On failure nothing is left. */
MUST_CHECK int cgroup_create(const struct cgroup_host *host, uint32_t n, const struct cgroup_limits *limits,
                             struct cgroup *ret, struct err *e);
/* Changes the limits that are not 0. A memory limit below the usage: v1 refuses with -EBUSY, v2 kills inside. */
MUST_CHECK int cgroup_update(const struct cgroup_host *host, struct cgroup *leaf, const struct cgroup_limits *limits,
                             struct err *e);
/* Called by the payload itself, single-threaded, after fork. Async-signal-safe. 0 or -errno. A no-op on v2. */
MUST_CHECK int  cgroup_join_self(const struct cgroup *leaf);
/* Returns when every task is frozen (or runs again); -ETIMEDOUT, with the leaf running, if that takes too long. */
MUST_CHECK int  cgroup_freeze(struct cgroup *leaf, bool frozen, struct err *e);
/* Freezing for non-blocking callers. 1: every task is frozen; 0: not yet after wait_us, call it again. Thawing does not
 * wait: to give up, call cgroup_freeze. */
MUST_CHECK int  cgroup_freeze_step(const struct cgroup *leaf, uint64_t wait_us, struct err *e);
/* Processor time alone. False: this host does not count it, and nothing was written. */
bool            cgroup_cpu_read(const struct cgroup *leaf, uint64_t *ret_us);
void            cgroup_usage_read(const struct cgroup *leaf, struct cgroup_usage *ret);
/* Only the peaks and refusals, for half the price of cgroup_usage. */
void            cgroup_peaks_read(const struct cgroup *leaf, struct cgroup_usage *ret);
/* Only what the kernel refused or killed; values that this host does not count are left as they are. */
void            cgroup_refusals_read(const struct cgroup *leaf, uint64_t *ret_oom_kills, uint64_t *ret_pids_refused);
/* No process is in the part of the leaf that counts memory. */
bool            cgroup_is_empty(const struct cgroup *leaf);
/* Whether the kernel kills the whole leaf when memory runs out. */
bool            cgroup_kills_together(const struct cgroup *leaf);
/* For frequent readers: the files of processor time and of peak memory. -1: there is none. */
void            cgroup_open_meter(const struct cgroup *leaf, int *ret_cpu, bool *ret_is_ns, int *ret_peak);
/* When memory runs out, v1 kills one process and lets the others run; v2 kills all. Returns an eventfd that becomes
 * readable when memory has run out, so that the caller can kill the rest; -1 where it is not needed or not
 * available. */
int             cgroup_watch_oom(const struct cgroup *leaf);
/* SIGKILL to every process that is in the leaf now. The leaf can be used again. */
void            cgroup_kill_members(const struct cgroup *leaf);
/* Kills every process in the leaf, frozen or not. Afterwards the leaf can only be removed: once cgroup.kill was
 * written, v2 kills every process that is cloned into the cgroup at birth (seen on Linux 6.18). */
void            cgroup_kill(struct cgroup *leaf);
/* Removes the leaf, waiting up to a second for dying processes; closes its fds. 0 or -errno. */
int             cgroup_remove(const struct cgroup_host *host, struct cgroup *leaf);
/* The same without waiting so long: on -EBUSY the leaf is still open and must be removed later. */
MUST_CHECK int  cgroup_remove_early(const struct cgroup_host *host, struct cgroup *leaf);
/* Closes the fds only: for a child process that must not hold them. */
void            cgroup_close(struct cgroup *leaf);

/* Thaws, kills and removes leaves: those of the given owner, or (owner_pid 0) those whose owner is gone. Returns how
 * many. Never touches leaves of another pid namespace. */
int             cgroup_sweep(const struct cgroup_host *host, int owner_pid);
/* Calls tell for each leaf; result is 0, or -errno if the leaf could not be removed. tell may be NULL. */
int             cgroup_sweep_each(const struct cgroup_host *host, int owner_pid,
                                  void (*tell)(const char *name, pid_t owner, int result, void *data), void *data);

/* The controller's place, for reports: "cgroup v2 memory", "cgroup v1 pids". */
const char     *cgroup_means(const struct cgroup_host *host, enum cgroup_controller controller);

#endif
