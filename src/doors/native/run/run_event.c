/* Turns a kernel's messages into events for callers. The kernel's JSON is valid and is copied unchanged; only line ends
 * between its tokens become blanks, because a line of its own could pass for one of ours. */
#define _GNU_SOURCE
#include <string.h>

#include "base/jsonout.h"
#include "base/jsonscan.h"
#include "doors/native/run/run.h"

static struct jsonslice content(const struct kernel_message *m)
{
    return (struct jsonslice){ .data = m->part[PART_CONTENT].iov_base, .size = m->part[PART_CONTENT].iov_len };
}

static void add_raw(struct buf *line, const char *name, struct jsonslice value, const char *missing)
{
    buf_printf(line, ",\"%s\":", name);
    size_t start = line->length;
    if (value.data)
        buf_add(line, value.data, value.size);
    else
        buf_add_text(line, missing);
    for (size_t i = start; !line->failure && i < line->length; i++)
        if (line->data[i] == '\n' || line->data[i] == '\r')
            line->data[i] = ' ';
}

struct member {
    const char *name, *from, *missing;
};

#define MIME { "data", "data", "{}" }, { "metadata", "metadata", "{}" }

static const struct shape {
    const char   *type, *shown;
    struct member member[3];
} shapes[] = {
    { "display_data", "display", { MIME, { "transient", "transient", "{}" } } },
    { "update_display_data", "update_display", { MIME, { "transient", "transient", "{}" } } },
    { "execute_result", "result", { MIME, { "execution_count", "execution_count", "null" } } },
    { "error",
      "error",
      { { "name", "ename", "\"\"" }, { "value", "evalue", "\"\"" }, { "traceback", "traceback", "[]" } } },
    { "clear_output", "clear_output", { { "wait", "wait", "false" } } },
    { "input_request", "input_request", { { "prompt", "prompt", "\"\"" }, { "password", "password", "false" } } },
};

bool run_event(const struct kernel_message *m, struct buf *line)
{
    struct jsonslice from = content(m);

    if (strcmp(m->type, "stream") == 0) {
        bool is_err = jsonscan_is(jsonscan_find(from, "name"), "stderr");
        struct jsonslice text = jsonscan_find(from, "text");
        if (!jsonscan_inside(text).data)
            return false;
        buf_printf(line, "{\"type\":\"%s\"", is_err ? "stderr" : "stdout");
        add_raw(line, "text", text, "\"\"");
        buf_add_char(line, '}');
        return true;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *event = &shapes[i];
        if (strcmp(m->type, event->type) != 0)
            continue;
        buf_printf(line, "{\"type\":\"%s\"", event->shown);
        for (int k = 0; k < 3 && event->member[k].name; k++)
            add_raw(line, event->member[k].name, jsonscan_find(from, event->member[k].from), event->member[k].missing);
        buf_add_char(line, '}');
        return true;
    }
    return false;
}

void run_event_outcome(const struct kernel_run *run, struct jsonout *j)
{
    jsonout_string(j, "outcome", outcome_name(run->outcome));
    jsonout_string(j, "reason", run->reason[0] ? run->reason : NULL);
    jsonout_open_object(j, "kernel");
    jsonout_string(j, "id", run->kernel_id);
    jsonout_string(j, "context", run->context);
    jsonout_string(j, "way", kernel_way_name(run->way));
    jsonout_string(j, "state", kernel_state_names[run->state]);
    jsonout_unsigned(j, "restarts", run->restarts);
    jsonout_close(j);
    if (run->execution_count)
        jsonout_unsigned(j, "execution_count", run->execution_count);
    else
        jsonout_null(j, "execution_count");
    jsonout_decimal(j, "wall_ms", run->wall_us, 3);
    if (run->bill.is_counted)
        jsonout_decimal(j, "cpu_ms", run->bill.cpu_us, 3);
    else
        jsonout_null(j, "cpu_ms");
    if (run->bill.peak_bytes)
        jsonout_unsigned(j, "memory_peak_bytes", run->bill.peak_bytes);
    else
        jsonout_null(j, "memory_peak_bytes");
    jsonout_string(j, "box", run->box->id);
    if (run->refused) {
        jsonout_open_object(j, "refused");
        jsonout_string(j, "message", json_string_value(json_object_get(run->refused, "message")));
        jsonout_string(j, "rule", json_string_value(json_object_get(run->refused, "rule")));
        jsonout_bool(j, "is_index", json_is_true(json_object_get(run->refused, "is_index")));
        jsonout_close(j);
    }
}
