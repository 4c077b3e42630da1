/* A side is read when it is readable and the other side can take bytes. Bytes go through a pipe; if the other side does
 * not take all of them, the side keeps the pipe until it does, and is not read meanwhile. When no pipe is left to
 * borrow, bytes are peeked, sent and then dropped from the socket, which needs no pipe.
 *
 * The kernel does not splice bytes behind an urgent one, so these are copied; urgent bytes are treated like others.
 *
 * Sockets are level-triggered: a side that must not be read is not armed for reading. */
#define _GNU_SOURCE
#include "egress/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"

enum {
    TURN_BYTES = 256 << 10,     /* per event and direction, so that other connections get their turn */
    BOX_TURN_BYTES = 1 << 20,   /* of all connections of a box in a turn of the loop */
    PIPE_BYTES = 256 << 10,     /* the kernel keeps its 64 KiB for pipes beyond /proc/sys/fs/pipe-user-pages-soft */
    FULL_PIPES_MOST = 32,       /* if more pipes have bytes in them, */
    NARROW_BYTES = 64 << 10,    /* each gets so many at once: readers that do not read leave theirs full */
    COPY_BYTES = 64 << 10,
    DRAIN_BYTES = 2 << 20,      /* more than a window */
    BUCKET_TICK_MS = 20,
};

#define RATE_MOST (UINT64_C(1) << 40)   /* unlimited */

/* --- the bucket --- */

uint64_t pump_bucket_fill(struct pump_bucket *b, uint64_t now_us)
{
    uint64_t most = b->rate / 10 > 1500 ? b->rate / 10 : 1500, passed = now_us - b->filled_us;

    if (b->rate == 0)
        return UINT64_MAX;
    if (passed > 1000000)
        passed = 1000000;
    uint64_t more = (uint64_t)((unsigned __int128)b->rate * passed / 1000000);
    if (more > 0)
        b->filled_us = now_us;
    b->left = b->left + more > most ? most : b->left + more;
    return b->left;
}

static void read_side(struct pump_side *s);

static void leave_bucket(struct pump_bucket *b, struct pump_side *s)
{
    if (!s->is_thirsty)
        return;
    s->is_thirsty = false;
    for (struct pump_side **at = &b->thirsty; *at; at = &(*at)->next_thirsty)
        if (*at == s) {
            *at = s->next_thirsty;
            if (!*at)
                b->last = at;
            return;
        }
}

static uint64_t may_pass(struct pump_bucket *b)
{
    uint64_t turn = b->used < BOX_TURN_BYTES ? BOX_TURN_BYTES - b->used : 0;
    uint64_t second = b->rate ? pump_bucket_fill(b, loop_now_us()) : UINT64_MAX;

    return second < turn ? second : turn;
}

/* The side that waited longest is read first; it goes to the end of the queue when it wants more than there is. */
static void serve_thirsty(struct pump_bucket *b)
{
    size_t n = 0;

    for (struct pump_side *s = b->thirsty; s; s = s->next_thirsty)
        n++;
    for (; n > 0 && b->thirsty && may_pass(b) > 0; n--) {
        struct pump_side *s = b->thirsty;
        leave_bucket(b, s);
        read_side(s);
    }
    /* The next turn comes by itself. */
    if (b->thirsty && !b->turn.pending)
        loop_timer_set(b->loop, &b->timer, BUCKET_TICK_MS);
}

static void on_bucket(struct loop_timer *t)
{
    serve_thirsty(container_of(t, struct pump_bucket, timer));
}

static void on_turn(struct loop_task *t)
{
    struct pump_bucket *b = container_of(t, struct pump_bucket, turn);

    b->used = 0;
    serve_thirsty(b);
}

void pump_bucket_set(struct pump_bucket *b, struct loop *l, uint64_t rate)
{
    b->loop = l;
    b->timer.on_expire = on_bucket;
    b->turn.on_run = on_turn;
    if (!b->last)
        b->last = &b->thirsty;
    b->rate = rate < RATE_MOST ? rate : 0;
    if (b->thirsty)
        loop_timer_set(l, &b->timer, 0);
}

void pump_bucket_done(struct pump_bucket *b)
{
    if (!b->loop)
        return;
    loop_timer_cancel(b->loop, &b->timer);
    loop_task_cancel(b->loop, &b->turn);
}

static void wait_for_bucket(struct pump_bucket *b, struct pump_side *s)
{
    if (s->is_thirsty)
        return;
    s->is_thirsty = true;
    s->next_thirsty = NULL;
    *b->last = s;
    b->last = &s->next_thirsty;
    if (!b->timer.armed && !b->turn.pending)
        loop_timer_set(b->loop, &b->timer, BUCKET_TICK_MS);
}

/* --- pipes --- */

static bool borrow(struct pump_pipes *p, int ret[2])
{
    if (p->n_spare > 0) {
        p->n_spare--;
        memcpy(ret, p->spare[p->n_spare], sizeof p->spare[0]);
    } else if (p->n_out >= p->most_out || pipe2(ret, O_CLOEXEC | O_NONBLOCK) < 0) {
        ret[0] = ret[1] = -1;
        return false;
    } else {
        (void)fcntl(ret[1], F_SETPIPE_SZ, PIPE_BYTES);
    }
    p->n_out++;
    return true;
}

/* Empty: another pump may borrow it. */
static void give_back(struct pump_pipes *p, int pipe[2], bool is_empty)
{
    if (pipe[0] < 0)
        return;
    p->n_out--;
    if (is_empty && p->n_spare < sizeof p->spare / sizeof p->spare[0]) {
        memcpy(p->spare[p->n_spare++], pipe, sizeof p->spare[0]);
        pipe[0] = pipe[1] = -1;
        return;
    }
    pipe[0] = fd_close(pipe[0]);
    pipe[1] = fd_close(pipe[1]);
}

void pump_pipes_done(struct pump_pipes *p)
{
    while (p->n_spare > 0) {
        p->n_spare--;
        fd_close(p->spare[p->n_spare][0]);
        fd_close(p->spare[p->n_spare][1]);
    }
}

/* --- one direction --- */

static struct pump_side *other_of(struct pump_side *s)
{
    return &s->pump->side[s == &s->pump->side[0]];
}

/* Arms both watchers for the wanted events. A hung-up socket fires again and again, so it is removed while nothing is
 * wanted from it. */
static void rearm(struct pump *p)
{
    for (int i = 0; i < 2; i++) {
        struct pump_side *s = &p->side[i], *other = &p->side[!i];
        bool reads = !s->has_ended && s->stuck == 0 && !s->is_thirsty && !s->is_blocked;
        bool writes = other->stuck > 0 || other->is_blocked;
        uint32_t events = (reads ? (uint32_t)EPOLLIN : 0) | (writes ? (uint32_t)EPOLLOUT : 0);
        /* Only a lack of memory fails here; then this connection is lost. */
        if (events == 0 && s->has_hung_up)
            loop_fd_remove(p->loop, &s->watch);
        else if (!s->watch.watching)
            (void)!loop_fd_add(p->loop, &s->watch, s->watch.fd, events);
        else
            (void)!loop_fd_set(p->loop, &s->watch, events);
    }
}

static void end(struct pump *p, int code)
{
    pump_stop(p, code < 0);
    p->on_end(p, code);
}

static void charge(struct pump_side *s, size_t n)
{
    struct pump_bucket *b = s->pump->bucket;

    s->bytes += n;
    if (b->rate)
        b->left -= n < b->left ? n : b->left;
    b->used += n;
    loop_task_add(b->loop, &b->turn);
}

/* Moves the bytes in the pipe. 0, or -errno of a broken connection. */
static int push(struct pump_side *s)
{
    struct pump_side *to = other_of(s);

    while (s->stuck > 0) {
        ssize_t n = splice(s->pipe[0], NULL, to->watch.fd, NULL, s->stuck, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return -errno;
        if (n <= 0)
            return 0;
        s->stuck -= (unsigned)n;
        charge(s, (size_t)n);
    }
    give_back(s->pump->pipes, s->pipe, true);
    return 0;
}

/* Without a pipe. Bytes, 0 at the end, -EAGAIN if either side would block. */
static ssize_t copy(struct pump_side *s, size_t most)
{
    static char buffer[COPY_BYTES];
    struct pump_side *to = other_of(s);
    ssize_t n = recv(s->watch.fd, buffer, most < sizeof buffer ? most : sizeof buffer, MSG_PEEK | MSG_DONTWAIT);

    if (n <= 0)
        return n < 0 ? -errno : 0;
    n = send(to->watch.fd, buffer, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        s->is_blocked = errno == EAGAIN;
        return -errno;
    }
    charge(s, (size_t)n);
    /* Drops the sent bytes from the socket; they are there, so this cannot be short. */
    ssize_t dropped = recv(s->watch.fd, NULL, (size_t)n, MSG_TRUNC | MSG_DONTWAIT);
    return dropped == n ? n : -EIO;
}

/* Bytes, 0 at the end, or -errno. */
static ssize_t pull(struct pump_side *s, size_t most)
{
    if (s->pipe[0] < 0 && !borrow(s->pump->pipes, s->pipe))
        return copy(s, most);
    if (s->pump->pipes->n_out > FULL_PIPES_MOST && most > NARROW_BYTES)
        most = NARROW_BYTES;
    ssize_t n;
    while ((n = splice(s->watch.fd, NULL, s->pipe[1], NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK)) < 0 &&
           errno == EINTR)
        ;
    int code = errno;
    if (n > 0) {
        s->stuck += (unsigned)n;
        int r = push(s);
        return r < 0 ? r : n;
    }
    give_back(s->pump->pipes, s->pipe, true);
    return n < 0 ? -code : 0;
}

void pump_close_resets(int fd, bool resets)
{
    const struct linger linger = { .l_onoff = resets };

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

/* Passes the end of one direction on, after all bytes before it. The kernel sends what it still has, also if we close
 * the socket or die. */
static int tell_end(struct pump_side *s)
{
    if (!s->has_ended || s->end_is_told)        /* then nothing is stuck: a side with stuck bytes is not read */
        return 0;
    s->end_is_told = true;
    pump_close_resets(other_of(s)->watch.fd, false);
    if (shutdown(other_of(s)->watch.fd, SHUT_WR) < 0 && errno != ENOTCONN)
        return -errno;
    return 0;
}

static void read_side(struct pump_side *s)
{
    struct pump *p = s->pump;
    size_t turn = TURN_BYTES;
    bool is_first = true;

    if (s->is_held && s->stuck == 0) {
        p->on_held(p);
        return;
    }
    while (!s->is_held && !s->has_ended && s->stuck == 0 && turn > 0) {
        uint64_t may = may_pass(p->bucket);
        if (may == 0) {
            wait_for_bucket(p->bucket, s);
            break;
        }
        size_t most = may < turn ? (size_t)may : turn;
        ssize_t n = pull(s, most);
        /* Readable, and nothing to splice: an urgent byte is the next. */
        if (n == -EAGAIN && is_first && !s->is_blocked)
            n = copy(s, most);
        if (n == -EAGAIN)
            break;
        is_first = false;
        if (n < 0) {
            end(p, (int)n);
            return;
        }
        s->has_ended = n == 0;
        turn -= (size_t)n;
    }
    int r = tell_end(s);
    if (r < 0)
        end(p, r);
    else if (p->side[0].end_is_told && p->side[1].end_is_told)
        end(p, 0);
    else
        rearm(p);
}

static void on_side(struct loop_fd *w, uint32_t events)
{
    struct pump_side *s = container_of(w, struct pump_side, watch), *from = other_of(s);
    struct pump *p = s->pump;

    if (events & EPOLLERR) {
        int code = 0;
        socklen_t size = sizeof code;
        /* Passes on bytes that came before the connection broke: a server that answers early and closes does so. */
        for (size_t left = DRAIN_BYTES; left > 0 && !s->is_held && s->stuck == 0;) {
            ssize_t n = pull(s, left);
            if (n <= 0)
                break;
            left -= (size_t)n < left ? (size_t)n : left;
        }
        (void)getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &code, &size);
        end(p, code ? -code : -ECONNRESET);
        return;
    }
    if (events & (EPOLLOUT | EPOLLHUP) && (from->stuck > 0 || from->is_blocked)) {
        from->is_blocked = false;
        int r = push(from);
        if (r < 0) {
            end(p, r);
            return;
        }
        if (from->stuck == 0) {
            /* This may end the pump, so only one side per event; the other fires again. */
            read_side(from);
            return;
        }
    }
    s->has_hung_up |= events & EPOLLHUP;
    if (events & (EPOLLIN | EPOLLHUP))
        read_side(s);
}

int pump_start(struct pump *p, int first, int second, bool held)
{
    const int fds[2] = { first, second }, yes = 1;
    int r = 0;

    for (int i = 0; i < 2; i++)
        p->side[i] = (struct pump_side){
            .watch = { .fd = fds[i], .on_event = on_side }, .pump = p, .pipe = { -1, -1 }, .is_held = i == 0 && held
        };
    for (int i = 0; i < 2 && r == 0; i++) {
        pump_close_resets(fds[i], true);
        (void)setsockopt(fds[i], SOL_SOCKET, SO_OOBINLINE, &yes, sizeof yes);
        r = loop_fd_add(p->loop, &p->side[i].watch, fds[i], EPOLLIN);
    }
    if (r < 0)
        pump_stop(p, true);
    return r;
}

int pump_pass(struct pump *p, const void *data, size_t size)
{
    struct pump_side *s = &p->side[0];
    /* The first bytes of a connection, so its buffer mostly has room for them. A pipe may have little: the kernel makes
     * small ones for a user that has many. */
    ssize_t n = size > 0 ? send(other_of(s)->watch.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

    if (n < 0 && errno != EAGAIN)
        return -errno;
    if (n > 0)
        charge(s, (size_t)n);
    size_t sent = n > 0 ? (size_t)n : 0;
    if (sent < size) {
        if (s->pipe[0] < 0 && !borrow(p->pipes, s->pipe))
            return -ENOBUFS;
        n = write(s->pipe[1], (const char *)data + sent, size - sent);
        if (n < 0 || (size_t)n < size - sent)
            return n < 0 ? -errno : -ENOBUFS;
        s->stuck += (unsigned)n;
    }
    rearm(p);
    return 0;
}

void pump_release(struct pump *p)
{
    p->side[0].is_held = false;
    rearm(p);
}

void pump_stop(struct pump *p, bool with_reset)
{
    for (int i = 0; i < 2; i++) {
        struct pump_side *s = &p->side[i];
        if (!s->pump)
            continue;
        loop_fd_remove(p->loop, &s->watch);
        leave_bucket(p->bucket, s);
        give_back(p->pipes, s->pipe, s->stuck == 0);
        if (with_reset)
            pump_close_resets(s->watch.fd, true);
        s->watch.fd = fd_close(s->watch.fd);
    }
}
