/* The decision about a SandboxWarmPool, a pure function of the cache: pool_plan(view) gives the Sandboxes to delete and
 * to take over, the number to create, and the status. */
#ifndef CARREL_CLUSTER_POOL_H
#define CARREL_CLUSTER_POOL_H

#include "cluster/extension.h"
#include "cluster/sandbox.h"

struct pool_view {
    const struct pool      *pool;
    const struct template  *template;           /* NULL: it does not exist */
    const struct sandbox  **member;             /* controlled by the pool */
    const struct sandbox  **orphan;             /* with the pool's label and no controller */
    size_t                  n_members, n_orphans;
    const struct policy    *policy;
    const char             *error;              /* a failed write of this pass, as a sentence; NULL: none */
    bool                    is_contended;       /* claims are being served now */
    int64_t                 now;                /* seconds */
    uint64_t                now_ms;             /* of the loop's clock */
};

enum pool_act { POOL_DELETE, POOL_ADOPT, POOL_LABEL };

struct pool_action {
    enum pool_act         act;
    const struct sandbox *box;
    const char           *why;          /* for the log; static */
};

struct pool_plan {
    struct pool_action *action;         /* the caller's, with room for one action per member and orphan */
    size_t              n_actions;
    unsigned            n_create;
    /* The status: */
    int64_t             replicas, ready;
    char                selector[64];
    bool                differs, is_urgent;
    bool                is_stuck;       /* unschedulable members are held; stuck has their number */
    char                stuck[256];
    uint64_t            wake_ms;        /* from now; 0: when something changes */
    struct pool_memory  memory;         /* to keep for the next run */
};

void pool_plan(const struct pool_view *v, struct pool_plan *ret);

/* Whether the member differs from the present template. */
bool pool_is_stale(const struct sandbox *box, const struct template *t);
/* Whether a claim may take the Sandbox: it is a member, and is not being deleted. */
bool pool_may_give(const struct pool *pool, const struct sandbox *box);

enum { BOX_NAME_SIZE = 64 };
/* A name for a new member: the pool's, shortened if necessary, and five random characters, as generateName gives. */
void pool_name_box(const struct pool *pool, uint64_t random, char name[static BOX_NAME_SIZE]);
void pool_write_box(const struct pool *pool, const struct template *t, const char *name, struct buf *out);
void pool_write_adoption(const struct pool *pool, const struct sandbox *box, struct buf *out);
void pool_write_label(struct buf *out);
void pool_write_status(const struct pool *pool, const struct pool_plan *plan, struct buf *out);

#endif
