/* The pool fills itself one box at a time and only in quiet moments: every create starts the wait anew, so that under
 * load, when a ready box would be made at the cost of somebody else's, nothing is made ahead. After a minute without a
 * create all but one of each kind are given back.
 *
 *   MAKING -> READY -> taken (it is a box's from then on)
 *      |        +----> DYING -> gone
 *      +-> gone
 *
 * A kind is a family, in whose boxes a forked kernel waits already, or 0: plain boxes, which anybody may get. */
#define _GNU_SOURCE
#include "front/boxes/pool.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/front.h"
#include "front/keeper_link.h"

enum { QUIET_MS = 10, IDLE_MS = 60000, IDLE_SIZE = 1, BACKOFF_MS = 1000, BACKOFF_MOST_MS = 60000 };
enum { KINDS = KEEPER_FAMILIES + 1 };

/* The numbers of boxes are counted up from 1 and never come here; JSON has 63 bits. */
#define TOKEN_MARK (UINT64_C(1) << 62)

enum pool_phase { MAKING, READY, DYING };

static struct {                 /* of the one front of this process */
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
        uint64_t   token;
    } box[POOL_MOST];
} pool;

/* What a box of this kind is like; returns how many are wanted. */
static unsigned describe(const struct front *front, uint32_t kind, struct box_settings *s)
{
    const struct config *config = &front->config;

    box_settings_init(s);
    s->limits = config->defaults;
    /* What is written is kept in memory. */
    if (s->limits.memory_bytes && s->limits.disk_bytes > s->limits.memory_bytes)
        s->limits.disk_bytes = s->limits.memory_bytes;
    unsigned size = kind ? families_pool_size(front, kind, s) : config->pool_size;
    return pool.is_idle && size > IDLE_SIZE ? IDLE_SIZE : size;
}

/* The limits are the same or it does not fit: what /proc shows of them is made with the box. */
static bool fits(const struct front *front, const struct box_settings *s, uint32_t kind)
{
    struct box_settings wanted;

    return describe(front, kind, &wanted) > 0 && limits_equal(&s->limits, &wanted.limits) &&
           s->profile == wanted.profile && families_layers(front, s) == families_layers(front, &wanted) &&
           s->root == 0 && !s->writable_root &&
           !s->on_disk && s->uid == wanted.uid && s->gid == wanted.gid && s->n_mounts == 0 &&
           json_array_size(s->devices) == 0 && !s->net == !wanted.net &&
           strcmp(s->hostname, wanted.hostname) == 0;
}

static void release(struct front *front, unsigned i)
{
    uint32_t slot = pool.box[i].slot;

    front->boxes.slot_used[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    pool.box[i] = pool.box[--pool.n];
}

void pool_fill(struct front *front)
{
    if (pool.front == front)
        loop_timer_set(front->loop, &pool.fill, QUIET_MS);
}

static void back_off(struct front *front, uint32_t kind)
{
    uint32_t ms = pool.kind[kind].backoff_ms ? pool.kind[kind].backoff_ms * 2 : BACKOFF_MS;

    pool.kind[kind].backoff_ms = ms < BACKOFF_MOST_MS ? ms : BACKOFF_MOST_MS;
    pool.kind[kind].not_before_ms = loop_now_ms() + pool.kind[kind].backoff_ms;
    pool_fill(front);
}

static void nothing(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;        /* that it is gone is told for its slot */
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static void destroy(struct ready_box *box)
{
    struct request_head q = { .type = REQUEST_DESTROY, .box = box->slot };

    box->state = DYING;
    keeper_link_request(pool.front->keeper, &q, sizeof q, NULL, 0, nothing, NULL);
}

static void on_made(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct front *front = arg;
    unsigned i = 0;

    (void)fds;
    (void)n_fds;
    while (i < pool.n && pool.box[i].serial != event->serial)
        i++;
    if (i == pool.n)
        return;         /* the keeper was lost meanwhile */
    uint32_t kind = pool.box[i].kind;
    bool is_wanted = pool.box[i].state == MAKING;
    if (event->result < 0) {
        release(front, i);
        if (is_wanted)
            back_off(front, kind);
        else
            pool_fill(front);
        return;
    }
    if (!is_wanted) {
        destroy(&pool.box[i]);
        return;
    }
    pool.box[i].state = READY;
    pool.kind[kind].backoff_ms = 0;
    pool_fill(front);
}

/* Of this kind, without those that are on their way out. */
static unsigned count(uint32_t kind)
{
    unsigned n = 0;

    for (unsigned i = 0; i < pool.n; i++)
        n += pool.box[i].kind == kind && pool.box[i].state != DYING;
    return n;
}

static bool is_making(void)
{
    for (unsigned i = 0; i < pool.n; i++)
        if (pool.box[i].state == MAKING)
            return true;
    return false;
}

/* The first that lacks a box and may have one now; KINDS: none. Parked kernels first: they save more. */
static uint32_t next_kind(const struct front *front, struct box_settings *s, uint64_t *ret_wait_ms)
{
    uint64_t now = loop_now_ms();

    *ret_wait_ms = 0;
    for (uint32_t i = 1; i <= KINDS; i++) {
        uint32_t kind = i % KINDS;
        if (describe(front, kind, s) <= count(kind))
            continue;
        if (!pool.kind[kind].backoff_ms || pool.kind[kind].not_before_ms <= now)
            return kind;
        uint64_t wait_ms = pool.kind[kind].not_before_ms - now;
        if (!*ret_wait_ms || wait_ms < *ret_wait_ms)
            *ret_wait_ms = wait_ms;
    }
    return KINDS;
}

static void fill(struct loop_timer *t)
{
    struct front *front = pool.front;
    struct request_create q;
    struct box_settings s;
    uint64_t wait_ms;

    if (!keeper_link_is_up(front->keeper) || is_making() || pool.n == POOL_MOST
        || front->boxes.alive > KEEPER_BOXES / 2)
        return;
    uint32_t kind = next_kind(front, &s, &wait_ms);
    if (kind == KINDS) {
        if (wait_ms)
            loop_timer_set(front->loop, t, wait_ms);
        return;
    }
    uint32_t slot = box_free_slot(&front->boxes);
    uint64_t token;
    if (slot == BOX_NO_SLOT || getrandom(&token, sizeof token, GRND_NONBLOCK) != sizeof token)
        return;
    box_create_frame(front, &s, (token & (TOKEN_MARK - 1)) | TOKEN_MARK, kind, &q);
    q.head.box = slot;
    front->boxes.slot_used[slot / 64] |= UINT64_C(1) << slot % 64;
    struct ready_box *made = &pool.box[pool.n++];
    *made = (struct ready_box){ .state = MAKING, .slot = slot, .kind = kind, .token = q.token };
    made->serial = keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_made, front);
}

/* Gives those of a kind back that are ready, but for some. */
static void give_back(uint32_t kind, unsigned kept)
{
    for (unsigned i = 0; i < pool.n; i++)
        if (pool.box[i].kind == kind && pool.box[i].state == READY && !(kept && kept--))
            destroy(&pool.box[i]);
}

void pool_drop_family(struct front *front, uint32_t family)
{
    if (pool.front != front)
        return;
    give_back(family, 0);
    /* What is being made may still succeed, and by then the family's number may be somebody else's. */
    for (unsigned i = 0; i < pool.n; i++)
        if (pool.box[i].kind == family && pool.box[i].state == MAKING)
            pool.box[i].state = DYING;
    pool.kind[family].backoff_ms = 0;
}

static void on_idle(struct loop_timer *t)
{
    (void)t;
    pool.is_idle = true;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        give_back(kind, IDLE_SIZE);
}

bool pool_take(struct front *front, const struct box_settings *s, uint32_t family, uint32_t *ret_slot,
               uint64_t *ret_token)
{
    if (pool.front != front || !fits(front, s, family))
        return false;
    pool.is_idle = false;
    loop_timer_set(front->loop, &pool.idle, IDLE_MS);
    pool_fill(front);
    for (unsigned i = 0; i < pool.n; i++)
        if (pool.box[i].state == READY && pool.box[i].kind == family) {
            *ret_slot = pool.box[i].slot;
            *ret_token = pool.box[i].token;
            pool.box[i] = pool.box[--pool.n];
            return true;
        }
    return false;
}

void pool_on_synced(struct front *front)
{
    pool.front = front;
    pool.fill.on_expire = fill;
    pool.idle.on_expire = on_idle;
    memset(pool.kind, 0, sizeof pool.kind);
    pool_fill(front);
    loop_timer_set(front->loop, &pool.idle, IDLE_MS);
}

void pool_on_lost(struct front *front)
{
    while (pool.n > 0)
        release(front, pool.n - 1);
    loop_timer_cancel(front->loop, &pool.fill);
    loop_timer_cancel(front->loop, &pool.idle);
}

void pool_on_keeper_event(struct front *front, const struct event *event)
{
    if (event->type != EVENT_GONE)
        return;
    for (unsigned i = 0; i < pool.n; i++)
        if (pool.box[i].token == event->token) {
            bool died = pool.box[i].state == READY;
            uint32_t kind = pool.box[i].kind;
            release(front, i);
            if (died)
                back_off(front, kind);
            return;
        }
}

void pool_free(struct front *front)
{
    pool_on_lost(front);
}
