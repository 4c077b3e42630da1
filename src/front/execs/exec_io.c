/* A command reads when it likes. What it does not take at once is kept here (one piece), and the owner is held back
 * until it is gone. A terminal comes only after the command has started, so a feed may have to wait for that first. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/native/execs/command.h"

static bool is_coming(const struct exec *x)
{
    return x->terminal && x->state == EXEC_STARTING;
}

/* Writes what is kept. 0: it is gone. */
static int push(struct feed *f)
{
    while (f->at < f->size) {
        ssize_t n = is_coming(f->exec) ? -EAGAIN : exec_stdin_write(f->exec, f->data + f->at, f->size - f->at);
        if (n < 0)
            return (int)n;
        f->at += (size_t)n;
    }
    return 0;
}

static void go_on(struct feed *f)
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
    struct feed *f = container_of(follower, struct feed, follower);

    if (f->busy && !is_coming(f->exec))
        go_on(f);
}

int feed_init(struct feed *f, struct exec *x, void (*on_room)(struct feed *f))
{
    if (x->on_stdin)
        return -EBUSY;
    *f = (struct feed){ .exec = x, .follower = { .on_change = on_change }, .on_room = on_room };
    x->on_stdin = on_stdin;
    x->stdin_arg = f;
    exec_follow(x, &f->follower);
    return 0;
}

void feed_done(struct feed *f)
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

int feed_write(struct feed *f, const char *data, size_t size)
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

static void all_sent(struct feed *f)
{
    exec_stdin_close(f->exec);
    feed_done(f);
    free(f);
}

int feed_all(struct exec *x, const char *data, size_t size)
{
    struct feed *f = malloc(sizeof *f);
    int r = f ? feed_init(f, x, all_sent) : -ENOMEM;

    if (r < 0) {
        free(f);
        return r;
    }
    r = is_coming(x) && size == 0 ? -EAGAIN : feed_write(f, data, size);
    if (r == -EAGAIN) {
        f->busy = true;
        return 0;
    }
    all_sent(f);
    return r == -ENOMEM || r == -EDQUOT ? r : 0;
}
