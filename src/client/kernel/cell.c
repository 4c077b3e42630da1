#define _GNU_SOURCE
#include "client/follow.h"
#include "client/kernel/cell.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/names.h"

enum { LINE_BYTES_MAX = 128 << 20, PIECE = 256 << 10, INPUT_MAX = 1 << 16 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

void cell_wait(int fd, const volatile sig_atomic_t *flag)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    sigset_t held, before;

    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &held, &before);
    if (!*flag)
        (void)!ppoll(&wait, 1, NULL, &before);
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Prints text from the box; keeps colours if they are wanted. */
static void print_plain(const char *text, int fd)
{
    FILE *out = fd == STDERR_FILENO ? stderr : stdout;

    for (const char *p = text; *p; p++) {
        if (*p == '\033' && p[1] == '[' && !show_colours(fd)) {
            for (p += 2; *p && !(*p >= '@' && *p <= '~');)
                p++;
            if (!*p)
                break;
            continue;
        }
        fputc(*p, out);
    }
}

static void print_line(const char *text, int fd)
{
    print_plain(text, fd);
    fputc('\n', fd == STDERR_FILENO ? stderr : stdout);
}

static void show_bundle(const json_t *event)
{
    const json_t *data = json_object_get(event, "data");
    const char *text = text_of(data, "text/plain"), *key;
    json_t *value;

    if (text[0]) {
        print_line(text, STDOUT_FILENO);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)data, key, value)
        printf("<%s>\n", show_text(key));
}

static void show_error(const json_t *event)
{
    const json_t *lines = json_object_get(event, "traceback");
    json_t *line;
    size_t i;

    fflush(stdout);
    json_array_foreach(lines, i, line)
        if (json_is_string(line))
            print_line(json_string_value(line), STDERR_FILENO);
    if (json_array_size(lines) == 0)
        fprintf(stderr, "%s: %s\n", show_text(text_of(event, "name")), show_text(text_of(event, "value")));
}

/* ---- input() ---- */

/* A signal must not end this program while the terminal does not echo: a deadly Ctrl-C is held back until the echo is
 * on again. */
static void read_answer(const json_t *event, char *text, size_t size)
{
    struct sigaction deadly = { 0 }, catch = { .sa_handler = on_interrupt };
    struct termios before, quiet;
    bool hides = json_is_true(json_object_get(event, "password")) && tcgetattr(STDIN_FILENO, &before) == 0;

    print_plain(text_of(event, "prompt"), STDOUT_FILENO);
    fflush(stdout);
    if (hides) {
        if (sigaction(SIGINT, NULL, &deadly) == 0 && deadly.sa_handler == SIG_DFL)
            (void)sigaction(SIGINT, &catch, NULL);
        quiet = before;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
    }
    if (isatty(STDIN_FILENO))
        cell_wait(STDIN_FILENO, &interrupted);
    if (interrupted || !fgets(text, (int)size, stdin))
        text[0] = '\0';
    if (hides) {
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
        fputc('\n', stdout);
        if (deadly.sa_handler == SIG_DFL) {
            (void)sigaction(SIGINT, &deadly, NULL);
            if (interrupted)
                (void)raise(SIGINT);
        }
    }
    text[strcspn(text, "\n")] = '\0';
}

static void answer_input(const struct cell *c, const char *box, const json_t *event)
{
    char text[INPUT_MAX];

    read_answer(event, text, sizeof text);
    json_t *value = json_string(text);
    if (interrupted || !box[0])
        json_decref(value);
    else if (client_call(c->client, "POST", target_box(box, "/kernels/default/input"),
                         json_pack("{s:o}", "value", value ? value : json_string("")), NULL) < 0)
        return;
}

/* ---- the stream ---- */

static void take_event(struct cell *c, const char *box, json_t *event)
{
    const char *type = text_of(event, "type");

    if (strcmp(type, "outcome") == 0) {
        json_decref(c->end);
        c->end = json_incref(event);
    }
    if (c->json) {
        print_json_line(event);
        fflush(stdout);
    } else if (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0) {
        const json_t *text = json_object_get(event, "text");
        fflush(stdout);
        (void)!fd_write_all(type[3] == 'e' ? STDERR_FILENO : STDOUT_FILENO, json_string_value(text),
                            json_string_length(text));
    } else if (strcmp(type, "display") == 0 || strcmp(type, "result") == 0) {
        show_bundle(event);
    } else if (strcmp(type, "error") == 0) {
        show_error(event);
    }
    if (strcmp(type, "input_request") == 0 && c->own_input)
        answer_input(c, box, event);
}

static int take_lines(struct cell *c, const char *box, struct buf *in)
{
    size_t at = 0;

    for (char *end; (end = memchr(in->data + at, '\n', in->length - at)); at = (size_t)(end + 1 - in->data)) {
        size_t size = (size_t)(end - in->data) - at;
        json_t *event = size ? json_loadb(in->data + at, size, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL) : NULL;
        if (size && !event) {
            fputs("carrel: the server sent something that is not JSON\n", stderr);
            return -1;
        }
        if (event)
            take_event(c, box, event);
        json_decref(event);
    }
    memmove(in->data, in->data + at, in->length - at);
    in->length -= at;
    return 0;
}

static void interrupt_cell(const struct cell *c, const char *box)
{
    interrupted = 0;
    if (box[0])
        (void)!client_call(c->client, "POST", target_box(box, "/kernels/default/interrupt"), NULL, NULL);
}

/* Reads until the last event. */
static int read_stream(struct cell *c, struct exchange *x, const char *box)
{
    struct buf in;
    int r = 0;

    buf_init(&in, LINE_BYTES_MAX);
    while (r == 0 && !c->end) {
        char *room = buf_reserve(&in, PIECE);
        ssize_t n = room ? exchange_read(x, room, PIECE, false) : -EFBIG;
        if (n == -EAGAIN)
            cell_wait(x->fd, &interrupted);
        if (interrupted)
            interrupt_cell(c, box);
        if (n == -EAGAIN)
            continue;
        if (n > 0) {
            buf_commit(&in, (size_t)n);
            r = take_lines(c, box, &in);
        } else {
            fputs("carrel: the server has gone away before the code ended\n", stderr);
            r = -1;
        }
    }
    buf_done(&in);
    fflush(stdout);
    return r;
}

static int open_stream(struct cell *c, struct exchange *x, const char *body, char *box, size_t size)
{
    static const char fields[] =
        "Accept: application/x-ndjson\r\nContent-Type: application/json\r\nConnection: close\r\n";
    struct err e = { 0 };
    int r = exchange_open(x, &c->client->server, "POST", c->box ? target_box(c->box, "/run") : "/v1/run", fields,
                          (int64_t)strlen(body), &e);

    if (r == 0)
        (void)!exchange_send(x, body, strlen(body));
    if (r == 0)
        r = exchange_answer(x, &e);
    if (r < 0) {
        (void)client_complain(&e);
        return -1;
    }
    if (c->on_answer)
        c->on_answer(x->status, c->arg);
    if (x->status != 200) {
        json_t *answer = client_read_json(x);
        (void)client_refused(x->status, answer);
        json_decref(answer);
        return -1;
    }
    struct http_text name = http_head_get(&x->head, "Carrel-Box");
    snprintf(box, size, "%.*s", c->box ? 0 : (int)name.size, name.data ? name.data : "");
    if (c->box)
        snprintf(box, size, "%s", c->box);
    return 0;
}

int cell_run(struct cell *c, json_t *body)
{
    struct sigaction before, catch = { .sa_handler = on_interrupt };
    struct exchange *x = malloc(sizeof *x);
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);
    char box[256] = "";
    int r = -1;

    json_decref(body);
    cell_done(c);
    interrupted = 0;
    if (!x || !text) {
        fputs("carrel: the code is not UTF-8\n", stderr);
        free(x);
        return -1;
    }
    x->fd = -1;
    if (c->interruptible)
        (void)sigaction(SIGINT, &catch, &before);
    if (open_stream(c, x, text, box, sizeof box) == 0)
        r = read_stream(c, x, box);
    exchange_close(x);
    free(x);
    if (c->interruptible)
        (void)sigaction(SIGINT, &before, NULL);
    return r;
}

void cell_done(struct cell *c)
{
    json_decref(c->end);
    c->end = NULL;
}

int cell_exit(const json_t *end)
{
    const char *reason = text_of(end, "reason");

    if (reason[0])
        fprintf(stderr, "carrel: %s\n", show_text(reason));
    tell_refused(end);
    switch (outcome_parse(text_of(end, "outcome"))) {
    case OUTCOME_OK: return 0;
    case OUTCOME_ERROR: return 1;
    case OUTCOME_INTERRUPTED: return 128 + SIGINT;
    case OUTCOME_TIMEOUT: return EXIT_TIMEOUT;
    case OUTCOME_OOM:
    case OUTCOME_OUTPUT:
    case OUTCOME_KILLED: return 128 + SIGKILL;
    default: return EXIT_CLIENT;
    }
}
