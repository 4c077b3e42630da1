/* From pipe to log: the header of a frame is written first, then exactly that many bytes are spliced. Whenever we are
 * killed, each byte is either in the pipe or in the file. If the log cannot be written (the disk is full) the output
 * stays in the pipe, and the command blocks, until there is room again; see stick(). It also waits before a part of the
 * log is dropped that a follower has not read; see hold(). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/boxes.h"
#include "front/execs/exec_private.h"
#include "front/front.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

enum {
    FRAME_MAX = 1 << 20,
    PIPE_BYTES = 1 << 18,
    TERMINAL_BYTES = 16384,
    TERMINAL_MOST = 65536,
    RAW_BYTES = 65536,
    RAW_TURN = 16,
    ROOM_RETRY_MS = 250,
    ROOM_PATIENCE_MS = 10000,
    HOLD_MS = 5000,         /* a reader that takes nothing for so long is not waited for */
    TURN_FRAMES = 16
};

static void on_out(struct loop_fd *w, uint32_t events);
static void on_err(struct loop_fd *w, uint32_t events);
static void on_in(struct loop_fd *w, uint32_t events);
static void on_room(struct loop_timer *t);
static void on_hold(struct loop_timer *t);

void exec_streams_init(struct exec *x)
{
    x->in = (struct loop_fd){ .fd = -1, .on_event = on_in };
    x->out = (struct loop_fd){ .fd = -1, .on_event = on_out };
    x->err = (struct loop_fd){ .fd = -1, .on_event = on_err };
    x->room_timer.on_expire = on_room;
    x->hold_timer.on_expire = on_hold;
}

static void close_stream(struct exec *x, struct loop_fd *w)
{
    loop_fd_remove(x->box->front->loop, w);
    w->fd = fd_close(w->fd);
}

void exec_streams_close(struct exec *x)
{
    loop_timer_cancel(x->box->front->loop, &x->room_timer);
    loop_timer_cancel(x->box->front->loop, &x->hold_timer);
    if (!x->owner)
        close_stream(x, &x->in);
    close_stream(x, &x->out);
    close_stream(x, &x->err);
}

void exec_link_close(struct exec *x)
{
    close_stream(x, &x->in);
}

int exec_link(const struct exec *x)
{
    return x->owner ? x->in.fd : -1;
}

static int make_pipe(int *ret_ours, int *ret_theirs, bool we_read)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    *ret_ours = pair[we_read ? 0 : 1];
    *ret_theirs = pair[we_read ? 1 : 0];
    (void)fcntl(*ret_ours, F_SETPIPE_SZ, PIPE_BYTES);
    return fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int watch(struct exec *x, struct loop_fd *w, int fd, uint32_t events)
{
    int r = loop_fd_add(x->box->front->loop, w, fd, events);
    w->fd = fd;
    return r;
}

static int make_link(int *ret_ours, int *ret_theirs)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    /* Messages on a link have no descriptors. We would close them unseen, and the last close of a memory file takes as
     * long as it is large. With this option (Linux 6.16) the sender gets an error instead. */
    int no = 0;
    (void)setsockopt(pair[0], SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
    *ret_ours = pair[0];
    *ret_theirs = pair[1];
    return 0;
}

int exec_streams_open(struct exec *x, const struct exec_options *o, int ret_theirs[3], struct err *e)
{
    int ours[3] = { -1, -1, -1 };
    int r = o->owner        ? make_link(&ours[0], &ret_theirs[0])
            : o->with_stdin ? make_pipe(&ours[0], &ret_theirs[0], false)
                            : 0;

    if (r == 0)
        r = make_pipe(&ours[1], &ret_theirs[1], true);
    if (r == 0)
        r = make_pipe(&ours[2], &ret_theirs[2], true);
    x->in.fd = ours[0];     /* watched only while a writer waits for room */
    if (r == 0)
        r = watch(x, &x->out, ours[1], EPOLLIN);
    if (r == 0)
        r = watch(x, &x->err, ours[2], EPOLLIN);
    return r < 0 ? err_at(e, -r, STEP_STDIO, 0, "pipes") : 0;
}

static void adopt_pipe(struct exec *x, struct loop_fd *w, int *fd)
{
    if (watch(x, w, TAKE_FD(*fd), EPOLLIN) < 0)
        close_stream(x, w);
}

void exec_streams_adopt(struct exec *x, int *fds, size_t n_fds, size_t n_held)
{
    if (x->out.fd >= 0 || x->err.fd >= 0 || x->in.fd >= 0)
        return;         /* only the keeper's connection was lost */
    if (x->terminal) {
        struct winsize size = { .ws_row = x->rows, .ws_col = x->columns };
        int master = n_fds > n_held ? fds[n_held] : -1;
        if (master < 0)
            return;
        fds[n_held] = -1;
        if (size.ws_row)
            (void)ioctl(master, TIOCSWINSZ, &size);
        (void)fcntl(master, F_SETFL, O_NONBLOCK);
        x->in.fd = fcntl(master, F_DUPFD_CLOEXEC, 3);
        if (watch(x, &x->out, master, EPOLLIN) < 0)
            close_stream(x, &x->out);
        return;
    }
    if (n_held < 2 || n_held > 3 || n_fds < n_held)
        return;
    if (n_held == 3)
        x->in.fd = TAKE_FD(fds[0]);
    adopt_pipe(x, &x->out, &fds[n_held - 2]);
    adopt_pipe(x, &x->err, &fds[n_held - 1]);
}

/* The log cannot take more. The streams are not watched for a while: they would be ready all the time. */
static void stick(struct exec *x)
{
    loop_fd_remove(x->box->front->loop, &x->out);
    loop_fd_remove(x->box->front->loop, &x->err);
    if (!x->stuck)
        front_log("error", "the output of a command cannot be stored; it waits", "exec", x->id, NULL);
    x->stuck = true;
    loop_timer_set(x->box->front->loop, &x->room_timer, ROOM_RETRY_MS);
}

/* Moves the owed bytes of the open frame into the log. 1: the frame is complete; 0: the pipe is empty; -errno. */
static int pay(struct exec *x, int pipe)
{
    struct exec_log *l = &x->log;

    while (l->owed > 0) {
        off_t at = (off_t)l->at;
        ssize_t n = splice(pipe, NULL, l->fd, &at, l->owed, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
        if (n <= 0)
            return n == 0 || errno == EAGAIN ? 0 : -errno;
        exec_log_paid(l, (size_t)n);
        x->box->front->metrics.output_bytes += (uint64_t)n;
    }
    return 1;
}

uint64_t exec_output_bytes(const struct exec *x)
{
    return x->log.bytes[0] + x->log.bytes[1];
}

/* ---- readers that must not miss anything ---- */

static struct exec_place place_of(struct exec_follower *f)
{
    return (struct exec_place){ .at = f->reader->at, .part = f->reader->part, .pending = f->pending(f) };
}

static bool has_moved(struct exec_follower *f)
{
    struct exec_place now = place_of(f);

    return now.at != f->place.at || now.part != f->place.part || now.pending != f->place.pending;
}

static bool is_waited_for(struct exec_follower *f)
{
    return f->reader && (!f->is_slow || has_moved(f));
}

/* The lowest offset that a waiting reader has not read. */
static uint64_t needed_by_readers(const struct exec *x)
{
    uint64_t needed = UINT64_MAX;

    for (struct exec_follower *f = x->followers; f; f = f->next)
        if (is_waited_for(f) && f->reader->at < needed)
            needed = f->reader->at;
    return needed;
}

static void note_places(struct exec *x)
{
    for (struct exec_follower *f = x->followers; f; f = f->next)
        if (is_waited_for(f)) {
            f->is_slow = false;
            f->place = place_of(f);
        }
}

static void hold(struct exec *x)
{
    loop_fd_remove(x->box->front->loop, &x->out);
    loop_fd_remove(x->box->front->loop, &x->err);
    x->is_held = true;
    note_places(x);
    loop_timer_set(x->box->front->loop, &x->hold_timer, HOLD_MS);
}

void exec_reader_moved(struct exec *x)
{
    if (!x->is_held || x->state == EXEC_ENDED || exec_log_room(&x->log, needed_by_readers(x)) == -EAGAIN)
        return;
    x->is_held = false;
    loop_timer_cancel(x->box->front->loop, &x->hold_timer);
    if (!x->stuck)
        exec_hold(x, false);
}

/* Readers (but not the owner) that have read nothing since the last check are abandoned: they will miss output. */
static void on_hold(struct loop_timer *t)
{
    struct exec *x = container_of(t, struct exec, hold_timer);

    for (struct exec_follower *f = x->followers; f; f = f->next)
        if (f->reader && !f->is_owner && !has_moved(f))
            f->is_slow = true;
    exec_reader_moved(x);
    if (x->is_held) {
        note_places(x);
        loop_timer_set(x->box->front->loop, &x->hold_timer, HOLD_MS);
    }
}

/* The largest size of the next frame; 0: none for now. */
static uint64_t room_for_frame(struct exec *x)
{
    int r = exec_log_room(&x->log, needed_by_readers(x));
    uint64_t most = exec_log_room_bytes(&x->log);

    if (r == -EAGAIN && x->is_draining)
        return UINT64_MAX;      /* as much as a pipe holds, once: it stays, for slow readers */
    if (r == -EAGAIN)
        hold(x);
    else if (r < 0)
        stick(x);
    return r < 0 ? 0 : most;
}

static void stop_over_limit(struct exec *x)
{
    struct err e;

    if (x->over_limit)
        return;
    x->over_limit = true;
    (void)!exec_signal(x, 9, &e);
}

/* How many of these bytes the limit allows. If fewer, the command is ended. */
static uint64_t within_limit(struct exec *x, uint64_t size)
{
    uint64_t written = exec_output_bytes(x), room = x->output_limit > written ? x->output_limit - written : 0;

    if (!x->output_limit || size <= room)
        return size;
    stop_over_limit(x);
    return room;
}

/* One frame from a pipe. False: nothing more for now. */
static bool take_pipe(struct exec *x, struct loop_fd *w, uint8_t stream)
{
    struct exec_log *l = &x->log;
    int waiting = 0;

    if (w->fd < 0 || (l->owed > 0 && l->owed_stream != stream))
        return false;
    if (l->owed == 0) {
        if (ioctl(w->fd, FIONREAD, &waiting) < 0 || waiting == 0)
            return false;
        uint64_t size = within_limit(x, (uint64_t)waiting < FRAME_MAX ? (uint64_t)waiting : FRAME_MAX);
        uint64_t most = size ? room_for_frame(x) : 0;
        size = size < most ? size : most;
        if (size == 0)
            return false;
        if (exec_log_begin(l, stream, (uint32_t)size, front_now_ms()) < 0) {
            stick(x);
            return false;
        }
    }
    int r = pay(x, w->fd);
    /* The pipe gave less than it had: the command has it open, too, and has read from it itself. */
    if (r == 0)
        r = exec_log_shorten(l);
    if (r < 0)
        stick(x);
    return r == 1;
}

/* A terminal cannot be spliced from; bytes that were read and not yet written when we die are lost. */
static bool take_terminal(struct exec *x)
{
    char data[TERMINAL_BYTES];
    struct exec_log *l = &x->log;
    uint64_t most = x->out.fd >= 0 ? room_for_frame(x) : 0;

    most = most < sizeof data ? most : sizeof data;
    if (most == 0)
        return false;
    /* Bytes that are read must have room. */
    if (exec_log_reserve(l, (uint32_t)most) < 0) {
        stick(x);
        return false;
    }
    ssize_t n = read(x->out.fd, data, most);
    if (n <= 0)
        return false;
    n = (ssize_t)within_limit(x, (uint64_t)n);
    if (n == 0 || exec_log_begin(l, EXEC_STDOUT, (uint32_t)n, front_now_ms()) < 0)
        return false;
    if (pwrite(l->fd, data, (size_t)n, (off_t)l->at) != n)
        return exec_log_shorten(l) == 1;
    exec_log_paid(l, (size_t)n);
    x->box->front->metrics.output_bytes += (uint64_t)n;
    return true;
}

/* Output of a process with an owner goes to the owner, and is not stored. */
static bool take_raw(struct exec *x, struct loop_fd *w, uint8_t stream)
{
    char data[RAW_BYTES];
    ssize_t n = w->fd < 0 ? -1 : read(w->fd, data, sizeof data);

    if (n <= 0)
        return false;
    x->log.bytes[stream - 1] += (uint64_t)n;
    x->box->front->metrics.output_bytes += (uint64_t)n;
    x->owner->on_output(x, stream - 1u, data, (size_t)n);
    return true;
}

static bool take(struct exec *x, struct loop_fd *w, uint8_t stream)
{
    return x->terminal ? take_terminal(x) : x->owner ? take_raw(x, w, stream) : take_pipe(x, w, stream);
}

void exec_pull(struct exec *x)
{
    for (int i = 0; i < RAW_TURN && take_raw(x, &x->out, 1); i++)
        ;
    for (int i = 0; i < RAW_TURN && take_raw(x, &x->err, 2); i++)
        ;
}

static void on_stream(struct exec *x, struct loop_fd *w, uint8_t stream, uint32_t events)
{
    bool more = false;

    if (x->owner && x->owner->before_output)
        x->owner->before_output(x);
    /* Output that will be dropped soon must not delay other commands. */
    int frames = x->log.gap.dropped[0] + x->log.gap.dropped[1] > 0 ? 1 : TURN_FRAMES;
    for (int i = 0; i < frames && take(x, w, stream); i++)
        more = true;
    if (x->stuck || x->is_held)
        ;       /* the bytes in the pipe are still wanted */
    else if (!more && (events & (EPOLLHUP | EPOLLERR)))
        close_stream(x, w);
    else if (!more && x->over_limit && w->fd >= 0)
        close_stream(x, w);     /* no more output is wanted; the command is being ended */
    if (more)
        exec_changed(x);
}

static void on_out(struct loop_fd *w, uint32_t events)
{
    on_stream(container_of(w, struct exec, out), w, 1, events);
}

static void on_err(struct loop_fd *w, uint32_t events)
{
    on_stream(container_of(w, struct exec, err), w, 2, events);
}

static void watch_again(struct exec *x, struct loop_fd *w)
{
    if (w->fd >= 0 && !w->watching && loop_fd_add(x->box->front->loop, w, w->fd, EPOLLIN) < 0)
        close_stream(x, w);
}

void exec_hold(struct exec *x, bool hold)
{
    if (hold) {
        loop_fd_remove(x->box->front->loop, &x->out);
        loop_fd_remove(x->box->front->loop, &x->err);
    } else {
        watch_again(x, &x->out);
        watch_again(x, &x->err);
    }
}

/* How much may be in it now. A terminal does not report it, but holds less than this. */
static uint64_t waiting_in(const struct exec *x, const struct loop_fd *w)
{
    int waiting = 0;

    if (x->terminal)
        return TERMINAL_MOST;
    return w->fd >= 0 && ioctl(w->fd, FIONREAD, &waiting) == 0 && waiting > 0 ? (uint64_t)waiting : 0;
}

static bool take_some(struct exec *x, struct loop_fd *w, uint8_t stream, uint64_t *left)
{
    uint64_t before = exec_output_bytes(x);
    bool more = *left > 0 && take(x, w, stream);
    uint64_t taken = exec_output_bytes(x) - before;

    *left -= taken < *left ? taken : *left;
    return more;
}

/* Reads everything that is there now, and little of what comes meanwhile: a child of an ended command may write for
 * ever. */
static void take_all(struct exec *x)
{
    /* A frame may be owed to either; the order does not matter. */
    uint64_t out = waiting_in(x, &x->out), err = x->terminal ? 0 : waiting_in(x, &x->err);
    bool more;

    x->stuck = false;
    do {
        more = take_some(x, &x->out, 1, &out);
        more |= take_some(x, &x->err, 2, &err);
    } while (more && !x->stuck && !x->is_held);
}

static void on_room(struct loop_timer *t)
{
    struct exec *x = container_of(t, struct exec, room_timer);

    take_all(x);
    if (!x->stuck && !x->is_held)
        exec_hold(x, false);
    exec_changed(x);
    if (x->end_waits && (!x->stuck || front_now_ms() - x->end_waits > ROOM_PATIENCE_MS))
        exec_ended(x);
}

/* Readers no longer delay it. */
static void let_go(struct exec *x)
{
    x->is_draining = true;
    x->is_held = false;
    loop_timer_cancel(x->box->front->loop, &x->hold_timer);
}

bool exec_streams_wait(struct exec *x)
{
    let_go(x);
    take_all(x);
    if (x->stuck && !x->end_waits)
        x->end_waits = front_now_ms();
    return x->stuck;
}

void exec_streams_drain(struct exec *x)
{
    let_go(x);
    take_all(x);
    if (x->stuck)
        x->reason = EXEC_REASON_OUTPUT_LOST;
    /* The announced bytes never came (the pipe is gone). */
    if (x->log.owed > 0)
        (void)!exec_log_shorten(&x->log);
    exec_log_finish(&x->log, needed_by_readers(x));
}

/* ---- stdin ---- */

static void on_in(struct loop_fd *w, uint32_t events)
{
    struct exec *x = container_of(w, struct exec, in);

    (void)events;
    loop_fd_remove(x->box->front->loop, w);
    if (x->on_stdin)
        x->on_stdin(x, x->stdin_arg);
}

ssize_t exec_stdin_write(struct exec *x, const void *data, size_t size)
{
    if (x->in.fd < 0 || x->owner)
        return -EPIPE;
    ssize_t n = write(x->in.fd, data, size);
    if (n >= 0) {
        box_touch(x->box);
        return n;
    }
    if (errno != EAGAIN && errno != EINTR) {
        exec_stdin_close(x);
        return -EPIPE;
    }
    if (!x->in.watching && watch(x, &x->in, x->in.fd, EPOLLOUT) < 0)
        return -EPIPE;
    return -EAGAIN;
}

void exec_stdin_close(struct exec *x)
{
    static const char end_of_file = 4;

    if (x->in.fd < 0 || x->owner)
        return;
    if (x->terminal)
        (void)!write(x->in.fd, &end_of_file, 1);
    else if (x->state != EXEC_ENDED)
        exec_release_input(x);      /* the keeper holds a duplicate */
    close_stream(x, &x->in);
}
