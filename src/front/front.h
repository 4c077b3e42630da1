/* The front as a whole: what its parts reach each other through. */
#ifndef CARREL_FRONT_FRONT_H
#define CARREL_FRONT_FRONT_H

#include <stdint.h>
#include <sys/types.h>

#include "base/budget.h"
#include "front/boxes/boxes.h"
#include "front/config/config.h"
#include "front/execs/execs.h"
#include "http/loop.h"
#include "http/server.h"
#include "proto/names.h"

struct auth;
struct box_files;
struct grant;
struct inlet_opening;
struct front_net;
struct keeper_link;
struct service;
struct db;

/* How often something took how long. A bucket counts what took at most its bound and more than the one before. */
enum { HISTOGRAM_BOUNDS = 16 };
extern const uint32_t histogram_bound_us[HISTOGRAM_BOUNDS];
struct histogram {
    uint64_t count, sum_us, bucket[HISTOGRAM_BOUNDS];
};
void histogram_add(struct histogram *h, uint64_t us);

/* Numbers for /metrics; only ever counted up unless the name says otherwise. */
struct metrics {
    uint64_t requests, requests_refused, boxes_created, boxes_failed, execs_started, execs_failed, output_bytes,
        keeper_losses;
    uint64_t kernels_started, kernels_died;
    uint64_t outcome[OUTCOME_COUNT];        /* of commands */
    uint64_t run_outcome[OUTCOME_COUNT];    /* of cells */
    struct histogram request, create, exec_start, exec;
    struct histogram first_result;  /* from asking for a kernel, or its box, to the end of its first cell */
};

/* A request that needs the keeper, and came when it was not there. Embedded in its owner's struct; zeroed = not
 * waiting. */
struct keeper_wait {
    struct front       *front;
    struct loop_timer   deadline;
    struct keeper_wait *next, **back;
    void (*go_on)(struct keeper_wait *w);   /* the keeper is there, or has not come in time; from the loop */
};

struct front {
    struct loop        *loop;
    struct config       config;
    struct db          *db;
    struct auth        *auth;
    struct keeper_link *keeper;
    struct http_server *http;
    struct boxes        boxes;
    struct devices     *devices;        /* owned: what the host has; NULL: none are allowed (box_devices.h) */
    struct kernel      *kernels;        /* all of them, newest first */
    struct service     *services;       /* the same */
    struct grant       *grants;
    struct budgets      memory;         /* what is kept for each identity and its boxes, in bytes */
    struct budgets      partials;       /* messages of kernels that are not complete */
    struct metrics      metrics;
    int                 execs_dir;      /* owned: directory of the logs */
    int64_t             started_ms;
    uid_t               owner_uid;      /* who runs the server */
    bool                ready;          /* the keeper is connected and reconciled */
    bool                was_ready;      /* it has been before */
    struct keeper_wait *waiting, **waiting_end;     /* for it; oldest first */
    struct loop_task    go_on;          /* of them */
    uint64_t            ring_bytes;     /* in all kernels' rings */
    struct inlet_opening *inlet_openings;       /* that the keeper was asked for */
    struct front_net   *net;            /* owned: the link to egress (front/net) */
    struct box_files   *files;          /* conversations with file helpers (files/box_files.c) */
};

/* Whoever needs the keeper while front->ready is false waits for it, a bounded time: after a start, or while another
 * one takes a lost one's place. Cancelling what does not wait does nothing. */
void front_wait_for_keeper(struct front *front, struct keeper_wait *w, void (*go_on)(struct keeper_wait *w));
void front_cancel_wait(struct keeper_wait *w);
/* The keeper is there: those who wait go on. */
void front_keeper_came(struct front *front);

/* Milliseconds since 1970, and the same as "2026-01-31T12:00:00.123Z". */
int64_t front_now_ms(void);
void    front_time_text(int64_t ms, char text[32]);
/* The same as JSON; null for 0, which is never. */
json_t *front_time_json(int64_t ms);
int64_t front_time_parse(const char *text);     /* 0 if it is none */

/* What a process printed, or what was cut, as JSON can tell it: bytes that are no UTF-8 become '?'. */
void    front_make_utf8(char *text);

/* "b" or "x" followed by 12 random characters of a-z2-7. */
void    front_make_id(char prefix, char id[16]);

/* One line on standard error: level, message, then key=value pairs ended by NULL. JSON, or words for people if
 * front_log_open() found a terminal there; it is called once, before the process locks itself in. */
void    front_log_open(void);
bool    front_log_is_for_people(void);
void    front_log(const char *level, const char *message, ...) __attribute__((sentinel));

#endif
