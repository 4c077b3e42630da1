/* What a Sandbox needs now, as a pure function of what is known: sandbox_plan(view) gives the writes to make next, or,
 * when there is nothing more to write, the status. After the writes it is asked again. */
#ifndef CARREL_CLUSTER_SANDBOX_H
#define CARREL_CLUSTER_SANDBOX_H

#include "cluster/object.h"
#include "cluster/texts.h"

struct buf;

/* Flags of the program; an annotation on a Sandbox overrules the first four of type bool. */
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
    const struct pod     *named;                /* the Pod of the name it should have */
    const struct pod     *owned;                /* one that it controls */
    size_t                n_owned;
    const struct service *service;
    const struct claim   *claim[CLAIMS_MAX];    /* in the order of box->claims */
    const struct policy  *policy;
    int64_t               now;                  /* seconds */
    /* Writes that failed in this pass, in words; they are not planned again. NULL: none. */
    const char *claim_error, *pod_error, *service_error;
};

enum act {
    ACT_FETCH,              /* the template is needed and was dropped: get the Sandbox */
    ACT_CREATE_CLAIM, ACT_ADOPT_CLAIM, ACT_DISOWN_CLAIM,
    ACT_CREATE_POD, ACT_ADOPT_POD, ACT_PATCH_POD, ACT_DELETE_POD,
    ACT_CREATE_SERVICE, ACT_ADOPT_SERVICE, ACT_PATCH_SERVICE, ACT_DELETE_SERVICE,
    ACT_FORGET_POD_NAME,    /* the annotation on the Sandbox leads nowhere */
    ACT_SUSPEND, ACT_RESUME,    /* replicas becomes operatingMode */
    ACT_DELETE_SANDBOX,
    ACT_NOTE_TROUBLE,       /* why the Pod died or does not start, as an annotation */
};

struct action {
    enum act             act;
    uint16_t             index;         /* of a claim in box->claims */
    const struct object *object;        /* what is changed or deleted; NULL: it is created */
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
    bool          differs;              /* from what the Sandbox says */
    bool          is_urgent;            /* somebody may wait for just this change */
    bool          failed;               /* try again later */
    bool          many_pods;
    const char   *trouble;              /* for ACT_NOTE_TROUBLE; NULL: there is none any more */
    int64_t       wake_at;              /* look again then; 0: when something changes */
    struct texts  texts;                /* what the status points to */
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
/* False: the Pod's labels and annotations are as they should be, and out is as it was. */
bool sandbox_write_pod_patch(const struct sandbox *s, const struct policy *p, const struct pod *pod, bool adopt,
                             struct buf *out);
void sandbox_write_status(const struct sandbox *s, const struct status *status, struct buf *out);
void sandbox_write_mode(bool suspend, struct buf *out);
void sandbox_write_trouble(const char *trouble, struct buf *out);

#endif
