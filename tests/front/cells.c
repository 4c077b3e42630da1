#define _GNU_SOURCE
#include "front/cells.h"

#include <errno.h>

#include "base/list.h"
#include "front/kernels/kernel_private.h"
#include "unit/unit.h"

enum { TIMEOUT_MS = 20000, OUTPUT_BYTES = 1 << 20 };

static struct cell cells[COUNT(wishes)];

/* ---- kernels ---- */

struct kernel *kernel_of(const char *box)
{
    struct box *b = find(box);

    return b ? kernel_in_box(b, "default") : NULL;
}

int raise_kernel(const char *box)
{
    const struct kernel_options none = { 0 };
    struct kernel *k;
    struct err e = { 0 };
    struct box *b;

    await_front();
    b = find(box);
    if (!b)
        return ENOENT;
    return kernel_in_box(b, "default") ? 0 : refusal(kernel_start(b, &none, &k, &e), &e);
}

/* ---- cells ---- */

static bool on_message(struct kernel_run *run, struct kernel_message *m)
{
    struct cell *c = run->options.owner;
    struct jsonslice content = kernel_message_part(m, PART_CONTENT);
    size_t n = strlen(c->text);

    assert_false(c->wish->is_gone || c->wish->answers);
    assert_ptr_equal(c->run, run);
    if (strcmp(m->type, "stream") == 0)
        assert_true(jsonscan_text(jsonscan_find(content, "text"), c->text + n, sizeof c->text - n));
    if (strcmp(m->type, "input_request") == 0)
        c->asks = true;
    return false;
}

static void on_end(struct kernel_run *run)
{
    struct cell *c = run->options.owner;

    /* Its bill and the kernel's way need the keeper's word, which guests in a hurry overtake. */
    for (const struct kernel *k = run->outcome == OUTCOME_OK ? run->box->kernels : NULL; k; k = k->next_in_box)
        assert_false(k->state == KERNEL_IDLE && kernel_private(k)->link.keep);
    c->run = NULL;
    c->outcome = run->outcome;
    c->restarts = run->restarts;
    snprintf(c->reason, sizeof c->reason, "%s", run->reason);
    answer_wish(c->wish, 0);
}

static void leave(struct wish *w)
{
    struct cell *c = w->what;
    struct kernel_run *run = c->run;

    c->run = NULL;
    kernel_run_abandon(run);
}

/* A cell whose front has died may run for ever. Who comes next finds the kernel busy, and does what people do. */
static void free_kernel(const char *box)
{
    struct err e;

    if (!kernel_of(box) || !kernel_of(box)->is_adopted || kernel_of(box)->state != KERNEL_BUSY)
        return;
    settle();
    if (kernel_of(box) && kernel_of(box)->state == KERNEL_BUSY)
        (void)!kernel_restart(kernel_of(box), &e);
}

struct cell *begin_cell(const char *box, const char *code, const struct cell_options *o)
{
    struct wish *w = wish();
    struct cell *c = &cells[w - wishes];
    struct kernel *k;
    struct err e = { 0 };

    *c = (struct cell){ .wish = w };
    w->what = c;
    w->leave = leave;
    await_front();
    free_kernel(box);
    w->generation = generation;
    k = kernel_of(box);
    const struct kernel_run_options options = { .code = code,
                                                .code_size = strlen(code),
                                                .timeout_ms = o && o->timeout_ms ? o->timeout_ms : TIMEOUT_MS,
                                                .output_bytes = o && o->output_bytes ? o->output_bytes : OUTPUT_BYTES,
                                                .allow_stdin = true,
                                                .restart = o && o->restart,
                                                .on_message = on_message,
                                                .on_end = on_end,
                                                .owner = c };
    c->was_refused = !k || refusal(kernel_run_start(k, &options, &c->run, &e), &e) != 0;
    w->is_asked = !c->was_refused;
    return c;
}

static bool runs(void *arg)
{
    const struct cell *c = arg;

    return c->text[0];
}

static bool asks(void *arg)
{
    const struct cell *c = arg;

    return c->asks;
}

bool until_it_runs(struct cell *c)
{
    return !c->was_refused && until(c->wish, runs, c, "a cell");
}

bool until_it_asks(struct cell *c)
{
    return !c->was_refused && until(c->wish, asks, c, "a cell");
}

int end_cell(struct cell *c, enum outcome outcome, const char *text)
{
    int r = c->was_refused ? ENOENT : await(c->wish);
    bool is_faithful = keeper.fault != FAULT_MESSAGE_LOST && keeper.fault != FAULT_MESSAGE_DOUBLED;

    if (keeper.fault == FAULT_NONE && (r || c->outcome != outcome || strcmp(c->text, text) != 0))
        fail_msg("%s: a cell ended as %s (%s) and printed \"%s\"; expected \"%s\"", playing,
                 r ? strerror(r) : outcome_name(c->outcome), c->reason, c->text, text);
    if (r == 0 && outcome == OUTCOME_OK && c->outcome == OUTCOME_OK && is_faithful)
        assert_string_equal(c->text, text);
    return r ? r : c->outcome == outcome ? 0 : EIO;
}

int run_cell(const char *box, const char *code, enum outcome outcome, const char *text)
{
    return end_cell(begin_cell(box, code, NULL), outcome, text);
}

/* ---- listeners ---- */

static bool on_heard(struct kernel_client *c, struct kernel_message *m)
{
    struct listener *l = container_of(c, struct listener, client);

    if (l->last)
        assert_int_equal(m->number, l->last + 1);
    l->last = m->number;
    l->n++;
    return l->is_slow;
}

static void on_state(struct kernel_client *c)
{
    struct listener *l = container_of(c, struct listener, client);

    l->states++;
}

void listen_to(struct kernel *k, struct listener *l)
{
    *l = (struct listener){ .client = { .on_message = on_heard, .on_state = on_state },
                            .is_slow = l->is_slow, .last = kernel_last_number(k) };
    kernel_attach(k, &l->client, UINT64_MAX);
}

void listen_again(struct kernel *k, struct listener *l)
{
    kernel_attach(k, &l->client, l->last);
}

/* ---- when all is quiet ---- */

bool kernels_are_quiet(void)
{
    for (const struct kernel *k = front.kernels; k; k = k->next) {
        const struct kernel_private *p = kernel_private(k);
        if (p->runs || p->ladder_timer.armed || p->close_timer.armed || k->state == KERNEL_RESTARTING ||
            (p->end_outcome && k->exec) || (k->exec && k->exec->state != EXEC_RUNNING))
            return false;
    }
    return true;
}

static const struct fake_guest *guest_of(const struct exec *x)
{
    const struct fake_box *b = x ? fake_box_by_token(&keeper, x->box->token ? x->box->token : x->box->number) : NULL;

    return b && x->slot < FAKE_PAYLOADS ? b->payload[x->slot].guest : NULL;
}

static void check_kernel(const struct kernel *k)
{
    const struct kernel_private *p = kernel_private(k);
    const struct fake_guest *g = guest_of(k->exec);
    bool is_mute = g && (g->hangs || g->link < 0);
    size_t bytes = 0;

    assert_true(box_is_alive(k->box));
    assert_int_equal(k->exec != NULL, k->state != KERNEL_DEAD);
    if (k->exec) {
        assert_non_null(g);
        assert_ptr_equal(k->exec->owned_by, k);
    } else {
        assert_true(k->reason[0] && k->outcome);
    }
    if (k->exec && !is_mute && keeper.fault != FAULT_MESSAGE_LOST)
        assert_int_equal(k->state == KERNEL_BUSY, g->task[0].is_there);
    if (!is_mute) {
        assert_null(p->link.queue);
        assert_int_equal(p->link.queued + p->link.share.held, 0);
    }
    assert_null(p->link.kept);
    assert_null(p->link.partial);
    assert_int_equal(p->link.partials.held + p->link.kept_bytes, 0);
    assert_null(p->runs);
    assert_null(p->passes);
    assert_null(k->clients);
    assert_int_equal(k->n_clients + p->n_paused, 0);
    assert_false(p->link.held || p->restart_wanted || p->ladder_timer.armed || p->close_timer.armed);
    for (size_t i = 0; i < p->n_ring; i++) {
        bytes += p->ring[i]->raw.size;
        assert_int_equal(p->ring[i]->raw.refs, 1);
    }
    assert_int_equal(bytes, p->ring_bytes);
}

void check_kernels(void)
{
    uint64_t bytes = 0;

    for (const struct kernel *k = front.kernels; k; k = k->next) {
        check_kernel(k);
        bytes += kernel_private(k)->ring_bytes;
    }
    assert_int_equal(front.ring_bytes, bytes);
    for (const struct box *b = front.boxes.first; b; b = b->next)
        for (const struct exec *x = b->execs; x; x = x->next)
            if (x->owner && x->state != EXEC_ENDED && !x->owned_by)
                fail_msg("%s: a process that nobody has is left", playing);
}
