/* Init's work for the processes of its box besides reaping: it makes netlink sockets for them, and answers their DNS
 * queries if the box has no network. */
#ifndef CARREL_BOX_DESK_H
#define CARREL_BOX_DESK_H

#include "base/err.h"
#include "proto/net.h"

struct engine_box;

enum { DESK_NAMES = 64 };   /* reported per second and command */

struct init_desk {
    int      door;      /* owned: listeners of the box's payloads arrive here, and refusals are reported here */
    int      events;    /* owned: epoll of all that init waits for */
    int      signals;   /* owned: SIGCHLD */
    int      census;    /* owned: /proc/net/protocols of the box; -1: missing, so all sockets are refused */
    int      resolver;  /* owned: 127.0.0.53:53 of a box without network; -1: egress has it, or it is closed */
    unsigned left;      /* netlink sockets that may be made before the next count */
    unsigned told;      /* names in this second, and since the last command began */
    int64_t  second;
};

/* Opens the descriptors while init has its capabilities. Init must be in the box's network, on its root, and have
 * SIGCHLD blocked. Takes over door. */
MUST_CHECK int desk_open(int door, bool has_network, struct init_desk *ret, struct err *e);

/* Never returns: reaps children, answers listeners and queries. */
_Noreturn void desk_serve(struct init_desk *desk);

/* For the keeper: a name that a program in a box without network looked up. 1: one was read; 0: there is none. */
MUST_CHECK int desk_hear(const struct engine_box *box, char ret[NET_NAME_SIZE]);
/* A command of the box begins: init reports its names, however many an earlier one looked up. */
void           desk_begin_command(const struct engine_box *box);
/* The box gets a network: init stops answering queries, egress takes over. */
void           desk_close_resolver(const struct engine_box *box);

#endif
