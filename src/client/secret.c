/* carrel secret create|list|rm, and --secret of the commands that make boxes and processes. A value comes from standard
 * input, a file or a variable, and never from an argument, which other users can read; it is wiped when it was sent. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "proto/defaults.h"

enum { VALUE_MAX = 65536 };

static const char usage[] =
    "usage: carrel secret create NAME [--from-file FILE | --from-env VARIABLE] [--replace]\n"
    "       carrel secret list\n"
    "       carrel secret rm NAME...\n"
    "\n"
    "A secret is a value that processes in your boxes get and nothing shows again: 'carrel create --secret\n"
    "hf=HF_TOKEN' as a variable, 'carrel create --secret cert=" BOX_SECRETS "/cert' as a file; also of exec, shell,\n"
    "py, run and service. Without --from-file and --from-env the value is read from standard input, without its last\n"
    "newline; at a terminal it is typed and not shown. --replace gives a secret another value: processes that start\n"
    "later get it.\n"
    "\n"
    "  --json  --url URL\n";

struct secret_words {
    const char *file, *variable;
    bool        replaces;
};

struct value {
    size_t size;
    char   bytes[VALUE_MAX + 2];        /* one more than may be sent, and a newline */
};

int take_secret(const char *option, const char *value, json_t *body, struct err *e)
{
    const char *equals = strchr(value, '=');
    json_t *list = json_object_get(body, "secrets");

    if (!equals || equals == value || !equals[1])
        return err_set(e, EINVAL, STEP_USAGE, "%s wants NAME=VARIABLE or NAME=" BOX_SECRETS "/FILE, not '%s'", option,
                       parse_quote(value).text);
    if (!list && json_object_set_new(body, "secrets", list = json_array()) < 0)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, option);
    json_t *one = json_pack("{s:s%,s:s}", "name", value, (size_t)(equals - value), equals[1] == '/' ? "file" : "env",
                            equals + 1);
    return json_array_append_new(list, one) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "%s %s is not UTF-8", option, parse_quote(value).text) : 0;
}

static int set_file(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct secret_words *)into)->file = value;
    return 0;
}

static int set_variable(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct secret_words *)into)->variable = value;
    return 0;
}

static int set_replace(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct secret_words *)into)->replaces = true;
    return 0;
}

/* ---- the value ---- */

static int too_large(struct err *e)
{
    return err_set(e, EFBIG, STEP_USAGE, "a secret may have %d bytes", VALUE_MAX);
}

static int read_all(int fd, const char *what, struct value *ret, struct err *e)
{
    ret->size = 0;
    for (;;) {
        ssize_t n = read(fd, ret->bytes + ret->size, sizeof ret->bytes - ret->size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_file(e, errno, "%s", what);
        ret->size += (size_t)n;
        if (n == 0)
            return 0;
        if (ret->size == sizeof ret->bytes)
            return too_large(e);
    }
}

static volatile sig_atomic_t caught;

static void note_signal(int number)
{
    caught = number;
}

/* One line, typed without being shown. A signal meanwhile restores the terminal before it ends this process. */
static int read_typed(const char *name, struct value *ret, struct err *e)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP };
    struct termios shown, hidden;
    struct sigaction old[sizeof signals / sizeof *signals];
    const struct sigaction note = { .sa_handler = note_signal };

    if (tcgetattr(STDIN_FILENO, &shown) < 0)
        return err_set(e, errno, STEP_USAGE, "the terminal would show what is typed; use --from-file or a pipe");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &note, &old[i]);
    hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
    int r = tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) < 0 || tcgetattr(STDIN_FILENO, &hidden) < 0
                    || (hidden.c_lflag & ECHO)
                ? err_set(e, ENOTTY, STEP_USAGE, "the terminal would show what is typed; use --from-file or a pipe")
                : 0;
    if (r == 0) {
        fprintf(stderr, "value of %s (not shown): ", show_text(name));
        ssize_t n = read(STDIN_FILENO, ret->bytes, sizeof ret->bytes);
        ret->size = n > 0 ? (size_t)n : 0;
        fputc('\n', stderr);
    }
    (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &old[i], NULL);
    if (caught)
        raise(caught);
    return r;
}

static int read_value(const struct secret_words *w, const char *name, struct value *ret, struct err *e)
{
    int r;

    if (w->variable) {
        const char *value = getenv(w->variable);
        if (!value)
            return err_set(e, ENOENT, STEP_USAGE, "--from-env: there is no variable %s",
                           parse_quote(w->variable).text);
        if (strlen(value) > VALUE_MAX)
            return too_large(e);
        ret->size = strlen(value);
        memcpy(ret->bytes, value, ret->size);
        return 0;
    }
    if (w->file) {
        char what[PATH_MAX + 16];
        snprintf(what, sizeof what, "--from-file %s", parse_quote_path(w->file).text);
        FD fd = open(w->file, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return err_file(e, errno, "%s", what);
        r = read_all(fd, what, ret, e);
    } else {
        r = isatty(STDIN_FILENO) ? read_typed(name, ret, e) : read_all(STDIN_FILENO, "standard input", ret, e);
        if (r == 0 && ret->size > 0 && ret->bytes[ret->size - 1] == '\n')
            ret->size--;
    }
    return r == 0 && ret->size > VALUE_MAX ? too_large(e) : r;
}

/* ---- requests ---- */

/* False, and complained, if it can be no name: in a path it would mean something else. */
static bool put_target(const struct client *c, struct buf *target, const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (!name[0] || name[strspn(name, letters)] || strspn(name, "._-")) {
        (void)client_misused(c, "'%s' is not the name of a secret: letters, digits, '.', '_' and '-', the first one a "
                             "letter or a digit", parse_quote(name).text);
        return false;
    }
    target_add(target, "/v1/secrets/", name);
    return true;
}

static int send_value(const struct client *c, const char *target, const struct value *value, json_t **ret,
                      struct err *e)
{
    struct exchange *x = malloc(sizeof *x);
    int r = x ? exchange_open(x, &c->server, "PUT", target, "Content-Type: application/octet-stream\r\n",
                              (int64_t)value->size, e)
              : err_at(e, ENOMEM, STEP_MEMORY, 0, "secret");

    if (r == 0) {
        (void)!exchange_send(x, value->bytes, value->size);     /* the answer says why the server read no more */
        r = exchange_answer(x, e);
        if (r == 0) {
            *ret = client_read_json(x);
            r = x->status;
        }
        exchange_close(x);
    }
    free(x);
    return r;
}

static int create(const struct client *c, const struct secret_words *w, const struct words *words)
{
    static struct value value;
    char text[512];
    struct buf target;
    struct err e = { 0 };
    json_t *answer = NULL;

    if (words->n > 2)
        return client_misused(c, "create wants one name; the value is never an argument, which others can read: give "
                              "it on standard input, or with --from-file or --from-env");
    if (words->n != 2 || (w->file && w->variable))
        return client_misused(c, words->n == 2 ? "--from-file and --from-env exclude each other"
                                               : "create wants a name, e.g. 'carrel secret create hf <token.txt'");
    buf_init_fixed(&target, text, sizeof text);
    if (!put_target(c, &target, words->at[1]))
        return EXIT_CLIENT;
    if (w->replaces)
        buf_printf(&target, "?replace=true");
    if (buf_error(&target) < 0)
        return client_misused(c, "a name may have 64 characters");
    int r = read_value(w, words->at[1], &value, &e);
    if (r == 0)
        r = send_value(c, buf_string(&target), &value, &answer, &e);
    explicit_bzero(&value, sizeof value);
    if (r < 0)
        return client_complain(&e);
    if (r < 200 || r >= 300)
        return client_refused(r, answer);
    if (c->json)
        print_json(answer);
    else
        printf("%s\n", text_of(answer, "name"));
    json_decref(answer);
    return 0;
}

int secret_give(const struct client *c, const char *name, const char *text, struct err *e)
{
    static struct value value;
    char room[512];
    struct buf target;
    json_t *answer = NULL;

    buf_init_fixed(&target, room, sizeof room);
    target_add(&target, "/v1/secrets/", name);
    buf_printf(&target, "?replace=true");
    value.size = strlen(text);
    if (value.size > VALUE_MAX)
        return too_large(e);
    if (buf_error(&target) < 0)
        return err_set(e, EINVAL, STEP_USAGE, "the name of a secret may have 64 characters");
    memcpy(value.bytes, text, value.size);
    int r = send_value(c, buf_string(&target), &value, &answer, e);
    explicit_bzero(&value, sizeof value);
    if (r >= 200 && r < 300)
        r = 0;
    else if (r >= 0)
        r = err_set(e, EINVAL, STEP_USAGE, "%.200s", text_of(json_object_get(answer, "error"), "message"));
    json_decref(answer);
    return r;
}

static int list(const struct client *c)
{
    static const char *const titles[] = { "NAME", "BYTES", "CHANGED", "KIND", NULL };
    json_t *answer = NULL, *s;
    struct table t;
    size_t i;

    if (client_call(c, "GET", "/v1/secrets", NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(json_object_get(answer, "secrets"));
    } else {
        table_init(&t, titles, 1u << 1 | 1u << 2);
        json_array_foreach(json_object_get(answer, "secrets"), i, s)
            table_add(&t, text_of(s, "name"),
                      show_number((uint64_t)json_integer_value(json_object_get(s, "bytes"))),
                      show_age(text_of(s, "changed_at")), text_of(s, "kind"));
        table_print(&t);
        table_done(&t);
    }
    json_decref(answer);
    return 0;
}

static int rm(const struct client *c, const struct words *words)
{
    int status = 0;

    if (words->n < 2)
        return client_misused(c, "rm wants the names of secrets; 'carrel secret list' shows them");
    for (int i = 1; i < words->n; i++) {
        char text[512];
        struct buf target;
        buf_init_fixed(&target, text, sizeof text);
        if (!put_target(c, &target, words->at[i]) || buf_error(&target) < 0
            || client_call(c, "DELETE", buf_string(&target), NULL, NULL) < 0)
            status = EXIT_CLIENT;
    }
    return status;
}

int client_secret(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "from-file", 0, true, set_file },
        { "from-env", 0, true, set_variable },
        { "replace", 0, false, set_replace },
    };
    struct client c = { .name = "secret", .usage = usage };
    struct secret_words w = { 0 };
    struct words words;
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &w, false, &words);
    const char *word = status < 0 && words.n ? words.at[0] : "";

    if (status >= 0)
        return status;
    if (strcmp(word, "create") == 0)
        return create(&c, &w, &words);
    if ((strcmp(word, "list") == 0 || strcmp(word, "ls") == 0) && words.n == 1)
        return list(&c);
    if (strcmp(word, "rm") == 0)
        return rm(&c, &words);
    return client_misused(&c, word[0] ? "there is no 'secret %s'; name create, list or rm"
                                      : "name an action: create, list or rm%s", parse_quote(word).text);
}
