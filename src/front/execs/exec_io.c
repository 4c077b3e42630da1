/* A command reads when it likes. What it does not take at once is kept here (one piece), and the owner is held back
 * until it is gone. A terminal comes only after the command has started, so input may have to wait for that first. */
#define _GNU_SOURCE
#include "front/execs/exec_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/boxes/boxes.h"
#include "front/front.h"

static char piece[1 << 16];        /* of a log that is being collected; used by nobody across calls */

static bool is_coming(const struct exec *x)
{
    return x->terminal && x->state == EXEC_STARTING;
}

/* Writes what is kept. 0: it is gone. */
static int push(struct exec_input *f)
{
    while (f->at < f->size) {
        ssize_t n = is_coming(f->exec) ? -EAGAIN : exec_stdin_write(f->exec, f->data + f->at, f->size - f->at);
        if (n < 0)
            return (int)n;
        f->at += (size_t)n;
    }
    return 0;
}

static void go_on(struct exec_input *f)
{
    if (!f->busy || push(f) == -EAGAIN)
        return;
    f->busy = false;
    free(f->data);
    f->data = NULL;
    share_leave(&f->share);
    f->on_room(f);
}

static void on_stdin(struct exec *x, void *arg)
{
    (void)x;
    go_on(arg);
}

static void on_change(struct exec_follower *follower)
{
    struct exec_input *f = container_of(follower, struct exec_input, follower);

    if (f->busy && !is_coming(f->exec))
        go_on(f);
}

int exec_input_init(struct exec_input *f, struct exec *x, void (*on_room)(struct exec_input *f))
{
    if (x->on_stdin)
        return -EBUSY;
    *f = (struct exec_input){ .exec = x, .follower = { .on_change = on_change }, .on_room = on_room };
    x->on_stdin = on_stdin;
    x->stdin_arg = f;
    exec_follow(x, &f->follower);
    return 0;
}

void exec_input_done(struct exec_input *f)
{
    if (!f->exec)
        return;
    exec_unfollow(&f->follower);
    f->exec->on_stdin = NULL;
    f->exec->stdin_arg = NULL;
    f->exec = NULL;
    f->busy = false;
    free(f->data);
    f->data = NULL;
    share_leave(&f->share);
}

int exec_input_write(struct exec_input *f, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = is_coming(f->exec) ? -EAGAIN : exec_stdin_write(f->exec, data, size);
        if (n == -EAGAIN)
            break;
        if (n < 0)
            return (int)n;
        data += n;
        size -= (size_t)n;
    }
    if (size == 0)
        return 0;
    if (share_join(&f->share, &f->exec->box->front->memory, f->exec->box->owner) < 0)
        return -ENOMEM;
    f->data = share_move_bytes(&f->share, 0, size) ? malloc(size) : NULL;
    if (!f->data) {
        bool is_full = f->share.held == 0 && !share_fits(&f->share, size);
        share_leave(&f->share);
        return is_full ? -EDQUOT : -ENOMEM;
    }
    memcpy(f->data, data, size);
    f->at = 0;
    f->size = size;
    f->busy = true;
    return -EAGAIN;
}

/* ---- a text that is sent on its own ---- */

static void all_sent(struct exec_input *f)
{
    exec_stdin_close(f->exec);
    exec_input_done(f);
    free(f);
}

int exec_io_feed(struct exec *x, const char *data, size_t size)
{
    struct exec_input *f = malloc(sizeof *f);
    int r = f ? exec_input_init(f, x, all_sent) : -ENOMEM;

    if (r < 0) {
        free(f);
        return r;
    }
    r = is_coming(x) && size == 0 ? -EAGAIN : exec_input_write(f, data, size);
    if (r == -EAGAIN) {
        f->busy = true;
        return 0;
    }
    all_sent(f);
    return r == -ENOMEM || r == -EDQUOT ? r : 0;
}

/* ---- output ---- */

bool exec_io_offset_is_valid(const struct exec *x, uint64_t offset)
{
    struct exec_frame frame;
    uint32_t part = 0;
    char byte;

    if (offset == 0 || offset == x->log_bytes)
        return true;
    ssize_t n = exec_log_read(x, &offset, &part, &frame, &byte, 1);
    return n > 0 && (frame.stream == 1 || frame.stream == 2) && !frame.reserved[0] && !frame.reserved[1]
           && !frame.reserved[2];
}

bool exec_io_collect(const struct exec *x, struct buf out[2], size_t most_bytes, bool *ret_cut)
{
    struct exec_frame frame;
    uint64_t at = 0;
    uint32_t part = 0;
    ssize_t n;

    *ret_cut = false;
    while ((n = exec_log_read(x, &at, &part, &frame, piece, sizeof piece)) > 0) {
        struct buf *to = &out[frame.stream == 2];
        size_t room = most_bytes - out[0].length - out[1].length, own = to->limit - to->length;
        if (room == 0) {
            *ret_cut = true;
            return true;
        }
        room = room < own ? room : own;
        *ret_cut |= (size_t)n > room;
        buf_add(to, piece, (size_t)n < room ? (size_t)n : room);
    }
    return n == 0;
}
