/* Fair shares of a resource that all boxes use. A box may take more as long as the rest for the others is at least its
 * own share: a single greedy box gets half, two get a third each, and a box without any finds some. Pure. */
#ifndef CARREL_EGRESS_FAIR_H
#define CARREL_EGRESS_FAIR_H

#include <stdbool.h>

struct fair_pool {
    unsigned most, used;
    bool     is_one_boxs;       /* there are no others: it may have all */
};

/* One box's share; zeroed except for the pool: none. */
struct fair_share {
    struct fair_pool *pool;
    unsigned           used;
};

/* False: it would be too much, and nothing was taken. */
bool fair_take(struct fair_share *s, unsigned n);
void fair_give(struct fair_share *s, unsigned n);

#endif
