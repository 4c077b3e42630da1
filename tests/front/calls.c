#define _GNU_SOURCE
#include "front/calls.h"

#include <errno.h>

#include "front/services/service_private.h"
#include "unit/unit.h"

enum { TIMEOUT_MS = 20000, LOAD_MS = 5000 };

static struct call calls[COUNT(wishes)];

/* ---- the service ---- */

struct service *tools(void)
{
    return service_find(&front, "uid:0", "tools");
}

struct waiter {
    struct service_watcher watcher;
    struct wish           *wish;
};
static struct waiter waiters[COUNT(wishes)];

static void on_state(struct service_watcher *watcher, struct service *s)
{
    struct waiter *w = (struct waiter *)watcher;        /* its first member */

    if (s->state == SERVICE_LOADING)
        return;
    service_unwatch(watcher);
    answer_wish(w->wish, s->state == SERVICE_READY ? 0 : EPIPE);
}

static void leave_service(struct wish *w)
{
    struct waiter *waiter = w->what;

    service_unwatch(&waiter->watcher);
}

int await_tools(void)
{
    struct wish *w = wish();
    struct waiter *waiter = &waiters[w - wishes];

    if (!tools())
        return ENOENT;
    if (tools()->state != SERVICE_LOADING)
        return tools()->state == SERVICE_READY ? 0 : EPIPE;
    *waiter = (struct waiter){ .watcher.on_state = on_state, .wish = w };
    w->what = waiter;
    w->leave = leave_service;
    service_watch(tools(), &waiter->watcher);
    return await(w);
}

int make_tools(const char *box, const struct service_wish *w)
{
    struct service *s;
    struct err e = { 0 };

    await_front();
    struct box *b = find(box);
    if (!b)
        return ENOENT;
    json_t *spec = json_pack("{s:s,s:s,s:s}", "code", w->code ? w->code : "good", "filename", "tools.py", "python",
                             "/usr/bin/python3");
    json_t *secrets = w->has_secrets ? json_pack("{s:s}", "KEY", "secret") : NULL;
    const struct service_options o = {
        .name = "tools", .spec = spec, .secrets = secrets, .own_box = w->own_box, .load_timeout_ms = LOAD_MS
    };
    int r = refusal(service_create(b, &o, &s, &e), &e);
    json_decref(spec);
    json_decref(secrets);
    return r ? r : await_tools();
}

int restart_tools(void)
{
    struct err e = { 0 };

    await_front();
    if (!tools())
        return ENOENT;
    int r = refusal(service_restart(tools(), &e), &e);
    return r ? r : await_tools();
}

void delete_tools(void)
{
    await_front();
    if (tools())
        service_delete(tools(), "asked");
    settle();
    assert_null(tools());
}

/* ---- calls ---- */

static void on_print(struct service_call *call, const char *stream, struct jsonslice text)
{
    struct call *c = call->options.owner;

    (void)stream;
    assert_false(c->wish->is_gone || c->wish->answers);
    assert_true(jsonscan_text(text, c->printed, sizeof c->printed));
}

static void on_end(struct service_call *call)
{
    struct call *c = call->options.owner;

    c->call = NULL;
    c->outcome = call->outcome;
    snprintf(c->result, sizeof c->result, "%.*s", (int)call->result.size, call->result.data ? call->result.data : "");
    answer_wish(c->wish, 0);
}

static void leave_call(struct wish *w)
{
    struct call *c = w->what;
    struct service_call *call = c->call;

    c->call = NULL;
    service_call_abandon(call);
}

static int ask(struct call *c, const char *grant, const char *function, const struct call_options *o)
{
    struct service *s = tools();
    struct grant *g = NULL;
    struct err e = { 0 };
    int r = 0;

    if (grant) {
        const struct grant_holder h = { .id = NULL, .box = find(grant) };
        r = h.box ? grant_check(&front, &h, NULL, function, &g, &e) : -ENOENT;
        if (r == 0) {
            grant_use(g);
            s = g->service;
        }
    }
    return r < 0 ? -r : !s ? ENOENT : -service_call_start(s, o, &c->call, &e);
}

struct call *begin_call(const char *grant, const char *function, const char *args, uint64_t timeout_ms)
{
    struct wish *w = wish();
    struct call *c = &calls[w - wishes];
    const struct call_options o = { .function = function,
                                    .who = grant ? grant : "uid:0",
                                    .args = { args, args ? strlen(args) : 0 },
                                    .timeout_ms = timeout_ms ? timeout_ms : TIMEOUT_MS,
                                    .owner = c,
                                    .on_print = on_print,
                                    .on_end = on_end };

    await_front();
    *c = (struct call){ .wish = w };
    w->generation = generation;
    w->what = c;
    w->leave = leave_call;
    c->refused = ask(c, grant, function, &o);
    w->is_asked = !c->refused;
    return c;
}

static bool works(void *arg)
{
    const struct call *c = arg;

    return c->printed[0];
}

bool until_it_works(struct call *c)
{
    return !c->refused && until(c->wish, works, c, "a call");
}

int end_call(struct call *c, enum call_outcome outcome, const char *result)
{
    int r = c->refused ? c->refused : await(c->wish);

    if (keeper.fault == FAULT_NONE && (r || c->outcome != outcome || (result && strcmp(c->result, result) != 0)))
        fail_msg("%s: a call ended as %s and gave '%s'; expected %s and '%s'", playing,
                 r ? strerror(r) : call_outcome_name(c->outcome), c->result, call_outcome_name(outcome),
                 result ? result : "");
    if (r == 0 && outcome == CALL_OK && c->outcome == CALL_OK && result)
        assert_string_equal(c->result, result);
    return r ? r : c->outcome == outcome ? 0 : EIO;
}

int make_call(const char *function, const char *args, enum call_outcome outcome, const char *result)
{
    return end_call(begin_call(NULL, function, args, 0), outcome, result);
}

void abandon_call(struct call *c)
{
    if (c->refused || c->wish->generation != generation || c->wish->answers || c->wish->is_gone)
        return;
    c->wish->is_gone = true;
    leave_call(c->wish);
}

/* ---- when all is quiet ---- */

bool services_are_quiet(void)
{
    for (const struct service *s = front.services; s; s = s->next) {
        const struct service_private *p = s->private;
        if (s->n_calls || s->state == SERVICE_LOADING || p->wants_box || p->close_timer.armed ||
            (p->end_outcome && s->exec) || (s->exec && s->exec->state != EXEC_RUNNING))
            return false;
    }
    return true;
}

static void check_service(const struct service *s)
{
    const struct service_private *p = s->private;

    assert_int_equal(s->exec != NULL, s->state == SERVICE_READY);
    if (s->exec) {
        assert_ptr_equal(s->exec->owned_by, s);
        assert_ptr_equal(s->exec->box, s->box);
        assert_true(box_is_alive(s->box));
        assert_true(json_array_size(s->functions) > 0);
    } else {
        assert_true(s->reason[0]);
    }
    assert_null(p->calls);
    assert_null(p->running);
    assert_null(p->watchers);
    assert_ptr_equal(p->calls_end, &p->calls);
    assert_int_equal(s->n_calls + p->n_async + p->queued_bytes + p->share.held, 0);
    assert_null(p->holders);
    assert_int_equal(p->link.partials.held, 0);
    assert_null(p->link.partial);
    assert_false(p->load_timer.armed || p->close_timer.armed || p->wants_box || p->restart_wanted);
}

void check_services(void)
{
    for (const struct service *s = front.services; s; s = s->next)
        check_service(s);
    for (const struct grant *g = front.grants; g; g = g->next) {
        assert_true(!g->max_calls || g->used <= g->max_calls);
        assert_ptr_equal(service_by_id(&front, g->service->id), g->service);
        assert_true(!g->box || box_is_alive(g->box));
    }
    for (const struct box *b = front.boxes.first; b; b = b->next)
        for (const struct exec *x = b->execs; x; x = x->next)
            if (x->owner && x->state != EXEC_ENDED && !x->owned_by)
                fail_msg("%s: a worker that nobody has is left", playing);
}
