/* The front as a whole: its parts reach each other through this struct. */
#ifndef CARREL_FRONT_FRONT_H
#define CARREL_FRONT_FRONT_H

#include <stdint.h>
#include <sys/types.h>

#include "base/budget.h"
#include "front/boxes/boxes.h"
#include "front/config/config.h"
#include "http/loop.h"
#include "http/server.h"
#include "proto/names.h"

struct auth;
struct box_part;
struct box_files;
struct grant;
struct inlet_opening;
struct front_layers;
struct headroom;
struct front_keys;
struct front_net;
struct front_secrets;
struct front_volumes;
struct exec_owner;
struct keeper_link;
struct service;
struct db;

/* A histogram of durations. A bucket counts values up to its bound and above the previous one. */
enum { HISTOGRAM_BOUNDS = 16 };
extern const uint32_t histogram_bound_us[HISTOGRAM_BOUNDS];
struct histogram {
    uint64_t count, sum_us, bucket[HISTOGRAM_BOUNDS];
};
void histogram_add(struct histogram *h, uint64_t us);

/* Numbers for /metrics; counters unless the name says otherwise. */
struct metrics {
    uint64_t requests, requests_refused, boxes_created, boxes_failed, execs_started, execs_failed, output_bytes,
        keeper_losses;
    uint64_t kernels_started, kernels_died;
    uint64_t net_sent, net_received, net_connections, net_refusals;     /* of all boxes; the first two in bytes */
    uint64_t outcome[OUTCOME_COUNT];        /* of commands */
    uint64_t run_outcome[OUTCOME_COUNT];    /* of cells */
    struct histogram request, create, exec_start, exec;
    struct histogram first_result;  /* from the request for a kernel, or its box, to the end of its first cell */
};

/* A request that needs the keeper while there is none. Embedded in its owner's struct; zeroed = not waiting. */
struct keeper_wait {
    struct front       *front;
    struct loop_timer   deadline;
    struct keeper_wait *next, **back;
    void (*go_on)(struct keeper_wait *w);   /* the keeper is there, or did not come in time; from the loop */
};

struct front {
    struct loop        *loop;
    struct config       config;
    struct db          *db;
    struct auth        *auth;
    struct keeper_link *keeper;
    struct http_server *http;
    const struct box_part *const *parts;            /* parts with state in boxes; ends with NULL (box_parts.h) */
    const struct exec_owner *const *exec_owners;    /* the same (exec_owner.h) */
    struct boxes        boxes;
    struct headroom    *headroom;       /* owned; NULL: unknown (boxes/headroom.h) */
    struct devices     *devices;        /* owned: the host's; NULL: none are allowed (box_devices.h) */
    struct kernel      *kernels;        /* all of them, newest first */
    struct service     *services;       /* the same */
    struct grant       *grants;
    struct budgets      memory;         /* kept for each identity and its boxes, in bytes */
    struct budgets      partials;       /* incomplete messages of kernels */
    struct metrics      metrics;
    int                 execs_dir;      /* owned: directory of the logs */
    int64_t             started_ms;
    uid_t               owner_uid;      /* the user who runs the server */
    bool                ready;          /* the keeper is connected and reconciled */
    bool                was_ready;      /* it has been before */
    struct keeper_wait *waiting, **waiting_end;     /* for the keeper; oldest first */
    struct loop_task    go_on;          /* wakes them */
    uint64_t            ring_bytes;     /* in all kernels' rings */
    struct inlet_opening *inlet_openings;       /* requested from the keeper */
    struct front_layers *layers;        /* owned: packages (front/layers) */
    struct front_net   *net;            /* owned: the link to egress (front/net) */
    struct front_keys  *keys;           /* owned: the link to the broker (front/keys) */
    struct front_secrets *secrets;      /* owned (front/secrets) */
    struct front_volumes *volumes;      /* owned (front/volumes) */
    struct box_files   *files;          /* conversations with file helpers (files/box_files.c) */
};

/* Before the boxes are loaded. */
void front_init_parts(struct front *front);

/* Makes a request that needs the keeper wait while front->ready is false, for a bounded time: after a start, or while
 * the supervisor replaces a dead keeper. Cancelling one that does not wait is a no-op. */
void front_wait_for_keeper(struct front *front, struct keeper_wait *w, void (*go_on)(struct keeper_wait *w));
void front_cancel_wait(struct keeper_wait *w);
/* The keeper is there: wakes the waiting requests. */
void front_keeper_came(struct front *front);

/* Milliseconds since 1970, and the same as "2026-01-31T12:00:00.123Z". */
int64_t front_now_ms(void);
void    front_time_text(int64_t ms, char text[32]);
/* The same as JSON; null for 0 (never). */
json_t *front_time_json(int64_t ms);
int64_t front_time_parse(const char *text);     /* 0 if it is invalid */

/* Makes a process's output, or a shortened text, valid for JSON: bytes that are no UTF-8 become '?'. */
void    front_make_utf8(char *text);

/* "b" or "x" followed by 12 random characters of a-z2-7. */
void    front_make_id(char prefix, char id[16]);
/* The identity of the user who runs this server: "uid:0". */
void    front_own_identity(const struct front *front, char ret[32]);

/* One line on standard error: level, message, then key=value pairs ended by NULL. JSON, or words for people if
 * front_log_open() found a terminal; that is called once, before the process confines itself. */
void    front_log_open(void);
bool    front_log_is_for_people(void);
void    front_log(const char *level, const char *message, ...) __attribute__((sentinel));

#endif
