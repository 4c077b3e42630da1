/* The network of a box with egress: prepared so that each of its connections reaches a socket that carrel-egress
 * serves. */
#ifndef CARREL_BOX_EGRESS_H
#define CARREL_BOX_EGRESS_H

#include <stddef.h>

#include "base/err.h"
#include "proto/egress.h"
#include "sys/process.h"

struct engine_box;

struct egress_sockets {
    uint32_t way;               /* enum egress_way */
    uint32_t has;               /* enum egress_socket */
    size_t   n;
    int      fd[EGRESS_FDS];    /* owned; in the order of enum egress_socket */
};

/* Prepares routes, filter and sockets of the network that the calling process is in and has every capability over. The
 * caller owns the result, also after a failure. */
MUST_CHECK int egress_prepare(struct egress_sockets *ret, struct err *e);

/* The same by a child, for a box that is ready: if it had no network, or to make new sockets for a new egress. */
struct egress_job {
    struct process process;     /* the caller reaps it */
    int            link;        /* owned; readable when it is done */
};
MUST_CHECK int egress_job_start(const struct engine_box *box, struct egress_job *ret, struct err *e);
/* 1: the sockets are there; 0: not yet; -errno. After 1 and -errno the link is closed. */
MUST_CHECK int egress_job_take(struct egress_job *job, struct egress_sockets *ret, struct err *e);

void           egress_sockets_close(struct egress_sockets *sockets);

#endif
