#define _GNU_SOURCE
#include <string.h>

#include "front/box_private.h"
#include "front/exec_private.h"
#include "front/front.h"

void exec_from_json(struct exec *x, json_t *body)
{
    const char *outcome = json_string_value(json_object_get(body, "outcome"));
    const char *cwd = json_string_value(json_object_get(body, "cwd"));

    x->argv = json_incref(json_object_get(body, "argv"));
    x->cwd = cwd ? strdup(cwd) : NULL;
    x->terminal = json_is_true(json_object_get(body, "tty"));
    x->background = json_is_true(json_object_get(body, "background"));
    x->started_ms = front_time_parse(json_string_value(json_object_get(body, "started_at")));
    x->ended_ms = front_time_parse(json_string_value(json_object_get(body, "ended_at")));
    x->output_limit = (uint64_t)json_integer_value(json_object_get(body, "output_limit"));
    x->end.code = (int)json_integer_value(json_object_get(body, "exit_code"));
    x->end.signal = (int)json_integer_value(json_object_get(body, "signal"));
    x->end.wall_us = (uint64_t)(json_number_value(json_object_get(body, "wall_ms")) * 1000);
    x->end.cpu_us = (uint64_t)(json_number_value(json_object_get(body, "cpu_ms")) * 1000);
    x->end.peak_bytes = (uint64_t)json_integer_value(json_object_get(body, "memory_peak_bytes"));
    for (int i = 0; outcome && i < 8; i++)
        if (strcmp(front_outcomes[i], outcome) == 0)
            x->outcome = front_outcomes[i];
    const char *reason = json_string_value(json_object_get(body, "reason"));
    x->reason = !reason                              ? NULL
                : strcmp(reason, "stopped") == 0     ? "stopped"
                : strcmp(reason, "output_lost") == 0 ? "output_lost"
                                                     : NULL;
    json_t *error = json_object_get(body, "error");
    if (error) {
        const char *message = json_string_value(json_object_get(error, "message"));
        (void)err_set(&x->failure, 5, STEP_NONE, "%s", message ? message : "unknown");
    }
}
