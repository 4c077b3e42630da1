/* One poll loop: our signals, the output, standard input, the connection for input. Output comes as lines over one
 * connection; input goes over another, as a body that is sent while it is typed. If the front goes away, the loop
 * reconnects and output resumes where it was. In a terminal session every key goes to the command; otherwise the first
 * signal is passed on and the second ends everything, also while our output is not read or the server does not
 * answer. */
#define _GNU_SOURCE
#include "client/remote.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { ORDER_US = 5000000, STALL_US = 5000000, EOF_AGAIN_US = 200000 };
enum { END_OF_FILE = 4, POLL_SIGNALS = 0, POLL_OUTPUT, POLL_STDIN, POLL_INPUT, POLLS };

/* ---- terminal ---- */

static bool window_size(int *ret_rows, int *ret_columns)
{
    struct winsize size;

    if ((ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0) || !size.ws_row ||
        !size.ws_col)
        return false;
    *ret_rows = size.ws_row;
    *ret_columns = size.ws_col;
    return true;
}

static void make_raw(struct remote_command *s)
{
    struct termios raw;

    if (!s->terminal || s->raw || !isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &s->saved) < 0)
        return;
    raw = s->saved;
    cfmakeraw(&raw);
    s->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void make_cooked(struct remote_command *s)
{
    if (s->raw)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &s->saved);
    s->raw = false;
}

/* A small request about the command. The HTTP status; < 0: no answer in time, or before the next signal. */
static int ask(struct remote_command *s, const char *method, const char *what, json_t *body, json_t **ret)
{
    char rest[80];
    struct err ignored;

    snprintf(rest, sizeof rest, "/exec/%.31s%s", s->follow.exec, what);
    s->client.server.until_us = clock_monotonic_us() + ORDER_US;
    int status = client_ask(&s->client, method, target_box(s->follow.box, rest), body, ret, &ignored);
    s->client.server.until_us = 0;
    return status;
}

static int order(struct remote_command *s, const char *method, const char *what, json_t *body)
{
    json_t *answer = NULL;
    int status = ask(s, method, what, body, &answer);

    json_decref(answer);
    return status;
}

static void resize(struct remote_command *s)
{
    int rows, columns;

    if (s->terminal && s->follow.exec[0] && window_size(&rows, &columns))
        (void)order(s, "POST", "/resize", json_pack("{s:i,s:i}", "rows", rows, "cols", columns));
}

/* ---- input ---- */

static void input_close(struct remote_command *s)
{
    if (s->input->fd >= 0)
        exchange_close(s->input);
    s->input_over = true;
}

static void input_open(struct remote_command *s)
{
    char rest[80];
    struct err ignored;

    if (!s->interactive || s->input_over || s->input->fd >= 0 || !s->follow.exec[0])
        return;
    snprintf(rest, sizeof rest, "/exec/%.31s/stdin%s", s->follow.exec, s->terminal ? "" : "?close=true");
    if (exchange_open(s->input, &s->client.server, "POST", target_box(s->follow.box, rest), "Connection: close\r\n",
                      EXCHANGE_CHUNKED, &ignored) < 0)
        s->input_over = true;
}

/* Frames the bytes in the middle of piece as a chunk; an empty chunk ends the body. */
static void frame_piece(struct remote_command *s, size_t size)
{
    char head[16];
    int n = snprintf(head, sizeof head, "%zx\r\n", size);

    s->piece_at = 16 - (size_t)n;
    memcpy(s->piece + s->piece_at, head, (size_t)n);
    memcpy(s->piece + 16 + size, "\r\n", 2);
    s->piece_size = 16 + size + 2;
}

static void read_stdin(struct remote_command *s)
{
    ssize_t n = read(STDIN_FILENO, s->piece + 16, SESSION_PIECE);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    /* A terminal has no end of file, only a key that means it for one read; the key is sent again after a while. */
    if (n <= 0 && s->terminal) {
        s->eof_us = clock_monotonic_us() + EOF_AGAIN_US;
        s->piece[16] = END_OF_FILE;
        n = 1;
    } else if (n <= 0) {
        s->stdin_over = true;
        n = 0;
    }
    frame_piece(s, (size_t)n);
}

static void push_piece(struct remote_command *s)
{
    ssize_t n = send(s->input->fd, s->piece + s->piece_at, s->piece_size - s->piece_at, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        input_close(s);
    else if (n > 0)
        s->piece_at += (size_t)n;
}

static bool piece_waits(const struct remote_command *s)
{
    return s->piece_at < s->piece_size;
}

/* ---- the loop ---- */

static int open_signals(struct remote_command *s)
{
    static const int ours[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        sigaddset(&set, ours[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? -1 : 0;
}

/* True: stop. */
static bool take_signals(struct remote_command *s)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGWINCH) {
            resize(s);
        } else if (s->caught || !s->follow.exec[0]) {
            if (s->follow.exec[0])
                (void)order(s, "DELETE", "", NULL);
            s->caught = s->caught ? s->caught : number;
            return true;
        } else {
            s->caught = number;
            int r = order(s, "POST", "/signal", json_pack("{s:i}", "signal", number));
            if (r < 0 && r != -EINTR)
                return true;        /* there is no command to pass it on to; if interrupted, the next signal is here
                                     * already */
            s->kill_at_us = s->grace_us ? clock_monotonic_us() + s->grace_us : 0;
        }
    }
    return false;
}

/* Kills a command that did not end after the signal. */
static void end_if_late(struct remote_command *s)
{
    if (!s->kill_at_us || clock_monotonic_us() < s->kill_at_us)
        return;
    s->kill_at_us = 0;
    (void)order(s, "DELETE", "", NULL);
}

/* Called while output is written. After a signal has ended the command, a stalled reader is not waited for. */
static bool on_stall(void *arg, uint64_t stalled_us)
{
    struct remote_command *s = arg;
    json_t *answer = NULL;

    if (take_signals(s))
        return true;
    end_if_late(s);
    if (!s->caught || stalled_us < STALL_US)
        return false;
    int status = ask(s, "GET", "", NULL, &answer);
    bool is_over = status < 0 || status == 404 || strcmp(text_of(answer, "state"), "ended") == 0;
    json_decref(answer);
    return is_over;
}

/* The connection to the server broke. */
static int find_again(struct remote_command *s)
{
    if (!s->follow.exec[0]) {
        fputs("carrel: the server closed the connection before the command had started\n", stderr);
        return -1;
    }
    if (s->input->fd >= 0) {
        exchange_close(s->input);
        if (!s->terminal && !s->input_over)
            fputs("carrel: the server was away; some of the input may be lost\r\n", stderr);
        s->piece_at = s->piece_size = 0;
        s->input_over = s->stdin_over;
    }
    return follow_attach(&s->follow, true);
}

static int on_output(struct remote_command *s)
{
    int r = follow_step(&s->follow, false);

    if (r == -ECONNRESET && (r = find_again(s)) == 0) {
        r = follow_step(&s->follow, false);     /* handles bytes that came with the head, which poll does not see */
        r = r == -ECONNRESET ? 0 : r;           /* lost again: the next round reconnects */
    }
    if (r == 0) {
        if (s->follow.exec[0])
            make_raw(s);
        input_open(s);
    }
    return r;
}

/* A signal interrupted a wait for the server. If it could be passed on, the loop continues. */
static int go_on(struct remote_command *s)
{
    s->follow.interrupted = false;
    if (take_signals(s))
        return 1;
    int r = find_again(s);
    return r == 0 ? on_output(s) : r;
}

static int time_left_ms(const struct remote_command *s, uint64_t now)
{
    uint64_t next = s->kill_at_us;

    if (s->eof_us > now && (!next || s->eof_us < next))
        next = s->eof_us;
    return !next ? -1 : now >= next ? 0 : (int)((next - now + 999) / 1000);
}

/* 1: the command has ended; -1: an error was reported. */
static int one_round(struct remote_command *s)
{
    uint64_t now = clock_monotonic_us();
    bool may_read = s->input->fd >= 0 && !s->stdin_over && !piece_waits(s) && now >= s->eof_us;
    struct pollfd list[POLLS] = {
        [POLL_SIGNALS] = { .fd = s->signals, .events = POLLIN },
        [POLL_OUTPUT] = { .fd = s->follow.x->fd, .events = POLLIN },
        [POLL_STDIN] = { .fd = may_read ? STDIN_FILENO : -1, .events = POLLIN },
        [POLL_INPUT] = { .fd = s->input->fd, .events = (short)(POLLIN | (piece_waits(s) ? POLLOUT : 0)) },
    };

    int ready = poll(list, POLLS, time_left_ms(s, now));
    if (ready < 0)
        return errno == EINTR ? 0 : -1;
    end_if_late(s);     /* also while output never pauses */
    if (list[POLL_SIGNALS].revents && take_signals(s))
        return 1;
    if (list[POLL_INPUT].revents & (POLLIN | POLLHUP | POLLERR))
        input_close(s);         /* an answer: the input was taken, or is no longer read */
    else if (list[POLL_INPUT].revents & POLLOUT)
        push_piece(s);
    if (list[POLL_STDIN].revents && s->input->fd >= 0)
        read_stdin(s);
    return list[POLL_OUTPUT].revents ? on_output(s) : 0;
}

int remote_run(struct remote_command *s)
{
    int r = open_signals(s);

    s->client.server.heeds_signals = true;
    s->follow.stop = on_stall;
    s->follow.stop_arg = s;
    if (r == 0)
        r = follow_start(&s->follow, s->body);
    if (r == 0)
        r = on_output(s);       /* the first lines may have come with the head */
    while (r == 0 || (r < 0 && s->follow.interrupted))
        r = r < 0 ? go_on(s) : one_round(s);
    make_cooked(s);
    return s->follow.end ? 0 : r < 0 ? -1 : 1;
}

int remote_prepare(struct remote_command *s)
{
    int rows, columns;

    if (s->terminal && !s->background)
        s->interactive = true;
    if (json_object_size(s->env))
        json_object_set(s->body, "env", s->env);
    if (s->interactive)
        json_object_set_new(s->body, "stdin", json_true());
    if (s->terminal) {
        const char *term = getenv("TERM");
        json_object_set_new(s->body, "tty", json_true());
        if (window_size(&rows, &columns)) {
            json_object_set_new(s->body, "rows", json_integer(rows));
            json_object_set_new(s->body, "cols", json_integer(columns));
        }
        if (term && term[0] && !json_object_get(s->env, "TERM")) {
            json_object_set_new(s->env, "TERM", json_string(term));
            json_object_set(s->body, "env", s->env);
        }
    }
    s->input = malloc(sizeof *s->input);
    if (!s->input)
        return -1;
    s->input->fd = -1;
    return 0;
}

int remote_finish(struct remote_command *s, int status)
{
    follow_done(&s->follow);
    if (s->input && s->input->fd >= 0)
        exchange_close(s->input);
    free(s->input);
    s->signals = fd_close(s->signals);
    json_decref(s->body);
    json_decref(s->env);
    return status;
}

struct remote_command *remote_new(const char *name, const char *usage)
{
    static struct remote_command s;

    s = (struct remote_command){
        .client = { .name = name, .usage = usage }, .body = json_object(), .env = json_object(), .signals = -1
    };
    follow_init(&s.follow, &s.client, "");
    return &s;
}
