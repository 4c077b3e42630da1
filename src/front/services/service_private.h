/* What the files about services share with each other and with nobody else. */
#ifndef CARREL_FRONT_SERVICES_SERVICE_PRIVATE_H
#define CARREL_FRONT_SERVICES_SERVICE_PRIVATE_H

#include "front/kernels/kernel_link.h"
#include "front/services/services.h"
#include "proto/service.h"

enum { SERVICE_RESTARTS_MOST = 5, SERVICE_RESTARTS_MS = 60000, SERVICE_TAIL = 2048 };

struct call_entry {             /* of the log */
    int64_t           time_ms;
    char              who[96], function[128];
    uint64_t          args_bytes, result_bytes, wall_us;
    enum call_outcome outcome;
};

struct call_private {
    struct kernel_message *message;         /* owned until it is sent */
    bool                   checked;         /* the worker was asked whether its arguments fit */
    bool                   is_async, sent, is_over;     /* over: nobody waits for it, but the worker is still at it */
    size_t                 bytes;           /* of the message: charged to the service's owner while it is kept */
    uint64_t               started_us;
    unsigned               ladder;
    struct loop_timer      timer;           /* its time, then the ladder's */
    struct service_call   *call;
    struct call_entry      entry;
};

struct service_private {
    struct service         *service;
    struct kernel_link      link;
    struct service_watcher *watchers;
    struct service_call    *calls, **calls_end;     /* in the order in which they were asked for */
    struct service_call    *running;                /* the synchronous one that the worker has; NULL */
    unsigned                n_async;                /* that the worker has */
    struct share            share;                  /* for the messages of calls that wait */
    size_t                  queued_bytes;
    struct share            kept;                   /* for what it is of, and for its functions as they are shown */
    size_t                  kept_bytes, spec_bytes, described_bytes;
    struct loop_timer       load_timer, close_timer;
    struct loop_task        free_task, pump_task, box_task;
    bool                    wants_box;              /* its own has ended, and box_task asks for another */
    bool                    gone, load_cancelled, restart_wanted, ended_by_us;
    bool                    started;                /* the worker has come to the interface */
    enum outcome            end_outcome;            /* why we ended it ourselves; OUTCOME_NONE: we did not */
    char                    end_reason[160];
    unsigned                n_recent;               /* replacements since recent_ms */
    uint64_t                recent_ms;
    char                    tail[SERVICE_TAIL];     /* of what it printed past the interpreter while it loaded */
    size_t                  tail_size;
    struct call_entry      *log;                    /* owned ring */
    unsigned                n_log, log_at;
};

/* --- services.c --- */
void service_set_state(struct service *s, enum service_state state);
void service_forget(struct service *s);
void service_save(struct service *s);
void service_tell_print(struct service *s, const char *stream, struct jsonslice text);
/* Charges what the service has in memory as long as it is there. False: its owner may not have so much. */
bool service_keep(struct service *s, size_t described_bytes);
/* Ends the process because of what it did. */
void service_condemn(struct service *s, enum outcome outcome, const char *why);

/* A worker for one that has none; or it is dead, and says why. */
void service_start_anew(struct service *s);
/* For good, with the reason that it has. */
void service_die(struct service *s);
/* Counts: false if it was asked too often of late. */
bool service_may_restart(struct service *s);

/* --- service_box.c --- */
void service_box_init(struct service *s);
/* Its box is being made; it starts when that is done. */
void service_await_box(struct service *s);
/* Its box has ended by itself: another is asked for, or it is dead. */
void service_rebox(struct service *s, const char *reason);

/* --- service_start.c: the command of the worker --- */
MUST_CHECK int service_launch(struct service *s, struct err *e);
/* Of a worker that never came to the interface: which interpreter it is, why it did not, what to do. False: it is not
 * the interpreter's doing. */
bool           service_blame_interpreter(const struct service *s, const struct exec *x, char *ret, size_t size);
/* Asks a worker that was started by an earlier front what it is, and to drop what it is at. */
void service_ask_again(struct service *s);

/* --- service_link.c: what the worker says --- */
void service_link_init(struct service *s);
/* A short message of ours; text is JSON. */
void service_say(struct service *s, const char *text);
void service_say_cancel(struct service *s, unsigned long long id);

/* --- service_call.c --- */
struct service_call *service_call_by_id(struct service *s, unsigned long long id);
void service_call_finish(struct service_call *c, enum call_outcome outcome, struct jsonslice result);
/* Sends what may be sent now. */
void service_pump(struct service *s);
/* The worker is gone: what it had ends with this outcome, and with all, what waits, too. */
void service_calls_end(struct service *s, enum call_outcome outcome, bool all);

#endif
