/* A TCP connection to a port of a box, while it is being made. Embedded in its owner. */
#ifndef CARREL_DOORS_NATIVE_LINK_H
#define CARREL_DOORS_NATIVE_LINK_H

#include "doors/native/door.h"

struct link {
    struct ask     *ask;
    uint32_t        port;
    bool            ipv6;
    uint32_t        serial;         /* of the request to the keeper; 0: none */
    struct loop_fd  watch;          /* while it connects */
    int             fd;             /* owned; -1 */
    struct loop_timer timer;
    void (*on_connected)(struct link *l, int fd);       /* fd is the callee's */
};

/* Answers the request if nothing listens there; otherwise calls back. link_done() at any time. */
void link_open(struct link *l, struct ask *a, void (*on_connected)(struct link *l, int fd));
void link_done(struct link *l);

#endif
