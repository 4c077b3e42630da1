/* Shared by the parts of the native door. An admitted request is a struct ask; it lives in the request's arena. */
#ifndef CARREL_DOORS_NATIVE_DOOR_H
#define CARREL_DOORS_NATIVE_DOOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "front/boxes/boxes.h"
#include "front/execs/execs.h"
#include "front/front.h"
#include "front/request/admitted.h"
#include "front/request/error.h"
#include "front/request/fields.h"
#include "http/router.h"
#include "http/server.h"

/* Twelve digits: 0.64 stays 0.64. */
#define ASK_DUMP (JSON_COMPACT | JSON_REAL_PRECISION(12))

enum { BODY_SMALL = 1 << 18, BODY_LARGE = 10 << 20 };

struct shown;

struct native {
    struct shown *shown;        /* owned; NULL: no box was shown yet */
};

struct ask {
    struct native           *native;
    EMBED_ADMITTED;
    struct box              *box;       /* of {id}, if the route has one */
    struct exec             *exec;      /* of {xid} */
    void                    *work;      /* owned by the handler */
    /* The answer was sent, or the client is gone. May be NULL. */
    void (*on_end)(struct ask *a, enum http_end how);
    void (*on_json)(struct ask *a, json_t *root);
    void (*on_raw)(struct ask *a, const char *data, size_t size);
};

/* --- reply.c: every function answers the request, once. --- */
void reply_data(struct ask *a, int status, const char *data, size_t size);      /* JSON text */
void reply_json(struct ask *a, int status, json_t *body);       /* body is taken over */
void reply_none(struct ask *a);                                 /* 204 */
/* JSON text, or 503 if the buffer failed; the buffer is emptied. */
void reply_buf(struct ask *a, int status, struct buf *text);
void reply_fail(struct ask *a, int status, const char *code, const char *format, ...) PRINTF_LIKE(4, 5);
void reply_err(struct ask *a, const struct err *e);
/* Joins two objects in text form: {"a":1} and {"b":2} become {"a":1,"b":2}. */
void reply_join(struct buf *out, json_t *head, const struct buf *tail);

/* --- query.c: a missing value is the default; a wrong one is answered with 400 and returns false. --- */
bool query_bool(struct ask *a, const char *name, bool *ret);
bool query_number(struct ask *a, const char *name, uint64_t most, uint64_t *ret);
bool query_text(struct ask *a, const char *name, const char **ret);
/* Refuses names that are not in the list (ended by NULL); "token" is always allowed. */
bool query_only(struct ask *a, const char *const *names);
bool ask_accepts(const struct ask *a, const char *type);

/* --- native.c: looks box and exec up again; false, and answered, if they are gone. --- */
bool ask_find_again(struct ask *a);

/* --- body.c: reads a JSON object, or answers 400, 413 or 429. root is valid during the call. --- */
void body_json(struct ask *a, size_t max, void (*on_json)(struct ask *a, json_t *root));
/* The same without a tree: a valid JSON object, NUL-terminated. */
void body_raw(struct ask *a, size_t max, void (*on_raw)(struct ask *a, const char *data, size_t size));

/* --- boxes/shown.c: a box as JSON text, kept until the box changes. Valid until the next call. --- */
const char *shown_box(struct native *n, const struct box *b, size_t *ret_size);
void        shown_free(struct native *n);
void        reply_box(struct ask *a, int status, const struct box *b);

/* --- the handlers --- */
typedef void ask_handler(struct ask *a);
ask_handler ask_box_create, ask_box_list, ask_box_get, ask_box_update, ask_box_delete, ask_box_pause, ask_box_resume,
    ask_box_usage, ask_box_net, ask_box_enforced, ask_box_stop, ask_box_start;
ask_handler ask_box_events, ask_events;
ask_handler ask_exec_start, ask_exec_list, ask_exec_get, ask_exec_output, ask_exec_stdin, ask_exec_resize,
    ask_exec_signal, ask_exec_kill, ask_exec_attach, ask_exec_socket;
ask_handler ask_run, ask_run_box, ask_kernel_list, ask_kernel_start, ask_kernel_get, ask_kernel_delete,
    ask_kernel_interrupt, ask_kernel_restart, ask_kernel_input, ask_kernel_ask;
ask_handler ask_file_get, ask_file_put, ask_file_post, ask_file_delete, ask_archive_get, ask_archive_put;
ask_handler ask_port, ask_tunnel;
ask_handler ask_token_create, ask_token_list, ask_token_delete, ask_me, ask_disk, ask_info;
ask_handler ask_service_create, ask_service_list, ask_service_get, ask_service_restart, ask_service_delete,
    ask_service_calls, ask_service_call;
ask_handler ask_grant_create, ask_grant_list, ask_grant_delete, ask_grant_own, ask_grant_call;
ask_handler ask_volume_create, ask_volume_list, ask_volume_get, ask_volume_update, ask_volume_delete;
ask_handler ask_layer_list, ask_layer_delete;
ask_handler ask_secret_list, ask_secret_put, ask_secret_delete;
ask_handler ask_health, ask_ready, ask_metrics, ask_openapi;

#endif
