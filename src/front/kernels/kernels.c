/* A kernel's life. It is an exec whose standard input is the link; the exec is its process, and may be replaced by the
 * next one (restart) while the kernel, its clients and its ring of messages stay.
 *
 *   STARTING -> IDLE <-> BUSY         RESTARTING -> STARTING
 *       +---------+--------+--> DEAD -> RESTARTING, or forgotten
 *
 * A message comes from the link (guest_link.c), updates the state (kernel_status.c), is numbered, put into the ring and
 * sent to all clients. While one of them cannot take more, nothing is read, neither from the link nor from the pipes:
 * then the kernel blocks, and uses none of our memory. Any callback may detach clients and end the kernel; therefore a
 * kernel is freed from the loop only, and loops over the clients use a struct kernel_pass. */
#define _GNU_SOURCE
#include "front/kernels/kernels.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/boxes/box_parts.h"
#include "front/boxes/box_text.h"
#include "front/boxes/families.h"
#include "front/execs/exec_owner.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"

const char *const kernel_state_names[] = { "starting", "idle", "busy", "restarting", "dead" };

enum { AWAITED_US = 1000000 };
enum { CLOSE_PATIENCE_MS = 1000, RING_SMALL = 64 << 10 };
#define RING_ALL_MOST (UINT64_C(256) << 20)     /* of all kernels together: beyond it each keeps only a little */


/* ---- clients ---- */

void kernel_look_at_reading(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);
    bool hold = p->n_paused > 0;

    guest_link_hold(&p->link, hold);
    if (k->exec)
        exec_hold(k->exec, hold);
}

static void set_paused(struct kernel *k, struct kernel_client *c, bool paused)
{
    if (c->paused == paused)
        return;
    c->paused = paused;
    kernel_private(k)->n_paused += paused ? 1u : -1u;
    kernel_look_at_reading(k);
}

void kernel_resume(struct kernel *k, struct kernel_client *c)
{
    if (c->kernel == k)
        set_paused(k, c, false);
}

void kernel_detach(struct kernel_client *c)
{
    struct kernel *k = c->kernel;

    if (!k)
        return;
    set_paused(k, c, false);
    for (struct kernel_pass *pass = kernel_private(k)->passes; pass; pass = pass->outer)
        if (pass->next == c)
            pass->next = c->next;
    LIST_REMOVE(c);
    c->kernel = NULL;
    k->n_clients--;
}

void kernel_attach(struct kernel *k, struct kernel_client *c, uint64_t after)
{
    struct kernel_private *p = kernel_private(k);

    c->kernel = k;
    c->paused = false;
    LIST_ADD(k->clients, c);
    k->n_clients++;
    struct kernel_pass pass = { .outer = p->passes, .next = c };
    p->passes = &pass;
    for (size_t i = 0; i < p->n_ring && pass.next == c; i++) {
        struct kernel_message *m = p->ring[i];
        if (m->number <= after)
            continue;
        kernel_message_ref(m);
        if (c->on_message(c, m) && pass.next == c)
            set_paused(k, c, true);
        kernel_message_unref(m);
    }
    p->passes = pass.outer;
}

uint64_t kernel_last_number(const struct kernel *k)
{
    return ((const struct kernel_private *)k->private)->last_number;
}

static void ring_drop(struct kernel_private *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        p->ring_bytes -= p->ring[i]->raw.size;
        p->kernel->front->ring_bytes -= p->ring[i]->raw.size;
        kernel_message_unref(p->ring[i]);
    }
    p->n_ring -= n;
    if (n > 0)
        memmove(p->ring, p->ring + n, p->n_ring * sizeof *p->ring);
}

static void ring_add(struct kernel_private *p, struct kernel_message *m)
{
    struct front *front = p->kernel->front;
    size_t most = front->ring_bytes > RING_ALL_MOST ? RING_SMALL : KERNEL_RING_BYTES, drop = 0, bytes = p->ring_bytes;

    if (p->n_ring == p->ring_room) {
        size_t room = p->ring_room ? p->ring_room * 2 : 32;
        struct kernel_message **larger =
            room > KERNEL_RING_MESSAGES ? NULL : reallocarray(p->ring, room, sizeof *larger);
        if (larger) {
            p->ring = larger;
            p->ring_room = room;
        }
    }
    /* A quarter at once, or every message would move all the others. */
    if (p->n_ring == p->ring_room || bytes + m->raw.size > most)
        for (size_t keep = p->n_ring / 4 * 3;
             drop < p->n_ring && (p->n_ring - drop > keep || bytes + m->raw.size > most);)
            bytes -= p->ring[drop++]->raw.size;
    ring_drop(p, drop);
    if (m->raw.size > most || p->n_ring == p->ring_room)
        return;
    kernel_message_ref(m);
    p->ring[p->n_ring++] = m;
    p->ring_bytes += m->raw.size;
    front->ring_bytes += m->raw.size;
}

void kernel_tell(struct kernel *k, struct kernel_message *m)
{
    struct kernel_private *p = kernel_private(k);
    struct kernel_pass pass = { .outer = p->passes, .next = k->clients };

    m->number = ++p->last_number;
    ring_add(p, m);
    p->passes = &pass;
    while (pass.next) {
        struct kernel_client *c = pass.next;
        pass.next = c->next;
        struct kernel_pass self = { .outer = p->passes, .next = c };
        p->passes = &self;
        bool full = c->on_message(c, m);
        if (full && self.next == c)     /* it has not detached itself */
            set_paused(k, c, true);
        p->passes = self.outer;
    }
    p->passes = pass.outer;
}

void kernel_set_state(struct kernel *k, enum kernel_state state)
{
    struct kernel_private *p = kernel_private(k);
    struct kernel_pass pass = { .outer = p->passes, .next = k->clients };

    if (k->state == state)
        return;
    k->state = state;
    k->activity_ms = front_now_ms();
    box_touch(k->box);
    p->passes = &pass;
    while (pass.next) {
        struct kernel_client *c = pass.next;
        pass.next = c->next;
        if (c->on_state)
            c->on_state(c);
    }
    p->passes = pass.outer;
}

/* ---- input from the link ---- */

static const char *check_message(struct guest_message *raw)
{
    return kernel_message_read(kernel_message_of(raw));
}

static void on_message(struct guest_link *l, struct guest_message *raw)
{
    struct kernel_message *m = kernel_message_of(raw);
    struct kernel *k = (container_of(l, struct kernel_private, link))->kernel;
    bool is_status = strcmp(m->type, "status") == 0;

    if (kernel_private(k)->gone)
        return;
    /* Earlier output comes first; only at a cell's beginning it more likely belongs to the new cell. */
    if (k->exec && !kernel_is_own(k, m) && (!is_status || kernel_message_is_idle(m)))
        exec_pull(k->exec);
    /* Its first message may also be that it is busy with the cell that waited for it. */
    if (k->state == KERNEL_STARTING && k->way == KERNEL_COLD && !k->restarts && kernel_private(k)->asked_us)
        families_on_cold_kernel(k->box, loop_now_us() - kernel_private(k)->asked_us);
    if (k->state == KERNEL_STARTING && !is_status)
        kernel_set_state(k, KERNEL_IDLE);
    kernel_note(k, m);
    if (!kernel_is_own(k, m) && !kernel_private(k)->gone)
        kernel_tell(k, m);
}

void kernel_condemn(struct kernel *k, enum outcome outcome, const char *why)
{
    struct kernel_private *p = kernel_private(k);
    struct err ignored;

    if (!p->end_outcome) {
        p->end_outcome = outcome;
        snprintf(p->end_reason, sizeof p->end_reason, "%s", why);
    }
    if (k->exec)
        (void)!exec_signal(k->exec, SIGKILL, &ignored);
}

static void on_broken(struct guest_link *l, enum outcome outcome, const char *why)
{
    struct kernel_private *p = container_of(l, struct kernel_private, link);
    char text[160];

    if (!outcome) {         /* most often it has just exited */
        loop_timer_set(l->loop, &p->close_timer, CLOSE_PATIENCE_MS);
        return;
    }
    snprintf(text, sizeof text, "the kernel was ended because it sent %s", why);
    front_log("warning", text, "kernel", p->kernel->id, "box", p->kernel->box->id, NULL);
    kernel_condemn(p->kernel, outcome, text);
}

static const struct guest_link_owner link_owner = {
    .before = offsetof(struct kernel_message, raw),
    .least = KERNEL_MESSAGE_LEAST,
    .check = check_message,
    .on_message = on_message,
    .on_broken = on_broken,
};

static void on_close_timer(struct loop_timer *t)
{
    struct kernel_private *p = container_of(t, struct kernel_private, close_timer);

    kernel_condemn(p->kernel, OUTCOME_ERROR, "the kernel was ended because it closed its link");
}

static void before_output(struct exec *x)
{
    struct kernel *k = x->owned_by;

    if (k)
        guest_link_turn(&kernel_private(k)->link);
}

static void on_output(struct exec *x, unsigned stream, const char *data, size_t size)
{
    struct kernel *k = x->owned_by;

    if (k && !kernel_private(k)->gone)
        kernel_raw_take(k, stream, data, size);
}

/* ---- making and freeing ---- */

static void on_free(struct loop_task *t)
{
    struct kernel_private *p = container_of(t, struct kernel_private, free_task);
    struct kernel *k = p->kernel;

    loop_task_cancel(k->front->loop, &p->run_task);
    guest_link_close(&p->link);
    share_leave(&p->link.share);
    share_leave(&p->link.partials);
    ring_drop(p, p->n_ring);
    free(p->ring);
    free(p->parent);
    free(p->input_parent);
    free(p);
    free(k->name);
    free(k->spec);
    free(k->cwd);
    for (char **v = k->env; v && *v; v++)
        free(*v);
    free(k->env);
    json_decref(k->secrets);
    free(k);
}

static void free_all(struct box *box)
{
    while (box->kernels) {
        struct kernel *k = box->kernels;
        struct kernel_private *p = kernel_private(k);
        kernel_runs_drop(k);
        kernel_forget(k);
        loop_task_cancel(k->front->loop, &p->free_task);
        on_free(&p->free_task);
    }
    kernel_runs_drop_leaving(box);
}

void kernel_forget(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);

    if (p->gone)
        return;
    p->gone = true;
    LIST_REMOVE(k);
    for (struct kernel **at = &k->box->kernels; *at; at = &(*at)->next_in_box)
        if (*at == k) {
            *at = k->next_in_box;
            break;
        }
    loop_timer_cancel(k->front->loop, &p->close_timer);
    kernel_ladder_end(k, NULL);
    while (k->clients)
        kernel_detach(k->clients);
    if (k->exec)
        k->exec->owned_by = NULL;
    k->exec = NULL;
    guest_link_close(&p->link);
    loop_task_add(k->front->loop, &p->free_task);
}

static char **copy_list(char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    char **copy = calloc(n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++)
        if (!(copy[i] = strdup(list[i]))) {
            while (i > 0)
                free(copy[--i]);
            free(copy);
            return NULL;
        }
    return copy;
}

static void make_id(char id[132])
{
    char part[3][16];

    for (int i = 0; i < 3; i++)
        front_make_id('k', part[i]);
    snprintf(id, 132, "k%s%s", part[0] + 1, part[1] + 1);
}

/* Adds it to the lists, without a process yet. */
static struct kernel *make(struct box *box, const struct kernel_options *o)
{
    struct kernel *k = calloc(1, sizeof *k);
    struct kernel_private *p = calloc(1, sizeof *p);

    if (k) {
        k->name = strdup(o->name ? o->name : "default");
        k->spec = o->spec ? strdup(o->spec) : NULL;
        k->cwd = o->cwd ? strdup(o->cwd) : NULL;
        k->env = copy_list(o->env);
        k->secrets = json_incref(o->secrets);
    }
    if (!k || !p || !k->name || !k->env || (o->spec && !k->spec) || (o->cwd && !k->cwd))
        abort();        /* as everywhere when a few bytes cannot be allocated */
    k->private = p;
    p->kernel = k;
    p->asked_us = loop_now_us();
    k->front = box->front;
    k->box = box;
    k->way = KERNEL_COLD;
    if (o->id)
        snprintf(k->id, sizeof k->id, "%s", o->id);
    else
        make_id(k->id);
    front_make_id('s', p->session);
    guest_link_init(&p->link, box->front->loop, &link_owner);
    if (share_join(&p->link.share, &box->front->memory, box->owner) < 0 ||
        share_join(&p->link.partials, &box->front->partials, box->owner) < 0)
        abort();
    p->close_timer.on_expire = on_close_timer;
    p->free_task.on_run = on_free;
    kernel_ladder_init(k);
    LIST_ADD(box->front->kernels, k);
    k->next_in_box = box->kernels;
    box->kernels = k;
    return k;
}

static bool name_is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n > 0 && n <= 128 && !name[n];
}

int kernel_start(struct box *box, const struct kernel_options *options, struct kernel **ret, struct err *e)
{
    const char *name = options->name ? options->name : "default";
    unsigned n = 0;

    for (struct kernel *k = box->kernels; k; k = k->next_in_box)
        n++;
    if (box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box %s; only in a running one can a kernel be started",
                       box_show_state(box).text);
    if (!name_is_plain(name) || (options->id && !name_is_plain(options->id)))
        return err_set(e, EINVAL, STEP_USAGE,
                       "the name of a context has 1 to 128 letters, digits, dots, dashes and underscores");
    if (kernel_in_box(box, name) || (options->id && kernel_find(box->front, box->owner, options->id)))
        return err_set(e, EEXIST, STEP_USAGE, "there is a kernel of this name already");
    if (n >= KERNELS_PER_BOX)
        return err_set(e, EAGAIN, STEP_USAGE, "a box may have %d kernels", KERNELS_PER_BOX);
    struct kernel *k = make(box, options);
    int r = kernel_launch(k, e);
    if (r < 0) {
        kernel_forget(k);
        return r;
    }
    box->front->metrics.kernels_started++;
    *ret = k;
    return 0;
}

/* Takes over an earlier front's kernel. */
static void adopt(struct exec *x, const struct exec_birth *birth)
{
    json_t *about = x->about, *one;
    char *env[1024] = { NULL };
    size_t i, n = 0;

    json_array_foreach(json_object_get(about, "env"), i, one)
        if (n < sizeof env / sizeof *env - 1 && json_is_string(one))
            env[n++] = (char *)(uintptr_t)json_string_value(one);
    struct kernel_options o = { .id = json_string_value(json_object_get(about, "id")),
                                .name = json_string_value(json_object_get(about, "name")),
                                .spec = json_string_value(json_object_get(about, "spec")),
                                .cwd = json_string_value(json_object_get(about, "cwd")),
                                .env = env,
                                .secrets = json_object_get(about, "secrets") };
    if (!o.id || !o.name || x->owned_by || kernel_in_box(x->box, o.name))
        return;
    struct kernel *k = make(x->box, &o);
    k->exec = x;
    x->owned_by = k;
    k->is_adopted = true;
    k->restarts = (unsigned)json_integer_value(json_object_get(about, "restarts"));
    k->way = birth ? kernel_way_of(k, birth->way) : KERNEL_COLD;
    k->started_ms = x->started_ms;
    k->activity_ms = front_now_ms();
    k->state = KERNEL_BUSY;     /* until it reports otherwise */
    kernel_private(k)->asked_us = 0;
    if (exec_link(x) < 0 || guest_link_open(&kernel_private(k)->link, exec_link(x), false) < 0)
        kernel_condemn(k, OUTCOME_ERROR, "the kernel's link was lost");
    else
        kernel_ask_info(k);
}

struct kernel *kernel_find(struct front *front, const char *owner, const char *id)
{
    for (struct kernel *k = front->kernels; k; k = k->next)
        if (strcmp(k->id, id) == 0 && (!owner || strcmp(k->box->owner, owner) == 0))
            return k;
    return NULL;
}

struct kernel *kernel_in_box(struct box *box, const char *name)
{
    for (struct kernel *k = box->kernels; k; k = k->next_in_box)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}

/* A kernel was requested, not long ago, and has not finished a cell. Later there may be no client that wants one. */
static bool are_awaited(const struct front *front)
{
    uint64_t now = loop_now_us();

    for (const struct kernel *k = front->kernels; k; k = k->next) {
        uint64_t asked_us = ((const struct kernel_private *)k->private)->asked_us;
        if (asked_us && now - asked_us < AWAITED_US)
            return true;
    }
    return false;
}

static unsigned count_idle(const struct box *box)
{
    unsigned n = 0;

    for (const struct kernel *k = box->kernels; k; k = k->next_in_box)
        n += k->exec && k->state == KERNEL_IDLE && k->connections == 0;
    return n;
}

const struct box_part kernels_part = {
    .on_end = kernels_on_box_end, .count_idle = count_idle, .is_awaited = are_awaited, .free = free_all
};

const struct exec_owner kernels_exec_owner = {
    .name = "kernel",
    .adopt = adopt,
    .on_state = kernel_process_runs,
    .before_output = before_output,
    .on_output = on_output,
    .on_end = kernel_process_ended,
};
