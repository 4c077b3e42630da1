/* From pipe to log: the header of a frame is written first, then exactly that many bytes are spliced. Whenever we are
 * killed, each byte is either in the pipe or in the file. If the log cannot be written (the disk is full) the output
 * waits in the pipe, and with it the command, until there is room again; see stick(). */
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
#include "front/boxes/box_private.h"
#include "front/execs/exec_private.h"
#include "front/front.h"
#include "front/kernels/kernels.h"
#include "front/services/services.h"

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
    ROOM_PATIENCE_MS = 10000
};

static void on_out(struct loop_fd *w, uint32_t events);
static void on_err(struct loop_fd *w, uint32_t events);
static void on_in(struct loop_fd *w, uint32_t events);
static void on_room(struct loop_timer *t);

void exec_streams_init(struct exec *x)
{
    x->in = (struct loop_fd){ .fd = -1, .on_event = on_in };
    x->out = (struct loop_fd){ .fd = -1, .on_event = on_out };
    x->err = (struct loop_fd){ .fd = -1, .on_event = on_err };
    x->room_timer.on_expire = on_room;
}

static void close_stream(struct exec *x, struct loop_fd *w)
{
    loop_fd_remove(x->box->front->loop, w);
    w->fd = fd_close(w->fd);
}

void exec_streams_close(struct exec *x)
{
    loop_timer_cancel(x->box->front->loop, &x->room_timer);
    close_stream(x, &x->in);
    close_stream(x, &x->out);
    close_stream(x, &x->err);
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
    /* No message of a kernel's brings descriptors. We would close them, unseen, and the last close of a file in memory
     * takes as long as it is large; a kernel that knows this option (Linux 6.16) refuses to send them. */
    int no = 0;
    (void)setsockopt(pair[0], SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
    *ret_ours = pair[0];
    *ret_theirs = pair[1];
    return 0;
}

int exec_streams_open(struct exec *x, const struct exec_options *o, int ret_theirs[3], struct err *e)
{
    int ours[3] = { -1, -1, -1 };
    int r = o->link         ? make_link(&x->link, &ret_theirs[0])
            : o->with_stdin ? make_pipe(&ours[0], &ret_theirs[0], false)
                            : 0;

    if (r == 0)
        r = make_pipe(&ours[1], &ret_theirs[1], true);
    if (r == 0)
        r = make_pipe(&ours[2], &ret_theirs[2], true);
    x->in.fd = ours[0];     /* watched only when somebody waits for room */
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
    if (x->out.fd >= 0 || x->err.fd >= 0 || x->in.fd >= 0 || x->link >= 0)
        return;         /* only the keeper's connection was lost, not we */
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
    if (n_held == 3 && x->about_kernel)
        x->link = TAKE_FD(fds[0]);
    else if (n_held == 3)
        x->in.fd = TAKE_FD(fds[0]);
    adopt_pipe(x, &x->out, &fds[n_held - 2]);
    adopt_pipe(x, &x->err, &fds[n_held - 1]);
}

/* The log does not take more. The streams are not looked at for a while: they would be ready all the time. */
static void stick(struct exec *x)
{
    loop_fd_remove(x->box->front->loop, &x->out);
    loop_fd_remove(x->box->front->loop, &x->err);
    if (!x->stuck)
        front_log("error", "the output of a command cannot be stored; it waits", "exec", x->id, NULL);
    x->stuck = true;
    loop_timer_set(x->box->front->loop, &x->room_timer, ROOM_RETRY_MS);
}

/* Puts what is owed to the open frame into the log. 1: the frame is complete; 0: the pipe is empty; -errno. */
static int pay(struct exec *x, int pipe)
{
    while (x->owed > 0) {
        off_t at = (off_t)x->log_at;
        ssize_t n = splice(pipe, NULL, x->log, &at, x->owed, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
        if (n <= 0)
            return n == 0 || errno == EAGAIN ? 0 : -errno;
        x->log_at += (uint64_t)n;
        x->owed -= (uint32_t)n;
        x->output_bytes += (uint64_t)n;
        x->box->front->metrics.output_bytes += (uint64_t)n;
    }
    x->log_bytes = x->log_at;
    return 1;
}

static void stop_over_limit(struct exec *x)
{
    struct err e;

    if (x->over_limit)
        return;
    x->over_limit = true;
    (void)!exec_signal(x, 9, &e);
}

/* One frame from a pipe. False: nothing more for now. */
static bool take_pipe(struct exec *x, struct loop_fd *w, uint8_t stream)
{
    int waiting = 0;

    if (w->fd < 0 || (x->owed > 0 && x->owed_stream != stream))
        return false;
    if (x->owed == 0) {
        if (ioctl(w->fd, FIONREAD, &waiting) < 0 || waiting == 0)
            return false;
        uint64_t room = x->output_limit > x->output_bytes ? x->output_limit - x->output_bytes : 0;
        uint64_t size = (uint64_t)waiting < FRAME_MAX ? (uint64_t)waiting : FRAME_MAX;
        if (size > room) {
            stop_over_limit(x);
            size = room;
        }
        if (size == 0)
            return false;
        if (exec_log_begin(x, stream, (uint32_t)size) < 0) {
            stick(x);
            return false;
        }
    }
    int r = pay(x, w->fd);
    /* There was more in the pipe than came out: the command has it open, too, and has read from it itself. */
    if (r == 0)
        r = exec_log_shorten(x);
    if (r < 0)
        stick(x);
    return r == 1;
}

/* A terminal cannot be spliced from; what was read and not yet written when we die is lost. */
static bool take_terminal(struct exec *x)
{
    char data[TERMINAL_BYTES];

    /* What is read must have a place. */
    if (x->out.fd >= 0 && exec_log_reserve(x, sizeof data) < 0) {
        stick(x);
        return false;
    }
    ssize_t n = x->out.fd < 0 ? -1 : read(x->out.fd, data, sizeof data);
    if (n <= 0)
        return false;
    uint64_t room = x->output_limit > x->output_bytes ? x->output_limit - x->output_bytes : 0;
    if ((uint64_t)n > room) {
        stop_over_limit(x);
        n = (ssize_t)room;
    }
    if (n == 0 || exec_log_begin(x, 1, (uint32_t)n) < 0 || pwrite(x->log, data, (size_t)n, (off_t)x->log_at) != n)
        return false;
    x->log_at += (uint64_t)n;
    x->log_bytes = x->log_at;
    x->output_bytes += (uint64_t)n;
    x->owed = 0;
    return true;
}

/* What a kernel prints goes to whoever listens to it, and is nowhere stored. */
static bool take_raw(struct exec *x, struct loop_fd *w, uint8_t stream)
{
    char data[RAW_BYTES];
    ssize_t n = w->fd < 0 ? -1 : read(w->fd, data, sizeof data);

    if (n <= 0)
        return false;
    x->output_bytes += (uint64_t)n;
    x->box->front->metrics.output_bytes += (uint64_t)n;
    if (x->service)
        services_on_output(x, stream - 1u, data, (size_t)n);
    else
        kernels_on_output(x, stream - 1u, data, (size_t)n);
    return true;
}

static bool take(struct exec *x, struct loop_fd *w, uint8_t stream)
{
    return x->terminal ? take_terminal(x) : x->about_kernel ? take_raw(x, w, stream) : take_pipe(x, w, stream);
}

void exec_streams_pull(struct exec *x)
{
    for (int i = 0; i < RAW_TURN && take_raw(x, &x->out, 1); i++)
        ;
    for (int i = 0; i < RAW_TURN && take_raw(x, &x->err, 2); i++)
        ;
}

static void on_stream(struct exec *x, struct loop_fd *w, uint8_t stream, uint32_t events)
{
    bool more = false;

    if (x->about_kernel)
        kernels_before_output(x);
    for (int i = 0; i < 16 && take(x, w, stream); i++)
        more = true;
    if (x->stuck)
        ;       /* what is in the pipe is still wanted */
    else if (!more && (events & (EPOLLHUP | EPOLLERR)))
        close_stream(x, w);
    else if (!more && x->over_limit && w->fd >= 0)
        close_stream(x, w);     /* nothing more is wanted; the command is being ended */
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

void exec_streams_hold(struct exec *x, bool hold)
{
    if (hold) {
        loop_fd_remove(x->box->front->loop, &x->out);
        loop_fd_remove(x->box->front->loop, &x->err);
    } else {
        watch_again(x, &x->out);
        watch_again(x, &x->err);
    }
}

/* How much may be in it now. A terminal does not tell, but it holds less than this. */
static uint64_t waiting_in(const struct exec *x, const struct loop_fd *w)
{
    int waiting = 0;

    if (x->terminal)
        return TERMINAL_MOST;
    return w->fd >= 0 && ioctl(w->fd, FIONREAD, &waiting) == 0 && waiting > 0 ? (uint64_t)waiting : 0;
}

static bool take_some(struct exec *x, struct loop_fd *w, uint8_t stream, uint64_t *left)
{
    uint64_t before = x->output_bytes;
    bool more = *left > 0 && take(x, w, stream);
    uint64_t taken = x->output_bytes - before;

    *left -= taken < *left ? taken : *left;
    return more;
}

/* All that is there now, and little of what comes meanwhile: a child of a command that has ended may write for ever. */
static void take_all(struct exec *x)
{
    /* A frame may be owed to either; the one that is served first does not matter. */
    uint64_t out = waiting_in(x, &x->out), err = x->terminal ? 0 : waiting_in(x, &x->err);
    bool more;

    x->stuck = false;
    do {
        more = take_some(x, &x->out, 1, &out);
        more |= take_some(x, &x->err, 2, &err);
    } while (more && !x->stuck);
}

static void on_room(struct loop_timer *t)
{
    struct exec *x = container_of(t, struct exec, room_timer);

    take_all(x);
    if (!x->stuck) {
        watch_again(x, &x->out);
        watch_again(x, &x->err);
    }
    exec_changed(x);
    if (x->end_waits && (!x->stuck || front_now_ms() - x->end_waits > ROOM_PATIENCE_MS))
        exec_ended(x);
}

bool exec_streams_wait(struct exec *x)
{
    take_all(x);
    if (x->stuck && !x->end_waits)
        x->end_waits = front_now_ms();
    return x->stuck;
}

void exec_streams_drain(struct exec *x)
{
    take_all(x);
    if (x->stuck)
        x->reason = EXEC_REASON_OUTPUT_LOST;
    /* What was promised never came (the pipe is gone). */
    if (x->owed > 0)
        (void)!exec_log_shorten(x);
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
    if (x->in.fd < 0)
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

    if (x->in.fd < 0)
        return;
    if (x->terminal)
        (void)!write(x->in.fd, &end_of_file, 1);
    else if (x->state != EXEC_ENDED)
        exec_release_input(x);      /* the keeper holds a duplicate */
    close_stream(x, &x->in);
}
