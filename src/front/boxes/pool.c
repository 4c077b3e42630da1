/* The pool fills itself one box at a time and only when it is quiet: every create restarts the wait, and while the
 * first result of a kernel is awaited nothing is made, so that what is made ahead delays no caller. After a minute
 * without a create all but one of each kind are destroyed.
 *
 *   MAKING -> READY -> taken (it belongs to a box from then on)
 *      |        +----> DYING -> gone
 *      +-> gone
 *
 * A kind is a family, in whose boxes a forked kernel waits already, or 0: plain boxes, for any owner. A family's kind
 * also has blank boxes, which lack only the kernel: as many as callers lately created at once (demand.h), beyond the
 * parked ones. They are few MiB in all, are given back as the demand is forgotten, and all of them when the host's
 * memory is short (headroom.h), which also leaves one parked box of each kind. */
#define _GNU_SOURCE
#include "front/boxes/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/boxes/demand.h"
#include "front/boxes/families.h"
#include "front/boxes/headroom.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/net/net.h"

enum { QUIET_MS = 10, IDLE_MS = 60000, IDLE_SIZE = 1, BACKOFF_MS = 1000, BACKOFF_MOST_MS = 60000 };
enum { KINDS = KEEPER_FAMILIES + 1 };
enum { LOOK_MS = 2000, AWAITED_LOOK_MS = 3 };
/* Of a blank box: processes, page tables and what the kernel keeps for its namespaces and mounts (0.8 MiB on 6.18). */
enum { BLANK_BYTES = 1 << 20 };

/* Numbers of boxes count up from 1 and never reach this; JSON has 63 bits. */
#define TOKEN_MARK (UINT64_C(1) << 62)

enum pool_phase { MAKING, READY, DYING };

struct pool {
    struct front     *front;
    struct loop_timer fill, idle, look;
    bool              is_idle, is_looking;
    uint64_t          quiet_ms;         /* when it is quiet if no create comes */
    struct {
        struct demand demand;
        uint32_t backoff_ms;
        uint64_t not_before_ms;
    } kind[KINDS];
    unsigned          n;
    struct ready_box {
        enum pool_phase state;
        uint32_t   slot, serial, kind;
        uint64_t   token, uses_bytes;   /* uses_bytes: its memory when it was ready */
        bool       is_blank;
    } box[POOL_MOST];
    bool              is_open;          /* the keeper is connected */
};

static uint64_t headroom(const struct pool *pool)
{
    return headroom_bytes(pool->front->headroom, loop_now_ms());
}

static bool is_short(const struct pool *pool)
{
    return headroom(pool) == 0;
}

/* The settings of a box of this kind, which the caller drops; returns how many are wanted, blank ones aside. */
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
    return (pool->is_idle || is_short(pool)) && size > IDLE_SIZE ? IDLE_SIZE : size;
}

/* parked: as describe() gives it. */
static unsigned wanted_blank(const struct pool *pool, uint32_t kind, unsigned parked)
{
    unsigned n = demand_now(&pool->kind[kind].demand, loop_now_ms());

    return kind && parked && !is_short(pool) && n > parked ? n - parked : 0;
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

    pool->quiet_ms = loop_now_ms() + QUIET_MS;
    if (pool->is_open)
        loop_timer_set(front->loop, &pool->fill, QUIET_MS);
}

/* A blank box was made: the next one, if there was no create meanwhile. */
static void fill_on(struct pool *pool)
{
    uint64_t now = loop_now_ms();

    loop_timer_set(pool->front->loop, &pool->fill, pool->quiet_ms > now ? pool->quiet_ms - now : 1);
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
    pool->kind[kind].backoff_ms = 0;
    if (pool->box[i].is_blank) {        /* no process of it is counted */
        pool->box[i].serial = 0;
        fill_on(pool);
        return;
    }
    pool->box[i].serial = keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_usage, pool);
    pool_fill(front);
}

/* The number of boxes of this kind (KINDS: any), without dying ones. */
static unsigned count(const struct pool *pool, uint32_t kind, bool is_blank)
{
    unsigned n = 0;

    for (unsigned i = 0; i < pool->n; i++)
        n += (kind == KINDS || pool->box[i].kind == kind) && pool->box[i].is_blank == is_blank
             && pool->box[i].state != DYING;
    return n;
}

static bool is_making(const struct pool *pool)
{
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].state == MAKING)
            return true;
    return false;
}

static bool has_room_for_blank(const struct pool *pool)
{
    unsigned n = count(pool, KINDS, true);

    return n < pool->front->config.pool_blank && (uint64_t)(n + 1) * BLANK_BYTES <= headroom(pool);
}

/* The first kind that lacks a box and may get one now, with its settings, which the caller drops; KINDS: none. Parked
 * kernels first: they save more. */
static uint32_t next_kind(const struct pool *pool, bool is_blank, struct box_settings *s, uint64_t *ret_wait_ms)
{
    uint64_t now = loop_now_ms();

    if (is_blank && !has_room_for_blank(pool))
        return KINDS;
    for (uint32_t i = 1; i <= KINDS; i++) {
        uint32_t kind = i % KINDS;
        unsigned parked = describe(pool, kind, s);
        bool is_full = (is_blank ? wanted_blank(pool, kind, parked) : parked) <= count(pool, kind, is_blank);
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

/* A caller waits for a first result. */
static bool is_awaited(const struct front *front)
{
    for (size_t i = 0; front->parts[i]; i++)
        if (front->parts[i]->is_awaited && front->parts[i]->is_awaited(front))
            return true;
    return false;
}

static void fill(struct loop_timer *t)
{
    struct pool *pool = container_of(t, struct pool, fill);
    struct front *front = pool->front;
    struct request_create q;
    struct box_settings s;
    uint64_t wait_ms = 0;

    if (!keeper_link_is_up(front->keeper) || is_making(pool) || pool->n == POOL_MOST
        || front->boxes.alive + pool->n >= front->boxes.most / 2)
        return;
    if (is_awaited(front)) {
        loop_timer_set(front->loop, t, AWAITED_LOOK_MS);
        return;
    }
    bool is_blank = false;
    uint32_t kind = next_kind(pool, false, &s, &wait_ms);
    if (kind == KINDS) {
        is_blank = true;
        kind = next_kind(pool, true, &s, &wait_ms);
    }
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
    q.flags |= CREATE_AHEAD | (is_blank ? CREATE_BLANK : 0);
    front->boxes.slot_used[slot / 64] |= UINT64_C(1) << slot % 64;
    struct ready_box *made = &pool->box[pool->n++];
    *made = (struct ready_box){ .state = MAKING, .slot = slot, .kind = kind, .token = q.token, .is_blank = is_blank };
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
    for (int parked = 0; parked < 2; parked++)
        for (unsigned i = 0; i < pool->n && wanted > front->boxes.most; i++)
            if (pool->box[i].state == READY && pool->box[i].is_blank == !parked) {
                destroy(pool, &pool->box[i]);
                wanted--;
            }
}

/* Destroys the ready boxes of a kind, except some. */
static void give_back(struct pool *pool, uint32_t kind, bool is_blank, unsigned kept)
{
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].kind == kind && pool->box[i].is_blank == is_blank && pool->box[i].state == READY
            && !(kept && kept--))
            destroy(pool, &pool->box[i]);
}

void pool_drop_family(struct front *front, uint32_t family)
{
    struct pool *pool = front->boxes.pool;

    if (!pool->is_open)
        return;
    give_back(pool, family, false, 0);
    give_back(pool, family, true, 0);
    /* A box that is being made may still succeed, after the family's number was reused. */
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].kind == family && pool->box[i].state == MAKING)
            pool->box[i].state = DYING;
    memset(&pool->kind[family], 0, sizeof pool->kind[family]);
}

static void on_idle(struct loop_timer *t)
{
    struct pool *pool = container_of(t, struct pool, idle);

    pool->is_idle = true;
    for (uint32_t kind = 0; kind < KINDS; kind++)
        give_back(pool, kind, false, IDLE_SIZE);
}

static void look_on(struct pool *pool)
{
    if (!pool->is_looking)
        loop_timer_set(pool->front->loop, &pool->look, LOOK_MS);
    pool->is_looking = true;
}

/* While blank boxes are wanted, or there are some: gives back the others, and fills up what memory did not allow. */
static void on_look(struct loop_timer *t)
{
    struct pool *pool = container_of(t, struct pool, look);
    struct box_settings s;
    unsigned remembered = 0;

    pool->is_looking = false;
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        unsigned parked = describe(pool, kind, &s);
        box_settings_done(&s);
        give_back(pool, kind, true, wanted_blank(pool, kind, parked));
        remembered += kind && parked && demand_now(&pool->kind[kind].demand, loop_now_ms()) > parked;
        if (is_short(pool))
            give_back(pool, kind, false, IDLE_SIZE);
    }
    if (remembered)
        fill_on(pool);
    if (remembered || count(pool, KINDS, true) > 0)
        look_on(pool);
}

/* A ready box of this kind; -1: there is none. */
static int find(const struct pool *pool, uint32_t kind, bool is_blank)
{
    for (unsigned i = 0; i < pool->n; i++)
        if (pool->box[i].state == READY && pool->box[i].kind == kind && pool->box[i].is_blank == is_blank)
            return (int)i;
    return -1;
}

bool pool_take(struct front *front, const struct box_settings *s, uint32_t family, uint32_t *ret_slot,
               uint64_t *ret_token)
{
    struct pool *pool = front->boxes.pool;

    if (!pool->is_open || !fits(pool, s, family))
        return false;
    pool->is_idle = false;
    loop_timer_set(front->loop, &pool->idle, IDLE_MS);
    demand_note(&pool->kind[family].demand, front->boxes.alive, loop_now_ms());
    look_on(pool);
    pool_fill(front);
    int i = find(pool, family, false);
    if (i < 0)
        i = find(pool, family, true);
    if (i < 0)
        return false;
    *ret_slot = pool->box[i].slot;
    *ret_token = pool->box[i].token;
    pool->box[i] = pool->box[--pool->n];
    return true;
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
    loop_timer_cancel(front->loop, &pool->look);
    pool->is_looking = false;
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
    pool->look.on_expire = on_look;
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
