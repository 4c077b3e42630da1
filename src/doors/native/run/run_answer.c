/* A whole run in one answer. Texts of stdout and stderr stay escaped as the kernel sent them: the concatenated insides
 * of strings are the inside of a string. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "base/jsonout.h"
#include "base/jsonscan.h"
#include "doors/native/run/run.h"

enum { ANSWER_MOST = 128 << 20 };

void run_answer_init(struct run_answer *a)
{
    buf_init(&a->text[0], ANSWER_MOST);
    buf_init(&a->text[1], ANSWER_MOST);
    buf_init(&a->results, ANSWER_MOST);
    buf_init(&a->error, ANSWER_MOST);
}

void run_answer_done(struct run_answer *a)
{
    buf_done(&a->text[0]);
    buf_done(&a->text[1]);
    buf_done(&a->results);
    buf_done(&a->error);
}

size_t run_answer_bytes(const struct run_answer *a)
{
    return a->text[0].length + a->text[1].length + a->results.length + a->error.length;
}

void run_answer_add(struct run_answer *a, const struct kernel_message *m)
{
    struct jsonslice content = { .data = m->part[PART_CONTENT].iov_base, .size = m->part[PART_CONTENT].iov_len };

    if (strcmp(m->type, "stream") == 0) {
        struct jsonslice text = jsonscan_inside(jsonscan_find(content, "text"));
        if (text.data)
            buf_add(&a->text[jsonscan_is(jsonscan_find(content, "name"), "stderr")], text.data, text.size);
    } else if (strcmp(m->type, "error") == 0) {
        buf_clear(&a->error);
        (void)!run_event(m, &a->error);
    } else if (strcmp(m->type, "display_data") == 0 || strcmp(m->type, "execute_result") == 0 ||
               strcmp(m->type, "update_display_data") == 0) {
        if (a->results.length)
            buf_add_char(&a->results, ',');
        (void)!run_event(m, &a->results);
    } else if (strcmp(m->type, "clear_output") == 0) {
        for (int i = 0; i < 2; i++)
            buf_clear(&a->text[i]);
        buf_clear(&a->results);
    }
}

static void add_text(struct buf *out, const char *name, struct buf *from)
{
    buf_printf(out, ",\"%s\":\"", name);
    buf_add(out, buf_string(from), from->length);
    buf_add_char(out, '"');
    if (from->failure)
        out->failure = from->failure;
}

void run_answer_send(struct run_answer *a, struct ask *ask, const struct kernel_run *run)
{
    struct buf out;
    struct jsonout j;

    buf_init(&out, (size_t)ANSWER_MOST * 4);
    jsonout_init(&j, &out);
    jsonout_open_object(&j, NULL);
    run_event_outcome(run, &j);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0 && !out.failure)
        out.failure = ENOMEM;
    else if (out.length)
        out.length--;
    add_text(&out, "stdout", &a->text[0]);
    add_text(&out, "stderr", &a->text[1]);
    buf_add_text(&out, ",\"results\":[");
    buf_add(&out, buf_string(&a->results), a->results.length);
    buf_add_text(&out, "],\"error\":");
    buf_add_text(&out, a->error.length ? buf_string(&a->error) : "null");
    buf_add_char(&out, '}');
    if (a->results.failure || a->error.failure)
        out.failure = ENOMEM;
    reply_buf(ask, 200, &out);
}
