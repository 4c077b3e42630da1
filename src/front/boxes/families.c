/* A family's index in this table is its slot in the keeper.
 *
 *   NONE -> ASKED -> READY -> ENDING -> NONE        ended: no box in it for ten minutes
 *             |        |
 *             +--------+--> DOWN -> ASKED ...       its zygote has ended: retried with growing delays
 *
 * Without a family, boxes of the template are made plain and their kernels are exec'd, which is only slower. A new
 * front recognizes the keeper's families by the boxes in them, and ends the others.
 *
 * The zygote's standard error is read here, a few lines of it, for the reason why it could not start. */
#define _GNU_SOURCE
#include "front/boxes/families.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/boxes/pool.h"
#include "front/boxes/zygote_log.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "proto/command.h"
#include "proto/defaults.h"
#include "proto/kernel.h"

enum {
    LOOK_MS = 1000,
    IDLE_MS = 600000,
    BACKOFF_MS = 1000,
    BACKOFF_MOST_MS = 300000,
    HOLD_MS = 3000,             /* so long may a box wait for a zygote that gets warm; */
    HOLD_MOST_MS = 10000,       /* if a kernel was started cold, as long as that took, but not longer than this */
    HOLD_LOOK_MS = 100,
    SETUP_MS = 5000,            /* how often to check whether 'carrel setup' has run */
    ZYGOTE_PIDS = 128,
    ZYGOTE_DISK = 64 << 20,
};
static const uint64_t zygote_memory_least = UINT64_C(1) << 30;

enum family_phase { NONE, ASKED, READY, ENDING, DOWN };

struct front_family {
    enum family_phase     state;
    struct front  *front;
    char          *owner;               /* owned */
    uint32_t       profile;
    struct box_mounts mounts;           /* owned: the mounts that all its boxes share (MOUNT_OF_FAMILY) */
    bool           is_kept;             /* also while unused */
    bool           is_wanted;           /* a kernel was started without it */
    uint64_t       token;
    uint32_t       serial;              /* of the request for it */
    uint64_t       used_ms, retry_ms;   /* of loop_now_ms() */
    uint64_t       hold_ms;             /* until when boxes wait for it; 0: none waits */
    uint32_t       backoff_ms;
    struct zygote_log errors;
};

struct families {
    struct front       *front;
    struct front_family list[KEEPER_FAMILIES];
    struct loop_timer   look;
    uint64_t            tokens;
    uint64_t            cold_ms;        /* how long the last exec'd kernel took; 0: there was none */
    uint64_t            told;           /* bit per slot: the keeper has one that we do not know */
    uint64_t            told_token[KEEPER_FAMILIES];
};

static const struct config_template *template_of(const struct front_family *f)
{
    return config_template(&f->front->config, box_mounts_template(&f->mounts));
}

static const char *template_name(const struct front_family *f)
{
    const struct config_template *t = template_of(f);
    return t ? t->name : "";
}

static uint32_t number_of(const struct front_family *f)
{
    return (uint32_t)(f - f->front->boxes.families->list) + 1;
}

/* A line of the zygote: our JSON with an error and a remedy, or any text. */
static void on_line(struct zygote_log *log)
{
    const struct front_family *f = container_of(log, struct front_family, errors);
    json_t *said = json_loads(log->line, 0, NULL);
    const char *error = json_string_value(json_object_get(said, LINK_ERROR)),
               *hint = json_string_value(json_object_get(said, LINK_HINT));

    if (error)
        front_log("error", error, "template", template_name(f), "owner", f->owner, "hint", hint ? hint : "", NULL);
    else
        front_log("info", log->line, "template", template_name(f), "owner", f->owner, NULL);
    json_decref(said);
}

/* ---- its life ---- */

static bool is_of(const struct front_family *f, const char *owner, const struct box_settings *s)
{
    return f->state != NONE && f->profile == s->profile && strcmp(f->owner, owner) == 0 &&
           box_mounts_equal(&f->mounts, &s->mounts, MOUNT_OF_FAMILY);
}

static void forget(struct front_family *f)
{
    if (f->front)
        zygote_log_close(&f->errors);
    free(f->owner);
    box_mounts_done(&f->mounts);
    *f = (struct front_family){ .errors.pipe.fd = -1 };
}

static void back_off(struct front_family *f, uint32_t at_least_ms)
{
    f->backoff_ms = f->backoff_ms ? f->backoff_ms * 2 : BACKOFF_MS;
    if (f->backoff_ms < at_least_ms)
        f->backoff_ms = at_least_ms;
    if (f->backoff_ms > BACKOFF_MOST_MS)
        f->backoff_ms = BACKOFF_MOST_MS;
    f->state = DOWN;
    f->retry_ms = loop_now_ms() + f->backoff_ms;
}

/* Makes the boxes that wait for it. number 0: as plain ones. */
static void unhold(const struct front_family *f, uint32_t number)
{
    for (struct box *b = f->front->boxes.first; b; b = b->next)
        if (b->is_held && is_of(f, b->owner, &b->settings))
            box_unhold(b, number);
}

/* Its boxes live on as plain ones; its boxes in the pool are destroyed. is_unfit: trying again soon will not help. */
static void went_down(struct front_family *f, const struct err *why, bool is_unfit)
{
    char text[256] = "", seconds[16];

    if (why->code)
        err_text(why, text, sizeof text);
    for (struct box *b = f->front->boxes.first; b; b = b->next)
        if (b->family == number_of(f))
            b->family = 0;
    pool_drop_family(f->front, number_of(f));
    unhold(f, 0);
    if (f->state == ENDING) {
        forget(f);
        return;
    }
    const struct config_template *t = template_of(f);
    if (t && t->python_is_default && f->backoff_ms >= SETUP_MS)
        f->backoff_ms = 0;
    back_off(f, is_unfit && t && !t->python_is_default ? BACKOFF_MOST_MS : 0);
    snprintf(seconds, sizeof seconds, "%u", f->backoff_ms / 1000);
    /* Otherwise the server's first line has reported it. */
    if (!config_awaits_setup(&f->front->config, box_mounts_template(&f->mounts), why))
        front_log("warning", "a family of kernels has ended", "template", template_name(f), "owner", f->owner, "why",
                  text, "again_in_s", seconds, NULL);
}

static void on_made(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct front_family *f = arg;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    if (f->state != ASKED || (e && e->code == ECONNRESET))
        return;
    if (e) {
        went_down(f, e, false);
        return;
    }
    f->state = READY;
    f->backoff_ms = 0;
    f->used_ms = loop_now_ms();
    front_log("info", "a family of kernels is ready", "template", template_name(f), "owner", f->owner, NULL);
    unhold(f, number_of(f));
    pool_fill(f->front);
}

static int pack_zygote(const struct front *front, const struct box_mounts *mounts, int *ret, struct err *e)
{
    uint32_t number = box_mounts_template(mounts);
    const struct config_template *t = config_template(&front->config, number);
    char path[CONFIG_PATH_SIZE], variable[sizeof path + 8];
    char program[sizeof front->config.guest + 16];
    char *argv[] = { (char *)(uintptr_t)box_mounts_python(front, mounts, number),
                     program,
                     KERNEL_AS_ZYGOTE,
                     KERNEL_IMPORTS,
                     (char *)(uintptr_t)t->imports,
                     t->startup[0] ? KERNEL_STARTUP : NULL,
                     (char *)(uintptr_t)t->startup,
                     NULL };
    char *env[] = { variable, "LANG=" BOX_LANG, "LC_ALL=" BOX_LANG, "HOME=" BOX_HOME, NULL };

    snprintf(variable, sizeof variable, "PATH=%s", box_mounts_path(front, mounts, number, path));
    snprintf(program, sizeof program, "%s/" KERNEL_PROGRAM, front->config.guest);
    return command_pack(&(struct command_spec){ .argv = argv, .env = env }, ret, e);
}

static void ask(struct front_family *f)
{
    struct families *all = f->front->boxes.families;
    struct front *front = f->front;
    const struct config *c = &front->config;
    struct request_family q = { .head.type = REQUEST_FAMILY, .slot = number_of(f) - 1,
                                .profile = f->profile,
                                .has_stderr = 1 };
    FD command = -1, errors = -1;
    struct err e = { 0 };

    box_mounts_frame(front, &f->mounts, 0, &q.mounts);
    int r = pack_zygote(front, &f->mounts, &command, &e);
    if (r == 0 && (r = zygote_log_open(&f->errors, front->loop, on_line, &errors)) < 0)
        r = err_at(&e, -r, STEP_MEMORY, 0, "zygote");
    if (r < 0) {
        back_off(f, 0);
        return;
    }
    /* A limit that this host cannot enforce is not set. */
    q.limits = (struct limits){ .memory_bytes = c->defaults.memory_bytes,
                                      .disk_bytes = ZYGOTE_DISK,
                                      .pids = c->defaults.pids ? ZYGOTE_PIDS : 0,
                                      .cpu_milli = c->defaults.cpu_milli };
    if (q.limits.memory_bytes && q.limits.memory_bytes < zygote_memory_least)
        q.limits.memory_bytes = zygote_memory_least;
    if (q.limits.cpu_milli && q.limits.cpu_milli < 1000)
        q.limits.cpu_milli = 1000;
    q.token = f->token = ++all->tokens;
    f->hold_ms = 0;
    f->state = ASKED;
    f->serial = keeper_link_request(front->keeper, &q, sizeof q, (int[]){ command, errors }, 2, on_made, f);
}

static void nothing(const union event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;        /* an event about its slot reports the end */
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static void ask_end(struct front *front, uint32_t slot)
{
    struct request_family_end q = { .head.type = REQUEST_FAMILY_END, .slot = slot };
    keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, nothing, NULL);
}

static void end(struct front_family *f)
{
    pool_drop_family(f->front, number_of(f));
    f->state = ENDING;
    ask_end(f->front, number_of(f) - 1);
}

static bool has_boxes(const struct front_family *f)
{
    for (const struct box *b = f->front->boxes.first; b; b = b->next)
        if (b->family == number_of(f) && b->slot != BOX_NO_SLOT)
            return true;
    return false;
}

void families_end_of_layer(struct front *front, const char *layer)
{
    struct families *all = front->boxes.families;

    for (struct front_family *f = all->list; f < all->list + KEEPER_FAMILIES; f++) {
        const struct box_mount *m = f->state == READY && !f->is_kept && !has_boxes(f)
                                        ? box_mounts_find(&f->mounts, MOUNT_PACKAGES) : NULL;
        if (m && strcmp(m->target, layer) == 0)
            end(f);
    }
}

static void look(struct loop_timer *t)
{
    struct families *all = container_of(t, struct families, look);
    struct front *front = all->front;
    uint64_t now = loop_now_ms();
    bool is_any = false, holds = false;

    for (struct front_family *f = all->list; f < all->list + KEEPER_FAMILIES; f++) {
        if (f->state == NONE)
            continue;
        is_any = true;
        holds |= f->state == ASKED && f->hold_ms > now;
        if (f->state == ASKED && f->hold_ms && now >= f->hold_ms)
            unhold(f, 0);
        bool is_idle = !f->is_kept && now - f->used_ms >= IDLE_MS;
        if (f->state == DOWN && is_idle)
            forget(f);
        else if (f->state == DOWN && now >= f->retry_ms)
            ask(f);
        else if (f->state == READY && is_idle && has_boxes(f))
            f->used_ms = now;
        else if (f->state == READY && is_idle)
            end(f);
    }
    if (is_any)
        loop_timer_set(front->loop, t, holds ? HOLD_LOOK_MS : LOOK_MS);
}

/* Finds a free place; if there is none, the least recently used family is ended for the next request. */
static struct front_family *find_place(struct families *all)
{
    struct front_family *oldest = NULL;

    for (struct front_family *f = all->list; f < all->list + KEEPER_FAMILIES; f++) {
        if (f->state == NONE && !(all->told >> (f - all->list) & 1))
            return f;
        if (f->state == READY && !f->is_kept && (!oldest || f->used_ms < oldest->used_ms) && !has_boxes(f))
            oldest = f;
    }
    if (oldest)
        end(oldest);
    return NULL;
}

/* Reserves a place for boxes with these settings. */
static int take_place(struct front_family *f, struct front *front, const char *owner, const struct box_settings *s)
{
    struct box_mounts mounts;
    char *copy = strdup(owner);

    if (!copy || box_mounts_copy(&s->mounts, MOUNT_OF_FAMILY, &mounts) < 0) {
        free(copy);
        return -ENOMEM;
    }
    *f = (struct front_family){ .state = DOWN, .front = front, .owner = copy, .profile = s->profile, .mounts = mounts,
                                .used_ms = loop_now_ms(), .errors.pipe.fd = -1 };
    return 0;
}

static struct front_family *add(struct front *front, const char *owner, const struct box_settings *s)
{
    struct families *all = front->boxes.families;
    struct front_family *f = find_place(all);

    if (!f || take_place(f, front, owner, s) < 0)
        return NULL;
    if (!all->look.armed)
        loop_timer_set(front->loop, &all->look, LOOK_MS);
    return f;
}

/* Whether it is of the server's own user and the default kind. */
static bool is_usual(const struct front_family *f)
{
    const struct config_template *t = template_of(f);
    struct box_settings usual;
    char own[32];

    box_settings_init(&usual);
    front_own_identity(f->front, own);
    return t && t->pool && f->profile == usual.profile && strcmp(f->owner, own) == 0
           && box_packages_are_templates(f->front, &f->mounts);
}

/* ---- the interface ---- */

bool family_can_fork(const struct box *b)
{
    return b->family && b->front->boxes.families->list[b->family - 1].state == READY;
}

/* Whether a box like this can be in a family. */
static bool has_family(const struct front *front, const struct box_settings *s)
{
    uint32_t template = box_mounts_template(&s->mounts);
    const struct config_template *t = config_template(&front->config, template);

    return t && !t->no_zygote && !t->kernel[0] && front->config.guest[0] && template <= front->boxes.n_templates &&
           box_mounts_are_all(&s->mounts, MOUNT_IN_FAMILY) && !s->keys;
}

bool families_hold(struct front *front, const char *owner, const struct box_settings *s)
{
    struct families *all = front->boxes.families;

    for (struct front_family *f = all->list; has_family(front, s) && f < all->list + KEEPER_FAMILIES; f++) {
        if (!is_of(f, owner, s))
            continue;
        if (f->state != ASKED || !f->is_wanted)
            return false;
        if (!f->hold_ms) {
            f->hold_ms = loop_now_ms() + (all->cold_ms ? all->cold_ms : HOLD_MS);
            loop_timer_set(front->loop, &all->look, HOLD_LOOK_MS);
        }
        return loop_now_ms() < f->hold_ms;
    }
    return false;
}

void families_on_cold_kernel(const struct box *b, uint64_t took_us)
{
    if (has_family(b->front, &b->settings))
        b->front->boxes.families->cold_ms = took_us / 1000 < HOLD_MOST_MS ? took_us / 1000 + 1 : HOLD_MOST_MS;
}

static uint32_t find_for(struct front *front, const char *owner, const struct box_settings *s, bool for_kernel)
{
    struct families *all = front->boxes.families;
    const struct config_template *t = config_template(&front->config, box_mounts_template(&s->mounts));

    if (!front->ready || !has_family(front, s))     /* the keeper reports the taken slots when it is back */
        return 0;
    for (struct front_family *f = all->list; f < all->list + KEEPER_FAMILIES; f++)
        if (is_of(f, owner, s)) {
            f->used_ms = loop_now_ms();
            f->is_wanted |= for_kernel;
            return f->state == READY ? number_of(f) : 0;
        }
    struct front_family *f = t->zygote_late && !for_kernel ? NULL : add(front, owner, s);
    if (f) {
        f->is_kept = is_usual(f);
        f->is_wanted = for_kernel;
        ask(f);
    }
    return 0;
}

uint32_t families_for(struct front *front, const char *owner, const struct box_settings *s)
{
    return find_for(front, owner, s, false);
}

void families_want(const struct box *b)
{
    (void)find_for(b->front, b->owner, &b->settings, true);
}

unsigned families_pool_size(const struct front *front, uint32_t family, struct box_settings *ret)
{
    const struct front_family *f = &front->boxes.families->list[family - 1];
    const struct config_template *t = f->state == READY ? template_of(f) : NULL;

    if (!t || box_mounts_copy(&f->mounts, MOUNT_OF_FAMILY, &ret->mounts) < 0)
        return 0;
    ret->profile = f->profile;
    ret->net = t->net[0] ? json_true() : NULL;      /* the rules are set when a box is taken */
    return t->pool;
}

void families_on_told(struct front *front, const struct event_family *event)
{
    struct families *all = front->boxes.families;

    if (event->head.serial || event->slot >= KEEPER_FAMILIES)
        return;
    all->told |= UINT64_C(1) << event->slot;
    all->told_token[event->slot] = event->token;
    if (event->token > all->tokens)
        all->tokens = event->token;
}

void families_on_gone(struct front *front, const struct event_family_gone *event)
{
    struct families *all = front->boxes.families;
    struct front_family *f = event->slot < KEEPER_FAMILIES ? &all->list[event->slot] : NULL;

    if (!f)
        return;
    all->told &= ~(UINT64_C(1) << event->slot);
    if (f->state == NONE || f->token != event->token)
        return;
    /* If it was never ready, the answer that its making failed comes next; the family is dealt with already. */
    keeper_link_cancel(front->keeper, f->serial);
    went_down(f, &event->cause, event->code == LINK_UNFIT);
}

/* Takes over a family that an earlier front left in the keeper. */
static void adopt(struct front *front, uint32_t slot)
{
    struct families *all = front->boxes.families;
    const struct box *b = front->boxes.first;

    while (b && (b->family != slot + 1 || !box_mounts_template(&b->settings.mounts)))
        b = b->next;
    if (!b) {
        ask_end(front, slot);
        return;
    }
    all->told &= ~(UINT64_C(1) << slot);
    struct front_family *f = &all->list[slot];
    if (take_place(f, front, b->owner, &b->settings) < 0)
        abort();
    f->state = READY;
    f->token = all->told_token[slot];
}

void families_on_synced(struct front *front)
{
    struct families *all = front->boxes.families;

    for (uint32_t i = 0; i < KEEPER_FAMILIES; i++)
        if (all->told >> i & 1)
            adopt(front, i);
    templates_on_synced(front);
    for (struct front_family *f = all->list; f < all->list + KEEPER_FAMILIES; f++)
        f->is_kept = f->state != NONE && is_usual(f);
    if (!all->look.armed)
        loop_timer_set(front->loop, &all->look, LOOK_MS);
}

void families_on_lost(struct front *front)
{
    struct families *all = front->boxes.families;

    loop_timer_cancel(front->loop, &all->look);
    for (struct front_family *f = all->list; f < all->list + KEEPER_FAMILIES; f++)
        if (f->state != NONE)
            forget(f);
    all->told = 0;
}

void families_init(struct front *front)
{
    struct families *all = calloc(1, sizeof *all);

    if (!all)
        abort();
    all->front = front;
    all->look.on_expire = look;
    for (size_t i = 0; i < KEEPER_FAMILIES; i++)
        all->list[i].errors.pipe.fd = -1;
    front->boxes.families = all;
    templates_init(front);
}

void families_free(struct front *front)
{
    if (!front->boxes.families)
        return;
    families_on_lost(front);
    templates_free(front);
    free(front->boxes.families);
    front->boxes.families = NULL;
}
