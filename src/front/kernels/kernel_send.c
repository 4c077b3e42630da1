/* Messages to a kernel. They are checked as strictly as messages from one, so that a kernel never has to read an
 * ambiguous message. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"

/* m is taken over. */
static int hand_over(struct kernel *k, struct kernel_message *m, struct err *e)
{
    struct kernel_private *p = kernel_private(k);
    int r = 0;

    if (k->state == KERNEL_DEAD || p->gone)
        r = err_set(e, EPIPE, STEP_USAGE, "the kernel is dead");
    else if (m->channel == KERNEL_IOPUB)
        r = err_set(e, EINVAL, STEP_USAGE, "nothing is sent to a kernel on the channel iopub");
    if (r == 0 && m->channel == KERNEL_CONTROL) {
        memcpy(p->control_id[p->next_control], m->id, sizeof m->id);
        p->next_control = (p->next_control + 1) % KERNEL_CONTROL_IDS;
    }
    if (r == 0 && m->channel == KERNEL_STDIN) {
        free(p->input_parent);
        p->input_parent = NULL;
    }
    if (r == 0 && strcmp(m->type, "execute_request") == 0 &&
        (k->state == KERNEL_STARTING || k->state == KERNEL_RESTARTING))
        p->cell_waits = true;
    if (r == 0 && (r = guest_link_send(&p->link, &m->raw)) < 0)
        r = r == -EDQUOT    ? err_set(e, EDQUOT, STEP_USAGE, SHARE_FULL)
            : r == -ENOBUFS ? err_set(e, ENOBUFS, STEP_USAGE, "the kernel does not read its messages")
                            : err_at(e, -r, STEP_MEMORY, 0, "message");
    kernel_message_unref(m);
    if (r == 0) {
        k->activity_ms = front_now_ms();
        box_touch(k->box);
    }
    return r;
}

int kernel_send(struct kernel *k, enum kernel_channel channel, const struct iovec part[KERNEL_PARTS],
                const struct iovec *buffer, unsigned n_buffers, struct err *e)
{
    struct kernel_message *m = NULL;
    int r = kernel_message_make(channel, part, buffer, n_buffers, &m, e);

    return r < 0 ? r : hand_over(k, m, e);
}

int kernel_answer_input(struct kernel *k, const char *text, struct err *e)
{
    struct kernel_private *p = kernel_private(k);
    char header[256], id[64];
    struct jsonout j;
    struct buf content;

    if (!p->input_parent)
        return err_set(e, ENOENT, STEP_USAGE, "the kernel has not asked for input");
    buf_init(&content, strlen(text) * 6 + 64);
    jsonout_init(&j, &content);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "value", text);
    jsonout_close(&j);
    snprintf(id, sizeof id, "%s_n%llu", p->session, (unsigned long long)++p->n_asked);
    size_t size = kernel_make_header(k, "input_reply", id, header, sizeof header);
    struct iovec none = { (char *)(uintptr_t)"{}", 2 };
    const struct iovec part[KERNEL_PARTS] = {
        { header, size }, { p->input_parent, p->input_parent_size }, none, { content.data, content.length }
    };
    int r = jsonout_finish(&j) < 0 ? err_at(e, ENOMEM, STEP_MEMORY, 0, "input")
                                   : kernel_send(k, KERNEL_STDIN, part, NULL, 0, e);
    buf_done(&content);
    return r;
}
