/* Shared by server.c, conn.c, body.c and reply.c only. */
#ifndef CARREL_HTTP_CONN_H
#define CARREL_HTTP_CONN_H

#include "http/server.h"

#define IN_FIRST_BYTES    4096      /* grows to IN_MAX_BYTES while a long head arrives */
#define IN_MAX_BYTES      (HTTP_HEAD_MAX_BYTES + 1024)
#define OUT_FIRST_BYTES   2048
#define ARENA_FIRST_BYTES 1024
#define DISCARD_MAX_BYTES 65536     /* of an unread body, to keep the connection */
#define LINGER_MS         1000
#define SPARE_REQUESTS    64
#define REFUSED_MAX       64        /* connections beyond the bound that may get their 503 at the same time */

enum conn_phase { CONN_IDLE, CONN_HEAD, CONN_ACTIVE, CONN_DISCARD, CONN_LINGER, CONN_DEAD };
enum conn_wait { WAIT_NOTHING, WAIT_IDLE, WAIT_HEAD, WAIT_BODY, WAIT_SEND, WAIT_LINGER };

struct http_header {
    struct http_header *next;
    const char *name, *value;
};

/* State that an idle connection does not need: taken from the server's spares when the first byte comes. */
struct http_request_state {
    struct http_request request;
    /* input: in[in_at, in_end) is received and not yet used; the head stays in place below it */
    char *in;
    size_t in_at, in_end, in_size;
    char *head_in;                      /* where the head is if `in` is another buffer by now; else NULL */
    /* output: out[out_at, out_end) is not yet sent */
    char *out;
    size_t out_at, out_end, out_size;
    struct http_header *headers, **headers_end;
    int64_t body_left;                  /* of a body with a length */
    int64_t reply_left;                 /* of an answer with a size */
    struct http_chunked chunked;
    int status;
    bool body_done, body_bad, wants_body, sent_continue;
    bool started, finished, swallow, reply_chunked, wants_writable, raw, close_after;
    bool ended, told;                   /* ended: the handler may not act any more; told: on_end() and the log were
                                         * called (only the server's own answer comes between the two) */
    bool progressed;                    /* bytes were sent since the deadline was set */
    uint64_t body_bytes, sent_bytes, start_us;
    uint64_t window_bytes;              /* body bytes since the deadline was set */
    size_t discarded, turn_bytes;
    char *collected;
    size_t collected_size, collected_room, collected_max;
    http_collect_handler *on_collected;
    void *collect_arg;
    struct http_request_state *next_spare;
    char id[17];
    _Alignas(16) char arena_first[ARENA_FIRST_BYTES];
    char in_first[IN_FIRST_BYTES];
    char out_first[OUT_FIRST_BYTES];
};

struct http_listener {
    struct loop_fd watch;
    struct http_server *server;
    struct http_listener *next;
    int family;
    unsigned tag;
    bool is_inlet;
};

struct http_conn {
    struct loop_fd watch;
    struct loop_timer timer;
    struct loop_task task;
    struct http_server *server;
    struct http_request_state *state;   /* NULL while idle */
    struct http_conn *next, *back;
    struct http_peer peer;
    struct share source, caller;        /* counts one connection in each: of its address, of its last caller */
    enum conn_phase phase;
    enum conn_wait wait;
    bool readable;      /* a read may return something */
    bool running, gone, timed_out, aborted, is_refusal, is_inlet;
    bool at_end;        /* raw: the client has closed, the handler has not read to the end yet */
    bool half_closed;   /* raw: the handler has read to the end and still answers (may_half_close) */
};

struct http_server {
    struct loop *loop;
    struct http_server_config config;
    struct http_listener *listeners;
    struct http_conn conns;             /* head of a ring */
    unsigned n_conns, n_refusals, n_from_inlets;
    struct budgets sources, inlets, callers;    /* of connections */
    struct http_request_state *spares;
    unsigned n_spares;
    struct loop_timer drain_timer, accept_timer;
    struct loop_task drained_task;
    bool draining;
    int reserve;                        /* an fd to give up when the process has no more */
    uint64_t id_base, id_next;
    int64_t date_second;
    char date[32];                      /* "Sun, 06 Nov 1994 08:49:37 GMT" */
};

/* conn.c */
void conn_start(struct http_conn *c);
void conn_wake(struct http_conn *c);        /* run it soon, from the loop */
void conn_close(struct http_conn *c, enum http_end how);
void conn_refuse(struct http_conn *c, int status, const char *text);
void conn_on_event(struct loop_fd *w, uint32_t events);
void conn_on_timer(struct loop_timer *t);
void conn_on_task(struct loop_task *t);

/* server.c */
struct http_request_state *server_state_take(struct http_server *s, struct http_conn *c);
void server_state_give(struct http_server *s, struct http_request_state *q);
void server_conn_free(struct http_conn *c);
const char *server_date(struct http_server *s);

/* body.c: http_body_read() without the check whether the handler may read. */
ssize_t body_pull(struct http_request_state *q, void *data, size_t size);

/* reply.c: sends what it can. 0 when nothing is left, -EAGAIN or -EPIPE. */
int reply_flush(struct http_request_state *q);

#endif
