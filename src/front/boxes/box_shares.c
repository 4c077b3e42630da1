/* What boxes are guaranteed, and how far their limits may exceed the host.
 *
 *   requests   never overcommitted: their sum over living boxes stays within host.memory and host.cpus
 *   limits     the sum of memory limits stays within host.memory times host.overcommit. A box that waits in the pool
 *              with a parked kernel has a limit, too, but counts at what it uses
 *
 * A refusal says how much is taken, and by which boxes of the caller; other identities' boxes are one number. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "front/boxes/box_private.h"
#include "front/boxes/pool.h"
#include "front/front.h"

enum { NAMED = 3, OWN_TEXT = 160 };

/* ---- defaults ---- */

/* One request beside its limit. asked: the caller's, or 0. */
static int settle(const struct config *config, const struct limit *limit, uint64_t usual_request, struct limits *limits,
                  struct limits *requests, struct err *e)
{
    uint64_t most = limit_get(limits, limit), asked = limit_get(requests, limit);
    uint64_t allowed = limit_get(&config->most, limit), usual_limit = limit_get(&config->defaults, limit);

    if (allowed && asked > allowed)
        return err_set(e, EINVAL, STEP_USAGE, "requests.%s may be at most %s on this server (limits.%s), not %s",
                       limit->name, limit_show(limit, allowed).text, limit->name, limit_show(limit, asked).text);
    if (most && asked > most)
        return err_set(e, EINVAL, STEP_USAGE, "requests.%s is %s, more than limits.%s, which is %s", limit->name,
                       limit_show(limit, asked).text, limit->name, limit_show(limit, most).text);
    if (!asked)
        asked = most && usual_request > most ? most : usual_request;
    limit_set(requests, limit, asked);
    if (!most && usual_limit && asked > usual_limit)    /* a limit that the caller left open follows the request */
        limit_set(limits, limit, asked);
    return 0;
}

int box_shares_settle(const struct config *config, struct box_settings *s, struct err *e)
{
    const struct config_template *t = config_template(config, box_mounts_template(&s->mounts));

    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        if (!(limit->flags & LIMIT_REQUEST))
            continue;
        uint64_t usual = t ? limit_get(&t->requests, limit) : 0;
        if (!usual)
            usual = limit_get(&config->default_requests, limit);
        int r = settle(config, limit, usual, &s->limits, &s->requests, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- words ---- */

struct amount { char text[32]; };

static struct amount show_memory(uint64_t bytes)
{
    static const struct { const char *letter; int bits; } units[] = { { "G", 30 }, { "M", 20 }, { "k", 10 } };
    struct amount a;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (bytes >> units[i].bits) {
            uint64_t tenths = (bytes * 10) >> units[i].bits;
            snprintf(a.text, sizeof a.text, tenths % 10 ? "%llu.%llu%s" : "%llu%.0llu%s",
                     (unsigned long long)tenths / 10, (unsigned long long)tenths % 10, units[i].letter);
            return a;
        }
    snprintf(a.text, sizeof a.text, "%llu bytes", (unsigned long long)bytes);
    return a;
}

static struct amount show(const struct limit *limit, uint64_t value)
{
    struct amount a;

    if (limit->kind == LIMIT_SIZE)
        return show_memory(value);
    snprintf(a.text, sizeof a.text, "%g", (double)value / 1000);
    return a;
}

static bool counts(const struct box *b, const struct box *self)
{
    return b != self && b->slot != BOX_NO_SLOT;
}

/* The owner's boxes that hold most of it, as "trainer 8G, b_x1 4G and 2 more 1G"; the sum. */
static uint64_t tell_own(const struct front *front, const char *owner, const struct limit *limit, bool by_limit,
                         char text[OWN_TEXT])
{
    const struct box *largest[NAMED] = { NULL };
    uint64_t value[NAMED] = { 0 }, sum = 0, shown = 0;
    unsigned n = 0;
    int at = 0;

    for (const struct box *b = front->boxes.first; b; b = b->next) {
        uint64_t has = limit_get(by_limit ? &b->settings.limits : &b->settings.requests, limit);
        if (!counts(b, NULL) || !has || strcmp(b->owner, owner) != 0)
            continue;
        n++;
        sum += has;
        for (unsigned i = 0; i < NAMED; i++)
            if (has > value[i]) {
                memmove(&largest[i + 1], &largest[i], (NAMED - 1 - i) * sizeof *largest);
                memmove(&value[i + 1], &value[i], (NAMED - 1 - i) * sizeof *value);
                largest[i] = b;
                value[i] = has;
                break;
            }
    }
    text[0] = '\0';
    for (unsigned i = 0; i < NAMED && largest[i] && at >= 0 && at < OWN_TEXT; i++) {
        shown += value[i];
        at += snprintf(text + at, (size_t)(OWN_TEXT - at), "%s%.24s %s", i ? ", " : "",
                       largest[i]->name ? largest[i]->name : largest[i]->id, show(limit, value[i]).text);
    }
    if (n > NAMED && at >= 0 && at < OWN_TEXT)
        snprintf(text + at, (size_t)(OWN_TEXT - at), " and %u more %s", n - NAMED, show(limit, sum - shown).text);
    return sum;
}

static int refuse(const struct front *front, const char *owner, const struct limit *limit, uint64_t asked, uint64_t all,
                  uint64_t taken, struct err *e)
{
    char own[OWN_TEXT];
    uint64_t mine = tell_own(front, owner, limit, false, own);
    uint64_t others = taken > mine ? taken - mine : 0;

    return err_set(e, ENOSPC, STEP_USAGE, "this host cannot guarantee %s %s: %s of %s are free. Requested by%s%s%s%s%s",
                   show(limit, asked).text, limit->kind == LIMIT_SIZE ? "of memory" : "processors",
                   show(limit, all > taken ? all - taken : 0).text, show(limit, all).text, mine ? " you: " : "", own,
                   others ? mine ? "; by others: " : " others: " : "", others ? show(limit, others).text : "",
                   mine || others ? "" : " no box");
}

/* ---- the host ---- */

struct limits boxes_left(const struct front *front)
{
    const struct limits *taken = &front->boxes.requested;
    uint64_t memory = front->config.host_memory_bytes;
    uint32_t cpu = front->config.host_cpu_milli;

    return (struct limits){
        .memory_bytes = memory > taken->memory_bytes ? memory - taken->memory_bytes : 0,
        .cpu_milli = cpu > taken->cpu_milli ? cpu - taken->cpu_milli : 0,
    };
}

/* Growth that the keeper has not answered yet counts already. */
static uint64_t limited_memory(const struct front *front, const struct box *self)
{
    uint64_t sum = pool_memory(front);

    for (const struct box *b = front->boxes.first; b; b = b->next)
        if (counts(b, self))
            sum += box_limits_to_come(b).memory_bytes;
    return sum;
}

static int check_overcommit(const struct front *front, const char *owner, uint64_t asked, const struct box *self,
                            struct err *e)
{
    const struct limit *limit = limit_find("memory", strlen("memory"));
    const uint64_t all = front->config.host_memory_bytes * front->config.host_overcommit;
    char own[OWN_TEXT];

    if (!all || !asked)
        return 0;
    uint64_t taken = limited_memory(front, self);
    if (taken <= all && asked <= all - taken)
        return 0;
    tell_own(front, owner, limit, true, own);
    return err_set(e, ENOSPC, STEP_USAGE, "limits.memory %s is too much now: limits may add up to %s on this host "
                   "(host.overcommit %u), and %s are taken%s%s", show(limit, asked).text, show(limit, all).text,
                   front->config.host_overcommit, show(limit, taken).text, own[0] ? ", by you: " : "", own);
}

int box_check_host(struct front *front, const char *owner, const struct box_settings *s, const struct box *self,
                   struct err *e)
{
    const struct limits all = { .memory_bytes = front->config.host_memory_bytes,
                                .cpu_milli = front->config.host_cpu_milli };
    const struct limits left = boxes_left(front);

    if (s->requests.memory_bytes && !(front->boxes.walls.can >> WALL_MEMORY & 1))
        return err_set(e, ENOTSUP, STEP_USAGE, "requests.memory cannot be held: the server's host cannot limit the "
                       "memory of other boxes; 'carrel doctor' there says why");
    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        uint64_t asked = limit->flags & LIMIT_REQUEST ? limit_get(&s->requests, limit) : 0;
        if (asked > limit_get(&left, limit))
            return refuse(front, owner, limit, asked, limit_get(&all, limit),
                          limit_get(&front->boxes.requested, limit), e);
    }
    return check_overcommit(front, owner, s->limits.memory_bytes, self, e);
}

/* ---- the identity ---- */

int box_check_request_quota(struct front *front, const char *owner, const struct box_settings *s,
                            const struct box *self, struct err *e)
{
    char own[OWN_TEXT];

    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        uint64_t most = limit_get(&front->config.quota.requests, limit), asked = limit_get(&s->requests, limit);
        if (!most || !asked)
            continue;
        uint64_t has = tell_own(front, owner, limit, false, own);
        if (self && counts(self, NULL))
            has -= limit_get(&self->settings.requests, limit);
        if (has <= most && asked <= most - has)
            continue;
        return err_set(e, EDQUOT, STEP_USAGE, "%.64s may request %s %s in all (quota.request_%s); with this box it "
                       "would be %s%s%s", owner, show(limit, most).text,
                       limit->kind == LIMIT_SIZE ? "of memory" : "processors", limit->name,
                       show(limit, has + asked).text, own[0] ? ". Requested by: " : "", own);
    }
    return 0;
}
