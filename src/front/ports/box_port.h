/* A TCP connection to a port of a box that is being made. Embedded in its owner. */
#ifndef CARREL_FRONT_PORTS_BOX_PORT_H
#define CARREL_FRONT_PORTS_BOX_PORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "http/loop.h"

struct box;
struct front;

struct box_port {
    struct front     *front;
    struct box       *box;          /* until it is connected */
    uint32_t          port;
    bool              ipv6;
    uint32_t          serial;       /* of the request to the keeper; 0: none */
    struct loop_fd    watch;        /* while it connects */
    int               fd;           /* owned; -1 */
    struct loop_timer timer;
    void (*on_connected)(struct box_port *p, int fd);       /* the callee owns fd */
    /* STEP_NETWORK: the port did not answer; ECONNREFUSED, ETIMEDOUT or another errno of a connection. Otherwise the
     * keeper could not try. */
    void (*on_failed)(struct box_port *p, const struct err *e);
};

/* Calls one of the two, from the loop, unless box_port_close() comes first. -EBUSY: the box does not run. */
MUST_CHECK int box_port_open(struct box_port *p, struct box *box, uint16_t port,
                             void (*on_connected)(struct box_port *p, int fd),
                             void (*on_failed)(struct box_port *p, const struct err *e), struct err *e);
/* At any time, also again. */
void           box_port_close(struct box_port *p);

#endif
