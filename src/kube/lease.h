/* Leader election by a Lease, compatible with client-go's: of several controllers with the same lease, one acts. */
#ifndef CARREL_KUBE_LEASE_H
#define CARREL_KUBE_LEASE_H

#include "base/jsonscan.h"
#include "kube/client.h"

enum { LEASE_DURATION_MS = 15000, LEASE_RENEW_MS = 10000, LEASE_RETRY_MS = 2000 };

struct kube_lease {
    /* Set by the owner. */
    struct kube_client *client;
    struct loop        *loop;
    const char         *name, *namespace, *identity;
    void (*on_held)(struct kube_lease *l);
    void (*on_lost)(struct kube_lease *l, const char *why);     /* no writes from now on */
    void (*on_other)(struct kube_lease *l, const char *holder); /* another holds it; once for each holder */
    void (*on_released)(struct kube_lease *l);
    void (*on_trouble)(struct kube_lease *l, const char *text);

    bool              held, releasing, ended;
    uint64_t          until_ms;         /* held until then, unless renewed */
    uint64_t          asked_ms;         /* when the present call was sent */
    /* The record as last seen, and the time of its last change. */
    char              version[64], holder[256], renewed[48];
    unsigned long long transitions;
    uint64_t          seen_ms, seen_for_ms;     /* the duration that the record names */
    struct kube_call  call;
    struct loop_timer tick, end;
    unsigned          failures;
};

void kube_lease_start(struct kube_lease *l);
/* Releases it, so that another replica need not wait; then on_released(). */
void kube_lease_release(struct kube_lease *l);
void kube_lease_stop(struct kube_lease *l);

/* Checked before every write: a process that was stopped for a while may have lost the lease without noticing. */
bool kube_lease_is_held(const struct kube_lease *l);

/* Reads the record. False: it is no Lease. */
bool kube_lease_take(struct kube_lease *l, struct jsonslice object, uint64_t now_ms);

#endif
