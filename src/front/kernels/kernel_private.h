/* Private to the files of this folder. */
#ifndef CARREL_FRONT_KERNELS_KERNEL_PRIVATE_H
#define CARREL_FRONT_KERNELS_KERNEL_PRIVATE_H

#include "front/boxes/boxes.h"
#include "front/execs/exec_owner.h"
#include "front/kernels/kernel_message.h"
#include "front/kernels/kernels.h"
#include "front/links/guest_link.h"

/* --- kernels.c --- */
enum { KERNEL_CONTROL_IDS = 16, KERNEL_TAIL = 1024, KERNEL_RING_MESSAGES = 8192, KERNEL_RUNS_MOST = 256 };

struct kernel_pass {            /* a loop over the clients, which may detach meanwhile */
    struct kernel_pass   *outer;
    struct kernel_client *next;
};

struct kernel_raw {             /* output that bypasses the interpreter */
    unsigned char part[4];      /* of an incomplete character */
    unsigned      n_part;
};

struct kernel_private {
    struct kernel         *kernel;
    struct guest_link     link;
    struct kernel_message **ring;       /* owned array of references, oldest first */
    size_t                 n_ring, ring_room, ring_bytes;
    uint64_t               last_number;
    struct kernel_pass    *passes;
    char                  *parent;      /* owned: header of the present or last cell, JSON; NULL: none */
    size_t                 parent_size;
    char                   running_id[96];      /* of the present cell; "" if none */
    bool                   runs_own;            /* the present one is our own request, not a cell */
    uint64_t               heard_ms;            /* when its last message came; of loop_now_ms() */
    char                   control_id[KERNEL_CONTROL_IDS][96];
    unsigned               next_control;
    char                  *input_parent;        /* owned: header of the open input_request; NULL: none */
    size_t                 input_parent_size;
    struct kernel_raw      raw[2];
    char                   tail[KERNEL_TAIL];   /* the end of its stderr that bypassed the interpreter */
    size_t                 tail_size;
    char                   session[40];         /* of our own requests */
    uint64_t               n_asked;
    unsigned               n_paused;
    bool                   restart_wanted, gone;
    bool                   must_exec;           /* forking failed */
    enum outcome           end_outcome;         /* why we ended it; OUTCOME_NONE: we did not */
    char                   end_reason[160];
    char                   ladder_id[96];       /* the cell to stop; "" if none */
    unsigned               ladder_step;
    struct loop_timer      ladder_timer, close_timer;   /* close: it closed its link, and should exit now */
    struct loop_task       free_task, run_task;
    struct kernel_run     *runs;                /* in their order */
    uint64_t               asked_us;            /* when it was requested, until its first cell is over */
    uint64_t               interrupts;          /* requested by clients */
    bool                   cell_waits;          /* for the starting interpreter */
    bool                   interrupt_waits;     /* for that cell: a starting interpreter would not survive it */
};

static inline struct kernel_private *kernel_private(const struct kernel *k)
{
    return k->private;
}

void kernel_set_state(struct kernel *k, enum kernel_state state);
/* Sends to all clients, and adds to the ring. m is borrowed. */
void kernel_tell(struct kernel *k, struct kernel_message *m);
/* Kills the kernel's process; outcome and why say what it did wrong. */
void kernel_condemn(struct kernel *k, enum outcome outcome, const char *why);
void kernel_look_at_reading(struct kernel *k);
/* Removes it from all indexes; the loop frees it. */
void kernel_forget(struct kernel *k);

/* --- kernel_ladder.c --- */
void kernel_ladder_init(struct kernel *k);
/* A cell has begun, perhaps the one to stop. */
void kernel_ladder_begin(struct kernel *k);
/* The cell has ended by itself (NULL: any). */
void kernel_ladder_end(struct kernel *k, const char *id);

/* --- kernel_status.c: the kernel's state, from its messages --- */
/* JSON of a header of our own; returns its length. id and type are plain. */
size_t kernel_make_header(struct kernel *k, const char *type, const char *id, char *text, size_t size);
size_t kernel_make_header_of(struct kernel *k, const char *type, const char *id, const char *session, char *text,
                             size_t size);
void kernel_note(struct kernel *k, const struct kernel_message *m);
/* Whether the kernel is idle: it runs no client's cell, and has sent nothing for a while. */
bool kernel_has_time(const struct kernel *k);
/* Requests kernel_info for ourselves; clients do not get the answer. */
void kernel_ask_info(struct kernel *k);
bool kernel_message_is_idle(const struct kernel_message *m);
bool kernel_is_own(const struct kernel *k, const struct kernel_message *m);

/* --- kernel_raw.c --- */
void kernel_raw_take(struct kernel *k, unsigned stream, const char *data, size_t size);
void kernel_raw_end(struct kernel *k);

/* --- kernel_run.c --- */
/* The keeper has told how the process was started. */
void kernel_runs_confirmed(struct kernel *k);
/* The kernel is dead and will be forgotten, and so are its runs. */
void kernel_runs_end(struct kernel *k);
/* Without callbacks. */
void kernel_runs_drop(struct kernel *k);
/* Drops those that wait for a bill that will never come. */
void kernel_runs_drop_leaving(struct box *box);

/* --- kernel_end.c --- */
/* How it was started, for the API. */
enum kernel_way kernel_way_of(const struct kernel *k, enum way way);
void kernel_process_runs(struct exec *x, const struct exec_birth *birth);
void kernel_process_ended(struct exec *x);
void kernels_on_box_end(struct box *box, enum phase phase, enum box_reason reason);

/* --- kernel_start.c: the command of its process --- */
MUST_CHECK int kernel_launch(struct kernel *k, struct err *e);

#endif
