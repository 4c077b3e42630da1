/* A kernel's state, from its messages. It is busy with a cell from the status "busy" to the status "idle" with the same
 * parent; requests on the control channel do not count, because they run beside the cells. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "front/execs/execs.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"

enum { SILENCE_MS = 5000 };     /* between two cells it is idle, too */

static bool is_control(const struct kernel_private *p, const char *id)
{
    for (unsigned i = 0; i < KERNEL_CONTROL_IDS; i++)
        if (id[0] && strcmp(p->control_id[i], id) == 0)
            return true;
    return false;
}

static void keep(char **text, size_t *text_size, struct jsonslice from)
{
    char *copy = from.data ? malloc(from.size) : NULL;

    if (copy)
        memcpy(copy, from.data, from.size);
    free(*text);
    *text = copy;
    *text_size = copy ? from.size : 0;
}

static void first_cell_began(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);
    struct err ignored;

    if (p->interrupt_waits && k->exec)
        (void)!exec_signal(k->exec, SIGINT, &ignored);
    p->cell_waits = p->interrupt_waits = false;
}

static void note_busy(struct kernel *k, const struct kernel_message *m)
{
    struct kernel_private *p = kernel_private(k);

    memcpy(p->running_id, m->parent_id, sizeof p->running_id);
    p->runs_own = kernel_is_own(k, m);
    if (!p->runs_own)
        keep(&p->parent, &p->parent_size, kernel_message_part(m, PART_PARENT));
    kernel_set_state(k, KERNEL_BUSY);
    kernel_ladder_begin(k);
    if (p->cell_waits && jsonscan_is(jsonscan_find(kernel_message_part(m, PART_PARENT), "msg_type"), "execute_request"))
        first_cell_began(k);
}

static void note_idle(struct kernel *k, const struct kernel_message *m)
{
    struct kernel_private *p = kernel_private(k);

    if (p->running_id[0] && strcmp(p->running_id, m->parent_id) != 0)
        return;
    p->running_id[0] = '\0';
    p->runs_own = false;
    keep(&p->input_parent, &p->input_parent_size, (struct jsonslice){ 0 });
    kernel_ladder_end(k, m->parent_id);
    kernel_set_state(k, KERNEL_IDLE);
}

bool kernel_has_time(const struct kernel *k)
{
    const struct kernel_private *p = kernel_private(k);

    return (k->state == KERNEL_IDLE || (k->state == KERNEL_BUSY && p->runs_own)) &&
           loop_now_ms() - p->heard_ms >= SILENCE_MS;
}

void kernel_note(struct kernel *k, const struct kernel_message *m)
{
    struct kernel_private *p = kernel_private(k);

    k->activity_ms = front_now_ms();
    p->heard_ms = loop_now_ms();
    if (m->channel == KERNEL_STDIN && strcmp(m->type, "input_request") == 0)
        keep(&p->input_parent, &p->input_parent_size, kernel_message_part(m, PART_HEADER));
    if (m->channel != KERNEL_IOPUB || strcmp(m->type, "status") != 0 || is_control(p, m->parent_id))
        return;
    struct jsonslice state = jsonscan_find(kernel_message_part(m, PART_CONTENT), "execution_state");
    if (jsonscan_is(state, "busy"))
        note_busy(k, m);
    else if (jsonscan_is(state, "idle"))
        note_idle(k, m);
}

bool kernel_message_is_idle(const struct kernel_message *m)
{
    return jsonscan_is(jsonscan_find(kernel_message_part(m, PART_CONTENT), "execution_state"), "idle");
}

bool kernel_is_own(const struct kernel *k, const struct kernel_message *m)
{
    return m->parent_session[0] && strcmp(m->parent_session, kernel_private(k)->session) == 0;
}

size_t kernel_make_header(struct kernel *k, const char *type, const char *id, char *text, size_t size)
{
    return kernel_make_header_of(k, type, id, kernel_private(k)->session, text, size);
}

size_t kernel_make_header_of(struct kernel *k, const char *type, const char *id, const char *session, char *text,
                             size_t size)
{
    char now[32];

    (void)k;
    front_time_text(front_now_ms(), now);
    return (size_t)snprintf(text, size,
                            "{\"msg_id\":\"%s\",\"session\":\"%s\",\"username\":\"carrel\",\"date\":\"%s\","
                            "\"msg_type\":\"%s\",\"version\":\"5.4\"}",
                            id, session, now, type);
}

void kernel_ask_info(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);
    char header[256], id[64];
    struct err ignored;

    snprintf(id, sizeof id, "%s_i%llu", p->session, (unsigned long long)++p->n_asked);
    size_t size = kernel_make_header(k, "kernel_info_request", id, header, sizeof header);
    struct iovec none = { (char *)(uintptr_t)"{}", 2 };
    const struct iovec part[KERNEL_PARTS] = { { header, size }, none, none, none };
    (void)!kernel_send(k, KERNEL_SHELL, part, NULL, 0, &ignored);
}
