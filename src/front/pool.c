/* The pool fills itself one box at a time and only in quiet moments: every create starts the wait anew, so that under
 * load, when a ready box would be made at the cost of somebody else's, nothing is made ahead. After a minute without a
 * create all but one are given back.
 *
 *   MAKING -> READY -> taken (it is a box's from then on)
 *      |        +----> DYING -> gone
 *      +-> gone                                                         */
#define _GNU_SOURCE
#include "front/pool.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "front/box_private.h"
#include "front/front.h"
#include "front/keeper_link.h"

enum { QUIET_MS = 10, IDLE_MS = 60000, IDLE_SIZE = 1, BACKOFF_MS = 1000, BACKOFF_MOST_MS = 60000 };

/* The numbers of boxes are counted up from 1 and never come here; JSON has 63 bits. */
#define TOKEN_MARK (UINT64_C(1) << 62)

enum state { MAKING, READY, DYING };

static struct {                 /* of the one front of this process */
    struct front     *front;
    struct loop_timer fill, idle;
    uint32_t          backoff_ms;
    bool              is_idle;
    unsigned          n;
    struct ready_box {
        enum state state;
        uint32_t   slot, serial;
        uint64_t   token;
    } box[POOL_MOST];
} pool;

static void set_default(const struct config *config, struct box_settings *s)
{
    box_settings_init(s);
    s->limits = (struct frame_limits){ .memory_bytes = config->default_memory_bytes, .pids = config->default_pids,
                                       .cpu_milli = config->default_cpu_milli };
    /* What is written is kept in memory. */
    s->limits.disk_bytes = config->default_disk_bytes;
    if (s->limits.memory_bytes && s->limits.disk_bytes > s->limits.memory_bytes)
        s->limits.disk_bytes = s->limits.memory_bytes;
}

/* The limits are the same or it does not fit: what /proc shows of them is made with the box. */
static bool fits(const struct config *config, const struct box_settings *s)
{
    struct box_settings wanted;

    set_default(config, &wanted);
    return s->limits.memory_bytes == wanted.limits.memory_bytes && s->limits.disk_bytes == wanted.limits.disk_bytes &&
           s->limits.pids == wanted.limits.pids && s->limits.cpu_milli == wanted.limits.cpu_milli &&
           s->profile == wanted.profile && s->root == 0 && !s->writable_root && !s->on_disk && s->uid == wanted.uid &&
           s->gid == wanted.gid && s->n_mounts == 0 && strcmp(s->hostname, wanted.hostname) == 0;
}

static void release(struct front *front, unsigned i)
{
    uint32_t slot = pool.box[i].slot;

    front->boxes.slot_used[slot / 64] &= ~(UINT64_C(1) << slot % 64);
    pool.box[i] = pool.box[--pool.n];
}

static void fill_later(struct front *front)
{
    loop_timer_set(front->loop, &pool.fill, pool.backoff_ms ? pool.backoff_ms : QUIET_MS);
}

static void back_off(struct front *front)
{
    pool.backoff_ms = pool.backoff_ms ? pool.backoff_ms * 2 : BACKOFF_MS;
    if (pool.backoff_ms > BACKOFF_MOST_MS)
        pool.backoff_ms = BACKOFF_MOST_MS;
    fill_later(front);
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
    if (event->result < 0) {
        release(front, i);
        back_off(front);
        return;
    }
    pool.box[i].state = READY;
    pool.backoff_ms = 0;
    fill_later(front);
}

static unsigned count(bool wanted)
{
    unsigned n = 0;

    for (unsigned i = 0; i < pool.n; i++)
        n += wanted ? pool.box[i].state != DYING : pool.box[i].state == MAKING;
    return n;
}

static void fill(struct loop_timer *t)
{
    struct front *front = pool.front;
    const struct config *config = &front->config;
    unsigned size = pool.is_idle && config->pool_size > IDLE_SIZE ? IDLE_SIZE : config->pool_size;
    struct request_create q = { .head.type = REQUEST_CREATE, .flags = CREATE_TERMINAL };
    struct box_settings s;

    (void)t;
    if (!keeper_link_is_up(front->keeper) || count(false) > 0 || count(true) >= size || pool.n == POOL_MOST
        || front->boxes.alive > KEEPER_BOXES / 2)
        return;
    uint32_t slot = box_free_slot(&front->boxes);
    if (slot == BOX_NO_SLOT || getrandom(&q.token, sizeof q.token, GRND_NONBLOCK) != sizeof q.token)
        return;
    set_default(config, &s);
    q.head.box = slot;
    q.token = (q.token & (TOKEN_MARK - 1)) | TOKEN_MARK;
    q.limits = s.limits;
    q.profile = s.profile;
    q.uid = s.uid;
    q.gid = s.gid;
    memcpy(q.hostname, s.hostname, sizeof q.hostname);
    front->boxes.slot_used[slot / 64] |= UINT64_C(1) << slot % 64;
    struct ready_box *made = &pool.box[pool.n++];
    *made = (struct ready_box){ .state = MAKING, .slot = slot, .token = q.token };
    made->serial = keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_made, front);
}

static void nothing(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;        /* that it is gone is told for its slot */
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static void on_idle(struct loop_timer *t)
{
    unsigned kept = 0;

    (void)t;
    pool.is_idle = true;
    for (unsigned i = 0; i < pool.n; i++) {
        struct request_head q = { .type = REQUEST_DESTROY, .box = pool.box[i].slot };
        if (pool.box[i].state != READY || kept++ < IDLE_SIZE)
            continue;
        pool.box[i].state = DYING;
        keeper_link_request(pool.front->keeper, &q, sizeof q, NULL, 0, nothing, NULL);
    }
}

bool pool_take(struct front *front, const struct box_settings *s, uint32_t *ret_slot, uint64_t *ret_token)
{
    if (!front->config.pool_size || pool.front != front || !fits(&front->config, s))
        return false;
    pool.is_idle = false;
    loop_timer_set(front->loop, &pool.idle, IDLE_MS);
    if (!pool.backoff_ms)
        fill_later(front);
    for (unsigned i = 0; i < pool.n; i++)
        if (pool.box[i].state == READY) {
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
    pool.backoff_ms = 0;
    if (!front->config.pool_size)
        return;
    fill_later(front);
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
            release(front, i);
            if (died)
                back_off(front);
            return;
        }
}

void pool_free(struct front *front)
{
    loop_timer_cancel(front->loop, &pool.fill);
    loop_timer_cancel(front->loop, &pool.idle);
}
