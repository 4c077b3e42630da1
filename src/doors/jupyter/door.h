/* What the parts of the Jupyter door share.
 *
 *   call     a request that was let in; lives in the request's arena
 *   making   a kernel whose box is not there yet
 *   desk     what the door knows of a kernel beyond the front: its wires, what waits for an answer, how often it died
 *   wire     a WebSocket to a kernel
 *   parcel   a message as a client sent it, taken apart */
#ifndef CARREL_DOORS_JUPYTER_DOOR_H
#define CARREL_DOORS_JUPYTER_DOOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/identity/auth.h"
#include "front/kernels/kernels.h"
#include "http/router.h"
#include "http/server.h"

enum {
    SESSION_SIZE = 96,          /* of a client's session, as in struct kernel_message */
    DESK_PENDING = 64,          /* executions whose end is kept in mind */
    DESK_SESSIONS = 32,         /* sessions of which it is known how far they have read */
    BODY_MOST = 1 << 20,
    HEADER_MOST = 16384,        /* of a message's header */
};

#define JUPYTER_LABEL "jupyter" /* of a kernel's box: the name of its kernelspec */

struct jupyter {
    struct front       *front;
    struct http_router *router;     /* owned */
    struct making      *makings;
    struct session     *sessions;
    struct desk        *desks;
    struct loop_timer   cull;
    struct box_watcher  watcher;    /* of boxes that end */
    struct loop_task    sweep;
};

struct call {
    struct front            *front;
    struct http_request     *r;
    const struct http_match *match;
    struct identity          who;
    struct keeper_wait       wait;
    void (*on_body)(struct call *c, json_t *root);
    /* The answer comes later; may be NULL. The client is gone. */
    void (*on_gone)(struct call *c);
    void                    *work;
    void                    *extra;     /* in the arena */
    struct call             *next;      /* of those who wait for the same kernel */
};

/* --- reply.c: each answers the request, once. Errors are {"reason","message"}. --- */
void    answer_json(struct call *c, int status, json_t *body);      /* body is taken over */
void    answer_none(struct call *c);                                /* 204 */
void    answer_fail(struct call *c, int status, const char *format, ...) PRINTF_LIKE(3, 4);
void    answer_err(struct call *c, const struct err *e);
void    answer_unknown(struct call *c, const char *id);             /* "Kernel does not exist" */
/* {"id","name","last_activity","execution_state","connections"} */
json_t *kernel_model(const struct kernel *k);
/* "2026-01-31T12:00:00.123000Z" */
void    jupyter_time(int64_t ms, char text[40]);
void    jupyter_uuid(char text[37]);

/* --- jupyter.c --- */
/* The JSON object of the request's body ({} if there is none) to handler; 400 or 413 if it cannot be had. */
void           call_body(struct call *c, void (*handler)(struct call *c, json_t *root));
struct kernel *call_kernel(struct call *c);     /* of {id}; NULL: answered with 404 */
/* Also one that another door has started: whoever may use it may listen to it. */
struct kernel *call_any_kernel(struct call *c);
/* The kernel with this id that this caller may see and that was made through this door. */
struct kernel *call_find(struct call *c, const char *id);
bool           kernel_is_ours(const struct kernel *k);

/* --- specs.c --- */
/* Number of the template; 0: there is none. name NULL: the default. */
uint32_t    spec_find(const struct config *config, const char *name);
/* Its name as a kernelspec. */
const char *spec_name(const struct config *config, uint32_t number);
/* All names, for a message. */
void        spec_names(const struct config *config, char *text, size_t size);

/* --- env.c: what a request for a kernel asks for --- */
struct wish {
    char        id[132];
    bool        is_chosen;      /* the id, by the client */
    bool        may_exist;      /* an existing kernel with this id is the answer */
    uint32_t    spec;
    uint32_t    launch_ms;
    char      **env;            /* owned: NAME=VALUE, NULL-terminated */
    json_t     *box;            /* owned: the body of a native create */
};
MUST_CHECK int wish_read(const struct front *front, json_t *root, struct wish *ret, struct err *e);
void           wish_done(struct wish *w);
bool           jupyter_id_is_valid(const char *id);

/* --- kernels.c --- */
/* A kernel for this caller: done(), now or later, unless the caller goes away first; then, if the kernel's id is known
 * to nobody, it is not made. k NULL: e says why not. */
typedef void made_callback(struct call *c, struct kernel *k, const struct err *e, bool existed);
void kernel_make(struct call *c, struct wish *w, made_callback *done);
/* Of its desk: it runs, or it never will. */
void making_started(struct making *m, struct kernel *k);
void making_failed(struct making *m, const char *why);
/* Ends the kernel, and its box if that was made for it; then_none: the call is answered with 204 when they are gone. */
void kernel_remove(struct kernel *k, const char *reason, struct call *then_none);

/* --- desk.c --- */
struct pending {
    char  id[SESSION_SIZE], session[SESSION_SIZE];
    char *header;               /* owned: JSON, the parent of what is answered */
};

struct desk {
    struct desk         *next, **back;
    struct jupyter      *jupyter;
    /* Hears everything, slows nothing down. Its member kernel is the desk's; NULL: gone, and the desk goes, too. */
    struct kernel_client client;
    uint64_t             last;          /* number of the last message */
    struct wire         *wires;
    struct making       *making;        /* waits for the kernel to run or to fail, at first; */
    struct call         *waiters;       /* these, when it starts again */
    struct loop_timer    launch;        /* it must run by then */
    struct loop_task     task;          /* starts it again, or lets the desk go */
    uint32_t             launch_ms;
    bool                 has_run, is_reviving;
    unsigned             deaths;        /* one soon after the other */
    int64_t              died_ms;
    unsigned             n_pending;
    struct pending       pending[DESK_PENDING];
    struct {
        char     id[SESSION_SIZE];
        uint64_t number;                /* of the last message it was sent */
        int64_t  left_ms;
    } session[DESK_SESSIONS];
};
struct desk *desk_of(struct kernel *k);                 /* makes it; NULL: out of memory */
void         desk_await(struct desk *d, struct making *m, uint32_t launch_ms);
void         desk_expect(struct desk *d, const char *id, const char *session, const char *header);
/* Ends every execution that waits, as an error of this name. */
void         desk_fail_pending(struct desk *d, const char *name, const char *why);
void         desk_fail(struct desk *d, const char *id, const char *session, const char *header, const char *name,
                       const char *why);
void         desk_tell_state(struct desk *d, const char *state);
void         desk_wait(struct desk *d, struct call *c);  /* answered with the model once it runs, 500 if it does not */
void         desk_note(struct desk *d, const char *session, uint64_t number);
uint64_t     desk_recall(struct desk *d, const char *session);      /* UINT64_MAX: not known */
void         desk_close(struct desk *d, const char *why);           /* the kernel is going */
void         desks_open(struct jupyter *j);
void         desks_free(struct jupyter *j);

/* --- wire.c --- */
void wire_open(struct call *c);
/* To one wire; m stays the caller's. */
void wire_send(struct wire *w, struct kernel_message *m);
/* To all wires of the desk that are to have it. */
void wires_send(struct desk *d, struct kernel_message *m);
/* The kernel is gone. */
void wires_close(struct desk *d, const char *why);

/* --- parcel.c --- */
struct parcel {
    enum kernel_channel channel;
    struct iovec        part[KERNEL_PARTS];     /* into what came, or into header_text */
    struct iovec       *buffer;                 /* owned */
    unsigned            n_buffers;
    json_t             *header;                 /* owned */
    char               *header_text;            /* owned or NULL: the header with what was missing */
    const char         *type, *id, *session;    /* into header */
};
/* Takes a message apart. data must outlive it. 0, -EINVAL (e says what is wrong), -ENOMEM. */
MUST_CHECK int parcel_read_v1(struct parcel *p, const char *data, size_t size, struct err *e);
MUST_CHECK int parcel_read_text(struct parcel *p, const char *data, size_t size, struct err *e);
MUST_CHECK int parcel_read_binary(struct parcel *p, const char *data, size_t size, struct err *e);
/* Checks the header and puts in what clients leave out: version, date, session, user name. */
MUST_CHECK int parcel_complete(struct parcel *p, const char *session, const char *user, struct err *e);
void           parcel_done(struct parcel *p);

/* A message of our own; each part is JSON. NULL: out of memory. */
struct kernel_message *message_make(enum kernel_channel channel, const char *type, const char *parent, json_t *content);
/* The old protocol's form of a message: text, or binary if it has buffers. NULL: out of memory. */
char *message_legacy(const struct kernel_message *m, size_t *ret_size, bool *ret_is_text);

/* --- the handlers --- */
typedef void call_handler(struct call *c);
call_handler call_api, call_me, call_status, call_specs, call_spec, call_resource;
call_handler call_kernel_list, call_kernel_create, call_kernel_get, call_kernel_delete, call_kernel_interrupt,
    call_kernel_restart;
call_handler call_session_list, call_session_create, call_session_get, call_session_update, call_session_delete;
void         sessions_forget(struct jupyter *j, const char *owner, const char *kernel);
MUST_CHECK int sessions_load(struct jupyter *j, struct err *e);
void           sessions_free(struct jupyter *j);

#endif
