/* A command as JSON: for the API, for the database, and back after a restart. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/boxes.h"
#include "front/execs/exec_private.h"
#include "front/front.h"
#include "proto/ending.h"

/* A command may have megabytes of arguments, and a box keeps hundreds of commands. */
enum { SHOWN_BYTES = 4096, ARGUMENT_BYTES = 32 };

void exec_show_argument(struct exec *x, const char *text)
{
    size_t size = strlen(text), room = SHOWN_BYTES - x->shown_bytes;

    if (x->is_argv_cut || room <= ARGUMENT_BYTES) {
        x->is_argv_cut = true;
        return;
    }
    room -= ARGUMENT_BYTES;
    if (size > room) {
        x->is_argv_cut = true;
        for (size = room; size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80;)
            size--;     /* not inside a character */
    }
    x->shown_bytes += (uint32_t)(ARGUMENT_BYTES + size);
    json_array_append_new(x->argv, json_stringn(text, size) ?: json_string("?"));
}

void exec_show_missing(json_t *o, uint64_t out, uint64_t err)
{
    json_object_set_new(o, "truncated", json_boolean(out + err > 0));
    json_object_set_new(o, "stdout_dropped_bytes", json_integer((json_int_t)out));
    json_object_set_new(o, "stderr_dropped_bytes", json_integer((json_int_t)err));
}

/* Adds the limit that ended it, for programs and in words. */
static void add_limit(const struct exec *x, json_t *o)
{
    const char *name = ending_limit_name(x->outcome);
    json_t *value = !x->limit_value                 ? json_null()
                    : x->outcome == OUTCOME_TIMEOUT ? json_real((double)x->limit_value / 1000)
                                                    : json_integer((json_int_t)x->limit_value);

    if (name)
        json_object_set_new(o, "limit", json_pack("{s:s,s:O}", "name", name, "value", value));
    json_decref(value);
    if (name)
        json_object_set_new(o, "remark",
                            json_string(ending_remark(x->outcome, x->limit_value, ENDING_FIELDS).text));
}

static void add_end(const struct exec *x, json_t *o)
{
    const struct frame_end *end = &x->end;

    json_object_set_new(o, "exit_code", end->signal || x->failure.code ? json_null() : json_integer(end->code));
    json_object_set_new(o, "signal", end->signal ? json_integer(end->signal) : json_null());
    json_object_set_new(o, "wall_ms", json_real((double)end->wall_us / 1000));
    json_object_set_new(o, "cpu_ms", json_real((double)end->cpu_us / 1000));
    json_object_set_new(o, "memory_peak_bytes", json_integer((json_int_t)end->peak_bytes));
    json_object_set_new(o, "box_usage",
                        json_pack("{s:I,s:I,s:I}", "memory_peak_bytes", (json_int_t)end->usage.memory_peak_bytes,
                                  "disk_bytes", (json_int_t)end->usage.disk_bytes, "pids_peak",
                                  (json_int_t)end->usage.pids_peak));
    add_limit(x, o);
    if (x->refused)
        json_object_set(o, "refused", x->refused);
    if (x->failure.code) {
        char text[256];
        err_text(&x->failure, text, sizeof text);
        json_object_set_new(o, "error",
                            json_pack("{s:s,s:i,s:s}", "step", err_step_name(x->failure.step), "errno", x->failure.code,
                                      "message", x->failure_text ? x->failure_text : text));
    }
}

const char *exec_outcome_name(const struct exec *x)
{
    return x->outcome ? outcome_name(x->outcome) : x->state == EXEC_ENDED ? ENDING_NOT_STARTED : NULL;
}

json_t *exec_json(const struct exec *x)
{
    static const char *const states[] = { "starting", "running", "ended" };
    json_t *o = json_object();

    json_object_set_new(o, "id", json_string(x->id));
    json_object_set_new(o, "box", json_string(x->box->id));
    json_object_set_new(o, "argv", json_incref(x->argv));
    json_object_set_new(o, "argv_cut", json_boolean(x->is_argv_cut));
    json_object_set_new(o, "cwd", x->cwd ? json_string(x->cwd) : json_null());
    json_object_set_new(o, "user", x->user ? json_sprintf("%u:%u", x->user - 1, x->group - 1) : json_null());
    json_object_set_new(o, "tty", json_boolean(x->terminal));
    json_object_set_new(o, "background", json_boolean(x->background));
    json_object_set_new(o, "delete_box", json_boolean(x->delete_box));
    json_object_set_new(o, "state", json_string(states[x->state]));
    json_object_set_new(o, "started_at", front_time_json(x->started_ms));
    json_object_set_new(o, "ended_at", front_time_json(x->ended_ms));
    json_object_set_new(o, "timeout", x->timeout_ms ? json_real((double)x->timeout_ms / 1000) : json_null());
    json_object_set_new(o, "output_bytes", json_integer((json_int_t)exec_output_bytes(x)));
    json_object_set_new(o, "output_limit", x->output_limit ? json_integer((json_int_t)x->output_limit) : json_null());
    exec_show_missing(o, x->log.gap.dropped[0], x->log.gap.dropped[1]);
    json_object_set_new(o, "outcome", exec_outcome_name(x) ? json_string(exec_outcome_name(x)) : json_null());
    json_object_set_new(o, "reason", x->reason ? json_string(exec_reason_name(x->reason)) : json_null());
    if (x->owner)
        json_object_set(o, x->owner->name, json_object_get(x->about, "name"));
    if (x->state == EXEC_ENDED)
        add_end(x, o);
    return o;
}

json_t *exec_row_json(const struct exec *x)
{
    json_t *body = exec_json(x);

    if (x->owner)
        json_object_set_new(body, "_", json_pack("{s:s,s:O,s:b}", "owner", x->owner->name, "about", x->about,
                                                 "disowned", x->is_disowned));
    return body;
}

static const struct exec_owner *find_owner(const struct front *front, const char *name)
{
    for (const struct exec_owner *const *o = front->exec_owners; *o; o++)
        if (strcmp((*o)->name, name) == 0)
            return *o;
    return NULL;
}

/* Rows of earlier versions have "kernel" and "nobodys", and the id of a service in about. */
static void read_owner(struct exec *x, json_t *hidden)
{
    json_t *old = json_object_get(hidden, "kernel"), *about = json_object_get(hidden, "about");
    const char *name = json_string_value(json_object_get(hidden, "owner"));

    if (old && !about) {
        about = old;
        name = json_object_get(old, "service") ? "service" : "kernel";
    }
    if (!about || !name)
        return;
    x->owner = find_owner(x->box->front, name);
    x->about = json_incref(about);
    x->is_disowned = json_is_true(json_object_get(hidden, about == old ? "nobodys" : "disowned"));
}

/* The message was made from step, noun and reason; it is kept unchanged. */
static void read_failure(struct exec *x, json_t *error)
{
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *name = json_string_value(json_object_get(error, "step"));
    int code = (int)json_integer_value(json_object_get(error, "errno"));
    enum step step = STEP_NONE;

    for (unsigned i = 0; name && i < STEP_COUNT; i++)
        if (strcmp(err_step_name(i), name) == 0)
            step = (enum step)i;
    (void)err_set(&x->failure, code > 0 ? code : EIO, step, "%s", message ? message : "unknown");
    x->failure_text = message ? strdup(message) : NULL;
}

void exec_from_json(struct exec *x, json_t *body)
{
    const char *cwd = json_string_value(json_object_get(body, "cwd"));

    size_t at;
    json_t *argument;
    json_array_foreach(json_object_get(body, "argv"), at, argument)
        exec_show_argument(x, json_is_string(argument) ? json_string_value(argument) : "?");
    x->is_argv_cut |= json_is_true(json_object_get(body, "argv_cut"));
    x->refused = json_incref(json_object_get(body, "refused"));
    x->cwd = cwd ? strdup(cwd) : NULL;
    x->terminal = json_is_true(json_object_get(body, "tty"));
    x->background = json_is_true(json_object_get(body, "background"));
    x->delete_box = json_is_true(json_object_get(body, "delete_box"));
    x->started_ms = front_time_parse(json_string_value(json_object_get(body, "started_at")));
    x->ended_ms = front_time_parse(json_string_value(json_object_get(body, "ended_at")));
    x->output_limit = (uint64_t)json_integer_value(json_object_get(body, "output_limit"));
    x->timeout_ms = (uint64_t)(json_number_value(json_object_get(body, "timeout")) * 1000 + 0.5);
    x->end.code = (int)json_integer_value(json_object_get(body, "exit_code"));
    x->end.signal = (int)json_integer_value(json_object_get(body, "signal"));
    x->end.wall_us = (uint64_t)(json_number_value(json_object_get(body, "wall_ms")) * 1000);
    x->end.cpu_us = (uint64_t)(json_number_value(json_object_get(body, "cpu_ms")) * 1000);
    x->end.peak_bytes = (uint64_t)json_integer_value(json_object_get(body, "memory_peak_bytes"));
    json_t *usage = json_object_get(body, "box_usage");
    x->end.usage.memory_peak_bytes = (uint64_t)json_integer_value(json_object_get(usage, "memory_peak_bytes"));
    x->end.usage.disk_bytes = (uint64_t)json_integer_value(json_object_get(usage, "disk_bytes"));
    x->end.usage.pids_peak = (uint32_t)json_integer_value(json_object_get(usage, "pids_peak"));
    x->outcome = outcome_parse(json_string_value(json_object_get(body, "outcome")));
    double limit = json_number_value(json_object_get(json_object_get(body, "limit"), "value"));
    x->limit_value = (uint64_t)(x->outcome == OUTCOME_TIMEOUT ? limit * 1000 + 0.5 : limit);
    x->reason = exec_reason_parse(json_string_value(json_object_get(body, "reason")));
    const char *user = json_string_value(json_object_get(body, "user"));
    if (!user || sscanf(user, "%u:%u", &x->user, &x->group) != 2)
        x->user = x->group = 0;
    else
        x->user++, x->group++;
    read_owner(x, json_object_get(body, "_"));
    json_t *error = json_object_get(body, "error");
    if (error)
        read_failure(x, error);
}
