/* A running command: its stdio, its deadline, its signals. */
#ifndef CARREL_CLI_FOREGROUND_H
#define CARREL_CLI_FOREGROUND_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "box/box.h"
#include "cli/egress.h"
#include "cli/options/options.h"
#include "cli/stream.h"

struct foreground {
    const struct run_options *options;
    struct engine_box        *box;
    struct payload           *payload;
    struct run_egress        *egress;       /* NULL: the box has no network */
    struct stream             in, out, err;
    int                       signals;      /* owned: signalfd */
    int                       stdio[3];     /* owned: the command's ends, until it has inherited them */
    bool                      started, ended;
    bool                      abandoned;    /* ended, and no longer waiting for the delivery of its output */
    uint64_t                  eof_us;       /* when the end of our input is sent to the terminal again; 0: now */
    bool                      raw;          /* our terminal is in raw mode */
    struct termios            saved;
    enum outcome              cause;        /* why we ended it; OUTCOME_NONE: we did not */
    int                       forwarded;    /* the first signal that we received, or 0 */
    uint64_t                  deadline_us;  /* 0: none */
    uint64_t                  born_us, started_us, ended_us;
    struct process_end        end;
};

/* Makes the pipes (or prepares the terminal). Starts nothing. */
MUST_CHECK int foreground_open(struct foreground *s, const struct run_options *options, struct buf *out,
                               struct buf *err, struct err *e);

/* Runs the loop until the command has ended or failed to start. */
MUST_CHECK int  foreground_run(struct foreground *s, struct engine_box *box, struct payload *payload, struct err *e);

void            foreground_close(struct foreground *s);

#endif
