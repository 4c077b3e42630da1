/* carrel exec and carrel shell. Output comes as lines over one connection, input goes over another one, as a body that
 * is sent while it is typed. One poll loop: our signals, the output, standard input, the connection for input. If the
 * front goes away it is looked for again, and the output goes on where it was. In a terminal session every key is the
 * command's; otherwise the first signal is handed on and the second one ends it all. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/follow.h"

static const char exec_usage[] = "usage: carrel exec [OPTIONS] BOX [--] COMMAND [ARGUMENTS]\n"
                                 "\n"
                                 "Runs a command in a box. The exit status is the command's; 128+N if signal N ended "
                                 "it, 124 after a timeout, 125 if carrel itself failed, 126 and\n"
                                 "127 if the command cannot be run or found.\n"
                                 "\n"
                                 "  -i                      hand on standard input\n"
                                 "  -t                      a terminal; every key is the command's\n"
                                 "  -d                      in the background: prints an id for 'carrel logs'\n"
                                 "  --env K=V  --workdir DIR  --user UID[:GID]\n"
                                 "  --timeout 30s  --output-limit 10M\n"
                                 "  --json                  one JSON object with outcome, bill and output\n"
                                 "  --url URL\n";

static const char shell_usage[] =
    "usage: carrel shell [--env K=V] [--workdir DIR] [--user UID[:GID]] [--url URL] BOX\n"
    "\n"
    "Opens a shell in a box, with a terminal if there is one here.\n";

enum { PIECE = 32768, END_OF_FILE = 4, POLL_SIGNALS = 0, POLL_OUTPUT, POLL_STDIN, POLL_INPUT, POLLS };

struct session {
    struct client   client;
    struct follow   follow;
    json_t         *body, *env;
    bool            interactive, terminal, background;
    struct exchange *input;             /* owned; its fd is -1 while there is none */
    char            piece[PIECE + 32];  /* framed, on its way */
    size_t          piece_at, piece_size;
    bool            stdin_over, input_over;
    int             signals, caught;
    bool            raw;
    struct termios  saved;
};

/* ---- options ---- */

#define FLAG(function, member)                                                     \
    static int function(void *into, const char *value, struct err *e)             \
    {                                                                              \
        (void)value;                                                               \
        (void)e;                                                                   \
        ((struct session *)into)->member = true;                                   \
        return 0;                                                                  \
    }
FLAG(set_interactive, interactive)
FLAG(set_terminal, terminal)
FLAG(set_background, background)

static int set_env(void *into, const char *value, struct err *e)
{
    return take_pair("--env", value, ((struct session *)into)->env, e);
}

static int set_workdir(void *into, const char *value, struct err *e)
{
    return json_object_set_new(((struct session *)into)->body, "cwd", json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "--workdir is not UTF-8")
               : 0;
}

static int set_user(void *into, const char *value, struct err *e)
{
    uid_t uid;
    gid_t gid;
    int r = parse_user("--user", value, &uid, &gid, e);

    return r < 0 ? r : json_object_set_new(((struct session *)into)->body, "user", json_string(value));
}

static int set_timeout(void *into, const char *value, struct err *e)
{
    return take_duration("--timeout", value, ((struct session *)into)->body, "timeout", e);
}

static int set_output_limit(void *into, const char *value, struct err *e)
{
    return take_size("--output-limit", value, ((struct session *)into)->body, "output_limit", e);
}

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

static void make_raw(struct session *s)
{
    struct termios raw;

    if (!s->terminal || s->raw || !isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &s->saved) < 0)
        return;
    raw = s->saved;
    cfmakeraw(&raw);
    s->raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void make_cooked(struct session *s)
{
    if (s->raw)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &s->saved);
    s->raw = false;
}

/* A small request about the command; if it fails, that shows soon enough elsewhere. */
static void order(struct session *s, const char *method, const char *what, json_t *body)
{
    char rest[80];
    json_t *answer = NULL;
    struct err ignored;

    snprintf(rest, sizeof rest, "/exec/%.31s%s", s->follow.exec, what);
    (void)!client_ask(&s->client, method, target_box(s->follow.box, rest), body, &answer, &ignored);
    json_decref(answer);
}

static void resize(struct session *s)
{
    int rows, columns;

    if (s->terminal && s->follow.exec[0] && window_size(&rows, &columns))
        order(s, "POST", "/resize", json_pack("{s:i,s:i}", "rows", rows, "cols", columns));
}

/* ---- input ---- */

static void input_close(struct session *s)
{
    if (s->input->fd >= 0)
        exchange_close(s->input);
    s->input_over = true;
}

static void input_open(struct session *s)
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

/* Frames what is in the middle of piece as a chunk; nothing is the end of the body. */
static void frame_piece(struct session *s, size_t size)
{
    char head[16];
    int n = snprintf(head, sizeof head, "%zx\r\n", size);

    s->piece_at = 16 - (size_t)n;
    memcpy(s->piece + s->piece_at, head, (size_t)n);
    memcpy(s->piece + 16 + size, "\r\n", 2);
    s->piece_size = 16 + size + 2;
}

static void read_stdin(struct session *s)
{
    ssize_t n = read(STDIN_FILENO, s->piece + 16, PIECE);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        s->stdin_over = true;
        n = 0;
        if (s->terminal) {      /* a terminal has no end of file, only a key that means it */
            s->piece[16] = END_OF_FILE;
            n = 1;
        }
    }
    frame_piece(s, (size_t)n);
}

static void push_piece(struct session *s)
{
    ssize_t n = send(s->input->fd, s->piece + s->piece_at, s->piece_size - s->piece_at, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        input_close(s);
    else if (n > 0)
        s->piece_at += (size_t)n;
}

static bool piece_waits(const struct session *s)
{
    return s->piece_at < s->piece_size;
}

/* ---- the loop ---- */

static int open_signals(struct session *s)
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

/* True: that is the end. */
static bool take_signals(struct session *s)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof info) == sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGWINCH) {
            resize(s);
        } else if (s->caught || !s->follow.exec[0]) {
            if (s->follow.exec[0])
                order(s, "DELETE", "", NULL);
            s->caught = number;
            return true;
        } else {
            s->caught = number;
            order(s, "POST", "/signal", json_pack("{s:i}", "signal", number));
        }
    }
    return false;
}

/* The server went away in the middle. */
static int find_again(struct session *s)
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

static int on_output(struct session *s)
{
    int r = follow_step(&s->follow, false);

    if (r == -ECONNRESET)
        r = find_again(s);
    if (r == 0) {
        if (s->follow.exec[0])
            make_raw(s);
        input_open(s);
    }
    return r;
}

/* 1: the command has ended; -1: something failed and was told. */
static int one_round(struct session *s)
{
    bool may_read = s->input->fd >= 0 && !s->stdin_over && !piece_waits(s);
    struct pollfd list[POLLS] = {
        [POLL_SIGNALS] = { .fd = s->signals, .events = POLLIN },
        [POLL_OUTPUT] = { .fd = s->follow.x->fd, .events = POLLIN },
        [POLL_STDIN] = { .fd = may_read ? STDIN_FILENO : -1, .events = POLLIN },
        [POLL_INPUT] = { .fd = s->input->fd, .events = (short)(POLLIN | (piece_waits(s) ? POLLOUT : 0)) },
    };

    if (poll(list, POLLS, -1) < 0)
        return errno == EINTR ? 0 : -1;
    if (list[POLL_SIGNALS].revents && take_signals(s))
        return 1;
    if (list[POLL_INPUT].revents & (POLLIN | POLLHUP | POLLERR))
        input_close(s);         /* an answer: all was taken, or nobody reads any more */
    else if (list[POLL_INPUT].revents & POLLOUT)
        push_piece(s);
    if (list[POLL_STDIN].revents && s->input->fd >= 0)
        read_stdin(s);
    return list[POLL_OUTPUT].revents ? on_output(s) : 0;
}

static int run(struct session *s)
{
    int r = open_signals(s) < 0 ? -1 : follow_start(&s->follow, s->body);

    if (r == 0)
        r = on_output(s);       /* the first lines may have come with the head */
    while (r == 0)
        r = one_round(s);
    make_cooked(s);
    if (s->follow.end)
        return exit_of(s->follow.end);
    return r < 0 ? EXIT_CLIENT : s->follow.cut ? 128 + SIGPIPE : 128 + s->caught;
}

static int run_in_background(struct session *s)
{
    json_t *answer = NULL;

    json_object_set_new(s->body, "background", json_true());
    if (client_call(&s->client, "POST", target_box(s->follow.box, "/exec"), json_incref(s->body), &answer) < 0)
        return EXIT_CLIENT;
    if (s->client.json)
        print_json(answer);
    else
        puts(text_of(answer, "id"));
    json_decref(answer);
    return 0;
}

static int run_for_json(struct session *s)
{
    json_t *answer = NULL;

    if (client_call(&s->client, "POST", target_box(s->follow.box, "/exec"), json_incref(s->body), &answer) < 0)
        return EXIT_CLIENT;
    print_json(answer);
    fflush(stdout);
    int status = exit_of(answer);
    json_decref(answer);
    return status;
}

static int prepare(struct session *s)
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

static int finish(struct session *s, int status)
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

static struct session *session_new(const char *name, const char *usage)
{
    static struct session s;

    s = (struct session){
        .client = { .name = name, .usage = usage }, .body = json_object(), .env = json_object(), .signals = -1
    };
    follow_init(&s.follow, &s.client, "");
    return &s;
}

int client_exec(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "interactive", 'i', false, set_interactive }, { "tty", 't', false, set_terminal },
        { "detach", 'd', false, set_background },       { "env", 'e', true, set_env },
        { "workdir", 'w', true, set_workdir },          { "timeout", 0, true, set_timeout },
        { "output-limit", 0, true, set_output_limit },  { "user", 'u', true, set_user },
    };
    struct session *s = session_new("exec", exec_usage);
    struct words words;
    int status = client_begin(&s->client, argc, argv, flags, sizeof flags / sizeof *flags, s, true, &words);

    if (status >= 0)
        return finish(s, status);
    if (words.n < 2)
        return finish(s, client_misused(&s->client, words.n ? "no command; use carrel exec BOX -- COMMAND"
                                                            : "which box, and which command?"));
    if (s->client.json && (s->interactive || s->terminal) && !s->background)
        return finish(s, client_misused(&s->client, "--json is for commands without -i and -t"));
    s->follow.box = words.at[0];
    json_t *list = json_array();
    for (int i = 1; i < words.n; i++)
        if (json_array_append_new(list, json_string(words.at[i])) < 0) {
            json_decref(list);
            return finish(s, client_misused(&s->client, "'%s' is not UTF-8", parse_quote(words.at[i]).text));
        }
    json_object_set_new(s->body, "argv", list);
    if (prepare(s) < 0)
        return finish(s, EXIT_CLIENT);
    return finish(s, s->background ? run_in_background(s) : s->client.json ? run_for_json(s) : run(s));
}

int client_shell(int argc, char **argv)
{
    static const struct flag flags[] = { { "env", 'e', true, set_env },
                                         { "workdir", 'w', true, set_workdir },
                                         { "user", 'u', true, set_user } };
    struct session *s = session_new("shell", shell_usage);
    struct words words;
    int status = client_begin(&s->client, argc, argv, flags, 3, s, false, &words);

    if (status >= 0)
        return finish(s, status);
    if (words.n != 1)
        return finish(s, client_misused(&s->client,
                                        words.n ? "it takes one box; for a command use 'carrel exec'" : "which box?"));
    s->follow.box = words.at[0];
    s->interactive = true;
    s->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    json_object_set_new(s->body, "argv",
                        json_pack("[s,s,s]", "/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"));
    return finish(s, prepare(s) < 0 ? EXIT_CLIENT : run(s));
}
