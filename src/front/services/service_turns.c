/* Turns. A service is shared by its owner and by holders of grants, and a caller that asks for a thousand calls must
 * not make the others wait for all of them. Callers are served in turns, one call each; synchronous and async functions
 * have turns of their own. A caller's turn comes after those that wait already; when its call has ended it is the last
 * again.
 *
 * A caller may have as many calls as it leaves free: one alone has half of the places, two have a third each, and
 * another one always finds a place. The same holds for the async calls that the worker has at once, and for the bytes
 * of holders of grants that wait, which count in the owner's quota (quota.buffers); a single message may have all that
 * is free. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/services/service_private.h"

enum { ASYNC_MOST = 1024 };

int call_holder_join(struct service *s, const char *name, struct call_holder **ret, struct err *e)
{
    struct service_private *p = s->private;
    struct call_holder *h = p->holders;

    while (h && strcmp(h->name, name) != 0)
        h = h->next;
    unsigned has = h ? h->n_calls : 0;
    if (has >= SERVICE_CALLS_MOST - s->n_calls)
        return err_set(e, EAGAIN, STEP_USAGE, "%u calls of yours wait for this service already; let some end", has);
    if (!h) {
        h = calloc(1, sizeof *h);
        if (!h)
            return err_at(e, ENOMEM, STEP_MEMORY, 0, "call");
        snprintf(h->name, sizeof h->name, "%s", name);
        h->turn[false] = h->turn[true] = ++p->turns;
        LIST_ADD(p->holders, h);
    }
    h->n_calls++;
    *ret = h;
    return 0;
}

void call_holder_leave(struct call_holder *h)
{
    if (--h->n_calls > 0)
        return;
    LIST_REMOVE(h);
    free(h);
}

bool call_holder_may_keep(const struct service *s, const struct call_holder *h, size_t bytes)
{
    return !h->bytes || strcmp(h->name, s->owner) == 0 || share_fits(&s->private->share, h->bytes + bytes);
}

bool call_holder_may_run(const struct service_private *p, const struct call_holder *h)
{
    return h->n_async < ASYNC_MOST - p->n_async;
}

void call_holder_served(struct service_private *p, struct call_holder *h, bool is_async)
{
    h->turn[is_async] = ++p->turns;
}
