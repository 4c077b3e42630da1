/* Each family has the slot in the keeper that is its place in the table here.
 *
 *   NONE -> ASKED -> READY -> ENDING -> NONE        ended: nobody has had a box in it for ten minutes
 *             |        |
 *             +--------+--> DOWN -> ASKED ...       its zygote has ended: again after a while, later each time
 *
 * While there is none, boxes of the template are made without it and their kernels are exec'd: slower, and nothing
 * else. What a new front finds in the keeper it knows again by the boxes that are in it; the others it ends.
 *
 * The zygote's standard error is read here, a few lines of it: they say why it could not start. */
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
#include "front/execs/exec_private.h"
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
    HOLD_MS = 60000,            /* so long may a box wait for a zygote that gets warm */
    SETUP_MS = 5000,            /* how often it is looked whether 'carrel setup' has been */
    LINES_MOST = 32,
    LINE_BYTES = 1024,
    ZYGOTE_PIDS = 128,
    ZYGOTE_DISK = 64 << 20,
};
static const uint64_t zygote_memory_least = UINT64_C(1) << 30;

enum family_phase { NONE, ASKED, READY, ENDING, DOWN };

struct front_family {
    enum family_phase     state;
    struct front  *front;
    char          *owner;               /* owned */
    uint32_t       template, profile;
    bool           is_kept;             /* also when nobody uses it */
    bool           is_wanted;           /* a kernel was started without it */
    uint64_t       token;
    uint64_t       used_ms, retry_ms;   /* of loop_now_ms() */
    uint32_t       backoff_ms;
    struct loop_fd errors;              /* fd owned; -1: none */
    char           line[LINE_BYTES];
    size_t         line_length;
    unsigned       lines;
};

static struct {                 /* of the one front of this process */
    struct front_family     list[KEEPER_FAMILIES];
    struct loop_timer look;
    uint64_t          tokens;
    uint64_t          told;             /* bit per slot: there is one in the keeper that we do not know */
    uint64_t          told_token[KEEPER_FAMILIES];
} all;

static const char *template_name(const struct front_family *f)
{
    const struct config_template *t = config_template(&f->front->config, f->template);
    return t ? t->name : "";
}

static uint32_t number_of(const struct front_family *f)
{
    return (uint32_t)(f - all.list) + 1;
}

/* ---- what the zygote says ---- */

/* One line: JSON of ours with an error and what to do, or anything. */
static void log_line(struct front_family *f)
{
    json_t *said = json_loads(f->line, 0, NULL);
    const char *error = json_string_value(json_object_get(said, LINK_ERROR)),
               *hint = json_string_value(json_object_get(said, LINK_HINT));

    if (++f->lines <= LINES_MOST && f->line[0]) {
        if (error)
            front_log("error", error, "template", template_name(f), "owner", f->owner, "hint", hint ? hint : "", NULL);
        else
            front_log("info", f->line, "template", template_name(f), "owner", f->owner, NULL);
    }
    json_decref(said);
    f->line_length = 0;
}

static void close_errors(struct front_family *f)
{
    if (f->errors.fd < 0)
        return;
    if (f->line_length)
        log_line(f);
    loop_fd_remove(f->front->loop, &f->errors);
    f->errors.fd = fd_close(f->errors.fd);
}

static void on_errors(struct loop_fd *w, uint32_t events)
{
    struct front_family *f = container_of(w, struct front_family, errors);
    char text[LINE_BYTES];
    ssize_t n = read(w->fd, text, sizeof text);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    for (ssize_t i = 0; i < n; i++) {
        bool ends = text[i] == '\n' || f->line_length == sizeof f->line - 1;
        if (text[i] != '\n' && !ends)
            f->line[f->line_length++] = text[i];
        f->line[f->line_length] = '\0';
        if (ends)
            log_line(f);
    }
    if (n <= 0)
        close_errors(f);
}

/* A pipe whose other end is the zygote's. */
static int open_errors(struct front_family *f, int *ret)
{
    int pair[2];

    close_errors(f);
    f->line_length = f->lines = 0;
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    FD ours = pair[0], theirs = pair[1];
    f->errors.on_event = on_errors;
    int r = fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : loop_fd_add(f->front->loop, &f->errors, ours, EPOLLIN);
    if (r < 0)
        return r;
    f->errors.fd = TAKE_FD(ours);
    *ret = TAKE_FD(theirs);
    return 0;
}

/* ---- its life ---- */

static bool is_of(const struct front_family *f, const char *owner, uint32_t template, uint32_t profile)
{
    return f->state != NONE && f->template == template && f->profile == profile && strcmp(f->owner, owner) == 0;
}

static void forget(struct front_family *f)
{
    if (f->front)
        close_errors(f);
    free(f->owner);
    *f = (struct front_family){ .errors.fd = -1 };
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

/* Those that wait for it: number 0: as plain ones. */
static void unhold(const struct front_family *f, uint32_t number)
{
    for (struct box *b = f->front->boxes.first; b; b = b->next)
        if (b->is_held && is_of(f, b->owner, b->settings.template, b->settings.profile))
            box_unhold(b, number);
}

/* Its boxes live on as plain ones; those that nobody has yet are given back. */
static void went_down(struct front_family *f, const struct event *event)
{
    char text[256] = "", seconds[16];

    if (event->err.code)
        err_text(&event->err, text, sizeof text);
    for (struct box *b = f->front->boxes.first; b; b = b->next)
        if (b->family == number_of(f))
            b->family = 0;
    pool_drop_family(f->front, number_of(f));
    unhold(f, 0);
    if (f->state == ENDING) {
        forget(f);
        return;
    }
    const struct config_template *t = config_template(&f->front->config, f->template);
    if (t && t->python_is_default && f->backoff_ms >= SETUP_MS)
        f->backoff_ms = 0;
    back_off(f, event->code == LINK_UNFIT && t && !t->python_is_default ? BACKOFF_MOST_MS : 0);
    snprintf(seconds, sizeof seconds, "%u", f->backoff_ms / 1000);
    if (!config_awaits_setup(&f->front->config, f->template, &event->err))      /* the server's first line said that */
        front_log("warning", "a family of kernels has ended", "template", template_name(f), "owner", f->owner, "why",
                  text, "again_in_s", seconds, NULL);
}

static void on_made(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct front_family *f = arg;

    (void)fds;
    (void)n_fds;
    if (f->state != ASKED || event->result == -ECONNRESET)
        return;
    if (event->result < 0) {
        went_down(f, event);
        return;
    }
    f->state = READY;
    f->backoff_ms = 0;
    f->used_ms = loop_now_ms();
    front_log("info", "a family of kernels is ready", "template", template_name(f), "owner", f->owner, NULL);
    unhold(f, number_of(f));
    pool_fill(f->front);
}

static int pack_zygote(const struct front *front, uint32_t number, int *ret, struct err *e)
{
    const struct config_template *t = config_template(&front->config, number);
    char path[CONFIG_PATH_SIZE], variable[sizeof path + 8];
    char program[sizeof front->config.guest + 16];
    char *argv[] = { (char *)(uintptr_t)t->python,
                     program,
                     KERNEL_AS_ZYGOTE,
                     KERNEL_IMPORTS,
                     (char *)(uintptr_t)t->imports,
                     t->startup[0] ? KERNEL_STARTUP : NULL,
                     (char *)(uintptr_t)t->startup,
                     NULL };
    char *env[] = { variable, "LANG=" BOX_LANG, "LC_ALL=" BOX_LANG, "HOME=" BOX_HOME, NULL };

    snprintf(variable, sizeof variable, "PATH=%s", config_template_path(&front->config, number, path));
    snprintf(program, sizeof program, "%s/" KERNEL_PROGRAM, front->config.guest);
    return command_pack(&(struct command_spec){ .argv = argv, .env = env }, ret, e);
}

static void ask(struct front_family *f)
{
    struct front *front = f->front;
    const struct config *c = &front->config;
    struct request_family q = { .head = { .type = REQUEST_FAMILY, .box = number_of(f) - 1 },
                                .template = f->template,
                                .profile = f->profile,
                                .has_stderr = 1 };
    FD command = -1, errors = -1;
    struct err e = { 0 };

    int r = pack_zygote(front, f->template, &command, &e);
    if (r == 0 && (r = open_errors(f, &errors)) < 0)
        r = err_at(&e, -r, STEP_MEMORY, 0, "zygote");
    if (r < 0) {
        back_off(f, 0);
        return;
    }
    /* A limit that this host cannot hold is none. */
    q.limits = (struct limits){ .memory_bytes = c->defaults.memory_bytes,
                                      .disk_bytes = ZYGOTE_DISK,
                                      .pids = c->defaults.pids ? ZYGOTE_PIDS : 0,
                                      .cpu_milli = c->defaults.cpu_milli };
    if (q.limits.memory_bytes && q.limits.memory_bytes < zygote_memory_least)
        q.limits.memory_bytes = zygote_memory_least;
    if (q.limits.cpu_milli && q.limits.cpu_milli < 1000)
        q.limits.cpu_milli = 1000;
    q.token = f->token = ++all.tokens;
    f->state = ASKED;
    keeper_link_request(front->keeper, &q, sizeof q, (int[]){ command, errors }, 2, on_made, f);
}

static void nothing(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;        /* that it is gone is told for its slot */
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static void ask_end(struct front *front, uint32_t slot)
{
    struct request_head q = { .type = REQUEST_FAMILY_END, .box = slot };
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

static void look(struct loop_timer *t)
{
    uint64_t now = loop_now_ms();
    struct front *front = NULL;

    for (struct front_family *f = all.list; f < all.list + KEEPER_FAMILIES; f++) {
        if (f->state == NONE)
            continue;
        front = f->front;
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
    for (struct box *b = front ? front->boxes.first : NULL; b; b = b->next)
        if (b->is_held && loop_now_us() - b->created_us > HOLD_MS * UINT64_C(1000))
            box_unhold(b, 0);
    if (front)
        loop_timer_set(front->loop, t, LOOK_MS);
}

/* A free place; where there is none, the family that was used longest ago makes room for the next. */
static struct front_family *find_place(void)
{
    struct front_family *oldest = NULL;

    for (struct front_family *f = all.list; f < all.list + KEEPER_FAMILIES; f++) {
        if (f->state == NONE && !(all.told >> (f - all.list) & 1))
            return f;
        if (f->state == READY && !f->is_kept && (!oldest || f->used_ms < oldest->used_ms) && !has_boxes(f))
            oldest = f;
    }
    if (oldest)
        end(oldest);
    return NULL;
}

static struct front_family *add(struct front *front, const char *owner, uint32_t template, uint32_t profile)
{
    struct front_family *f = find_place();
    char *copy = f ? strdup(owner) : NULL;

    if (!copy)
        return NULL;
    *f = (struct front_family){ .state = DOWN, .front = front, .owner = copy, .template = template, .profile = profile,
                          .used_ms = loop_now_ms(), .errors.fd = -1 };
    all.look.on_expire = look;
    if (!all.look.armed)
        loop_timer_set(front->loop, &all.look, LOOK_MS);
    return f;
}

static void name_own(const struct front *front, char own[32])
{
    snprintf(own, 32, "uid:%u", (unsigned)front->owner_uid);
}

/* Of the server's own user and the usual kind. */
static bool is_usual(const struct front_family *f)
{
    const struct config_template *t = config_template(&f->front->config, f->template);
    struct box_settings usual;
    char own[32];

    box_settings_init(&usual);
    name_own(f->front, own);
    return t && t->pool && f->profile == usual.profile && strcmp(f->owner, own) == 0;
}

/* ---- for others ---- */

bool family_can_fork(const struct box *b)
{
    return b->family && all.list[b->family - 1].state == READY;
}

uint32_t families_layers(const struct front *front, const struct box_settings *s)
{
    uint32_t template = s->template ? s->template : 1;

    return s->root == 0 && template <= front->boxes.n_templates ? template : 0;
}

/* Whether a box like this can be in a family. */
static bool has_family(const struct front *front, const struct box_settings *s)
{
    const struct config_template *t = config_template(&front->config, s->template);

    return t && !t->no_zygote && !t->kernel[0] && front->config.guest[0] && s->template <= front->boxes.n_templates &&
           !s->root && !s->writable_root && !s->on_disk && json_array_size(s->devices) == 0;
}

bool families_hold(struct front *front, const char *owner, const struct box_settings *s)
{
    for (struct front_family *f = all.list; has_family(front, s) && f < all.list + KEEPER_FAMILIES; f++)
        if (is_of(f, owner, s->template, s->profile))
            return f->state == ASKED && f->is_wanted;
    return false;
}

static uint32_t find_for(struct front *front, const char *owner, const struct box_settings *s, bool for_kernel)
{
    const struct config_template *t = config_template(&front->config, s->template);

    if (!front->ready || !has_family(front, s))     /* which slots are taken is told when the keeper is back */
        return 0;
    for (struct front_family *f = all.list; f < all.list + KEEPER_FAMILIES; f++)
        if (is_of(f, owner, s->template, s->profile)) {
            f->used_ms = loop_now_ms();
            f->is_wanted |= for_kernel;
            return f->state == READY ? number_of(f) : 0;
        }
    struct front_family *f = t->zygote_late && !for_kernel ? NULL : add(front, owner, s->template, s->profile);
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
    const struct front_family *f = &all.list[family - 1];
    const struct config_template *t = f->state == READY ? config_template(&front->config, f->template) : NULL;

    if (!t)
        return 0;
    ret->template = f->template;
    ret->profile = f->profile;
    ret->net = t->net[0] ? json_true() : NULL;      /* which, each box says when it is taken */
    return t->pool;
}

void families_on_keeper_event(struct front *front, const struct event *event)
{
    struct front_family *f = event->box < KEEPER_FAMILIES ? &all.list[event->box] : NULL;

    (void)front;
    if (!f)
        return;
    if (event->type == EVENT_FAMILY && !event->serial) {
        all.told |= UINT64_C(1) << event->box;
        all.told_token[event->box] = event->token;
        if (event->token > all.tokens)
            all.tokens = event->token;
    }
    if (event->type != EVENT_FAMILY_GONE)
        return;
    all.told &= ~(UINT64_C(1) << event->box);
    if (f->state != NONE && f->token == event->token)
        went_down(f, event);
}

/* What an earlier front has left in the keeper. */
static void adopt(struct front *front, uint32_t slot)
{
    const struct box *b = front->boxes.first;

    while (b && (b->family != slot + 1 || !b->settings.template))
        b = b->next;
    if (!b) {
        ask_end(front, slot);
        return;
    }
    all.told &= ~(UINT64_C(1) << slot);
    struct front_family *f = &all.list[slot];
    *f = (struct front_family){ .state = READY,
                                .front = front,
                                .owner = strdup(b->owner),
                                .template = b->settings.template,
                                .profile = b->settings.profile,
                                .token = all.told_token[slot],
                                .used_ms = loop_now_ms(),
                                .errors.fd = -1 };
    if (!f->owner)
        abort();
}

void families_on_synced(struct front *front)
{
    char own[32];

    all.look.on_expire = look;
    for (uint32_t i = 0; i < KEEPER_FAMILIES; i++)
        if (all.told >> i & 1)
            adopt(front, i);
    name_own(front, own);
    for (uint32_t i = 1; i <= front->config.n_templates; i++) {
        struct box_settings s;
        box_settings_init(&s);
        s.template = i;
        if (front->config.template[i - 1].pool)
            (void)families_for(front, own, &s);
    }
    for (struct front_family *f = all.list; f < all.list + KEEPER_FAMILIES; f++)
        f->is_kept = f->state != NONE && is_usual(f);
    if (!all.look.armed)
        loop_timer_set(front->loop, &all.look, LOOK_MS);
}

void families_on_lost(struct front *front)
{
    loop_timer_cancel(front->loop, &all.look);
    for (struct front_family *f = all.list; f < all.list + KEEPER_FAMILIES; f++)
        if (f->state != NONE)
            forget(f);
    all.told = 0;
}

void families_free(struct front *front)
{
    families_on_lost(front);
}
