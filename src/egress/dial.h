/* Connecting to the first of several addresses that answers. An address gets 250 ms until the next one is tried beside
 * it, all together 15 seconds. */
#ifndef CARREL_EGRESS_DIAL_H
#define CARREL_EGRESS_DIAL_H

#include <sys/socket.h>

#include "egress/resolve.h"

enum { DIALING_ADDRESSES = 8 };

struct dialing;

struct dialing_attempt {
    struct loop_fd  watch;      /* fd -1: it has failed */
    struct dialing *dialing;
};

struct dialing {
    struct loop           *loop;
    struct net_address     address[DIALING_ADDRESSES];
    struct dialing_attempt attempt[DIALING_ADDRESSES];
    size_t                 n, begun;
    uint16_t               port;
    bool                   own_is_accepted;     /* the policy names an address of the host that is among them */
    int                    failure;
    struct loop_timer      next, all;
    struct loop_task       fail;
    /* fd: connected, now the owner's; or -errno of the last attempt. From the loop, once. The dialing may be freed. */
    void (*on_done)(struct dialing *d, int fd, const struct net_address *address);
    void *owner;
};

/* Of these addresses those that the policy accepts for this port and that the host has a route to, in the order in
 * which they are tried. Returns how many; *ret_refused is one that is not accepted, if there is any. */
size_t dialing_choose(struct dialing *d, const struct net_policy *policy, enum net_reach reach,
                      const struct net_address *from, size_t n, uint16_t port, struct net_address *ret_refused);
/* With what was chosen. */
void   dialing_start(struct dialing *d, struct loop *l);
void   dialing_stop(struct dialing *d);

void   dial_fill(const struct net_address *address, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_size);
/* IPv4 that is mapped into IPv6 becomes IPv4. False: another family. */
bool   dial_read(const struct sockaddr_storage *from, struct net_address *ret, uint16_t *ret_port);

#endif
