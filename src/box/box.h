/* Boxes: make one, put payloads into it, limit, freeze, end it. The caller is the keeper of its boxes: their processes
 * are its children.
 *
 *   struct box_host host;      box_host_open()         once per process
 *   struct engine_box box;     box_create()            namespaces, root, limits, init; a first payload waits, sealed
 *   struct payload p;          box_start_payload()     gives a payload its command; several at a time are fine
 *                              payload_started()       when p.link is readable: did exec happen?
 *                              payload_reap()          when p.process.pidfd is readable
 *                              box_destroy()           nothing is left
 *
 * No threads, no signals, no logging; every wait is on a descriptor that the caller can poll. */
#ifndef CARREL_BOX_BOX_H
#define CARREL_BOX_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "box/egress.h"
#include "box/host/ids.h"
#include "box/plan.h"
#include "box/spec.h"
#include "proto/keeper.h"
#include "proto/walls.h"
#include "sys/cgroup.h"
#include "sys/process.h"
#include "sys/rights.h"

struct box_host {
    struct cgroup_host cgroups;
    struct cgroup_host joining;         /* for boxes of families, if can_join; opened with the first family */
    bool               joining_known, can_join;
    struct ids_host    ids;
    bool               rootless;
    bool               can_setgroups;
    uid_t              caller_uid;      /* owns the files that a box writes into a mounted folder */
    gid_t              caller_gid;
    uint32_t           next;            /* number of the next box */
    bool               is_open;
    int                self;            /* owned: our own pidfd, by which children see whether we are alive */
    int                janitor;         /* owned: a pipe; the janitor wakes when it closes */
    struct process     janitor_process;
    struct host_facts  facts;           /* last: see box_host_open() */
};

/* The box's namespaces, as descriptors to join. Owned; -1: none. */
struct box_namespaces {
    int user, mount, pid, ipc, uts, net;
};

/* One command in a box. */
struct payload {
    struct process process;
    int            link;        /* owned; seqpacket to the child until exec closes the other end */
    int            terminal;    /* owned; master side of its PTY, once started, or -1 */
    bool           waiting;     /* sealed, without a command yet */
    bool           born, ready; /* one-time messages that it has sent */
};

struct family;

struct engine_box {
    enum box_state        state;
    struct process        init;
    struct process        midwife;      /* of a family's box that is being born; reaped like `abandoned` */
    int                   birth, root;  /* owned during the birth: its report; the root, to keep its device number */
    struct payload        first;        /* waits for the first command; box_start_payload takes it over */
    struct process        abandoned;    /* killed without its command; reaped by the caller, or by box_destroy */
    int                   link;         /* owned: init's report */
    struct box_namespaces ns;
    struct cgroup         leaf;
    bool                  has_leaf;
    int                   oom;          /* owned: readable when memory has run out (v1), or -1 */
    struct ids            ids;
    bool                  keep_own;     /* the box's user has the caller's own id */
    struct file_limit     files;        /* of each process in it */
    int                   scratch;      /* owned: an fd on the scratch, for its usage */
    bool                  on_store;     /* the scratch is a store, which its last holder flushes: that must not be us */
    uint64_t              disk_bytes;   /* usage when it was closed */
    bool                  disk_full;
    dev_t                 root_device;  /* of the root tmpfs: every payload checks that it is there */
    int                   keeper;       /* borrowed: pidfd of the keeper */
    int                   inlet;        /* owned: a listener in its network that the front serves, or -1 */
    struct egress_sockets egress;       /* of a box with network, until the keeper passes them on */
    int                   door;         /* owned: to init, for payloads' seccomp listeners (desk.c), or -1 */
    struct family        *family;       /* borrowed: its zygote forks the payloads; NULL: a plain box */
    bool                  is_blank;     /* of a family: complete without a first payload */
    int zygote_tasks[CG_CONTROLLERS];   /* owned: on v1, the `tasks` files for its zygote; then -1 */
    uint32_t              family_pids;  /* its share of the family's pids bound */
    /* The part of the plan that a payload needs. */
    enum profile          profile;
    bool                  has_network;  /* init prepares its egress */
    bool                  shares;       /* a caller's folder is mounted for writing */
    uid_t                 uid;
    gid_t                 gid;
    bool                  can_setgroups;
    int                   landlock_abi;
    struct limits         limits;
    size_t                n_rules;
    struct plan_rule      rule[PLAN_RULES];
    char                 *rule_paths;   /* owned */
};

/* The input of a payload's start. Fds are borrowed; -1 gives the box's /dev/null. */
struct start {
    const struct command_spec *command;     /* NULL: packed (command.h) in packed */
    int                        packed;
    int                        stdio[3];
    bool                       fresh;       /* a new payload, not the waiting one */
    bool                       other_user;  /* runs as uid and gid instead of the box's own; always a fresh one */
    uid_t                      uid;
    gid_t                      gid;
};

struct payload_end {
    enum outcome        outcome;
    int                 code, signal;       /* as in struct process_end */
    uint64_t            cpu_us;
};

struct box_usage {
    struct cgroup_usage cgroup;
    uint64_t            disk_bytes;
    bool                disk_full;
};

/* Decides rootless: without root's capabilities the process enters a user namespace of its own. */
MUST_CHECK int box_host_open(struct box_host *ret, struct err *e);
/* A no-op for a zeroed host. */
void           box_host_close(struct box_host *host);

/* Whether the box's user is the caller's own outside, so that the kernel counts both as one. */
static inline bool box_shares_user(const struct engine_box *box)
{
    return box->keep_own || box->ids.size == 1;
}

/* Sets the box to empty; releasing it is a no-op. */
void           box_clear(struct engine_box *ret);

/* Refuses, with the remedy, a limit that this host cannot enforce. */
MUST_CHECK int box_check_limits(const struct box_host *host, const struct limits *limits, struct err *e);

/* With start, the first payload has its command from birth (box->first is then started). freezer: the box can be frozen
 * later. On failure nothing is left. */
MUST_CHECK int box_create(struct box_host *host, const struct plan *plan, const struct start *start, bool freezer,
                          struct engine_box *ret, struct err *e);

/* Without start: is the box complete? 1: yes; 0: not yet (never with block); -errno with the reason. Call it again when
 * box->link or box->first.link is readable; before that, in a family, box->birth or box->midwife.pidfd. */
MUST_CHECK int box_ready(struct engine_box *box, bool block, struct err *e);

/* With start: call it when box->link is readable. -errno: making the box failed, e says where. */
MUST_CHECK int box_check_making(struct engine_box *box, struct err *e);

/* Puts a command into a ready box. */
MUST_CHECK int box_start_payload(struct engine_box *box, const struct start *start, struct payload *ret, struct err *e);

/* Call it when payload->link is readable. 1: the command runs; 0: not yet; -errno: it never ran, e says why (STEP_EXEC:
 * where a shell exits with 126, 127). */
MUST_CHECK int payload_started(struct payload *payload, struct err *e);
MUST_CHECK int payload_reap(struct payload *payload, struct process_end *ret);      /* like process_reap */
void           payload_done(struct payload *payload);

/* 1: the whole box is frozen; 0: not yet after wait_us, call it again or thaw it. */
MUST_CHECK int box_freeze(struct engine_box *box, uint64_t wait_us, struct err *e);
MUST_CHECK int box_thaw(struct engine_box *box, struct err *e);
MUST_CHECK int box_update_limits(struct box_host *host, struct engine_box *box, const struct limits *limits,
                                 struct err *e);
void           box_usage_read(const struct engine_box *box, struct box_usage *ret);
/* The usage that a payload's outcome and bill need: peaks, refusals and the disk. */
void           box_peaks_read(const struct engine_box *box, struct box_usage *ret);
/* The host's abilities, for reports and fronts. */
struct walls_host box_host_walls(const struct box_host *host);
/* Classifies a payload's end, from the reason why we ended it (OUTCOME_NONE: we did not) and the box's usage. */
enum outcome   box_outcome(const struct process_end *end, enum outcome cause, const struct box_usage *usage);

/* Starts a helper of ours in the box's user and mount namespaces and in its cgroup, but not in its pid namespace: under
 * the box's user, sealed like a payload, with `socket` as its only descriptor. It runs `serve` and exits when that
 * returns. It does not die with the box's init. */
MUST_CHECK int box_help(struct engine_box *box, int socket, void (*serve)(int socket), struct payload *ret,
                        struct err *e);

/* A socket in the box's network namespace. Returns its fd. */
MUST_CHECK int box_socket(const struct engine_box *box, int family, int type, struct err *e);

/* Makes box->inlet: a listener on this port of the box's 127.0.0.1. 0 also if it exists already. */
MUST_CHECK int box_open_inlet(struct engine_box *box, uint16_t port, struct err *e);

/* Ends everything in the box; cancels its birth if necessary. The caller must reap the payloads that it holds, the
 * waiting one and an abandoned one (before or after): init does not end before them. */
void           box_kill(struct engine_box *box);
/* After init was reaped: removes the cgroup, releases the ids, closes everything. */
void           box_release(struct box_host *host, struct engine_box *box);
/* For a killed box whose payloads were reaped: waits for init's end, and reaps unknown children that delay it. */
void           box_reap_init(struct engine_box *box, struct process_end *ret);
/* Kills, waits for init's end, which waits for the caller to reap its payloads; releases. */
void           box_destroy(struct box_host *host, struct engine_box *box, struct process_end *ret_init);

#endif
