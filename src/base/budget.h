/* Who holds how much of what all callers share: the front's memory in bytes, its connections in pieces. Whoever keeps
 * something for a caller has a share of that caller's budget and says there how large the thing was and is; a share
 * that is left gives back what it still has, so that nothing can stay charged to nobody. One thread. */
#ifndef CARREL_BASE_BUDGET_H
#define CARREL_BASE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { BUDGETS_BUCKETS = 64 };

struct budget;          /* of one owner; it lives as long as there is a share of it */

struct budgets {
    uint64_t       most;        /* for each owner; 0: no bound */
    struct budget *bucket[BUDGETS_BUCKETS];
};

/* Embedded in what it is about. Zeroed: of nobody, and without a bound. */
struct share {
    struct budget *budget;
    uint64_t       held;
};

/* What share_move() refuses, in words for the one who asked. */
#define SHARE_FULL                                                                                         \
    "the server keeps as much for you as it may (quota.buffers); read what was answered, let commands and " \
    "kernels take their input, or end them; then try again"

/* What the share holds already is charged to the owner whatever is left. -ENOMEM: it is of nobody then. */
MUST_CHECK int share_join(struct share *s, struct budgets *all, const char *owner);
bool           share_is_of(const struct share *s, const char *owner);
/* Something changes its size. False: there is no room for more, and nothing has changed; less is always possible. */
bool           share_move(struct share *s, uint64_t from, uint64_t to);
/* Whether so much more would be possible. */
bool           share_fits(const struct share *s, uint64_t more);
void           share_leave(struct share *s);

/* Memory: what is small costs nothing, so that who has used up the budget can still ask, stop and delete. */
enum { SHARE_SMALL_BYTES = 16384 };
static inline bool share_move_bytes(struct share *s, uint64_t from, uint64_t to)
{
    return share_move(s, from > SHARE_SMALL_BYTES ? from : 0, to > SHARE_SMALL_BYTES ? to : 0);
}

bool           budgets_are_empty(const struct budgets *all);

#endif
