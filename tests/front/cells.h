/* Those who have cells run in kernels, and those who listen to them. */
#ifndef CARREL_TESTS_FRONT_CELLS_H
#define CARREL_TESTS_FRONT_CELLS_H

#include "front/kernels/kernel_run.h"
#include "front/stage.h"

struct cell {
    struct wish       *wish;
    struct kernel_run *run;             /* until it is over */
    bool               was_refused;
    bool               asks;            /* it has asked for input */
    enum outcome       outcome;
    unsigned           restarts;
    char               reason[480], text[8192];     /* text: all that it printed */
};

struct cell_options {
    uint64_t timeout_ms;        /* 0: enough for all that goes well */
    uint64_t output_bytes;      /* 0: enough */
    bool     restart;           /* of a dead kernel */
};

/* The kernel of this box, or the one that is started there now; NULL: there can be none. */
struct kernel *kernel_of(const char *box);
int            raise_kernel(const char *box);

/* A cell outlives its scene, as a wish does. */
struct cell   *begin_cell(const char *box, const char *code, const struct cell_options *o);
/* Until the kernel says that it runs. False: it will not. */
bool           until_it_runs(struct cell *c);
bool           until_it_asks(struct cell *c);
/* 0 if it ended so and printed this; of a scene that nothing disturbs it must have, and a cell that went well has
 * printed all of it in any case. */
int            end_cell(struct cell *c, enum outcome outcome, const char *text);
/* All three. */
int            run_cell(const char *box, const char *code, enum outcome outcome, const char *text);

/* A listener that can be slow. */
struct listener {
    struct kernel_client client;
    bool                 is_slow;       /* takes one message at a time */
    uint64_t             last;          /* number of the newest message; each must be the next */
    unsigned             n, states;
};
void listen_to(struct kernel *k, struct listener *l);
/* After it was away: nothing is missing that the ring has. */
void listen_again(struct kernel *k, struct listener *l);

/* For is_quiet and check_more. */
bool kernels_are_quiet(void);
void check_kernels(void);

#endif
