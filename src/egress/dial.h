/* Connecting to the first of several addresses that answers. An address gets 250 ms until the next one is tried beside
 * it, all together 15 seconds. */
#ifndef CARREL_EGRESS_DIAL_H
#define CARREL_EGRESS_DIAL_H

#include <sys/socket.h>

#include "egress/resolve.h"

enum {
    DIALING_ADDRESSES = 8,
    /* Towards the network there must be room for the data in flight on a long line. */
    DIALING_WINDOW = 1 << 20,
};

struct dialing;

struct dialing_attempt {
    struct loop_fd  watch;      /* fd -1: failed */
    struct dialing *dialing;
};

struct dialing {
    struct loop           *loop;
    struct net_address     address[DIALING_ADDRESSES];
    struct dialing_attempt attempt[DIALING_ADDRESSES];
    size_t                 n, begun;
    struct fair_share     *share;               /* of descriptors: the first attempt is in it already */
    unsigned               n_extra;             /* taken from it for attempts beside that */
    uint16_t               port;
    int                    window_bytes;        /* that a server may send before the box reads */
    bool                   own_is_accepted;     /* the policy names an address of the host among them */
    int                    failure;
    struct loop_timer      next, all;
    struct loop_task       fail;
    /* fd: connected, now the owner's; or -errno of the last attempt. From the loop, once. The dialing may be freed. */
    void (*on_done)(struct dialing *d, int fd, const struct net_address *address);
    void *owner;
};

/* Selects those of the addresses that the policy accepts for this port and that the host has a route to, in the order
 * in which they are tried. Returns how many; *ret_refused is one that was refused, if any. */
size_t dialing_choose(struct dialing *d, const struct net_policy *policy, enum net_reach reach,
                      const struct net_address *from, size_t n, uint16_t port, struct net_address *ret_refused);
/* Dials the selected addresses. */
void   dialing_start(struct dialing *d, struct loop *l);
void   dialing_stop(struct dialing *d);

void   dial_fill(const struct net_address *address, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_size);
/* IPv4 mapped into IPv6 becomes IPv4. False: another family. */
bool   dial_read(const struct sockaddr_storage *from, struct net_address *ret, uint16_t *ret_port);

#endif
