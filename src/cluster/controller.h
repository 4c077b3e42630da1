/* The controller: watches, the queue of objects, the writes under way. One thread, one loop. */
#ifndef CARREL_CLUSTER_CONTROLLER_H
#define CARREL_CLUSTER_CONTROLLER_H

#include "cluster/cache.h"
#include "cluster/metrics.h"
#include "cluster/sandbox.h"
#include "kube/lease.h"
#include "kube/watch.h"

struct controller;
struct work;

/* The handler for the objects of one kind. run() decides and starts writes, or says that there is nothing to do. */
struct reconciler {
    enum kind   kind;
    const char *noun;           /* for the log */
    void      (*run)(struct work *w);
};

/* Failed writes are recorded by group, so that the others can continue. */
enum group { GROUP_SELF, GROUP_CLAIM, GROUP_POD, GROUP_SERVICE, GROUP_BOX, GROUPS };

/* What a boxclaim's write has begun, for the metrics and events at its end. */
enum begun { BEGUN_NOTHING, BEGUN_ADOPTION, BEGUN_CREATION };

/* One object that must be reconciled. Exists from the first reason until there is nothing left to do. */
struct work {
    struct controller       *controller;
    const struct reconciler *by;
    struct work  *next;                 /* in the bucket */
    struct work  *next_ready;
    struct write *writes;               /* under way */
    struct unsure *unsure;              /* creations to check before the next run */
    const char   *namespace, *name;
    uint32_t      hash;
    struct loop_timer timer;
    bool          is_ready, is_busy, is_dirty;      /* dirty: something changed while it was busy */
    bool          is_backing_off;
    uint64_t      status_due_ms;        /* when a non-urgent change of the status is written; 0: none */
    uint64_t      status_hash;          /* of the last one that was written */
    unsigned      failures, rounds;
    uint32_t      retry_ms;             /* the minimum, demanded by the server */
    char         *reserved;             /* the Sandbox that a boxclaim is about to adopt; NULL: none */
    enum begun    begun;
    bool          is_transient;         /* a write failed for a reason unrelated to the object */
    char         *error[GROUPS];        /* of this pass, as sentences */
};

enum verb { VERB_GET, VERB_CREATE, VERB_PATCH, VERB_STATUS, VERB_DELETE, VERB_REPLACE, VERBS };
enum deletion { DELETE_PLAINLY, DELETE_IF_UNCHANGED, DELETE_FOREGROUND };

struct controller {
    struct loop        *loop;
    struct kube_client *client;
    struct cache        cache;
    struct policy       policy;
    struct kube_watch   watch[KINDS];
    struct kube_lease   lease;
    bool                elects, leads, is_stopping, with_kernels, with_extensions;
    bool                is_unanswered;      /* the log already says that the API server does not answer */
    bool                is_trouble_told[KINDS];     /* the log already says that this kind cannot be watched */
    unsigned            max_busy, n_busy;
    struct work       **works;          /* by kind, namespace and name */
    size_t              works_size, n_works;
    struct work        *ready, **ready_end;
    struct loop_task    pump;
    struct metrics      metrics;
    const char         *identity;
    uint64_t            claim_at_ms;    /* when a boxclaim's last write began */
    uint64_t            event_tokens_at_ms;
    unsigned            event_tokens, n_events_out;
};

extern const struct reconciler sandbox_reconciler, kernel_reconciler, template_reconciler, pool_reconciler,
    boxclaim_reconciler;

MUST_CHECK int controller_init(struct controller *c);
void controller_start(struct controller *c);        /* starts watching */
void controller_lead(struct controller *c);         /* may write from now on */
void controller_done(struct controller *c);
bool controller_is_synced(const struct controller *c);
/* Adds a line with the reason for each kind that cannot be watched now; nothing if all required kinds can be. */
void controller_write_trouble(const struct controller *c, struct buf *out);

/* work.c: for reconcilers. */
/* is_soft: only the object's status has changed, perhaps by ourselves; such a change does not end a back-off. */
void work_wake(struct controller *c, enum kind kind, const char *namespace, const char *name, bool is_soft);
/* Starts a write (or GET). path and body are taken over; a failure of the body counts as the write's. object: the
 * target, NULL if it is created. what: for the log and for error texts, static. */
void work_write(struct work *w, enum verb verb, enum group group, enum kind kind, const char *name,
                const struct object *object, char *path, struct buf *body, const char *what);
/* Writes the status, unless the same was written last: a server that stores it differently must not cause endless
 * writes. */
void work_status(struct work *w, enum kind kind, const struct object *o, struct buf *body);
/* There is nothing to do until the next change, or until wake_ms from now (0: no such time). */
void work_rest(struct work *w, uint64_t wake_ms);
/* The work failed for now; retries with growing delays. */
void work_fail(struct work *w);
/* A delete names the uid, so that it never hits a new object of that name. */
void work_delete(struct work *w, enum group group, const struct object *o, enum deletion how, const char *what);
char *work_path(enum kind kind, const char *namespace, const char *name, const char *subresource);

/* event.c: best effort, bounded. type: "Normal" or "Warning". */
void event_send(struct work *w, const struct object *about, const char *type, const char *reason, const char *message);

/* log.c: one line each, to standard error. */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
void log_set(enum log_level most);
void log_line(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
