/* One poll loop. Descriptors: the payload's link (exec happened), its pidfd (it has ended), init's link (making the box
 * failed), our signals, and the streams. The command is over when its process is; a grandchild that holds its output
 * open does not delay us. */
#define _GNU_SOURCE
#include "cli/foreground.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { GRACE_US = 5000000, EOF_AGAIN_MS = 200 };

static int make_pipe(int *ret_ours, int *ret_theirs, bool we_read)
{
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    *ret_ours = pair[we_read ? 0 : 1];
    *ret_theirs = pair[we_read ? 1 : 0];
    return fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_signals(struct foreground *s)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGWINCH);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? -errno : 0;
}

int foreground_open(struct foreground *s, const struct run_options *options, struct buf *out, struct buf *err,
                    struct err *e)
{
    int ours[3] = { -1, -1, -1 };
    int r = 0;

    s->options = options;
    s->box = NULL;
    s->payload = NULL;
    s->egress = NULL;
    s->stdio[0] = s->stdio[1] = s->stdio[2] = s->signals = -1;
    s->started = s->ended = s->raw = s->abandoned = false;
    s->cause = OUTCOME_NONE;
    s->forwarded = 0;
    s->eof_us = s->deadline_us = s->started_us = s->ended_us = 0;
    if (!options->command.terminal) {
        if (options->interactive)
            r = make_pipe(&ours[0], &s->stdio[0], false);
        if (r == 0)
            r = make_pipe(&ours[1], &s->stdio[1], true);
        if (r == 0)
            r = make_pipe(&ours[2], &s->stdio[2], true);
    }
    /* With a terminal nothing is read before the terminal is ready: early keys wait in our own. */
    stream_init(&s->in, options->interactive && !options->command.terminal ? STDIN_FILENO : -1, false, ours[0], true,
                NULL);
    stream_init(&s->out, ours[1], true, STDOUT_FILENO, false, out);
    stream_init(&s->err, ours[2], true, STDERR_FILENO, false, err);
    if (r == 0)
        r = open_signals(s);
    if (r < 0) {
        foreground_close(s);
        return err_at(e, -r, STEP_STDIO, 0, "pipes of the command");
    }
    return 0;
}

void foreground_close(struct foreground *s)
{
    stream_done(&s->in);
    stream_done(&s->out);
    stream_done(&s->err);
    for (int i = 0; i < 3; i++)
        s->stdio[i] = fd_close(s->stdio[i]);
    s->signals = fd_close(s->signals);
    if (s->raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &s->saved);
    s->raw = false;
}

static void copy_window_size(const struct foreground *s)
{
    struct winsize size;
    if (s->payload->terminal >= 0 && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0)
        (void)ioctl(s->payload->terminal, TIOCSWINSZ, &size);
}

/* The command's PTY has arrived: our own terminal, if we have one, goes into raw mode. */
static void attach_terminal(struct foreground *s)
{
    int master = s->payload->terminal;
    struct termios raw;

    (void)fcntl(master, F_SETFL, O_NONBLOCK);
    copy_window_size(s);
    stream_init(&s->in, STDIN_FILENO, false, master, false, NULL);
    stream_init(&s->out, master, false, STDOUT_FILENO, false, s->out.capture);
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &s->saved) == 0) {
        raw = s->saved;
        cfmakeraw(&raw);
        s->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    }
}

static void end_command(struct foreground *s, enum outcome cause)
{
    /* Output written before the command ended by itself is delivered up to the limit. */
    bool late = cause == OUTCOME_OUTPUT;

    if (s->cause == OUTCOME_NONE && (!s->ended || late))
        s->cause = cause;
    s->abandoned |= s->ended && !late;
    box_kill(s->box);
}

static void take_signal(struct foreground *s)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGWINCH) {
            copy_window_size(s);
        } else if (s->forwarded || !s->started || s->ended) {
            end_command(s, OUTCOME_KILLED);
            s->forwarded = s->forwarded ? s->forwarded : number;
        } else {
            /* The command may clean up first; if it does not end, we kill it. */
            s->forwarded = number;
            (void)!process_signal_group(&s->payload->process, number);
            uint64_t grace = clock_monotonic_us() + GRACE_US;
            if (s->deadline_us == 0 || grace < s->deadline_us)
                s->deadline_us = grace;
        }
    }
}

/* Our own terminal is gone without a signal: closing the command's makes the kernel send the signal. */
static void hang_up(struct foreground *s)
{
    stream_done(&s->in);
    s->payload->terminal = fd_close(s->payload->terminal);
    if (s->forwarded)
        return;
    s->forwarded = SIGHUP;
    s->deadline_us = clock_monotonic_us() + GRACE_US;
}

static uint64_t room_left(const struct foreground *s)
{
    uint64_t limit = s->options->command.output_bytes, used = s->out.moved + s->err.moved;
    return limit == 0 ? UINT64_MAX : used < limit ? limit - used : 0;
}

static int time_left_ms(const struct foreground *s)
{
    if (s->deadline_us == 0)
        return -1;
    uint64_t now = clock_monotonic_us();
    return now >= s->deadline_us
               ? 0
               : (int)((s->deadline_us - now + 999) / 1000 < 3600000 ? (s->deadline_us - now + 999) / 1000 : 3600000);
}

/* A terminal has no end of file, only a key that means it for one read, and a shell that is setting up its terminal
 * loses it. So the key is sent repeatedly, as a person would. */
static void hand_on_end(struct foreground *s)
{
    static const char end_of_file = 4;
    uint64_t now = clock_monotonic_us();

    if (s->payload->terminal < 0 || s->ended || !stream_is_over(&s->in) || now < s->eof_us)
        return;
    (void)!write(s->payload->terminal, &end_of_file, 1);
    s->eof_us = now + EOF_AGAIN_MS * 1000;
}

/* How long a round may sleep. */
static int round_ms(const struct foreground *s)
{
    bool presses = s->payload->terminal >= 0 && !s->ended && stream_is_over(&s->in);
    int left = time_left_ms(s);

    return presses && (left < 0 || left > EOF_AGAIN_MS) ? EOF_AGAIN_MS : left;
}

static int take_start(struct foreground *s, struct err *e)
{
    int terminal = s->payload->terminal;
    int r = payload_started(s->payload, e);

    if (s->payload->terminal != terminal)
        attach_terminal(s);
    if (r > 0) {
        s->started = true;
        s->started_us = clock_monotonic_us();
        if (s->options->command.timeout_ms)
            s->deadline_us = s->started_us + s->options->command.timeout_ms * 1000;
        for (int i = 0; i < 3; i++)
            s->stdio[i] = fd_close(s->stdio[i]);
    }
    return r;
}

static int take_end(struct foreground *s, struct err *e)
{
    int r = payload_reap(s->payload, &s->end);
    if (r < 0)
        return err_at(e, -r, STEP_WAIT, 0, "the command");
    if (r == 0)
        return 0;
    s->ended = true;
    s->ended_us = clock_monotonic_us();
    if (s->payload->link < 0)
        return 0;
    /* It ended so fast that the start event is still unread. */
    /* An event for the terminal may come first. Does not read until the link ends, because a stranger may hold its
     * other end. */
    r = 0;
    for (int i = 0; i < 3 && r == 0 && s->payload->link >= 0; i++)
        r = take_start(s, e);
    s->started_us = s->born_us;
    return r;
}

enum { POLL_LINK, POLL_END, POLL_INIT, POLL_SIGNALS, POLL_MEMORY, POLL_FIXED, POLL_MAX = POLL_FIXED + 3 };

static int one_round(struct foreground *s, struct err *e)
{
    struct pollfd list[POLL_MAX] = {
        [POLL_LINK] = { .fd = s->payload->link, .events = POLLIN },
        [POLL_END] = { .fd = s->payload->process.pidfd, .events = POLLIN },
        [POLL_INIT] = { .fd = s->started ? -1 : s->box->link, .events = POLLIN },
        [POLL_SIGNALS] = { .fd = s->signals, .events = POLLIN },
        [POLL_MEMORY] = { .fd = s->ended ? -1 : s->box->oom, .events = POLLIN },
    };
    struct stream *streams[3] = { &s->in, &s->out, &s->err };
    size_t first[3], n = POLL_FIXED, used[3];

    for (int i = 0; i < 3; i++) {
        first[i] = n;
        used[i] = stream_poll(streams[i], list + n);
        n += used[i];
    }
    int ready = poll(list, n, round_ms(s));
    if (ready < 0)
        return errno == EINTR ? 0 : err_at(e, errno, STEP_WAIT, 0, "poll");
    /* Also while every round has work: a command that writes without pause gets no extra time. */
    if (s->deadline_us && time_left_ms(s) == 0 && (ready == 0 || (!s->ended && !list[POLL_END].revents))) {
        s->deadline_us = 0;
        end_command(s, s->forwarded ? OUTCOME_KILLED : OUTCOME_TIMEOUT);
    }
    /* Init first, because its failure is the cause and the payload's a consequence. The start before the signals: a
     * process that signals us in response to the command's output must find the command started, and its start event
     * may have arrived after poll checked the link. */
    int r = list[POLL_INIT].revents ? box_check_making(s->box, e) : 0;
    /* Init sends the sockets before the command can start. */
    if (r >= 0 && s->egress)
        r = run_egress_attach(s->egress, s->box, e);
    if (r >= 0 && list[POLL_LINK].revents && !list[POLL_END].revents)
        r = take_start(s, e);
    if (r < 0)
        return r;
    if (list[POLL_SIGNALS].revents)
        take_signal(s);
    if (list[POLL_MEMORY].revents & POLLIN)
        end_command(s, OUTCOME_OOM);
    for (int i = 0; i < 3; i++)
        if (!stream_move(streams[i], list + first[i], used[i], i == 0 ? UINT64_MAX : room_left(s)))
            end_command(s, OUTCOME_OUTPUT);
    hand_on_end(s);
    if (s->payload->terminal >= 0 && s->out.refused && !s->ended)
        hang_up(s);
    return list[POLL_END].revents ? take_end(s, e) : 0;
}

/* After the command's end: deliver its output to our reader, but do not wait for a grandchild that holds the pipe
 * open. */
static bool drain(struct foreground *s)
{
    struct stream *streams[2] = { &s->out, &s->err };
    bool more = false;

    for (int i = 0; i < 2; i++) {
        struct stream *stream = streams[i];
        struct pollfd ready = { .fd = stream->from, .events = POLLIN };
        if (stream->begin == stream->end && stream->from >= 0 && (poll(&ready, 1, 0) <= 0 || !(ready.revents & POLLIN)))
            stream_stop(stream);
        more |= !stream_is_over(stream);
    }
    return more;
}

/* We ended it before the command began; a failure then is a consequence. */
static int swallow_echo(struct foreground *s, int r)
{
    if (r >= 0 || s->cause == OUTCOME_NONE || s->started)
        return r;
    s->ended = true;
    s->end = (struct process_end){ .code = -1, .signal = SIGKILL };
    s->started_us = s->ended_us = clock_monotonic_us();
    return 0;
}

/* The progress of the two readers. */
struct moved {
    uint64_t out_moved, err_moved;
    size_t   out_begin, err_begin;
};

static struct moved progress_of(const struct foreground *s)
{
    return (struct moved){ s->out.moved, s->err.moved, s->out.begin, s->err.begin };
}

static bool was_ended_by_us(const struct foreground *s)
{
    return s->cause == OUTCOME_TIMEOUT || s->cause == OUTCOME_KILLED;
}

/* If we killed the command, drain its output only while the reader makes progress; otherwise drain to the end. */
static int drain_round(struct foreground *s, struct err *e)
{
    struct moved before = progress_of(s);
    int r = one_round(s, e);
    struct moved after = progress_of(s);

    if (was_ended_by_us(s) && memcmp(&before, &after, sizeof before) != 0)
        s->deadline_us = clock_monotonic_us() + GRACE_US;
    return r;
}

int foreground_run(struct foreground *s, struct engine_box *box, struct payload *payload, struct err *e)
{
    int r = 0;

    s->box = box;
    s->payload = payload;
    s->born_us = clock_monotonic_us();
    /* A child of a zygote reports its own start, and a hostile one may not: its time counts from the order. */
    if (s->options->zygote && s->options->command.timeout_ms)
        s->deadline_us = clock_monotonic_us() + s->options->command.timeout_ms * 1000;
    while (r >= 0 && !s->ended)
        r = swallow_echo(s, one_round(s, e));
    if (was_ended_by_us(s))
        s->deadline_us = clock_monotonic_us() + GRACE_US;
    while (r >= 0 && !s->abandoned && drain(s))
        r = drain_round(s, e);
    return r < 0 ? r : 0;
}
