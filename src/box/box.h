/* Boxes: make one, put payloads into it, limit, freeze, end it. The caller is the keeper of its boxes: their processes
 * are its children.
 *
 *   struct box_host host;      box_host_open()         once per process
 *   struct engine_box box;     box_create()            namespaces, root, limits, init; a first payload waits, sealed
 *   struct payload p;          box_start_payload()     gives a payload its command; more than one at a time is fine
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
    struct cgroup_host joining;         /* for boxes of families, if can_join; looked for with the first family */
    bool               joining_known, can_join;
    struct ids_host    ids;
    struct host_facts  facts;
    bool               rootless;
    bool               can_setgroups;
    uid_t              caller_uid;      /* who owns what a box writes into a mounted folder */
    gid_t              caller_gid;
    uint32_t           next;            /* number of the next box */
    bool               is_open;
    int                self;            /* owned: our own pidfd, by which children see whether we are still there */
    int                janitor;         /* owned: the pipe whose closing wakes the janitor */
    struct process     janitor_process;
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
    bool           born, ready; /* what it says only once, and has said */
};

struct family;

struct engine_box {
    enum box_state        state;
    struct process        init;
    struct process        midwife;      /* of a family's box that is being born; reaped as `abandoned` is */
    int                   birth, root;  /* owned, meanwhile: its word; the root, so that no other has its number */
    struct payload        first;        /* waits for the first command; taken by box_start_payload */
    struct process        abandoned;    /* killed without its command; reaped by the caller, or by box_destroy */
    int                   link;         /* owned: init's report */
    struct box_namespaces ns;
    struct cgroup         leaf;
    bool                  has_leaf;
    int                   oom;          /* owned: readable when memory has run out (v1), or -1 */
    struct ids            ids;
    bool                  keep_own;     /* the box's user is the caller's own id */
    struct file_limit     files;        /* of each process in it */
    int                   scratch;      /* owned: an fd on the scratch, for its usage */
    bool                  on_store;     /* the scratch is a store: its last holder writes it all to the disk; not us */
    uint64_t              disk_bytes;   /* what was used when it was closed */
    bool                  disk_full;
    dev_t                 root_device;  /* of the root tmpfs: where every payload must find itself */
    int                   keeper;       /* borrowed: pidfd of the keeper */
    int                   inlet;        /* owned: a listener in its network that is served from outside, or -1 */
    struct egress_sockets egress;       /* of a box with network, until the keeper hands them on */
    int                   door;         /* owned: to init, for payloads' seccomp listeners (desk.c), or -1 */
    struct family        *family;       /* borrowed: whose zygote forks its payloads; NULL: a plain box */
    int zygote_tasks[CG_CONTROLLERS];   /* owned: what its zygote joins the leaf with on v1, then -1 */
    uint32_t              family_pids;  /* by which the bound of its family was raised for it */
    /* What a payload needs of the plan. */
    enum profile          profile;
    bool                  has_network;  /* init prepares its way out */
    bool                  shares;       /* a folder of the caller's is mounted for writing */
    uid_t                 uid;
    gid_t                 gid;
    bool                  can_setgroups;
    int                   landlock_abi;
    struct limits         limits;
    size_t                n_rules;
    struct plan_rule      rule[PLAN_RULES];
    char                 *rule_paths;   /* owned */
};

/* What a payload is started with. Fds are borrowed; -1 gives /dev/null of the box. */
struct start {
    const struct command_spec *command;     /* NULL: it is packed (command.h) in packed */
    int                        packed;
    int                        stdio[3];
    bool                       fresh;       /* not the payload that waits already */
    bool                       other_user;  /* uid and gid in the box instead of the box's own; always a fresh one */
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

/* rootless is decided here: without root's capabilities the process enters a user namespace of its own. */
MUST_CHECK int box_host_open(struct box_host *ret, struct err *e);
/* Does nothing to a zeroed host. */
void           box_host_close(struct box_host *host);

/* The box's user is the caller's own outside; the kernel counts both as one. */
static inline bool box_shares_user(const struct engine_box *box)
{
    return box->keep_own || box->ids.size == 1;
}

/* Sets the box to empty; releasing it is a no-op. */
void           box_clear(struct engine_box *ret);

/* Refuses, with the fix, a limit that this host cannot hold. */
MUST_CHECK int box_check_limits(const struct box_host *host, const struct limits *limits, struct err *e);

/* With start, the first payload has its command from birth (box->first is then started). freezer: the box can be frozen
 * later. On failure nothing is left. */
MUST_CHECK int box_create(struct box_host *host, const struct plan *plan, const struct start *start, bool freezer,
                          struct engine_box *ret, struct err *e);

/* Without start: is the box complete? 1: yes; 0: not yet (never with block); -errno with the reason. Call it again when
 * box->link or box->first.link is readable; before that, in a family, box->birth or box->midwife.pidfd. */
MUST_CHECK int box_ready(struct engine_box *box, bool block, struct err *e);

/* With start: call when box->link is readable. -errno: the making of the box has failed, e says where. */
MUST_CHECK int box_check_making(struct engine_box *box, struct err *e);

/* Puts a command into a ready box. */
MUST_CHECK int box_start_payload(struct engine_box *box, const struct start *start, struct payload *ret, struct err *e);

/* Call when payload->link is readable. 1: the command runs; 0: not yet; -errno: it never ran, e says why (STEP_EXEC: as
 * a shell says 126, 127). */
MUST_CHECK int payload_started(struct payload *payload, struct err *e);
MUST_CHECK int payload_reap(struct payload *payload, struct process_end *ret);      /* like process_reap */
void           payload_done(struct payload *payload);

/* 1: all of the box stands still; 0: not yet after so long, call it again or thaw it. */
MUST_CHECK int box_freeze(struct engine_box *box, uint64_t wait_us, struct err *e);
MUST_CHECK int box_thaw(struct engine_box *box, struct err *e);
MUST_CHECK int box_update_limits(struct box_host *host, struct engine_box *box, const struct limits *limits,
                                 struct err *e);
void           box_usage_read(const struct engine_box *box, struct box_usage *ret);
/* What the end of a payload is judged and billed by: peaks, refusals and the disk. */
void           box_peaks_read(const struct engine_box *box, struct box_usage *ret);
/* What this host can do, as reports and fronts are told. */
struct walls_host box_host_walls(const struct box_host *host);
/* Classifies how a payload ended, given why it was ended (OUTCOME_NONE: it was not) and what the box has met. */
enum outcome   box_outcome(const struct process_end *end, enum outcome cause, const struct box_usage *usage);

/* Starts a helper of ours in the box's user and mount namespaces and in its cgroup, but not in its pid namespace: under
 * the box's user, sealed like a payload, with `socket` as its only descriptor. It runs `serve` and ends when that
 * returns. It does not die with the box's init. */
MUST_CHECK int box_help(struct engine_box *box, int socket, void (*serve)(int socket), struct payload *ret,
                        struct err *e);

/* A socket in the box's network namespace. Returns its fd. */
MUST_CHECK int box_socket(const struct engine_box *box, int family, int type, struct err *e);

/* Makes box->inlet: a listener on this port of the box's 127.0.0.1. 0 also if it is there already. */
MUST_CHECK int box_open_inlet(struct engine_box *box, uint16_t port, struct err *e);

/* Ends everything in the box. Payloads that the caller still holds, the one that waits for a command and an abandoned
 * one must be reaped by it (before or after): init does not end before them. If it is being born: call it off. */
void           box_kill(struct engine_box *box);
/* After init was reaped: removes the cgroup, releases the ids, closes everything. */
void           box_release(struct box_host *host, struct engine_box *box);
/* Of a killed box, whose payloads have been reaped: waits for init's end, and reaps whoever else keeps it waiting. */
void           box_reap_init(struct engine_box *box, struct process_end *ret);
/* Kills, waits for init's end, releases. Payloads that the caller holds must have been reaped: init's end waits for
 * theirs. */
void           box_destroy(struct box_host *host, struct engine_box *box, struct process_end *ret_init);

#endif
