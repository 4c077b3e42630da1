/* A cell on its way through a server: what it prints and shows goes to standard output and error as it comes. */
#ifndef CARREL_CLIENT_KERNEL_CELL_H
#define CARREL_CLIENT_KERNEL_CELL_H

#include <signal.h>

#include "client/client.h"

struct cell {
    const struct client *client;
    const char          *box;           /* NULL: a box of its own */
    bool                 json;          /* events as they are, one a line */
    bool                 interruptible; /* Ctrl-C interrupts the cell instead of ending this program */
    bool                 own_input;     /* input() is asked of our standard input */
    json_t              *end;           /* owned: the last event, once it came */
};

/* Runs it; body is taken over. 0, or -1 after the reason was told. */
MUST_CHECK int cell_run(struct cell *c, json_t *body);
void           cell_done(struct cell *c);
/* What this program's exit status is; what is worth a word is told. */
int            cell_exit(const json_t *end);
/* Waits for something to read, or for SIGINT, whose handler sets the flag: also one that came before. */
void           cell_wait(int fd, const volatile sig_atomic_t *flag);

#endif
