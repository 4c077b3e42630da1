/* Boxes as the API knows them. A box belongs to an identity, has a phase with a reason, an event log, limits and a life
 * time; its truth while it lives is in the keeper, and what must outlive the front is in the database. */
#ifndef CARREL_FRONT_BOXES_BOXES_H
#define CARREL_FRONT_BOXES_BOXES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "http/loop.h"
#include "proto/create.h"
#include "proto/names.h"

struct front;
struct box_call;
struct box_net;
struct exec;
struct kernel;

enum phase {
    PHASE_CREATING,
    PHASE_RUNNING,
    PHASE_PAUSED,
    PHASE_STOPPED,
    PHASE_FAILED,
    PHASE_DELETING,
    PHASE_DELETED,
    PHASE_STOPPING,
    PHASE_STARTING,
    PHASE_COUNT
};
extern const char *const phase_names[PHASE_COUNT];
enum { BOX_NO_SLOT = UINT32_MAX, BOXES_BUCKETS = 4096 };

/* What a caller may ask for. Sizes 0: the configured default. */
struct box_settings {
    struct limits       limits;
    struct limits       requests;       /* guaranteed: memory and cpus, at most the limits; counted against the host */
    uint32_t            profile;        /* enum profile */
    uint32_t            root;           /* 0: host; else number of a configured root */
    uint32_t            template;       /* 0: none; else config_template(): its layers are there, and kernels of it */
    bool                writable_root;
    bool                on_disk;        /* what it writes is kept in a store of the keeper's: the box can be stopped */
    uint32_t            uid, gid;
    char                hostname[65];
    uint32_t            ttl_s, idle_s;  /* 0: none */
    bool                pause_when_idle;    /* else it is deleted */
    json_t             *env;            /* owned: object of strings */
    json_t             *labels;         /* owned: object of strings */
    json_t             *devices;        /* owned: list of names; NULL: none */
    bool                net_said;       /* it asks for a network, or for none, itself */
    json_t             *net;            /* owned: what it may reach, as net_take() gives it; NULL: nothing */
    uint32_t            n_mounts;
    struct frame_mount  mount[KEEPER_MOUNTS];
    char               *mount_source[KEEPER_MOUNTS];    /* owned; as the caller wrote it, for show */
    int                 mount_fd[KEEPER_MOUNTS];        /* owned until it is raised; opened with the caller's rights */
};

struct box;
typedef void box_callback(struct box *box, const struct err *e, void *arg);     /* e NULL: done */
struct box_waiter {
    struct box_waiter *next;
    box_callback      *call;
    void              *arg;
};

/* Files that count what the box uses (box_meter.c); -1: not there. */
struct box_meter {
    bool asked, is_ns;
    int  cpu, peak;             /* owned */
};

struct box {
    struct box         *next, **back;   /* all boxes, by number */
    struct box         *next_id;        /* with the same hash of the id */
    struct box         *dead_next;      /* in the order of death */
    bool                buried;
    struct front       *front;
    char                id[16];
    uint64_t            number;
    char               *owner, *name, *key;     /* owned; name and key may be NULL */
    uid_t               owner_uid;
    gid_t               owner_gid;
    uint32_t            slot;           /* the keeper's, or BOX_NO_SLOT */
    uint64_t            token;          /* what the keeper calls it if it came from the pool; 0: by its number */
    uint32_t            family;         /* 0: a plain box; else the keeper's slot of its family, plus one */
    bool                is_held;        /* creating, and not asked for yet: see families_hold() */
    enum phase          phase;
    enum box_reason     reason;
    char                message[256];
    struct box_settings settings;
    int64_t             created_ms, changed_ms, ready_ms, expires_ms, used_ms;
    uint64_t            created_us;     /* on this front's clock; 0: by an earlier one */
    bool                seen;           /* told by the keeper during reconciliation */
    struct exec        *execs;          /* newest first */
    struct kernel      *kernels;        /* newest first */
    struct kernel_run  *leaving;        /* that wait for their bill alone */
    unsigned            running;        /* execs that have not ended */
    struct box_meter    meter;
    bool                has_network;    /* the keeper has made one; egress answers for it, whatever it may reach */
    struct box_net     *net;            /* owned: what it was refused and has moved; NULL: nothing (front/net) */
    bool                has_inlet;      /* and we serve it (inlets.h) */
    uint64_t            billed_us, unbilled_us;     /* processor time: at the last bill; nobody's */
    uint64_t            slots_used;     /* bit per payload slot */
    uint64_t            slots_foreign;  /* of them: what an earlier front started and this one does not know */
    struct loop_timer   ttl_timer, idle_timer;
    struct loop_task    raise_task;     /* of a box from the pool: it is there, its caller is yet to be told */
    struct box_waiter  *waiters;        /* for the end of CREATING, STARTING, STOPPING or DELETING */
};

/* Hears of every change (SSE). Embedded in its owner. */
struct box_watcher {
    struct box_watcher *next, **back;
    void (*on_event)(struct box_watcher *w, const struct box *box, uint64_t number, const char *type, json_t *body);
    const char         *owner;          /* whose boxes; NULL: all */
};

struct boxes {
    struct box         *first;
    struct box         *dead_first, *dead_last;
    unsigned            dead;
    struct loop_timer   sweep;
    struct box         *by_id[BOXES_BUCKETS];
    struct box         *by_slot[KEEPER_BOXES];
    unsigned            alive;
    uint64_t            slot_used[KEEPER_BOXES / 64];
    uint32_t            next_slot;      /* where the search for a free one begins */
    struct box_watcher *watchers;
    struct box_call    *calls;          /* of the keeper, in flight (box_ops.c) */
    struct limits       requested;      /* sum over living boxes */
    uint32_t            n_templates;    /* that the keeper knows */
    struct walls_host   walls;          /* what the keeper's host can do */
    bool                can_store;      /* the keeper has stores; else why_no_store says why not */
    struct err          why_no_store;
};

void           box_settings_init(struct box_settings *s);
void           box_settings_done(struct box_settings *s);

/* By id or by the owner's name for it, living or dead; NULL: none that this owner (NULL: anybody) may see. */
struct box    *boxes_find(struct front *front, const char *owner, const char *id_or_name);
struct box    *boxes_by_number(struct front *front, uint64_t number);      /* NULL if it is forgotten */

/* Admission, quota, name and key are checked; the box is stored and the keeper asked. settings' owned parts are taken
 * over, also on failure. With a key that was used before, *ret is the earlier box and *ret_existed true. call comes
 * when the box is ready or has failed. Error codes: EDQUOT (quota; e->what says which), ENOSPC (host full; says what is
 * free), EEXIST (name), EINVAL, ECONNREFUSED (no keeper). */
MUST_CHECK int boxes_create(struct front *front, const char *owner, uid_t uid, gid_t gid, const char *name,
                            const char *key, struct box_settings *settings, box_callback *call, void *arg,
                            struct box **ret, bool *ret_existed, struct err *e);

/* Of the host's memory and processors: what no living box was guaranteed. */
struct limits boxes_left(const struct front *front);

void           box_wait(struct box *b, box_callback *call, void *arg);     /* see b->waiters */
/* Each answers through call (never from inside); -errno at once if the phase does not allow it. */
MUST_CHECK int box_pause(struct box *b, bool pause, box_callback *call, void *arg, struct err *e);
MUST_CHECK int box_update(struct box *b, const struct limits *limits, json_t *labels, const uint32_t *ttl_s,
                          const uint32_t *idle_s, box_callback *call, void *arg, struct err *e);
/* net: as net_take() gives it, NULL for none; taken over. */
MUST_CHECK int box_update_net(struct box *b, json_t *net, box_callback *call, void *arg, struct err *e);
MUST_CHECK int box_delete(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e);
/* The processes end, the files stay; only of a box that is on_disk. */
MUST_CHECK int box_stop(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e);
/* again: only its mounts count, which the caller has opened as for boxes_create; borrowed. */
MUST_CHECK int box_start(struct box *b, const struct box_settings *again, box_callback *call, void *arg,
                         struct err *e);
MUST_CHECK int box_usage(struct box *b,
                         void (*call)(struct box *, const struct frame_usage *, const struct err *, void *), void *arg,
                         struct err *e);
/* Cached variant: opens the cgroup files once, then reads them without the keeper. False: ask box_usage. */
void           box_meter_ask(struct box *b);
bool           box_meter_read(const struct box *b, uint64_t *ret_cpu_us, uint64_t *ret_peak_bytes);
/* Forgets all calls with this arg: its owner is going away. */
void           boxes_cancel(struct front *front, void *arg);
/* Something happened in the box: the idle clock starts again. */
void           box_touch(struct box *b);

/* New references: limits by their names, those that have all flags (LIMIT_REQUEST); the box as the API shows it. */
json_t        *limits_json(const struct limits *limits, unsigned flags);
json_t        *box_json(const struct box *b);
/* Adds to the event log and tells the watchers. body is taken over; may be NULL. */
void           box_event(struct box *b, const char *type, json_t *body);

void           boxes_watch(struct front *front, struct box_watcher *w);
void           boxes_unwatch(struct box_watcher *w);

/* For the front's main part. */
void           boxes_init(struct front *front);
MUST_CHECK int boxes_load(struct front *front, struct err *e);
void           boxes_on_keeper_event(struct front *front, const struct event *event, int *fds, size_t n_fds);
void           boxes_on_synced(struct front *front);
void           boxes_on_lost(struct front *front);
/* Forgets boxes that died before this time, and the logs of their execs. */
void           boxes_prune(struct front *front, int64_t before_ms);
void           boxes_free(struct front *front);

#endif
