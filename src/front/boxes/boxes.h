/* Boxes as in the API. A box belongs to an identity, has a phase with a reason, an event log, limits and a life time.
 * While it lives, the keeper is authoritative; the database holds what must outlive the front. */
#ifndef CARREL_FRONT_BOXES_BOXES_H
#define CARREL_FRONT_BOXES_BOXES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "front/boxes/box_mounts.h"
#include "front/boxes/box_watch.h"
#include "front/keys/keys.h"
#include "http/loop.h"
#include "proto/events.h"
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

/* A caller's settings. Sizes 0: the configured default. */
struct box_settings {
    struct limits       limits;
    struct limits       requests;       /* guaranteed: memory and cpus, at most the limits; counted against the host */
    uint32_t            profile;        /* enum profile */
    struct box_mounts   mounts;         /* what it is made of */
    uint32_t            uid, gid;
    char                hostname[65];
    uint32_t            ttl_s, idle_s;  /* 0: none */
    bool                pause_when_idle;    /* else it is deleted */
    json_t             *env;            /* owned: object of strings */
    json_t             *secrets;        /* owned: which and where (secret_uses.h); NULL: none */
    json_t             *labels;         /* owned: object of strings */
    bool                net_said, volumes_said, packages_said, keys_said;   /* the caller set them, or none */
    json_t             *net;            /* owned: its rules, from net_take(); NULL: none; see net_allows() */
    json_t             *keys;           /* owned: from keys_take(), each of which allows its host; NULL: none */
};

struct box;
typedef void box_callback(struct box *box, const struct err *e, void *arg);     /* e NULL: success */
struct box_waiter {
    struct box_waiter *next;
    box_callback      *call;
    void              *arg;
};

/* Files that count the box's usage (box_meter.c); -1: missing. */
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
    uint64_t            token;          /* the keeper's id of it if it came from the pool; 0: its number */
    uint32_t            family;         /* 0: a plain box; else the keeper's slot of its family, plus one */
    bool                is_held;        /* creating, not sent to the keeper: see families_hold() */
    bool                awaits_packages, fetched_again; /* not sent to the keeper: its layer is made; made again */
    struct box_keys     keys;
    enum phase          phase;
    enum box_reason     reason;
    char                message[256];
    struct box_settings settings;
    int64_t             created_ms, changed_ms, ready_ms, expires_ms, used_ms;
    uint64_t            created_us;     /* on this front's clock; 0: created by an earlier front */
    bool                seen;           /* reported by the keeper during reconciliation */
    struct exec        *execs;          /* newest first */
    struct kernel      *kernels;        /* newest first */
    struct kernel_run  *leaving;        /* only waiting for their bill */
    unsigned            running;        /* execs that have not ended */
    struct box_meter    meter;
    bool                has_network;    /* the keeper has made one; egress enforces its rules */
    struct box_net     *net;            /* owned: its refusals and traffic; NULL: none (front/net) */
    bool                has_inlet;      /* and we serve it (inlets.h) */
    uint64_t            billed_us, unbilled_us;     /* processor time: at the last bill; spent before the first cell */
    uint64_t            slots_used;     /* bit per payload slot */
    uint64_t            slots_foreign;  /* of these: payloads of an earlier front that this one does not know */
    struct loop_timer   ttl_timer, idle_timer;
    struct loop_task    raise_task;     /* of a box from the pool: it exists, its caller is not called yet */
    struct box_waiter  *waiters;        /* for the end of CREATING, STARTING, STOPPING or DELETING */
};

struct boxes {
    struct pool        *pool;           /* owned */
    struct families    *families;       /* owned */
    struct box_sync    *sync;           /* owned (box_sync.c) */
    struct box         *first;
    struct box         *dead_first, *dead_last;
    unsigned            dead;
    struct loop_timer   sweep;
    struct box         *by_id[BOXES_BUCKETS];
    struct box         *by_slot[KEEPER_BOXES];
    unsigned            alive, most;    /* most: that the keeper can hold */
    uint64_t            slot_used[KEEPER_BOXES / 64];
    uint32_t            next_slot;      /* where the search for a free one begins */
    struct box_watcher *watchers;
    struct box_call    *calls;          /* of the keeper, in flight (box_ops.c) */
    struct limits       requested;      /* sum over living boxes */
    struct template_layer *template_layers; /* owned: of each template (box_templates.c) */
    uint32_t            n_templates;    /* that the keeper knows */
    struct walls_host   walls;          /* the abilities of the keeper's host */
    bool                can_store;      /* the keeper has stores; else why_no_store has the reason */
    struct err          why_no_store;   enum volumes_held volumes;
};

/* Whether it reaches anything outside. */
bool           box_settings_have_net(const struct box_settings *s);
void           box_settings_init(struct box_settings *s);
void           box_settings_done(struct box_settings *s);
/* Without the descriptors of mounts. -ENOMEM. */
MUST_CHECK int box_settings_copy(const struct box_settings *s, struct box_settings *ret);

/* By id or by the owner's name for it, living or dead; NULL: none that this owner (NULL: any) may see. */
struct box    *boxes_find(struct front *front, const char *owner, const char *id_or_name);
/* config_template(): whose layers it has and whose kernels can run in it. 0: it names none. */
uint32_t       box_template(const struct box *b);
struct box    *boxes_by_number(struct front *front, uint64_t number);      /* NULL if it was forgotten */

/* Checks admission, quota, name and key; stores the box and asks the keeper. Takes over settings' owned parts, also on
 * failure. With a key that was used before, *ret is the earlier box and *ret_existed true. Calls back when the box is
 * ready or has failed. Errors: EDQUOT (quota; e->what says which), ENOSPC (host full; says what is free), EEXIST
 * (name), EINVAL, ECONNREFUSED (no keeper). */
MUST_CHECK int boxes_create(struct front *front, const char *owner, uid_t uid, gid_t gid, const char *name,
                            const char *key, struct box_settings *settings, box_callback *call, void *arg,
                            struct box **ret, bool *ret_existed, struct err *e);

/* The host's memory and processors that are not guaranteed to a living box. */
struct limits boxes_left(const struct front *front);

void           box_wait(struct box *b, box_callback *call, void *arg);     /* see b->waiters */
/* Each answers through call (never from inside); -errno at once if the phase does not allow it. */
MUST_CHECK int box_pause(struct box *b, bool pause, box_callback *call, void *arg, struct err *e);
MUST_CHECK int box_update(struct box *b, const struct limits *limits, json_t *labels, const uint32_t *ttl_s,
                          const uint32_t *idle_s, box_callback *call, void *arg, struct err *e);
/* net: from net_take(), NULL for none; taken over. */
MUST_CHECK int box_update_net(struct box *b, json_t *net, box_callback *call, void *arg, struct err *e);
MUST_CHECK int box_delete(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e);
/* Ends the processes, keeps the files; only for a box on disk. */
MUST_CHECK int box_stop(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e);
/* again: its mounts, opened by the caller as for boxes_create; takes their descriptors on success. */
MUST_CHECK int box_start(struct box *b, struct box_mounts *again, box_callback *call, void *arg, struct err *e);
MUST_CHECK int box_usage(struct box *b,
                         void (*call)(struct box *, const struct frame_usage *, const struct err *, void *), void *arg,
                         struct err *e);
/* Cached variant: opens the cgroup files once, then reads them without the keeper. False: ask box_usage. */
void           box_meter_ask(struct box *b);
bool           box_meter_read(const struct box *b, uint64_t *ret_cpu_us, uint64_t *ret_peak_bytes);
/* Cancels all calls with this arg. */
void           boxes_cancel(struct front *front, void *arg);
/* The box was used: restarts the idle clock. */
void           box_touch(struct box *b);

/* New references: limits by their names, those with all flags (LIMIT_REQUEST); the box as in the API. */
json_t        *limits_json(const struct limits *limits, unsigned flags);
json_t        *box_json(const struct box *b);
/* Called by the front's main part. */
void           boxes_init(struct front *front);
MUST_CHECK int boxes_load(struct front *front, struct err *e);
void           boxes_on_keeper_event(struct front *front, const union event *event, int *fds, size_t n_fds);
void           boxes_on_synced(struct front *front);
void           boxes_on_lost(struct front *front);
/* Forgets boxes that died before this time, and the logs of their execs. */
void           boxes_prune(struct front *front, int64_t before_ms);
void           boxes_free(struct front *front);

#endif
