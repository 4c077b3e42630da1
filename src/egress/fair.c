#include "egress/fair.h"

bool fair_take(struct fair_share *s, unsigned n)
{
    struct fair_pool *pool = s->pool;
    unsigned left = pool->most > pool->used ? pool->most - pool->used : 0;

    if (n > left || (s->used > 0 && !pool->is_one_boxs && s->used + n > left - n))
        return false;
    s->used += n;
    pool->used += n;
    return true;
}

void fair_give(struct fair_share *s, unsigned n)
{
    s->used -= n;
    s->pool->used -= n;
}
