/* A command's output as it comes, from the log that the server keeps: after a broken connection it resumes where it
 * was. */
#ifndef CARREL_CLIENT_FOLLOW_H
#define CARREL_CLIENT_FOLLOW_H

#include "client/client.h"
#include "client/jobs.h"
#include "client/wire/heed.h"

struct follow {
    const struct client *client;
    const char          *box;           /* borrowed */
    char                 exec[JOB_ID_BYTES];    /* "": unknown yet */
    uint64_t             offset;        /* of the output already shown */
    bool                 follows;       /* wait for the command's end */
    bool                 json;          /* lines as they are, instead of the output */
    bool                 cut;           /* our own output is closed */
    heed_stop           *stop;          /* called while output is written; NULL: signals end us directly */
    void                *stop_arg;
    bool                 stopped;       /* stop wanted it */
    bool                 interrupted;   /* a pending signal interrupted the last start or attach */
    struct buf          *capture;       /* borrowed: two buffers instead of standard output and error; NULL: none */
    struct exchange     *x;             /* owned; NULL: none */
    struct buf           line;
    json_t              *end;           /* owned: the exit event, once received */
};

void           follow_init(struct follow *f, const struct client *c, const char *box);
void           follow_done(struct follow *f);

/* Starts the command of this body. 0, or -1 after an error was reported, or for a pending signal. */
MUST_CHECK int follow_start(struct follow *f, json_t *body);
/* Attaches at the offset. 0, or -1 as above; with patience it retries for some seconds while the server is away. */
MUST_CHECK int follow_attach(struct follow *f, bool patience);

/* Passes on one piece. 1: that was all (f->end is set if the command has ended); 0: more will come, poll f->x->fd (with
 * wait: a piece was passed on); -ECONNRESET: the server is gone; -1: another error, which was reported. */
MUST_CHECK int follow_step(struct follow *f, bool wait);

/* The end of a command, from the exit event or from the ended command itself. */
struct ending  ending_of(const json_t *end);
/* One line on standard error if it never ran, or if a limit ended it. */
void           tell_ending(const json_t *end);
/* Reports refused connections of the box, from the end of a command, a cell or a call. */
void           tell_refused(const json_t *end);
/* The exit status of this program. caught: the signal that it passed on; 0: none. */
int            exit_of(const json_t *end, int caught);

#endif
