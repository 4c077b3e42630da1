/* A cell that a caller of the API runs and waits for: its turn in the kernel, its messages, its time, its bill. Runs of
 * one kernel go one after the other; what others (Jupyter clients) run there meanwhile is none of theirs. */
#ifndef CARREL_FRONT_KERNELS_KERNEL_RUN_H
#define CARREL_FRONT_KERNELS_KERNEL_RUN_H

#include <jansson.h>

#include "base/budget.h"
#include "front/kernels/kernels.h"
#include "http/loop.h"

struct kernel_run;

struct kernel_run_options {
    const char *code;
    size_t      code_size;
    uint64_t    timeout_ms;         /* from its beginning on; 0: none */
    uint64_t    output_bytes;       /* of text that it prints and of its other messages; more ends it */
    uint64_t    since_us;           /* when its box was asked for; 0: the box was there before */
    bool        allow_stdin;
    const char *session;            /* in the header of its request, for others who listen; NULL: "carrel" */
    bool        restart;            /* a dead kernel is started anew; else the run ends with the outcome "dead" */
    /* A message of the cell: stream, display, result, error, input_request … True: wait for kernel_run_resume(). */
    bool (*on_message)(struct kernel_run *run, struct kernel_message *m);
    void (*on_end)(struct kernel_run *run);     /* the last call; run is freed afterwards */
    void       *owner;
};

struct kernel_run {
    struct kernel_run        *next;         /* the next in turn, or of those that leave its box */
    struct kernel_run_options options;      /* code: owned copy; NULL once it is sent */
    struct share              share;        /* for the code */
    struct kernel_client      client;
    struct kernel            *kernel;       /* NULL: it is over there */
    struct box               *box;
    struct loop_timer         timer;
    struct loop_task          end_task;
    char                      id[64];       /* msg_id of its request */
    uint64_t                  started_us, baseline_us, output_bytes, interrupts;
    bool                      sent, began, replied, idle, wants_usage, has_usage, abandoned, over;
    enum outcome              stopped;      /* why we stop it; OUTCOME_NONE: we do not */
    char                      status[16], ename[48];
    /* What there is to tell in the end: */
    enum outcome              outcome;
    char                      reason[480];
    uint64_t                  execution_count;      /* 0: not known */
    uint64_t                  wall_us, cpu_us, peak_bytes;
    char                      kernel_id[132], context[132];
    enum kernel_way           way;
    enum kernel_state         state;
    unsigned                  restarts;
    json_t                   *refused;      /* owned: what its box was refused meanwhile (front/net); NULL: nothing */
};

MUST_CHECK int kernel_run_start(struct kernel *k, const struct kernel_run_options *o, struct kernel_run **ret,
                                struct err *e);
void           kernel_run_resume(struct kernel_run *run);
/* Nobody waits any more; no callback will come. What runs is stopped. */
void           kernel_run_abandon(struct kernel_run *run);

#endif
