/* Runs a cell through a server and passes its output on as it comes. */
#ifndef CARREL_CLIENT_KERNEL_CELL_H
#define CARREL_CLIENT_KERNEL_CELL_H

#include <signal.h>

#include "client/client.h"

struct cell {
    const struct client *client;
    const char          *box;           /* NULL: a box of its own */
    bool                 json;          /* print events unchanged, one a line */
    bool                 interruptible; /* Ctrl-C interrupts the cell instead of ending this program */
    bool                 own_input;     /* input() reads our standard input */
    void               (*on_answer)(int status, void *arg);    /* NULL: none; the server answers */
    void                *arg;
    json_t              *end;           /* owned: the last event, once received */
};

/* Runs it; body is taken over. 0, or -1 after the error was reported. */
MUST_CHECK int cell_run(struct cell *c, json_t *body);
void           cell_done(struct cell *c);
/* This program's exit status; reports an unusual end. */
int            cell_exit(const json_t *end);
/* Waits for input, or for SIGINT, whose handler sets the flag: also for one that came before. */
void           cell_wait(int fd, const volatile sig_atomic_t *flag);

#endif
