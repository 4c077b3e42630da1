/* carrel repl: a line loop on a kernel that lives in a box. The kernel decides whether a statement needs more lines. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands.h"
#include "client/kernel/cell.h"
#include "client/kernel/setup.h"
#include "proto/names.h"

enum { CODE_MAX = 16 << 20 };

static const char repl_usage[] =
    "usage: carrel repl BOX [--json] [--url URL]\n"
    "\n"
    "Python in a box, line by line. Variables stay, also for the next time: it is the box's kernel\n"
    "\"default\". Ctrl-C interrupts, Ctrl-D leaves; the kernel lives on.\n"
    "If there is no Python for kernels yet, 'carrel setup' makes it.\n";

static volatile sig_atomic_t dropped;

static void on_interrupt(int signal)
{
    (void)signal;
    dropped = 1;
}

/* Asks the kernel: "complete", "incomplete", "invalid", "unknown"; indent: of the next line. */
static bool wants_more(const struct client *c, const char *box, const char *code, char indent[64])
{
    json_t *answer = NULL, *text = json_string(code);
    struct err ignored;
    bool more = false;

    indent[0] = '\0';
    if (!text)
        return false;
    json_t *body = json_pack("{s:s,s:{s:o}}", "type", "is_complete", "content", "code", text);
    if (client_ask(c, "POST", target_box(box, "/kernels/default/ask"), body, &answer, &ignored) == 200) {
        more = strcmp(text_of(answer, "status"), "incomplete") == 0;
        snprintf(indent, 64, "%s", show_text(text_of(answer, "indent")));
    }
    json_decref(answer);
    return more;
}

/* One statement; false at the end of the input. */
static bool read_code(const struct client *c, const char *box, unsigned long long count, struct buf *code)
{
    bool talks = isatty(STDIN_FILENO);
    char *line = NULL, indent[64] = "";
    size_t room = 0;
    bool more = true;

    buf_clear(code);
    dropped = 0;
    for (bool first = true; more; first = false) {
        if (talks) {
            printf(first ? "In [%llu]: " : "   ...: ", count);
            fflush(stdout);
            cell_wait(STDIN_FILENO, &dropped);
        }
        clearerr(stdin);
        ssize_t n = dropped ? -1 : getline(&line, &room, stdin);
        if (n < 0 && !dropped) {
            free(line);
            return code->length > 0;
        }
        bool is_empty = n < 0 || strspn(line, " \t\r\n") == (size_t)n;
        if (n > 0)
            buf_add(code, line, (size_t)n);
        if (is_empty && first)
            buf_clear(code);
        more = !is_empty && wants_more(c, box, buf_string(code), indent) && !dropped;
    }
    if (dropped) {
        fputs("\nKeyboardInterrupt\n", stdout);
        buf_clear(code);
    }
    free(line);
    return true;
}

/* Starts the kernel, so that it can be asked. */
static int begin(const struct client *c, const char *box, unsigned long long *ret_count)
{
    struct cell cell = { .client = c, .box = box, .interruptible = true };
    int r = cell_run(&cell, json_pack("{s:s}", "code", ""));

    if (r == 0 && setup_would_help(c, cell.end))
        r = setup_make() == 0 ? cell_run(&cell, json_pack("{s:s}", "code", "")) : -1;
    *ret_count = (unsigned long long)json_integer_value(json_object_get(cell.end, "execution_count")) + 1;
    if (r == 0 && outcome_parse(text_of(cell.end, "outcome")) != OUTCOME_OK)
        r = cell_exit(cell.end) == 0 ? 0 : -1;
    cell_done(&cell);
    return r;
}

static int set_yes(void *into, const char *value, struct err *e)
{
    /* An earlier version asked. */
    (void)into;
    (void)value;
    (void)e;
    return 0;
}

int client_repl(int argc, char **argv)
{
    struct sigaction catch = { .sa_handler = on_interrupt };
    struct client c = { .name = "repl", .usage = repl_usage };
    static const struct flag flags[] = { { "yes", 'y', false, set_yes } };
    unsigned long long count = 1;
    struct words words;
    struct buf code;
    int status = client_begin(&c, argc, argv, flags, 1, NULL, false, &words);

    if (status >= 0)
        return status;
    if (words.n != 1)
        return client_misused(&c, "it takes a box");
    if (begin(&c, words.at[0], &count) < 0)
        return EXIT_CLIENT;
    (void)sigaction(SIGINT, &catch, NULL);
    buf_init(&code, CODE_MAX);
    status = 0;
    while (status == 0 && read_code(&c, words.at[0], count, &code)) {
        struct cell cell = {
            .client = &c, .box = words.at[0], .json = c.json, .interruptible = true, .own_input = true
        };
        json_t *text = code.length ? json_string(buf_string(&code)) : NULL;
        if (!text)
            continue;
        if (cell_run(&cell, json_pack("{s:o,s:b}", "code", text, "allow_stdin", 1)) < 0)
            status = EXIT_CLIENT;
        else if (text_of(cell.end, "reason")[0])
            (void)cell_exit(cell.end);
        if (json_is_integer(json_object_get(cell.end, "execution_count")))
            count = (unsigned long long)json_integer_value(json_object_get(cell.end, "execution_count")) + 1;
        else
            count = 1;
        cell_done(&cell);
    }
    if (isatty(STDIN_FILENO))
        fputc('\n', stdout);
    buf_done(&code);
    return status;
}
