/* A command's output as it comes, from the log that the server keeps: if the connection breaks it goes on where
 * it was. */
#ifndef CARREL_CLIENT_FOLLOW_H
#define CARREL_CLIENT_FOLLOW_H

#include "client/client.h"
#include "client/jobs.h"
#include "client/wire/heed.h"

struct follow {
    const struct client *client;
    const char          *box;           /* borrowed */
    char                 exec[JOB_ID_BYTES];    /* "": not told yet */
    uint64_t             offset;        /* what was shown */
    bool                 follows;       /* wait for the command's end */
    bool                 json;          /* lines as they are, instead of the output */
    bool                 cut;           /* our own output is closed */
    heed_stop           *stop;          /* is asked while output is handed on; NULL: signals end us by themselves */
    void                *stop_arg;
    bool                 stopped;       /* stop wanted it */
    bool                 interrupted;   /* a signal that waits to be taken broke off the last start or attach */
    struct buf          *capture;       /* borrowed: two, for what would go to standard output and error; NULL: none */
    struct exchange     *x;             /* owned; NULL: none */
    struct buf           line;
    json_t              *end;           /* owned: the exit event, once it came */
};

void           follow_init(struct follow *f, const struct client *c, const char *box);
void           follow_done(struct follow *f);

/* Starts the command of this body. 0, or -1 after the reason was told, or for a signal that waits. */
MUST_CHECK int follow_start(struct follow *f, json_t *body);
/* Attaches at the offset. 0, or -1 as above; with patience the server may be away for some seconds. */
MUST_CHECK int follow_attach(struct follow *f, bool patience);

/* Hands on a piece of what there is. 1: that was all (f->end is set if the command has ended); 0: there will be more,
 * poll f->x->fd (with wait: something was handed on); -ECONNRESET: the server is gone; -1: something else, which was
 * told. */
MUST_CHECK int follow_step(struct follow *f, bool wait);

/* The end of a command as the server tells it: the exit event, or the command itself once it has ended. */
struct ending  ending_of(const json_t *end);
/* One line on standard error if it never ran, or if a limit ended it. */
void           tell_ending(const json_t *end);
/* What the box was refused on the network, of the end of a command or a cell. */
void           tell_refused(const json_t *end);
/* The exit status of this program. caught: the signal that it handed on; 0: none. */
int            exit_of(const json_t *end, int caught);

#endif
