/* Services: functions of a live interpreter in a box that others may call. A service is a worker process (an exec whose
 * standard input is a link, like a kernel's) that loaded one interface file once; it is untrusted, and its messages are
 * checked. Its owner and holders of grants (grants.h) may call it.
 *
 *   LOADING -> READY -> LOADING (the worker died and is replaced, or a restart was requested)
 *      +--------+--> DEAD -> LOADING (restart), or forgotten
 *
 * Synchronous functions run one at a time; async ones at once. Callers take turns (service_turns.c); calls of one
 * caller run in their order. Waiting calls are queued here, with a bound, and dropped if their caller goes away. No
 * door's header is needed. */
#ifndef CARREL_FRONT_SERVICES_SERVICES_H
#define CARREL_FRONT_SERVICES_SERVICES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/jsonscan.h"
#include "front/boxes/boxes.h"
#include "proto/names.h"

struct box;
struct box_part;
struct exec;
struct exec_owner;
struct front;

enum {
    SERVICES_PER_BOX = 16,
    SERVICES_PER_OWNER = 256,
    SERVICE_CALLS_MOST = 4096,      /* of one service, running and waiting */
    SERVICE_CALL_BYTES = 48 << 20,  /* of a call with its arguments */
    SERVICE_CODE_MOST = 4 << 20,
    SERVICE_LOG_MOST = 256,
    SERVICE_NAME_MOST = 63,
};

enum service_state { SERVICE_LOADING, SERVICE_READY, SERVICE_DEAD };
extern const char *const service_state_names[];

struct service;
struct service_call;

/* A watcher of the loading. Embedded in its owner; may leave in a callback. */
struct service_watcher {
    struct service_watcher *next, **back;       /* back NULL: it watches nothing (any more) */
    /* Printed by module-level code; text is a JSON string with its quotes. */
    void (*on_print)(struct service_watcher *w, const char *stream, struct jsonslice text);
    void (*on_state)(struct service_watcher *w, struct service *s);
};

struct service {
    struct service     *next, **back;       /* all of the front, newest first */
    struct front       *front;
    struct box         *box;                /* outlives it */
    char                id[16];
    char               *name, *owner;       /* owned; the name is unique for the owner */
    bool                own_box;            /* the box was made for it, and is deleted with it */
    bool                has_secrets;        /* they are not kept over a restart of the front */
    json_t             *spec;               /* owned: code, filename, path, env, models, python */
    json_t             *secrets;            /* owned, or NULL: object of strings */
    uint64_t            load_timeout_ms;
    struct exec        *exec;               /* the worker's process; NULL between two lives */
    enum service_state  state;
    unsigned            restarts;
    enum outcome        outcome;            /* of the last death */
    char                reason[480];        /* in words; "" */
    bool                interpreter_failed; /* it died of that, before the interface was loaded */
    json_t             *error;              /* owned: why it could not be loaded; NULL */
    json_t             *functions;          /* owned: array of objects, as in the API */
    int64_t             created_ms;
    uint64_t            n_called;
    unsigned            n_calls;            /* that have not ended */
    struct service_private *private;
};

/* The input of a new service. Everything is borrowed; the caller has checked the objects. */
struct service_options {
    const char *name;
    json_t     *spec, *secrets;     /* secrets may be NULL */
    uint64_t    load_timeout_ms;    /* 0: the default */
    bool        own_box;
};

/* It exists at once, LOADING; watchers are notified of the progress. The box must run. */
MUST_CHECK int  service_create(struct box *box, const struct service_options *options, struct service **ret,
                               struct err *e);
/* By id or name; owner NULL: any owner's. For stored references use service_by_id(). */
struct service *service_find(struct front *front, const char *owner, const char *name);
struct service *service_by_id(struct front *front, const char *id);
/* Whether it is dead because its box ended: another may take its name. */
bool            service_is_lost(const struct service *s);
MUST_CHECK int  service_restart(struct service *s, struct err *e);
/* Ends the worker, notifies callers and watchers, forgets it, and deletes its own box. */
void            service_delete(struct service *s, const char *reason);
void            service_watch(struct service *s, struct service_watcher *w);
void            service_unwatch(struct service_watcher *w);
/* The API's JSON; new references. functions: only these (an array of names), or NULL for all. */
json_t         *service_json(const struct service *s);
json_t         *service_functions(const struct service *s, const json_t *names);
/* Borrowed; NULL: no such function. */
const json_t   *service_function(const struct service *s, const char *name);
json_t         *service_log(const struct service *s);

/* ---- calls ---- */

struct call_options {
    const char      *function, *who;        /* who: takes its turn as this holder; also for the log */
    struct jsonslice args, kwargs;          /* an array and an object, valid JSON; data NULL: none */
    uint64_t         timeout_ms;            /* 0: none */
    void            *owner;
    /* Either may be NULL. text is a JSON string with its quotes. */
    void (*on_print)(struct service_call *c, const char *stream, struct jsonslice text);
    /* Once, from the loop; the call is gone afterwards. Not after service_call_abandon(). */
    void (*on_end)(struct service_call *c);
};

struct service_call {
    struct service_call *next;
    struct service      *service;
    struct call_options  options;           /* function, who, args and kwargs are NULL after the start */
    unsigned long long   id;
    enum call_outcome    outcome;           /* valid in on_end, as the rest */
    struct jsonslice     result;
    enum outcome         died;
    const char          *reason;
    uint64_t             wall_us;
    json_t              *refused;           /* owned: net_box_refused() since the worker got it; NULL: nothing */
    struct call_private *private;
};

/* Queues it. -ENOENT: no such function; -EAGAIN: the caller has too many already; -EDQUOT: too much memory; -EPIPE: the
 * service is dead; -EMSGSIZE: the arguments are too large. */
MUST_CHECK int service_call_start(struct service *s, const struct call_options *options, struct service_call **ret,
                                  struct err *e);
/* The caller has gone: the function is interrupted. */
void           service_call_abandon(struct service_call *c);

/* ---- called by the front's other parts ---- */
MUST_CHECK int services_load(struct front *front, struct err *e);
void           services_free(struct front *front);
extern const struct box_part   services_part;
extern const struct exec_owner services_exec_owner;

#endif
