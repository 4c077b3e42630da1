/* carrel py and carrel repl: Python in a box. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest.h"
#include "client/commands.h"
#include "client/kernel/cell.h"
#include "client/kernel/setup.h"
#include "client/wire/private.h"

enum { CODE_MAX = 16 << 20 };

struct script {
    const char *code, *python;
    bool        yes;
    json_t     *body;
};

static int set_code(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct script *)into)->code = value;
    return 0;
}

static int set_python(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct script *)into)->python = value;
    return 0;
}

static int set_yes(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct script *)into)->yes = true;
    return 0;
}

static int set_timeout(void *into, const char *value, struct err *e)
{
    return take_duration("--timeout", value, ((struct script *)into)->body, "timeout", e);
}

static json_t *member(struct script *s, const char *key)
{
    json_t *object = json_object_get(s->body, key);

    if (!object) {
        object = json_object();
        json_object_set_new(s->body, key, object);
    }
    return object;
}

static int set_memory(void *into, const char *value, struct err *e)
{
    return take_size("--memory", value, member(into, "limits"), "memory", e);
}

static int set_cpus(void *into, const char *value, struct err *e)
{
    return take_cpus("--cpus", value, member(into, "limits"), "cpus", e);
}

static int set_env(void *into, const char *value, struct err *e)
{
    return take_pair("--env", value, member(into, "env"), e);
}

static int set_template(void *into, const char *value, struct err *e)
{
    json_t *text = json_string(value);

    if (!text || json_object_set_new(((struct script *)into)->body, "template", text) < 0)
        return err_set(e, EINVAL, STEP_USAGE, "--template is not UTF-8");
    return 0;
}

static int set_net(void *into, const char *value, struct err *e)
{
    return take_net("--net", value, ((struct script *)into)->body, e);
}

static int set_allow(void *into, const char *value, struct err *e)
{
    return take_net("--allow", value, ((struct script *)into)->body, e);
}

static int set_deny(void *into, const char *value, struct err *e)
{
    return take_net("--deny", value, ((struct script *)into)->body, e);
}

static const struct flag py_flags[] = {
    NET_FLAGS(set_net, set_allow, set_deny)
    { "code", 'c', true, set_code },        { "timeout", 0, true, set_timeout },
    { "memory", 0, true, set_memory },      { "cpus", 0, true, set_cpus },
    { "env", 'e', true, set_env },          { "template", 0, true, set_template },
    { "python", 0, true, set_python },      { "yes", 'y', false, set_yes },
};

static const char py_usage[] =
    "usage: carrel py [OPTIONS] [FILE | -c CODE]\n"
    "\n"
    "Runs Python in a box of its own, which is removed afterwards. Without FILE, or with -, the code comes from\n"
    "standard input. The value of the last expression is shown. If no server is running, one is started for this run\n"
    "alone.\n"
    "\n"
    "  -c, --code CODE     the code itself\n"
    "  --timeout 30s       then it is interrupted, and the exit status is 124\n"
    "  --memory 512M  --cpus 1.5\n"
    "  -e, --env K=V       may be given often\n"
    "  --allow RULE        what it may reach (index.example.org, *.example.org:443, 10.1.0.0/16); may be given often,\n"
    "                      as may --deny; --net public: every public address\n"
    "  --template NAME     of the server's configuration\n"
    "  --python PROGRAM    the interpreter and with it the packages (then a server of its own is started)\n"
    "  -y, --yes           if there is no Python for kernels yet, 'carrel setup' runs without asking\n"
    "  --json              events, one a line, instead of what they show\n"
    "  --url URL\n"
    "\n"
    "The exit status is 0, 1 after an exception, 124 after a timeout, 137 if it was killed, 125 for anything else.\n";

/* All of a file, NUL-terminated; NULL after the reason was told. */
static char *read_all(const char *path)
{
    bool is_stdin = !path || strcmp(path, "-") == 0;
    FD fd = is_stdin ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    struct buf text;
    ssize_t n = -1;

    buf_init(&text, CODE_MAX);
    for (char *room; fd >= 0 && (room = buf_reserve(&text, 65536));) {
        n = read(fd, room, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        buf_commit(&text, (size_t)n);
    }
    if (fd < 0 || n < 0)
        fprintf(stderr, "carrel: %s: %s\n", is_stdin ? "standard input" : show_text(path), strerror(errno));
    else if (n > 0 || text.failure)
        fprintf(stderr, "carrel: the code may have %d bytes\n", CODE_MAX);
    else if (memchr(buf_string(&text), 0, text.length))
        fputs("carrel: the code has a NUL byte in it\n", stderr);
    else
        return text.data ? text.data : strdup("");
    buf_done(&text);
    return NULL;
}

/* The server that runs, or one of our own. */
static int find_server(struct client *c, const struct script *s, struct private_server *own)
{
    char setting[PRIVATE_SETTING], found[GUEST_PATH];
    const char *python = s->python;
    /* For one run nothing need be kept ready. */
    char *settings[] = { "templates.python.pool=off", "pool.size=off", python ? setting : NULL, NULL };
    struct err e = { 0 };
    int r = python ? private_server_python(python, setting, &e)
                   : private_server_find(c, json_object_get(s->body, "template"), &e);

    if (python ? r == 0 : r < 0 && !c->url && !getenv("CARREL_URL")) {
        if (!python && !guest_find_python(found, sizeof found) && !getenv("CARREL_PYTHON") &&
            (r = setup_offer(s->yes)) != 0)
            return r;
        r = private_server_start(own, settings, &c->server, &e);
    }
    return r < 0 ? client_complain(&e) : -1;
}

int client_py(int argc, char **argv)
{
    struct client c = { .name = "py", .usage = py_usage, .may_lack_server = true };
    struct script s = { .body = json_object() };
    struct private_server own = { 0 };
    struct words words;
    int status = client_begin(&c, argc, argv, py_flags, sizeof py_flags / sizeof *py_flags, &s, false, &words);

    if (status >= 0)
        return status;
    if (words.n > 1 || (words.n == 1 && s.code))
        return client_misused(&c, "it takes one file, or -c and the code");
    if (s.python && (c.url || json_object_get(s.body, "template")))
        return client_misused(&c, "--python starts a server of its own, so there is no --url and no --template");
    bool from_stdin = !s.code && (words.n == 0 || strcmp(words.at[0], "-") == 0);
    char *code = s.code ? strdup(s.code) : read_all(words.n ? words.at[0] : NULL);
    json_t *text = code ? json_string(code) : NULL;
    if (code && !text)
        fputs("carrel: the code is not UTF-8\n", stderr);
    free(code);
    if (!text || (status = find_server(&c, &s, &own)) >= 0) {
        json_decref(text);
        json_decref(s.body);
        return status >= 0 ? status : EXIT_CLIENT;
    }
    json_object_set_new(s.body, "code", text);
    json_object_set_new(s.body, "allow_stdin", json_boolean(!from_stdin && !c.json));
    struct cell cell = { .client = &c, .json = c.json, .own_input = !from_stdin && !c.json };
    int r = cell_run(&cell, json_incref(s.body));
    if (r == 0 && setup_would_help(&c, cell.end))
        r = setup_offer(s.yes) == 0 ? cell_run(&cell, json_incref(s.body)) : -1;
    status = r < 0 ? EXIT_CLIENT : cell_exit(cell.end);
    json_decref(s.body);
    cell_done(&cell);
    private_server_end(&own);
    return status;
}
