/* The decision about a Sandbox, a pure function of the cache: sandbox_plan(view) gives the next writes or, if there are
 * none, the status. It is called again after the writes. */
#ifndef CARREL_CLUSTER_SANDBOX_H
#define CARREL_CLUSTER_SANDBOX_H

#include "cluster/object.h"
#include "cluster/texts.h"

struct buf;

/* Flags of the program; an annotation on a Sandbox overrides the first four of type bool. */
struct policy {
    const char *cluster_domain;
    bool secure_defaults, retain_volumes, recreate_on_change, release_volumes;
    bool evictable_pools;               /* an autoscaler may evict the Pods of a pool */
    bool quiet_claims, bare_claims;     /* no events about claims; no annotations with times on them */
    const char *label_domains;          /* of additionalPodMetadata: separated by commas; NULL: sandbox.users.io */
    /* Pools: */
    unsigned max_batch;
    double   refill_rate;               /* Sandboxes per second; 0: as many as are missing */
    uint64_t replenish_delay_ms, grace_ms, recheck_ms;
};

struct view {
    const struct sandbox *box;
    const struct pod     *named;                /* the Pod with the expected name */
    const struct pod     *owned;                /* a Pod that it controls */
    size_t                n_owned;
    const struct service *service;
    const struct claim   *claim[CLAIMS_MAX];    /* in the order of box->claims */
    const struct policy  *policy;
    int64_t               now;                  /* seconds */
    /* Failed writes of this pass, as sentences; they are not planned again. NULL: none. */
    const char *claim_error, *pod_error, *service_error;
};

enum act {
    ACT_FETCH,              /* the needed template was dropped: GET the Sandbox */
    ACT_CREATE_CLAIM, ACT_ADOPT_CLAIM, ACT_DISOWN_CLAIM,
    ACT_CREATE_POD, ACT_ADOPT_POD, ACT_PATCH_POD, ACT_DELETE_POD,
    ACT_CREATE_SERVICE, ACT_ADOPT_SERVICE, ACT_PATCH_SERVICE, ACT_DELETE_SERVICE,
    ACT_FORGET_POD_NAME,    /* the annotation on the Sandbox names a missing Pod */
    ACT_SUSPEND, ACT_RESUME,    /* replicas becomes operatingMode */
    ACT_DELETE_SANDBOX,
    ACT_NOTE,               /* annotations: why the Pod died or does not start, what waits for its end */
};

struct action {
    enum act             act;
    uint16_t             index;         /* of a claim in box->claims */
    const struct object *object;        /* to change or delete; NULL: create */
};

struct status {
    struct condition condition[CONDITIONS];
    const char *service, *fqdn, *selector, *ips, *node;
    int8_t      replicas;               /* -1: none */
};

enum { PLAN_ACTIONS_MAX = CLAIMS_MAX + 8 };

struct plan {
    struct action action[PLAN_ACTIONS_MAX];
    size_t        n_actions;
    /* Only if there are no actions: */
    struct status status;
    bool          differs;              /* from the Sandbox's present status */
    bool          is_urgent;            /* a client may wait for this change */
    bool          failed;               /* retry later */
    bool          many_pods;
    const char   *trouble, *waiting;    /* for ACT_NOTE; NULL: remove the annotation */
    int64_t       wake_at;              /* run again then; 0: at the next change */
    struct texts  texts;                /* the status borrows from these */
};

void sandbox_plan(const struct view *v, struct plan *ret);

bool sandbox_is_suspended(const struct sandbox *s);
bool sandbox_wants(uint8_t annotation, bool flag);
/* The name of the Pod: the annotation's, or its own. */
const char *sandbox_pod_name(const struct sandbox *s);

/* Bodies of the writes. The template must be there for the first three. */
void sandbox_write_pod(const struct sandbox *s, const struct policy *p, struct buf *out);
void sandbox_write_claim(const struct sandbox *s, const struct policy *p, size_t index, struct buf *out);
void sandbox_write_service(const struct sandbox *s, struct buf *out);
void sandbox_write_service_patch(const struct sandbox *s, const struct service *now, bool adopt, struct buf *out);
void sandbox_write_adoption(const struct sandbox *s, const struct object *o, struct buf *out);
void sandbox_write_disowning(const struct sandbox *s, const struct object *o, struct buf *out);
/* False: the Pod's labels and annotations are right; out is unchanged. */
bool sandbox_write_pod_patch(const struct sandbox *s, const struct policy *p, const struct pod *pod, bool adopt,
                             struct buf *out);
void sandbox_write_status(const struct sandbox *s, const struct status *status, struct buf *out);
void sandbox_write_mode(bool suspend, struct buf *out);
void sandbox_write_notes(const struct plan *plan, struct buf *out);

#endif
