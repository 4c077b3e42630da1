/* carrel py and carrel repl: Python in a box. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest.h"
#include "client/commands.h"
#include "client/kernel/cell.h"
#include "client/kernel/setup.h"
#include "client/progress.h"
#include "client/wire/private.h"

enum { CODE_MAX = 16 << 20 };

struct script {
    const char *code, *python;      /* python: a program, for a server of our own */
    json_t     *body;
};

static int set_code(void *into, const char *value, struct err *e)
{
    struct script *s = into;

    if (s->code)
        return err_set(e, EINVAL, STEP_USAGE,
                       "-c was given twice; write both lines into one, with a newline between them");
    s->code = value;
    return 0;
}

/* A version is looked for by the server; anything else is a program. */
static int set_python(void *into, const char *value, struct err *e)
{
    struct script *s = into;

    if (value[0] >= '0' && value[0] <= '9')
        return take_python(value, s->body, e);
    s->python = value;
    return 0;
}

static int set_yes(void *into, const char *value, struct err *e)
{
    /* An earlier version asked. */
    (void)into;
    (void)value;
    (void)e;
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

static int set_request_memory(void *into, const char *value, struct err *e)
{
    return take_size("--request-memory", value, member(into, "requests"), "memory", e);
}

static int set_request_cpus(void *into, const char *value, struct err *e)
{
    return take_cpus("--request-cpus", value, member(into, "requests"), "cpus", e);
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

static int set_packages(void *into, const char *value, struct err *e)
{
    return take_packages("--packages", value, ((struct script *)into)->body, e);
}

static int set_requirements(void *into, const char *value, struct err *e)
{
    return take_packages("--requirements", value, ((struct script *)into)->body, e);
}

static int set_volume(void *into, const char *value, struct err *e)
{
    return take_volume("--volume", value, ((struct script *)into)->body, e);
}

static int set_key(void *into, const char *value, struct err *e)
{
    return take_key("--key", value, ((struct script *)into)->body, e);
}

static int set_secret(void *into, const char *value, struct err *e)
{
    return take_secret("--secret", value, ((struct script *)into)->body, e);
}

static const struct flag py_flags[] = {
    NET_FLAGS(set_net, set_allow, set_deny) PACKAGE_FLAGS(set_packages, set_requirements)
    { "code", 'c', true, set_code },        { "timeout", 0, true, set_timeout },
    { "memory", 0, true, set_memory },      { "cpus", 0, true, set_cpus },
    { "request-memory", 0, true, set_request_memory }, { "request-cpus", 0, true, set_request_cpus },
    { "env", 'e', true, set_env },          { "template", 0, true, set_template },
    { "volume", 0, true, set_volume },      { "key", 0, true, set_key },
    { "secret", 0, true, set_secret },
    { "python", 0, true, set_python },      { "yes", 'y', false, set_yes },
};

static const char py_usage[] =
    "usage: carrel py [OPTIONS] [FILE | -c CODE] [ARGUMENT...]\n"
    "\n"
    "Runs Python in a box of its own, which is removed afterwards. Without FILE, or with -, the code comes from\n"
    "standard input. Words after FILE are the program's (sys.argv), options too. The value of the last expression is\n"
    "shown. If no server is running, one is started for this run alone.\n"
    "\n"
    "  -c, --code CODE     the code itself\n"
    "  --timeout 30s       then it is interrupted, and the exit status is 124\n"
    "  --memory 512M  --cpus 1.5  --request-memory 256M  --request-cpus 0.5    limits; what is guaranteed\n"
    "  -e, --env K=V       may be given often\n"
    "  --allow RULE        a destination (index.example.org, *.example.org:443, 10.1.0.0/16); may be given often\n"
    "  --deny RULE         the same; overrides --allow\n"
    "  --net none|public|NAME  public: every public address; NAME: a network of the server's configuration\n"
    "  --packages 'numpy<2'  Python packages, installed once and shared; may be given often; --requirements FILE\n"
    "  --volume NAME:/DIR[:ro] a volume of the running server; may be given often\n"
    "  --key NAME[=SECRET]@HOST[:HEADER]   requests to HOST carry a secret, and the code has a placeholder.\n"
    "                      If no server is running, the secret is your variable NAME\n"
    "  --secret NAME=PLACE a secret of the running server: PLACE is a variable, or a file in /run/secrets\n"
    "  --template NAME     of the server's configuration\n"
    "  --python 3.12       an interpreter of the server, which on your own one is any on PATH or of pyenv;\n"
    "                      with a PROGRAM its own packages, too (then a server of its own is started)\n"
    "                      Without it: that of 'carrel setup', which is made if there is none yet\n"
    "  --json              events, one a line, instead of the output\n"
    "  --url URL\n"
    "\n"
    "The exit status is 0, 1 after an exception, 124 after a timeout, 137 if it was killed, 125 for anything else.\n";

/* A whole file, NUL-terminated; NULL after it reported an error. */
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

/* FILE and ARGUMENTs, or "-c" and ARGUMENTs, for sys.argv: the kernel takes them out of its environment again
 * (guest/kernel/carrel_kernel/start.py). */
static int give_arguments(struct script *s, const struct words *words)
{
    json_t *list = json_array();
    bool fits = true;

    if (s->code)
        json_array_append_new(list, json_string("-c"));
    for (int i = 0; i < words->n && fits; i++)
        fits = json_array_append_new(list, json_string(words->at[i])) == 0;
    if (fits && words->n > 0) {
        char *text = json_dumps(list, JSON_COMPACT);
        fits = text && json_object_set_new(member(s, "env"), "CARREL_ARGV", json_string(text)) == 0;
        free(text);
    }
    json_decref(list);
    if (!fits)
        fputs("carrel: py: an argument is not UTF-8\n", stderr);
    return fits ? 0 : -1;
}

/* Finds a running server, or starts our own. */
static int find_server(struct client *c, const struct script *s, struct private_server *own)
{
    char setting[PRIVATE_SETTING], found[GUEST_PATH];
    const char *python = s->python;
    struct own_keys keys = { 0 };
    /* A single run needs no pool. */
    char *settings[] = { "templates.python.pool=off", "pool.size=off", python ? setting : NULL, NULL };
    struct err e = { 0 };
    int r = python ? private_server_python(python, setting, &e)
                   : private_server_find(c, json_object_get(s->body, "template"), &e);

    const char *kept = json_object_get(s->body, "volumes")   ? "volumes"
                       : json_object_get(s->body, "secrets") ? "secrets"
                                                             : NULL;
    if (r < 0 && kept && !c->url && !server_named())
        return client_misused(c, "%s are kept by a server, and none is running; start one with 'carrel serve'", kept);
    if (python ? r == 0 : r < 0 && !c->url && !server_named()) {
        bool needs_setup = !python && !json_object_get(s->body, "packages") && !json_object_get(s->body, "python")
                           && !getenv("CARREL_PYTHON");
        if (needs_setup && !guest_find_python(found, sizeof found) && (r = setup_make()) != 0)
            return r;
        r = own_keys_take(s->body, &keys, &e);
        if (r == 0)
            r = private_server_start(own, settings, &c->server, &e);
        if (r == 0)
            r = own_keys_give(&keys, c, &e);
        own_keys_done(&keys);
    }
    return r < 0 ? client_complain(&e) : -1;
}

/* The box gets a name, so that its events can be found while the server makes it. */
static void watch_packages(const struct client *c, const struct script *s, struct packages_progress *progress)
{
    unsigned char bytes[6];
    char name[32];

    progress_init(progress, c, "");
    if ((!json_object_get(s->body, "packages") && !json_object_get(s->body, "python")
         && !json_object_get(s->body, "template")) || getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return;
    snprintf(name, sizeof name, "py-%02x%02x%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3], bytes[4],
             bytes[5]);
    json_object_set_new(s->body, "name", json_string(name));
    progress_init(progress, c, name);
    progress_watch(progress);
}

static void on_answer(int status, void *arg)
{
    struct packages_progress *progress = arg;

    progress_unwatch(progress);
    progress_done(progress, status == 200);
}

int client_py(int argc, char **argv)
{
    struct client c = { .name = "py", .usage = py_usage, .may_lack_server = true, .operand_ends = true };
    struct script s = { .body = json_object() };
    struct private_server own = { 0 };
    struct words words;
    int status = client_begin(&c, argc, argv, py_flags, sizeof py_flags / sizeof *py_flags, &s, false, &words);

    if (status >= 0)
        return status;
    if (s.python && (c.url || json_object_get(s.body, "template")))
        return client_misused(&c, "--python starts a server of its own, so there is no --url and no --template");
    if (s.python && (json_object_get(s.body, "volumes") || json_object_get(s.body, "secrets")))
        return client_misused(&c, "--python starts a server of its own, which has no volumes and no secrets");
    if (give_arguments(&s, &words) < 0)
        return EXIT_CLIENT;
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
    struct packages_progress progress;
    watch_packages(&c, &s, &progress);
    struct cell cell = { .client = &c, .json = c.json, .own_input = !from_stdin && !c.json, .on_answer = on_answer,
                         .arg = &progress };
    int r = cell_run(&cell, json_incref(s.body));
    if (r == 0 && setup_would_help(&c, cell.end))
        r = setup_make() == 0 ? cell_run(&cell, json_incref(s.body)) : -1;
    progress_unwatch(&progress);    /* there was no answer */
    status = r < 0 ? EXIT_CLIENT : cell_exit(cell.end);
    json_decref(s.body);
    cell_done(&cell);
    private_server_end(&own);
    return status;
}
