/* A worker whose functions do what they are called: echo and swift give back what they get (swift is async), fail
 * raises, die ends the process, and wait, long, iron and later (which is async) go on until something stops them. What
 * it is told to load is a word, too: "good", "bad" (it cannot be loaded) or "slow" (loading never ends). */
#define _GNU_SOURCE
#include <jansson.h>
#include <signal.h>

#include "front/fake_guest.h"
#include "unit/unit.h"

static const struct function {
    const char       *name;
    bool              is_async, hangs;
    enum guest_temper temper;
} functions[] = {
    { .name = "echo" },
    { .name = "fail" },
    { .name = "die" },
    { .name = "swift", .is_async = true },
    { .name = "wait", .hangs = true },
    { .name = "long", .hangs = true, .temper = TEMPER_STUBBORN },
    { .name = "iron", .hangs = true, .temper = TEMPER_IRON },
    { .name = "later", .hangs = true, .is_async = true },
};

static void tell(struct fake_guest *g, json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);

    assert_non_null(text);
    guest_say(g, text, strlen(text));
    free(text);
    json_decref(message);
}

static void tell_functions(struct fake_guest *g)
{
    json_t *list = json_array();

    for (size_t i = 0; i < COUNT(functions); i++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:b,s:{s:s}}", "name", functions[i].name, "doc", "",
                                              "signature", "(*args)", "async", functions[i].is_async, "input_schema",
                                              "type", "object"));
    tell(g, json_pack("{s:s,s:o}", "type", "loaded", "functions", list));
}

static void load(struct fake_guest *g, const char *code)
{
    tell(g, json_pack("{s:s}", "type", "started"));
    tell(g, json_pack("{s:s,s:s,s:s}", "type", "print", "stream", "stdout", "value", "loading"));
    if (strcmp(code, "good") == 0)
        tell_functions(g);
    if (strcmp(code, "bad") == 0)
        tell(g, json_pack("{s:s,s:{s:s,s:s}}", "type", "failed", "error", "type", "SyntaxError", "message", "bad"));
    if (strcmp(code, "bad") == 0)
        g->goes = true;
}

/* ---- calls ---- */

static void tell_error(struct fake_guest *g, unsigned long long id, const char *type)
{
    tell(g, json_pack("{s:s,s:I,s:{s:s,s:s,s:s}}", "type", "error", "id", (json_int_t)id, "value", "type", type,
                      "message", "", "traceback", ""));
}

static bool are_wrong(const json_t *args)
{
    return json_array_size(args) > 1;
}

static void tell_unfit(struct fake_guest *g, unsigned long long id)
{
    tell(g, json_pack("{s:s,s:I,s:{s:s}}", "type", "invalid", "id", (json_int_t)id, "value", "message",
                      "one argument at most"));
}

static const struct function *function_of(const json_t *message)
{
    const char *name = json_string_value(json_object_get(message, "function"));

    for (size_t i = 0; i < COUNT(functions); i++)
        if (name && strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

static void hang(struct fake_guest *g, const struct function *f, unsigned long long id)
{
    unsigned i = f->is_async;

    while (i < GUEST_TASKS && g->task[i].is_there)
        i++;
    assert_true(i < GUEST_TASKS);
    g->task[i] = (struct guest_task){ .is_there = true, .id = id, .temper = f->temper };
}

static void call(struct fake_guest *g, const json_t *message, const struct function *f)
{
    unsigned long long id = (unsigned long long)json_integer_value(json_object_get(message, "id"));
    const json_t *args = json_object_get(message, "args");
    json_t *first = json_array_get(args, 0);

    if (are_wrong(args)) {
        tell_unfit(g, id);
        return;
    }
    tell(g, json_pack("{s:s,s:I,s:s,s:s}", "type", "print", "id", (json_int_t)id, "stream", "stdout", "value",
                      f->name));
    if (strcmp(f->name, "die") == 0)
        g->goes = true;
    else if (strcmp(f->name, "fail") == 0)
        tell_error(g, id, "ValueError");
    else if (f->hangs)
        hang(g, f, id);
    else
        tell(g, json_pack("{s:s,s:I,s:o}", "type", "result", "id", (json_int_t)id, "value",
                          first ? json_incref(first) : json_null()));
}

static void stop(struct fake_guest *g, struct guest_task *t)
{
    t->is_there = false;
    tell_error(g, t->id, "Cancelled");
}

/* id 0: whatever it is at. */
static void cancel(struct fake_guest *g, unsigned long long id)
{
    for (unsigned i = 0; i < GUEST_TASKS; i++)
        if (g->task[i].is_there && g->task[i].temper == TEMPER_MILD && (!id || g->task[i].id == id))
            stop(g, &g->task[i]);
}

/* ---- what it hears ---- */

void worker_hear(struct fake_guest *g, const char *data, size_t size)
{
    json_t *message = json_loadb(data, size, 0, NULL);
    const char *type = json_string_value(json_object_get(message, "type"));
    unsigned long long id = (unsigned long long)json_integer_value(json_object_get(message, "id"));
    const struct function *f = function_of(message);

    assert_non_null(type);
    if (strcmp(type, "load") == 0) {
        load(g, json_string_value(json_object_get(message, "code")));
    } else if (strcmp(type, "describe") == 0) {
        cancel(g, 0);
        tell_functions(g);
    } else if (strcmp(type, "cancel") == 0) {
        cancel(g, id);
    } else if (strcmp(type, "check") == 0) {
        if (are_wrong(json_object_get(message, "args")))
            tell_unfit(g, id);
    } else if (strcmp(type, "call") == 0) {
        assert_non_null(f);         /* the front sends nothing that was not described */
        if (!f->is_async && g->task[0].is_there)
            guest_put_off(g, data, size);
        else
            call(g, message, f);
    }
    json_decref(message);
}

void worker_feel(struct fake_guest *g, int signal)
{
    if (signal == SIGTERM)
        guest_exit(g, -1, SIGTERM);
    if (signal == SIGINT && g->task[0].is_there && g->task[0].temper <= TEMPER_STUBBORN)
        stop(g, &g->task[0]);
}
