/* An exec that belongs to a kernel or a service: its process or worker. Its standard input is a link (proto/link.h)
 * instead of a pipe, and its output goes to its owner instead of a log. Execs know their owners by this table only. */
#ifndef CARREL_FRONT_EXECS_EXEC_OWNER_H
#define CARREL_FRONT_EXECS_EXEC_OWNER_H

#include "front/execs/execs.h"

/* How a process was started. */
struct exec_birth {
    enum way way;
    uint64_t cpu_us;        /* its box's usage so far, of a parked one; else 0 */
};

struct exec_owner {
    const char *name;       /* in the exec's row and in the API */
    /* An earlier front has started it; x->about identifies it. Called also when only the connection to the keeper was
     * lost and x->owned_by is set. birth NULL: it has ended already, and on_end() follows. */
    void (*adopt)(struct exec *x, const struct exec_birth *birth);
    /* It runs. May be NULL. */
    void (*on_state)(struct exec *x, const struct exec_birth *birth);
    /* There is output: read the link first, because a message there may show what the output belongs to. May be
     * NULL. */
    void (*before_output)(struct exec *x);
    void (*on_output)(struct exec *x, unsigned stream, const char *data, size_t size);
    /* It has ended; its link can still be read. */
    void (*on_end)(struct exec *x);
};

/* Our end of the link, borrowed; -1: it was lost, or the exec has ended. */
int  exec_link(const struct exec *x);
/* Passes all output so far to its owner. */
void exec_pull(struct exec *x);
/* Stops or resumes reading its output. */
void exec_hold(struct exec *x, bool hold);
/* Its owner abandons and kills it. If the signal is lost, with the keeper's connection or with this front, the process
 * is killed when it is found again. */
void exec_disown(struct exec *x);

#endif
