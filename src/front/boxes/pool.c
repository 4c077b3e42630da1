/* The pool fills itself one box at a time and only when it is quiet: every create restarts the wait, so that under
 * load, when a pooled box would delay a requested one, none is made ahead. After a minute without a create all but one
 * of each kind are destroyed.
 *
 *   MAKING -> READY -> taken (it belongs to a box from then on)
 *      |        +----> DYING -> gone
 *      +-> gone
 *
 * A kind is a family, in whose boxes a forked kernel waits already, or 0: plain boxes, for any owner. */
#define _GNU_SOURCE
#include "front/boxes/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/net/net.h"

enum { QUIET_MS = 10, IDLE_MS = 60000, IDLE_SIZE = 1, BACKOFF_MS = 1000, BACKOFF_MOST_MS = 60000 };
enum { KINDS = KEEPER_FAMILIES + 1 };

/* Numbers of boxes count up from 1 and never reach this; JSON has 63 bits. */
#define TOKEN_MARK (UINT64_C(1) << 62)

enum pool_phase { MAKING, READY, DYING };

struct pool {
    struct front     *front;
    struct loop_timer fill, idle;
    bool              is_idle;
    struct {
        uint32_t backoff_ms;
        uint64_t not_before_ms;
    } kind[KINDS];
    unsigned          n;
    struct ready_box {
        enum pool_phase state;
        uint32_t   slot, serial, kind;
        uint64_t   token, uses_bytes;   /* uses_bytes: its memory when it was ready */
    } box[POOL_MOST];
    bool              is_open;          /* the keeper is connected */
};

/* The settings of a box of this kind, which the caller drops; returns how many are wanted. */
static unsigned describe(const struct pool *pool, uint32_t kind, struct box_settings *s)
{
    const struct front *front = pool->front;
    const struct config *config = &front->config;

    box_settings_init(s);
    unsigned size = kind ? families_pool_size(front, kind, s) : config->pool_size;
    struct err ignored;
    if (box_shares_settle(config, s, &ignored) < 0)
        size = 0;
    limits_fill(&s->limits, &config->defaults);
    /* Files are kept in memory. */
    if (s->limits.memory_bytes && s->limits.disk_bytes > s->limits.memory_bytes)
        s->limits.disk_bytes = s->limits.memory_bytes;
    return pool->is_idle && size > IDLE_SIZE ? IDLE_SIZE : size;
}

/* The limits must be equal: /proc shows them, and is made with the box. */
static bool fits(const struct pool *pool, const struct box_settings *s, uint32_t kind)
{
    struct box_settings wanted;
    bool fits = describe(pool, kind, &wanted) > 0 && limits_equal(&s->limits, &wanted.limits) &&
                s->requests.cpu_milli == wanted.requests.cpu_milli && s->profile == wanted.profile &&
                s->uid == wanted.uid && s->gid == wanted.gid &&
                net_allows(s->net) == net_allows(wanted.net) && !s->keys && strcmp(s->hostname, wanted.hostname) == 0 &&
                box_mounts_are_alike(pool->front, &s->mounts, &wanted.mounts);

    box_settings_done(&wanted);
    return fits;
}

static void release(struct pool *pool, unsigned i)
{
    uint32_t slot = pool->box[i].slot;

    pool->front->boxes.slot_used[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    pool->box[i] = pool->box[--pool->n];
}

void pool_fill(struct front *front)
{
    struct pool *pool = front->boxes.pool;

    if (pool->is_open)
        loop_timer_set(front->loop, &pool->fill, QUIET_MS);
}

static void back_off(struct pool *pool, uint32_t kind)
{
    uint32_t ms = pool->kind[kind].backoff_ms ? pool->kind[kind].backoff_ms * 2 : BACKOFF_MS;

    pool->kind[kind].backoff_ms = ms < BACKOFF_MOST_MS ? ms : BACKOFF_MOST_MS;
    pool->kind[kind].not_before_ms = loop_now_ms() + pool->kind[kind].backoff_ms;
    pool_fill(pool->front);
}

static void nothing(const union event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;        /* an event about its slot reports the end */
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static void destroy(struct pool *pool, struct ready_box *box)
{
    struct request_head q = { .type = REQUEST_DESTROY, .box = box->slot };

    box->state = DYING;
    keeper_link_request(pool->front->keeper, &q, sizeof q, NULL, 0, nothing, NULL);
}

/* How much a box that waits takes of the host, for the sum of all limits. */
static void on_usage(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct pool *pool = arg;

    (void)fds;
    (void)n_fds;
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].serial == event->head.serial && event->head.type == EVENT_USAGE)
            pool->box[i].uses_bytes = event->usage.usage.memory_bytes;
}

uint64_t pool_memory(const struct front *front)
{
    const struct pool *pool = front->boxes.pool;
    uint64_t sum = 0;

    for (unsigned i = 0; pool && i < pool->n; i++)
        sum += pool->box[i].uses_bytes;
    return sum;
}

static void on_made(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct pool *pool = arg;
    struct front *front = pool->front;
    unsigned i = 0;

    (void)fds;
    (void)n_fds;
    while (i < pool->n && pool->box[i].serial != event->head.serial)
        i++;
    if (i == pool->n)
        return;         /* the keeper was lost meanwhile */
    uint32_t kind = pool->box[i].kind;
    bool is_wanted = pool->box[i].state == MAKING;
    if (event->head.result < 0) {
        release(pool, i);
        if (is_wanted)
            back_off(pool, kind);
        else
            pool_fill(front);
        return;
    }
    if (!is_wanted) {
        destroy(pool, &pool->box[i]);
        return;
    }
    struct request_head q = { .type = REQUEST_USAGE, .box = pool->box[i].slot };
    pool->box[i].state = READY;
    pool->box[i].serial = keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_usage, pool);
    pool->kind[kind].backoff_ms = 0;
    pool_fill(front);
}

/* The number of boxes of this kind, without dying ones. */
static unsigned count(const struct pool *pool, uint32_t kind)
{
    unsigned n = 0;

    for (unsigned i = 0; i < pool->n; i++)
        n += pool->box[i].kind == kind && pool->box[i].state != DYING;
    return n;
}

static bool is_making(const struct pool *pool)
{
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].state == MAKING)
            return true;
    return false;
}

/* The first kind that lacks a box and may get one now, with its settings, which the caller drops; KINDS: none. Parked
 * kernels first: they save more. */
static uint32_t next_kind(const struct pool *pool, struct box_settings *s, uint64_t *ret_wait_ms)
{
    uint64_t now = loop_now_ms();

    *ret_wait_ms = 0;
    for (uint32_t i = 1; i <= KINDS; i++) {
        uint32_t kind = i % KINDS;
        bool is_full = describe(pool, kind, s) <= count(pool, kind);
        if (!is_full && (!pool->kind[kind].backoff_ms || pool->kind[kind].not_before_ms <= now))
            return kind;
        box_settings_done(s);
        if (is_full)
            continue;
        uint64_t wait_ms = pool->kind[kind].not_before_ms - now;
        if (!*ret_wait_ms || wait_ms < *ret_wait_ms)
            *ret_wait_ms = wait_ms;
    }
    return KINDS;
}

static void fill(struct loop_timer *t)
{
    struct pool *pool = container_of(t, struct pool, fill);
    struct front *front = pool->front;
    struct request_create q;
    struct box_settings s;
    uint64_t wait_ms;

    if (!keeper_link_is_up(front->keeper) || is_making(pool) || pool->n == POOL_MOST
        || front->boxes.alive + pool->n >= front->boxes.most / 2)
        return;
    uint32_t kind = next_kind(pool, &s, &wait_ms);
    if (kind == KINDS) {
        if (wait_ms)
            loop_timer_set(front->loop, t, wait_ms);
        return;
    }
    uint32_t slot = box_free_slot(&front->boxes);
    uint64_t token = 0;
    bool is_drawn = slot != BOX_NO_SLOT && getrandom(&token, sizeof token, GRND_NONBLOCK) == sizeof token;
    box_create_frame(front, &s, (token & (TOKEN_MARK - 1)) | TOKEN_MARK, kind, &q);
    box_settings_done(&s);
    if (!is_drawn)
        return;
    q.head.box = slot;
    front->boxes.slot_used[slot / 64] |= UINT64_C(1) << slot % 64;
    struct ready_box *made = &pool->box[pool->n++];
    *made = (struct ready_box){ .state = MAKING, .slot = slot, .kind = kind, .token = q.token };
    made->serial = keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_made, pool);
}

uint32_t pool_slots(const struct boxes *all)
{
    return all->pool ? all->pool->n : 0;
}

void pool_make_room(struct front *front)
{
    struct pool *pool = front->boxes.pool;
    uint32_t wanted = front->boxes.alive + 1;

    if (!pool)
        return;
    for (unsigned i = 0; i < pool->n; i++)
        wanted += pool->box[i].state != DYING;
    for (unsigned i = 0; i < pool->n && wanted > front->boxes.most; i++)
        if (pool->box[i].state == READY) {
            destroy(pool, &pool->box[i]);
            wanted--;
        }
}

/* Destroys the ready boxes of a kind, except some. */
static void give_back(struct pool *pool, uint32_t kind, unsigned kept)
{
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].kind == kind && pool->box[i].state == READY && !(kept && kept--))
            destroy(pool, &pool->box[i]);
}

void pool_drop_family(struct front *front, uint32_t family)
{
    struct pool *pool = front->boxes.pool;

    if (!pool->is_open)
        return;
    give_back(pool, family, 0);
    /* A box that is being made may still succeed, after the family's number was reused. */
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].kind == family && pool->box[i].state == MAKING)
            pool->box[i].state = DYING;
    pool->kind[family].backoff_ms = 0;
}

static void on_idle(struct loop_timer *t)
{
    struct pool *pool = container_of(t, struct pool, idle);

    pool->is_idle = true;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        give_back(pool, kind, IDLE_SIZE);
}

bool pool_take(struct front *front, const struct box_settings *s, uint32_t family, uint32_t *ret_slot,
               uint64_t *ret_token)
{
    struct pool *pool = front->boxes.pool;

    if (!pool->is_open || !fits(pool, s, family))
        return false;
    pool->is_idle = false;
    loop_timer_set(front->loop, &pool->idle, IDLE_MS);
    pool_fill(front);
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].state == READY && pool->box[i].kind == family) {
            *ret_slot = pool->box[i].slot;
            *ret_token = pool->box[i].token;
            pool->box[i] = pool->box[--pool->n];
            return true;
        }
    return false;
}

void pool_on_synced(struct front *front)
{
    struct pool *pool = front->boxes.pool;

    pool->is_open = true;
    memset(pool->kind, 0, sizeof pool->kind);
    pool_fill(front);
    loop_timer_set(front->loop, &pool->idle, IDLE_MS);
}

void pool_on_lost(struct front *front)
{
    struct pool *pool = front->boxes.pool;

    while (pool->n > 0)
        release(pool, pool->n - 1);
    loop_timer_cancel(front->loop, &pool->fill);
    loop_timer_cancel(front->loop, &pool->idle);
}

void pool_on_gone(struct front *front, uint64_t token)
{
    struct pool *pool = front->boxes.pool;

    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].token == token) {
            bool died = pool->box[i].state == READY;
            uint32_t kind = pool->box[i].kind;
            release(pool, i);
            if (died)
                back_off(pool, kind);
            return;
        }
}

void pool_init(struct front *front)
{
    struct pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        abort();
    pool->front = front;
    pool->fill.on_expire = fill;
    pool->idle.on_expire = on_idle;
    front->boxes.pool = pool;
}

void pool_free(struct front *front)
{
    if (!front->boxes.pool)
        return;
    pool_on_lost(front);
    free(front->boxes.pool);
    front->boxes.pool = NULL;
}
