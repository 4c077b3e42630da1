/* Shared by the parts of the Jupyter door.
 *
 *   gateway_request  an admitted request; lives in the request's arena
 *   start_request    the body of POST /api/kernels: kernelspec, id, environment, limits
 *   pending_kernel   a kernel that does not run yet, or whose box does not exist yet
 *   kernel_record    the door's own state of a kernel: its connections, pending answers, how often it died
 *   connection       a WebSocket to a kernel's /channels
 *   client_message   a parsed message of a client */
#ifndef CARREL_DOORS_JUPYTER_DOOR_H
#define CARREL_DOORS_JUPYTER_DOOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "doors/jupyter/config.h"
#include "doors/jupyter/session_table.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/request/admitted.h"
#include "front/kernels/kernels.h"
#include "http/router.h"
#include "http/server.h"

enum {
    SESSION_SIZE = 96,          /* of a client's session, as in struct kernel_message */
    RECORD_PENDING = 64,        /* unfinished executions that are tracked */
    RECORD_SESSIONS = 32,       /* sessions whose read position is remembered */
    BODY_MOST = 1 << 20,
    HEADER_MOST = 16384,        /* of a message's header */
};

#define JUPYTER_LABEL "jupyter" /* of a kernel's box: the name of its kernelspec */

struct jupyter {
    struct front                *front;
    const struct jupyter_config *config;
    struct db_tables            *tables;
    struct pending_kernel       *pending_kernels;
    struct gateway_session      *sessions;
    struct kernel_record        *records;
    struct loop_timer            cull;
    struct box_watcher           watcher;   /* to see boxes end */
    struct loop_task             sweep;
};

struct gateway_request {
    struct jupyter          *jupyter;
    EMBED_ADMITTED;
    void (*on_body)(struct gateway_request *c, json_t *root);
    /* The client is gone before the answer. May be NULL. */
    void (*on_gone)(struct gateway_request *c);
    void                    *work;
    void                    *extra;     /* in the arena */
    struct gateway_request  *next;      /* the next request that waits for the same kernel */
};

/* --- reply.c: each answers the request, once. Errors are {"reason","message"}. --- */
void    answer_json(struct gateway_request *c, int status, json_t *body);      /* body is taken over */
void    answer_none(struct gateway_request *c);                                /* 204 */
void    answer_fail(struct gateway_request *c, int status, const char *format, ...) PRINTF_LIKE(3, 4);
void    answer_err(struct gateway_request *c, const struct err *e);
void    answer_unknown(struct gateway_request *c, const char *id);             /* "Kernel does not exist" */
/* {"id","name","last_activity","execution_state","connections"} */
json_t *kernel_model(const struct kernel *k);
/* "2026-01-31T12:00:00.123000Z" */
void    jupyter_time(int64_t ms, char text[40]);
void    jupyter_uuid(char text[37]);

/* --- jupyter.c --- */
/* Calls handler with the JSON object of the request's body ({} if there is none); answers 400 or 413 if there is no
 * valid one. */
void           gateway_body(struct gateway_request *c, void (*handler)(struct gateway_request *c, json_t *root));
struct kernel *gateway_kernel(struct gateway_request *c);       /* of {id}; NULL: answered with 404 */
/* Also a kernel that another door has started: a caller who may use it may listen to it. */
struct kernel *gateway_any_kernel(struct gateway_request *c);
/* The kernel with this id, if this caller may see it and it was made through this door. */
struct kernel *gateway_find_kernel(struct gateway_request *c, const char *id);
bool           kernel_is_ours(const struct kernel *k);

/* --- specs.c --- */
/* Number of the template; 0: there is none. name NULL: the default. */
uint32_t    kernelspec_find(const struct config *config, const char *name);
/* Its name as a kernelspec. */
const char *spec_name(const struct config *config, uint32_t number);
/* All names, for a message. */
void        spec_names(const struct config *config, char *text, size_t size);

/* --- start_request.c --- */
struct start_request {
    char        id[132];
    bool        is_chosen;      /* the id, by the client */
    bool        may_exist;      /* an existing kernel with this id is the answer */
    uint32_t    spec;
    uint32_t    launch_ms;
    char      **env;            /* owned: NAME=VALUE, NULL-terminated */
    json_t     *box;            /* owned: the wanted box (front/boxes/box_request.h) */
};
MUST_CHECK int start_request_read(const struct jupyter *j, json_t *root, struct start_request *ret, struct err *e);
void           start_request_done(struct start_request *q);
bool           jupyter_id_is_valid(const char *id);

/* --- kernels.c --- */
/* Gets a kernel for this caller and calls done(), now or later. If the caller goes away first, done() is not called,
 * and a kernel whose id no client knows is not made. k NULL: e says why not. Takes q over. */
typedef void started_callback(struct gateway_request *c, struct kernel *k, const struct err *e, bool existed);
void start_kernel(struct gateway_request *c, struct start_request *q, started_callback *done);
/* Called by the kernel's record: it runs, or it has failed. */
void pending_kernel_started(struct pending_kernel *pending, struct kernel *k);
void pending_kernel_failed(struct pending_kernel *pending, const char *why);
/* Ends the kernel, and its box if that was made for it; then_none: answers this request with 204 when they are gone. */
void kernel_remove(struct jupyter *j, struct kernel *k, const char *reason, struct gateway_request *then_none);

/* --- kernel_record.c --- */
struct pending_execution {
    char  id[SESSION_SIZE], session[SESSION_SIZE];
    char *header;               /* owned: JSON, the parent header of the answer */
};

struct kernel_record {
    struct kernel_record   *next, **back;
    struct jupyter         *jupyter;
    /* Receives every message and never holds the kernel back. Its member kernel is the record's; NULL: the kernel is
     * gone, and the record will be freed. */
    struct kernel_client    client;
    uint64_t                last;       /* number of the last message */
    struct connection      *connections;
    struct pending_kernel  *pending;    /* at first: waits for the kernel to run or to fail */
    struct gateway_request *waiters;    /* requests that wait for a restart */
    struct loop_timer       launch;     /* the deadline for the start */
    struct loop_task        task;       /* restarts the kernel, or frees the record */
    uint32_t                launch_ms;
    bool                    has_run, is_reviving;
    unsigned                deaths;     /* in quick succession */
    int64_t                 died_ms;
    unsigned                n_executions;
    struct pending_execution execution[RECORD_PENDING];
    struct {
        char     id[SESSION_SIZE];
        uint64_t number;                /* of the last message it was sent */
        int64_t  left_ms;
    } session[RECORD_SESSIONS];
};
struct kernel_record *record_of(struct jupyter *j, struct kernel *k);   /* makes it; NULL: out of memory */
void     record_await(struct kernel_record *record, struct pending_kernel *pending, uint32_t launch_ms);
/* Tracks an execution until its end. Takes *header over, which is JSON. */
void     record_expect(struct kernel_record *record, const char *id, const char *session, char **header);
/* Ends every tracked execution with an error of this name. */
void     record_fail_pending(struct kernel_record *record, const char *name, const char *why);
void     record_fail(struct kernel_record *record, const char *id, const char *session, const char *header,
                     const char *name, const char *why);
void     record_tell_state(struct kernel_record *record, const char *state);
/* Answers with the model once the kernel runs, with 500 if it does not. */
void     record_wait(struct kernel_record *record, struct gateway_request *c);
void     record_note(struct kernel_record *record, const char *session, uint64_t number);
uint64_t record_recall(struct kernel_record *record, const char *session);      /* UINT64_MAX: unknown */
void     record_close(struct kernel_record *record, const char *why);           /* the kernel ends */
void     records_open(struct jupyter *j);
void     records_free(struct jupyter *j);

/* --- channels.c --- */
/* Sends to one connection; m stays the caller's. */
void connection_send(struct connection *conn, struct kernel_message *m);
/* Sends to all connections of the kernel that the message is for. */
void connections_send(struct kernel_record *record, struct kernel_message *m);
/* Closes all connections of a kernel that is gone. */
void connections_close(struct kernel_record *record, const char *why);

/* --- sessions.c --- */
void           sessions_forget(struct jupyter *j, const char *owner, const char *kernel);
MUST_CHECK int sessions_load(struct jupyter *j, struct err *e);
void           sessions_free(struct jupyter *j);

/* --- the handlers --- */
typedef void gateway_handler(struct gateway_request *c);
gateway_handler handle_api, handle_me, handle_status, handle_specs, handle_spec, handle_resource;
gateway_handler handle_kernel_list, handle_kernel_create, handle_kernel_get, handle_kernel_delete,
    handle_kernel_interrupt, handle_kernel_restart, handle_channels;
gateway_handler handle_session_list, handle_session_create, handle_session_get, handle_session_update,
    handle_session_delete;

#endif
