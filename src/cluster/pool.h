/* What a SandboxWarmPool needs now, as a pure function of what is known: pool_plan(view) says which Sandboxes to
 * delete, to take over and how many to create, and what the status is. */
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
    const char             *error;              /* a write that failed in this pass, in words; NULL: none */
    bool                    is_contended;       /* claims are being served right now */
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
    struct pool_action *action;         /* the caller's, room for one for each member and orphan */
    size_t              n_actions;
    unsigned            n_create;
    /* The status: */
    int64_t             replicas, ready;
    char                selector[64];
    bool                differs, is_urgent;
    bool                is_stuck;       /* unschedulable members are held; stuck says how many */
    char                stuck[256];
    uint64_t            wake_ms;        /* from now; 0: when something changes */
    struct pool_memory  memory;         /* to be kept for the next look */
};

void pool_plan(const struct pool_view *v, struct pool_plan *ret);

/* Whether a member was made from something else than the template is now. */
bool pool_is_stale(const struct sandbox *box, const struct template *t);
/* Whether a claim may take it: it is a member, and is not being deleted. */
bool pool_may_give(const struct pool *pool, const struct sandbox *box);

enum { BOX_NAME_SIZE = 64 };
/* A name for a new member: the pool's, cut if it is long, and five random characters, as generateName would give. */
void pool_name_box(const struct pool *pool, uint64_t random, char name[static BOX_NAME_SIZE]);
void pool_write_box(const struct pool *pool, const struct template *t, const char *name, struct buf *out);
void pool_write_adoption(const struct pool *pool, const struct sandbox *box, struct buf *out);
void pool_write_label(struct buf *out);
void pool_write_status(const struct pool *pool, const struct pool_plan *plan, struct buf *out);

#endif
