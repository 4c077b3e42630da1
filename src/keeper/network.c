#define _GNU_SOURCE
#include "keeper/network.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fd.h"

static int make_connection(const struct engine_box *box, const struct request_socket *q, struct err *e)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)q->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)q->port),
                               .sin6_addr = IN6ADDR_LOOPBACK_INIT };

    if (q->port < 1 || q->port > 65535)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "port");
    /* A connection to the inlet is identified as the box: callers of the front would get the box's grants, and so would
     * pages of other boxes. */
    if (q->port == KEEPER_INLET_PORT)
        return err_set(e, EPERM, STEP_USAGE,
                       "port %u of a box is for its grants; only what runs in the box may connect there", q->port);
    FD fd = box_socket(box, q->ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM, e);
    if (fd < 0)
        return fd;
    int r = q->ipv6 ? connect(fd, (struct sockaddr *)&v6, sizeof v6) : connect(fd, (struct sockaddr *)&v4, sizeof v4);
    if (r < 0 && errno != EINPROGRESS)
        return err_set(e, errno, STEP_NETWORK, "port %u of the box", q->port);
    return TAKE_FD(fd);
}

/* The box keeps a copy. */
static int make_inlet(struct engine_box *box, const struct request_socket *q, struct err *e)
{
    if (q->port != KEEPER_INLET_PORT)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "port");
    int r = box_open_inlet(box, KEEPER_INLET_PORT, e);

    if (r < 0)
        return r;
    int fd = fcntl(box->inlet, F_DUPFD_CLOEXEC, 3);
    return fd < 0 ? err_at(e, errno, STEP_NETWORK, 0, "inlet") : fd;
}

int keeper_make_socket(struct engine_box *box, const struct request_socket *q, struct err *e)
{
    switch (q->use) {
    case SOCKET_CONNECT:
        return make_connection(box, q, e);
    case SOCKET_LISTEN:
        return make_inlet(box, q, e);
    default:
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "socket");
    }
}
