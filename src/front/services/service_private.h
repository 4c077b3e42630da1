/* Private to the files of this folder. */
#ifndef CARREL_FRONT_SERVICES_SERVICE_PRIVATE_H
#define CARREL_FRONT_SERVICES_SERVICE_PRIVATE_H

#include "base/jsonscan.h"
#include "front/boxes/box_parts.h"
#include "front/execs/exec_owner.h"
#include "front/links/guest_link.h"
#include "front/services/services.h"
#include "proto/service.h"

enum { SERVICE_RESTARTS_MOST = 5, SERVICE_RESTARTS_MS = 60000, SERVICE_TAIL = 2048 };

struct call_entry {             /* of the log */
    int64_t           time_ms;
    char              who[96], function[128];
    uint64_t          args_bytes, result_bytes, wall_us;
    enum call_outcome outcome;
};

/* A caller that has calls here: the owner, a box, a grant's token. */
struct call_holder {
    struct call_holder *next, **back;
    char                name[80];
    unsigned            n_calls, n_async;   /* open calls; async ones that the worker has */
    size_t              bytes;              /* of messages that wait */
    uint64_t            turn[2];            /* when it came or was last served; [is_async] */
};

struct call_private {
    struct call_holder   *holder;
    struct guest_message *message;         /* owned until it is sent */
    bool                   checked;         /* the worker was asked to check its arguments */
    bool                   is_async, sent;
    bool                   is_over;         /* its caller has an answer or is gone; the worker still runs it */
    size_t                 bytes;           /* of the message: charged to the service's owner while it is kept */
    uint64_t               started_us, sent_us;
    struct guest_message  *answer;          /* owned: an error that waits for the keeper (service_call_fail); NULL */
    struct jsonslice       value;           /* in it */
    unsigned               ladder;
    struct loop_timer      timer;           /* its time, then the ladder's */
    struct service_call   *call;
    struct call_entry      entry;
};

struct service_private {
    struct service         *service;
    struct guest_link      link;
    struct service_watcher *watchers;
    struct service_call    *calls, **calls_end;     /* in the order of their start */
    struct service_call    *running;                /* the synchronous one that the worker has; NULL */
    unsigned                n_async;                /* that the worker has */
    struct call_holder     *holders;
    uint64_t                turns;
    struct share            share;                  /* for messages of queued calls */
    size_t                  queued_bytes;
    struct share            kept;                   /* for its spec, and for its functions as in the API */
    size_t                  kept_bytes, spec_bytes, described_bytes;
    struct loop_timer       load_timer, close_timer;
    struct loop_task        free_task, pump_task, box_task;
    bool                    wants_box;              /* its own has ended, and box_task asks for another */
    bool                    gone, load_cancelled, restart_wanted, ended_by_us;
    bool                    started;                /* the worker has reached the interface */
    enum outcome            end_outcome;            /* why we ended it; OUTCOME_NONE: we did not */
    char                    end_reason[160];
    unsigned                n_recent;               /* replacements since recent_ms */
    uint64_t                recent_ms;
    char                    tail[SERVICE_TAIL];     /* the end of its output that bypassed the interpreter while it
                                                     * loaded */
    size_t                  tail_size;
    struct call_entry      *log;                    /* owned ring */
    unsigned                n_log, log_at;
};

/* --- services.c --- */
void service_set_state(struct service *s, enum service_state state);
void service_forget(struct service *s);
void service_save(struct service *s);
void service_tell_print(struct service *s, const char *stream, struct jsonslice text);
/* Charges the memory that the service uses all its life. False: over its owner's budget. */
bool service_keep(struct service *s, size_t described_bytes);
/* Kills the worker; outcome and why say what it did wrong. */
void service_condemn(struct service *s, enum outcome outcome, const char *why);

/* Starts a worker for a service without one; or it is dead, with a reason. */
void service_start_anew(struct service *s);
/* For good, with its present reason. */
void service_die(struct service *s);
/* Counts restarts: false if there were too many recently. */
bool service_may_restart(struct service *s);

/* --- service_box.c --- */
void service_box_init(struct service *s);
void services_on_box_end(struct box *box, enum phase phase, enum box_reason reason);
void services_on_box_forget(struct box *box);
/* A service with the dead box as its own may still want another like it. */
bool services_need_box(const struct box *box);
/* Its box is being made; it starts when that is done. */
void service_await_box(struct service *s);
/* Its box has ended by itself: requests another, or the service is dead. */
void service_rebox(struct service *s, const char *reason);

/* --- service_start.c: the command of the worker --- */
MUST_CHECK int service_launch(struct service *s, struct err *e);
/* For a worker that never reached the interface: names the interpreter, the reason and the remedy. False: not the
 * interpreter's fault. */
bool           service_blame_interpreter(const struct service *s, const struct exec *x, char *ret, size_t size);
/* Makes an earlier front's worker describe itself, and drop its present calls. */
void service_ask_again(struct service *s);

/* --- service_link.c: messages of the worker --- */
void service_link_init(struct service *s);
/* Output that bypasses the interpreter. */
void service_on_output(struct exec *x, unsigned stream, const char *data, size_t size);
/* Sends a short message; text is JSON. */
void service_say(struct service *s, const char *text);
void service_say_cancel(struct service *s, unsigned long long id);

/* --- service_call.c --- */
struct service_call *service_call_by_id(struct service *s, unsigned long long id);
void service_call_finish(struct service_call *c, enum call_outcome outcome, struct jsonslice result);
/* The function raised an error, which is in m. In a box without network it ends a moment later, when the keeper has
 * passed on the names that it was refused. */
void service_call_fail(struct service_call *c, struct guest_message *m, struct jsonslice error);
/* Sends the calls that may be sent now. */
void service_pump(struct service *s);
/* The worker is gone: its calls end with this outcome, and with all, the queued ones, too. */
void service_calls_end(struct service *s, enum call_outcome outcome, bool all);

/* --- service_turns.c: whose turn it is --- */
/* Counts a call. -EAGAIN: this caller has as many here as it may. */
MUST_CHECK int call_holder_join(struct service *s, const char *name, struct call_holder **ret, struct err *e);
void           call_holder_leave(struct call_holder *h);
/* Whether a message of so many bytes may wait, too. */
bool           call_holder_may_keep(const struct service *s, const struct call_holder *h, size_t bytes);
/* Whether the worker may have another async call of this caller. */
bool           call_holder_may_run(const struct service_private *p, const struct call_holder *h);
/* Moves it behind all other holders. */
void           call_holder_served(struct service_private *p, struct call_holder *h, bool is_async);

#endif
