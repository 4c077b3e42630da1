/* What the files about kernels share with each other and with nobody else. */
#ifndef CARREL_FRONT_KERNELS_KERNEL_PRIVATE_H
#define CARREL_FRONT_KERNELS_KERNEL_PRIVATE_H

#include "front/kernels/kernel_link.h"

/* --- kernels.c --- */
enum { KERNEL_CONTROL_IDS = 16, KERNEL_TAIL = 1024, KERNEL_RING_MESSAGES = 8192, KERNEL_RUNS_MOST = 256 };

struct kernel_pass {            /* somebody goes through the clients; they may detach meanwhile */
    struct kernel_pass   *outer;
    struct kernel_client *next;
};

struct kernel_raw {             /* what is printed past the interpreter */
    unsigned char part[4];      /* of a character that is not complete yet */
    unsigned      n_part;
};

struct kernel_private {
    struct kernel         *kernel;
    struct kernel_link     link;
    struct kernel_message **ring;       /* owned array of references, oldest first */
    size_t                 n_ring, ring_room, ring_bytes;
    uint64_t               last_number;
    struct kernel_pass    *passes;
    char                  *parent;      /* owned: header of the cell that runs or ran last, JSON; NULL: none */
    size_t                 parent_size;
    char                   running_id[96];      /* of the cell that runs; "" if none does */
    bool                   runs_own;            /* it is no cell, but what we asked ourselves */
    uint64_t               heard_ms;            /* when it said something last; of loop_now_ms() */
    char                   control_id[KERNEL_CONTROL_IDS][96];
    unsigned               next_control;
    char                  *input_parent;        /* owned: header of the open input_request; NULL: none */
    size_t                 input_parent_size;
    struct kernel_raw      raw[2];
    char                   tail[KERNEL_TAIL];   /* of what was printed to stderr past the interpreter */
    size_t                 tail_size;
    char                   session[40];         /* of what we ask ourselves */
    uint64_t               n_asked;
    unsigned               n_paused;
    bool                   restart_wanted, gone;
    bool                   must_exec;           /* forking did not work */
    enum outcome           end_outcome;         /* why we ended it ourselves; OUTCOME_NONE: we did not */
    char                   end_reason[160];
    char                   ladder_id[96];       /* the cell that is to be stopped; "" if none */
    unsigned               ladder_step;
    struct loop_timer      ladder_timer, close_timer;   /* close: it closed its link, and should end now */
    struct loop_task       free_task, run_task;
    struct kernel_run     *runs;                /* in the order of their turns */
    uint64_t               asked_us;            /* when it was asked for, until its first cell is over */
    uint64_t               interrupts;          /* that somebody asked for */
    bool                   cell_waits;          /* for the interpreter, which starts */
    bool                   interrupt_waits;     /* for that cell: an interpreter that starts would not survive it */
};

static inline struct kernel_private *kernel_private(const struct kernel *k)
{
    return k->private;
}

void kernel_set_state(struct kernel *k, enum kernel_state state);
/* To all clients, and into the ring. m is lent. */
void kernel_tell(struct kernel *k, struct kernel_message *m);
/* Ends the process because of what it did. */
void kernel_condemn(struct kernel *k, enum outcome outcome, const char *why);
void kernel_look_at_reading(struct kernel *k);
/* Nobody finds it any more, and soon it is freed. */
void kernel_forget(struct kernel *k);

/* --- kernel_ladder.c --- */
void kernel_ladder_init(struct kernel *k);
/* A cell has begun, perhaps the one that is to be stopped. */
void kernel_ladder_begin(struct kernel *k);
/* The cell has ended by itself (NULL: whatever ran). */
void kernel_ladder_end(struct kernel *k, const char *id);

/* --- kernel_status.c: what messages say about the kernel itself --- */
/* JSON of a header in our own name; returns its length. id and type are plain. */
size_t kernel_make_header(struct kernel *k, const char *type, const char *id, char *text, size_t size);
size_t kernel_make_header_of(struct kernel *k, const char *type, const char *id, const char *session, char *text,
                             size_t size);
void kernel_note(struct kernel *k, const struct kernel_message *m);
/* It has been at nobody's cell for a while. Of one that an earlier front has started that is not known until it says
 * something. */
bool kernel_has_time(const struct kernel *k);
/* Asks for kernel_info in our own name; the answer is for nobody else. */
void kernel_ask_info(struct kernel *k);
bool kernel_message_is_idle(const struct kernel_message *m);
bool kernel_is_own(const struct kernel *k, const struct kernel_message *m);

/* --- kernel_raw.c --- */
void kernel_raw_take(struct kernel *k, unsigned stream, const char *data, size_t size);
void kernel_raw_end(struct kernel *k);

/* --- kernel_run.c --- */
/* The kernel is dead and will be forgotten: so are its runs. */
void kernel_runs_end(struct kernel *k);
/* Without a word to anybody. */
void kernel_runs_drop(struct kernel *k);
/* Those that wait for a bill which will never come. */
void kernel_runs_drop_leaving(struct box *box);

/* --- kernel_start.c: the command of its process --- */
MUST_CHECK int kernel_launch(struct kernel *k, struct err *e);

#endif
