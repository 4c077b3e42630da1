/* POST …/kernels/{context}/ask: one question to a kernel and its answer, for editors: completions, help, whether some
 * lines are a whole statement. A kernel that runs a cell answers afterwards. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/parse.h"
#include "doors/native/run/run.h"

enum { TIMEOUT_MS = 10000 };

struct question {
    struct ask          *ask;
    struct kernel_client client;
    struct loop_timer    timer;
    char                 id[32];
    /* from the body: */
    const char          *type;
    json_t              *content;       /* borrowed */
    uint64_t             timeout_ms;
};

static const char *const types[] = { "complete", "inspect", "is_complete", "history", "kernel_info", "comm_info" };

static void done(struct question *q)
{
    kernel_detach(&q->client);
    loop_timer_cancel(q->ask->r->loop, &q->timer);
    q->ask->on_end = NULL;
}

static void on_end(struct ask *a, enum http_end how)
{
    (void)how;
    done(a->work);
}

static void on_timer(struct loop_timer *t)
{
    struct question *q = container_of(t, struct question, timer);

    done(q);
    reply_fail(q->ask, 504, "timeout", "the kernel has not answered in time; it may be running a cell");
}

static bool on_message(struct kernel_client *c, struct kernel_message *m)
{
    struct question *q = container_of(c, struct question, client);

    if (m->channel != KERNEL_SHELL || strcmp(m->parent_id, q->id) != 0)
        return false;
    done(q);
    reply_data(q->ask, 200, m->part[PART_CONTENT].iov_base, m->part[PART_CONTENT].iov_len);
    return false;
}

static void on_state(struct kernel_client *c)
{
    struct question *q = container_of(c, struct question, client);

    if (c->kernel->state != KERNEL_DEAD && c->kernel->state != KERNEL_RESTARTING)
        return;
    done(q);
    reply_fail(q->ask, 409, "ended", "the kernel has ended");
}

static int take_type(const char *name, json_t *v, void *into, struct err *e)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_is_string(v) && strcmp(json_string_value(v), types[i]) == 0) {
            ((struct question *)into)->type = types[i];
            return 0;
        }
    return err_set(e, EINVAL, STEP_USAGE,
                   "%s must be complete, inspect, is_complete, history, kernel_info or comm_info", name);
}

static int take_content(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct question *)into)->content = v;
    return json_is_object(v) ? 0 : err_set(e, EINVAL, STEP_USAGE, "%s must be an object", name);
}

static int take_timeout(const char *name, json_t *v, void *into, struct err *e)
{
    return body_duration(name, v, &((struct question *)into)->timeout_ms, e);
}

static int send_question(struct question *q, struct kernel *k, struct err *e)
{
    char header[256], now[32];
    char *content = q->content ? json_dumps(q->content, JSON_COMPACT) : strdup("{}");
    struct iovec none = { (char *)(uintptr_t)"{}", 2 };

    if (!content)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "question");
    front_make_id('q', q->id);
    front_time_text(front_now_ms(), now);
    int n = snprintf(header, sizeof header,
                     "{\"msg_id\":\"%s\",\"session\":\"carrel\",\"username\":\"carrel\",\"date\":\"%s\","
                     "\"msg_type\":\"%s_request\",\"version\":\"5.4\"}",
                     q->id, now, q->type);
    const struct iovec part[KERNEL_PARTS] = { { header, (size_t)n }, none, none, { content, strlen(content) } };
    int r = kernel_send(k, KERNEL_SHELL, part, NULL, 0, e);
    free(content);
    return r;
}

static void put_question(struct ask *a, json_t *root)
{
    static const struct body_field fields[] = {
        { "type", take_type }, { "content", take_content }, { "timeout", take_timeout }
    };
    struct kernel *k = kernel_in_box(a->box, http_match_get(a->match, "context").data);
    struct question *q = arena_alloc(&a->r->arena, sizeof *q);
    struct err e = { 0 };

    if (!k || !q) {
        reply_fail(a, 404, "not_found", "there is no such kernel in this box");
        return;
    }
    *q = (struct question){ .ask = a,
                            .timeout_ms = TIMEOUT_MS,
                            .client = { .on_message = on_message, .on_state = on_state },
                            .timer.on_expire = on_timer };
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, q, &e);
    if (r == 0 && !q->type)
        r = err_set(&e, EINVAL, STEP_USAGE, "type is missing");
    if (r == 0)
        r = send_question(q, k, &e);
    if (r < 0) {
        reply_err(a, &e);
        return;
    }
    a->work = q;
    a->on_end = on_end;
    loop_timer_set(a->r->loop, &q->timer, q->timeout_ms ? q->timeout_ms : TIMEOUT_MS);
    kernel_attach(k, &q->client, UINT64_MAX);
}

void ask_kernel_ask(struct ask *a)
{
    body_json(a, BODY_LARGE, put_question);
}
