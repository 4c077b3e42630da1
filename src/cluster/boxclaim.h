/* The decision about a SandboxClaim, a pure function of the cache: boxclaim_plan(view) gives the next writes or, if
 * there are none, the status. */
#ifndef CARREL_CLUSTER_BOXCLAIM_H
#define CARREL_CLUSTER_BOXCLAIM_H

#include "cluster/extension.h"
#include "cluster/sandbox.h"

struct boxclaim_view {
    const struct boxclaim  *claim;
    const struct pool      *pool;               /* NULL: it does not exist */
    const struct template  *template;           /* of the pool, or of the claim (v1alpha1); NULL: it does not exist */
    const char             *template_name;      /* the wanted one; NULL: unknown without a pool */
    const struct sandbox  **owned;              /* controlled by the claim */
    const struct sandbox  **member;             /* of the pool, controlled by it */
    size_t                  n_owned, n_members;
    const struct sandbox   *named;              /* the one of the claim's own name */
    const struct sandbox   *assigned;           /* the one that the claim's annotation names */
    const struct netpolicy *policy_left;        /* "CLAIM-network-policy", of old releases */
    const struct policy    *policy;
    const char             *error;              /* a failed write of this pass, as a sentence; NULL: none */
    int64_t                 now_us;             /* since 1970 */
};

enum boxclaim_act {
    BOXCLAIM_ADOPT,         /* box, a member of the pool, becomes the claim's */
    BOXCLAIM_CREATE,        /* a Sandbox of the claim's name */
    BOXCLAIM_ALIGN,         /* box: labels and annotations */
    BOXCLAIM_NOTE,          /* annotations on the claim itself */
    BOXCLAIM_DELETE_BOX,
    BOXCLAIM_DELETE_POLICY,
    BOXCLAIM_DELETE,        /* the claim, by its shutdownPolicy */
};

/* The wanted annotations of the claim itself. */
struct boxclaim_notes {
    const char *assigned, *trouble;     /* NULL: none */
    int64_t     observed_us;            /* 0: leave it */
    int64_t     ready_us;               /* 0: leave it; -1: unknown */
};

struct boxclaim_status {
    struct condition ready, finished;
    const char      *name, *ips, *fqdn;
};

struct boxclaim_plan {
    enum boxclaim_act     action[4];
    size_t                n_actions;
    const struct sandbox *box;          /* the subject of the actions, or the one whose status is forwarded */
    struct boxclaim_notes notes;
    /* Only if there are no actions: */
    struct boxclaim_status status;
    bool                   differs, is_urgent, failed;
    bool                   has_trouble;     /* a new one, in notes.trouble */
    uint64_t               wake_ms;     /* from now; 0: when something changes */
    struct texts           texts;
};

void boxclaim_plan(const struct boxclaim_view *v, struct boxclaim_plan *ret);

/* Chooses the member for a claim: one that is Ready if possible, on the node with the most of them, the oldest.
 * ret_pending: how many members only lack an address. NULL: none. */
const struct sandbox *boxclaim_pick(const struct boxclaim_view *v, size_t *ret_pending);

/* Whether a Sandbox can be made or adopted for this claim. False: *ret_reason and *ret_text have the reason. */
bool boxclaim_check_metadata(const struct boxclaim *c, const char *domains, struct texts *texts, const char **ret_text);
bool boxclaim_check_merge(const struct boxclaim_view *v, struct texts *texts, const char **ret_text);
bool boxclaim_check_cold(const struct boxclaim_view *v, struct texts *texts, const char **ret_reason,
                         const char **ret_text);

/* Whether the Sandbox has the labels and annotations of template and claim. */
bool boxclaim_is_aligned(const struct boxclaim_view *v, const struct sandbox *box);

void boxclaim_write_box(const struct boxclaim_view *v, struct buf *out);
void boxclaim_write_adoption(const struct boxclaim_view *v, const struct sandbox *box, struct buf *out);
void boxclaim_write_alignment(const struct boxclaim_view *v, const struct sandbox *box, struct buf *out);
void boxclaim_write_notes(const struct boxclaim *c, const struct boxclaim_notes *notes, struct buf *out);
void boxclaim_write_status(const struct boxclaim *c, const struct boxclaim_status *s, struct buf *out);

#endif
