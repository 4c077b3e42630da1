/* A line about the packages of a box that is being made. */
#ifndef CARREL_CLIENT_PROGRESS_H
#define CARREL_CLIENT_PROGRESS_H

#include <stdint.h>
#include <sys/types.h>

#include "client/client.h"

struct packages_progress {
    const struct client *client;
    char                 box[64];       /* its id, or its name */
    uint64_t             after;         /* number of the last event */
    uint64_t             start_us;
    bool                 talks;         /* standard error is a terminal */
    bool                 is_shown;      /* a line */
    pid_t                pid;           /* of progress_watch(); 0: none */
};

void progress_init(struct packages_progress *p, const struct client *c, const char *box);
/* Shows the events since the last call. */
void progress_look(struct packages_progress *p);
/* Ends the line. made: the packages are there. */
void progress_done(struct packages_progress *p, bool made);

/* Shows them from a child, for a command that waits for its own request, until progress_unwatch(). */
void progress_watch(struct packages_progress *p);
void progress_unwatch(struct packages_progress *p);

#endif
