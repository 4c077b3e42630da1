/* A cell that a caller of the API runs and waits for: its turn in the kernel, its messages, its timeout, its bill. Runs
 * of one kernel are executed one after the other; messages of other clients' cells (Jupyter's) are not passed to
 * them. */
#ifndef CARREL_FRONT_KERNELS_KERNEL_RUN_H
#define CARREL_FRONT_KERNELS_KERNEL_RUN_H

#include <jansson.h>

#include "base/budget.h"
#include "front/kernels/kernel_bill.h"
#include "front/kernels/kernels.h"
#include "http/loop.h"

struct kernel_run;

struct kernel_run_options {
    const char *code;
    size_t      code_size;
    uint64_t    timeout_ms;         /* from its beginning on; 0: none */
    uint64_t    output_bytes;       /* the limit of its text output and its other messages */
    uint64_t    since_us;           /* when its box was requested; 0: the box existed before */
    bool        allow_stdin;
    const char *session;            /* in the header of its request, visible to other listeners; NULL: "carrel" */
    bool        restart;            /* restart a dead kernel; else the run ends with the outcome "dead" */
    /* A message of the cell: stream, display, result, error, input_request … True: wait for kernel_run_resume(). */
    bool (*on_message)(struct kernel_run *run, struct kernel_message *m);
    void (*on_end)(struct kernel_run *run);     /* the last call; run is freed afterwards */
    void       *owner;
};

struct kernel_run {
    struct kernel_run        *next;         /* the next in the queue, or in its box's leaving list */
    struct kernel_run_options options;      /* code: owned copy; NULL once sent */
    struct share              share;        /* for the code */
    struct kernel_client      client;
    struct kernel            *kernel;       /* NULL: done there */
    struct box               *box;
    struct loop_timer         timer;
    struct loop_task          end_task;
    char                      id[64];       /* msg_id of its request */
    struct kernel_bill        bill;
    uint64_t                  started_us, output_bytes, interrupts;
    bool                      sent, began, replied, idle, abandoned, over;
    enum outcome              stopped;      /* why we stop it; OUTCOME_NONE: we do not */
    char                      status[16], ename[48];
    /* The result: */
    enum outcome              outcome;
    char                      reason[480];
    uint64_t                  execution_count;      /* 0: unknown */
    uint64_t                  wall_us;
    char                      kernel_id[132], context[132];
    enum kernel_way           way;
    enum kernel_state         state;
    unsigned                  restarts;
    json_t                   *refused;      /* owned: refusals of its box meanwhile (front/net); NULL: none */
};

MUST_CHECK int kernel_run_start(struct kernel *k, const struct kernel_run_options *o, struct kernel_run **ret,
                                struct err *e);
void           kernel_run_resume(struct kernel_run *run);
/* The caller is gone: no callback follows, and a running cell is stopped. */
void           kernel_run_abandon(struct kernel_run *run);

#endif
