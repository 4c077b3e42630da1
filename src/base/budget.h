/* How much each owner holds of what all callers share: bytes of the front's memory, connections. Code that keeps
 * something for a caller takes a share of that caller's budget and reports every change of size. Leaving a share gives
 * back what it still holds, so nothing stays charged. One thread. */
#ifndef CARREL_BASE_BUDGET_H
#define CARREL_BASE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { BUDGETS_BUCKETS = 64 };

struct budget;          /* of one owner; it lives as long as it has a share */

struct budgets {
    uint64_t       most;        /* for each owner; 0: unbounded */
    uint64_t       all_most;    /* for all of them together; 0: no bound */
    uint64_t       used;        /* by all of them */
    struct budget *bucket[BUDGETS_BUCKETS];
};

/* Embedded in the thing that it accounts for. Zeroed: it has no owner and no bound. */
struct share {
    struct budget *budget;
    uint64_t       held;
};

/* The message for a caller whose share_move() was refused. */
#define SHARE_FULL                                                                                         \
    "the server keeps as much for you as it may (quota.buffers); read what was answered, let commands and " \
    "kernels take their input, or end them; then try again"

/* Charges to the owner what the share already holds, even beyond its bound. -ENOMEM: the share has no owner then. */
MUST_CHECK int share_join(struct share *s, struct budgets *all, const char *owner);
bool           share_is_of(const struct share *s, const char *owner);
/* The thing changes its size. False: there is no room for more, and nothing was changed; shrinking always succeeds. */
bool           share_move(struct share *s, uint64_t from, uint64_t to);
/* Whether the share could grow by so much. */
bool           share_fits(const struct share *s, uint64_t more);
void           share_leave(struct share *s);

/* For memory: small things cost nothing, so that an owner whose budget is used up can still ask, stop and delete. */
enum { SHARE_SMALL_BYTES = 16384 };
static inline bool share_move_bytes(struct share *s, uint64_t from, uint64_t to)
{
    return share_move(s, from > SHARE_SMALL_BYTES ? from : 0, to > SHARE_SMALL_BYTES ? to : 0);
}

bool           budgets_are_empty(const struct budgets *all);

#endif
