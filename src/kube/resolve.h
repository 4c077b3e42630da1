/* Looks up a host's addresses. */
#ifndef CARREL_KUBE_RESOLVE_H
#define CARREL_KUBE_RESOLVE_H

#include <netdb.h>

#include "http/loop.h"

/* A running lookup. Zeroed = none runs. */
struct kube_resolve {
    struct loop        *loop;
    struct loop_fd      watch;
    struct resolve_job *job;
    /* Once, from the loop. The callee frees found; NULL if there is none. */
    void (*on_done)(struct kube_resolve *r, struct addrinfo *found);
};

/* Blocks for DNS. */
MUST_CHECK int kube_resolve_now(const char *host, const char *port, struct addrinfo **ret, struct err *e);
/* Does not block. r->on_done must be set. */
MUST_CHECK int kube_resolve_start(struct kube_resolve *r, struct loop *l, const char *host, const char *port);
void kube_resolve_stop(struct kube_resolve *r);

#endif
