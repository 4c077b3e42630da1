/* /v1/boxes/{id}/kernels: interpreters that live on between two runs, by the names of their contexts. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "doors/native/run/run.h"

static json_t *kernel_json(const struct kernel *k)
{
    bool is_dead = k->state == KERNEL_DEAD;
    json_t *o = json_pack("{s:s,s:s,s:s,s:s?,s:s?,s:s,s:s,s:i,s:i,s:s?,s:s?}", "id", k->id, "box", k->box->id,
                          "context", k->name, "template", k->spec, "cwd", k->cwd, "state", kernel_state_names[k->state],
                          "way", kernel_way_name(k->way), "restarts", (int)k->restarts, "connections",
                          (int)k->connections, "outcome", is_dead ? outcome_name(k->outcome) : NULL, "reason",
                          is_dead ? k->reason : NULL);

    json_object_set_new(o, "started_at", front_time_json(k->started_ms));
    json_object_set_new(o, "activity_at", front_time_json(k->activity_ms));
    return o;
}

static struct kernel *find(struct ask *a)
{
    struct kernel *k = kernel_in_box(a->box, http_match_get(a->match, "context").data);

    if (!k)
        reply_fail(a, 404, "not_found", "there is no such kernel in this box");
    return k;
}

void ask_kernel_list(struct ask *a)
{
    static const char *const known[] = { NULL };
    json_t *list = json_array();

    if (!query_only(a, known)) {
        json_decref(list);
        return;
    }
    for (struct kernel *k = a->box->kernels; k; k = k->next_in_box)
        json_array_append_new(list, kernel_json(k));
    reply_json(a, 200, json_pack("{s:o}", "kernels", list));
}

static void start(struct ask *a, json_t *root)
{
    struct run_body b = { .ask = a };
    struct kernel *k = NULL;
    struct err e = { 0 };
    int r = run_body_kernel(&b, root, &e);

    if (r == 0 && !run_body_env(&b))
        r = err_at(&e, ENOMEM, STEP_MEMORY, 0, "kernel");
    if (r == 0)
        r = kernel_start(a->box, &b.kernel, &k, &e);
    if (r < 0 || !k)
        reply_err(a, &e);
    else
        reply_json(a, 201, kernel_json(k));
}

void ask_kernel_start(struct ask *a)
{
    body_json(a, BODY_LARGE, start);
}

void ask_kernel_get(struct ask *a)
{
    struct kernel *k = find(a);

    if (k)
        reply_json(a, 200, kernel_json(k));
}

void ask_kernel_delete(struct ask *a)
{
    struct kernel *k = find(a);

    if (!k)
        return;
    kernel_end(k, "the kernel was deleted");
    reply_none(a);
}

/* The work continues after the answer; the state shows its progress. */
static void finish(struct ask *a, struct kernel *k, int r, const struct err *e)
{
    if (r < 0)
        reply_err(a, e);
    else
        reply_json(a, 200, kernel_json(k));
}

void ask_kernel_interrupt(struct ask *a)
{
    struct kernel *k = find(a);
    struct err e = { 0 };

    if (k)
        finish(a, k, kernel_interrupt(k, &e), &e);
}

void ask_kernel_restart(struct ask *a)
{
    struct kernel *k = find(a);
    struct err e = { 0 };

    if (k)
        finish(a, k, kernel_restart(k, &e), &e);
}

static int take_value(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, BODY_SMALL, into, e);
}

static void answer(struct ask *a, json_t *root)
{
    static const struct body_field fields[] = { { "value", take_value } };
    struct kernel *k = find(a);
    const char *value = NULL;
    struct err e = { 0 };

    if (!k)
        return;
    int r = body_fields(root, "", fields, 1, &value, &e);
    if (r == 0 && !value)
        r = err_set(&e, EINVAL, STEP_USAGE, "value is missing");
    if (r == 0 && (r = kernel_answer_input(k, value, &e)) == -ENOENT) {
        reply_fail(a, 409, "not_asked", "the kernel has not asked for input");
        return;
    }
    finish(a, k, r, &e);
}

void ask_kernel_input(struct ask *a)
{
    body_json(a, 2 * BODY_SMALL, answer);
}
