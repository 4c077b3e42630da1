/* A kernel whose cells are words: "say x" prints x, "print x" does so past the interpreter, "flood n" says n numbers,
 * "ask" waits for input and says it, "die" ends the process, "last n" says n numbers before that, "close" closes the
 * link, and "hang", "stubborn", "deaf" and "iron" go on until something stops them (enum guest_temper). */
#define _GNU_SOURCE
#include <signal.h>

#include "front/fake_guest.h"
#include "front/kernels/kernel_message.h"
#include "unit/unit.h"

static void tell(struct fake_guest *g, enum kernel_channel channel, const char *type, const char *parent,
                 const char *content)
{
    char header[160];
    struct kernel_message *m;
    struct err e = { 0 };

    snprintf(header, sizeof header, "{\"msg_id\":\"guest_%u\",\"session\":\"guest\",\"msg_type\":\"%s\"}",
             ++g->n_said, type);
    const struct iovec part[KERNEL_PARTS] = { { header, strlen(header) },
                                              { (char *)(uintptr_t)parent, strlen(parent) },
                                              { (char *)(uintptr_t)"{}", 2 },
                                              { (char *)(uintptr_t)content, strlen(content) } };
    assert_int_equal(kernel_message_make(channel, part, NULL, 0, &m, &e), 0);
    guest_say(g, m->raw.data, m->raw.size);
    kernel_message_unref(m);
}

static void tell_status(struct fake_guest *g, const char *parent, const char *state)
{
    char content[64];

    snprintf(content, sizeof content, "{\"execution_state\":\"%s\"}", state);
    tell(g, KERNEL_IOPUB, "status", parent, content);
}

static void tell_stream(struct fake_guest *g, const char *text)
{
    char content[256];

    snprintf(content, sizeof content, "{\"name\":\"stdout\",\"text\":\"%s\"}", text);
    tell(g, KERNEL_IOPUB, "stream", g->parent, content);
}

/* ---- cells ---- */

static void end_cell(struct fake_guest *g, const char *error)
{
    char content[128];

    if (error)
        snprintf(content, sizeof content, "{\"status\":\"error\",\"ename\":\"%s\",\"execution_count\":%u}", error,
                 g->n_cells);
    else
        snprintf(content, sizeof content, "{\"status\":\"ok\",\"execution_count\":%u}", g->n_cells);
    tell(g, KERNEL_SHELL, "execute_reply", g->parent, content);
    tell_status(g, g->parent, "idle");
    g->task[0].is_there = g->asks = false;
}

static void flood(struct fake_guest *g, unsigned n)
{
    char text[32];

    for (unsigned i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%u,", i);
        tell_stream(g, text);
    }
}

static void run_cell(struct fake_guest *g, const char *code)
{
    static const struct {
        const char       *word;
        enum guest_temper temper;
    } tempers[] = {
        { "hang", TEMPER_MILD }, { "stubborn", TEMPER_STUBBORN }, { "deaf", TEMPER_DEAF }, { "iron", TEMPER_IRON }
    };

    g->n_cells++;
    g->task[0] = (struct guest_task){ .is_there = true };
    tell_status(g, g->parent, "busy");
    for (size_t i = 0; i < COUNT(tempers); i++)
        if (strcmp(code, tempers[i].word) == 0) {
            g->task[0].temper = tempers[i].temper;
            tell_stream(g, "...");
            return;
        }
    if (strcmp(code, "ask") == 0) {
        g->asks = true;
        tell(g, KERNEL_STDIN, "input_request", g->parent, "{\"prompt\":\"?\",\"password\":false}");
        return;
    }
    if (strncmp(code, "last ", 5) == 0)
        flood(g, (unsigned)strtoul(code + 5, NULL, 10));
    if (strcmp(code, "die") == 0 || strncmp(code, "last ", 5) == 0) {
        g->goes = true;
        return;
    }
    if (strcmp(code, "close") == 0) {
        guest_close_link(g);        /* and what it would have said */
        return;
    }
    if (strncmp(code, "say ", 4) == 0)
        tell_stream(g, code + 4);
    else if (strncmp(code, "flood ", 6) == 0)
        flood(g, (unsigned)strtoul(code + 6, NULL, 10));
    else if (strncmp(code, "print ", 6) == 0)
        guest_print(g, code + 6);
    end_cell(g, NULL);
}

/* ---- what it hears ---- */

static void take_input(struct fake_guest *g, const struct kernel_message *m)
{
    char text[64];

    if (!g->asks || !jsonscan_text(jsonscan_find(kernel_message_part(m, PART_CONTENT), "value"), text, sizeof text))
        return;
    tell_stream(g, text);
    end_cell(g, NULL);
}

static void interrupt(struct fake_guest *g, enum guest_temper bears)
{
    if (g->task[0].is_there && g->task[0].temper <= bears)
        end_cell(g, "KeyboardInterrupt");
}

static char *header_of(const struct kernel_message *m)
{
    struct jsonslice header = kernel_message_part(m, PART_HEADER);
    char *text = strndup(header.data, header.size);

    assert_non_null(text);
    return text;
}

static void take(struct fake_guest *g, const struct kernel_message *m)
{
    char code[64];
    char *header = header_of(m);

    if (strcmp(m->type, "execute_request") == 0) {
        if (!jsonscan_text(jsonscan_find(kernel_message_part(m, PART_CONTENT), "code"), code, sizeof code))
            snprintf(code, sizeof code, "long");
        free(g->parent);
        g->parent = header;
        run_cell(g, code);
        return;
    }
    if (strcmp(m->type, "kernel_info_request") == 0) {
        tell_status(g, header, "busy");
        tell(g, KERNEL_SHELL, "kernel_info_reply", header, "{\"status\":\"ok\"}");
        tell_status(g, header, "idle");
    } else if (strcmp(m->type, "interrupt_request") == 0) {
        tell(g, KERNEL_CONTROL, "interrupt_reply", header, "{\"status\":\"ok\"}");
        interrupt(g, TEMPER_STUBBORN);
    } else if (strcmp(m->type, "input_reply") == 0) {
        take_input(g, m);
    }
    free(header);
}

void kernel_hear(struct fake_guest *g, const char *data, size_t size)
{
    struct kernel_message *m = kernel_message_new(size);

    assert_non_null(m);
    memcpy(m->raw.data, data, size);
    assert_null(kernel_message_read(m));
    /* It reads its shell when it has time, the other channels always. */
    if (m->channel == KERNEL_SHELL && g->task[0].is_there)
        guest_put_off(g, data, size);
    else
        take(g, m);
    kernel_message_unref(m);
}

void kernel_feel(struct fake_guest *g, int signal)
{
    if (signal == SIGINT)
        interrupt(g, TEMPER_MILD);
    else if (signal == SIGTERM && g->task[0].temper != TEMPER_IRON)
        guest_exit(g, -1, SIGTERM);
}
