/* carrel service create|ls|show|call|log|restart|rm: functions of live interpreters in boxes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/follow.h"

enum { CODE_MOST = 4 << 20, EXIT_RAISED = 1 };

static const char usage[] =
    "usage: carrel service create NAME FILE [--box BOX] [--memory 2G|max] [--env NAME=VALUE]...\n"
    "                             [--allow RULE]... [--deny RULE]... [--net NET] [--secret NAME=PLACE]...\n"
    "                             [--packages LIST]... [--python 3.12] [--template NAME] [--url URL]\n"
    "       carrel service ls [--json]\n"
    "       carrel service show NAME [--json]\n"
    "       carrel service call NAME FUNCTION [VALUE | KEY=VALUE]... [--timeout 30s] [--json]\n"
    "       carrel service log NAME [--json]\n"
    "       carrel service restart NAME\n"
    "       carrel service rm NAME...\n"
    "\n"
    "A service is an interface file loaded once in a box; functions marked with @expose can be called. Values\n"
    "are JSON, or else texts: call calc add 1 2, call tools search query='blue paint' limit=3. The result is on the\n"
    "standard output as JSON, what the function prints on the standard error; a function that raises gives status 1\n"
    "and its traceback. See also 'carrel grant'.\n"
    "\n"
    "A service without --box has a box of its own, with --memory, --packages, --python, --template and a network:\n"
    "--allow RULE is a destination (index.example.org, *.example.org:443, 10.1.0.0/16) and may be given often, as may\n"
    "--deny, which overrides it; --net is none, public, or a network of the server's configuration.\n";

struct asking {
    json_t *body, *env, *limits, *settings;
};

static int set_box(void *into, const char *value, struct err *e)
{
    (void)e;
    return json_object_set_new(((struct asking *)into)->body, "box", json_string(value));
}

static int set_memory(void *into, const char *value, struct err *e)
{
    json_t *limits = ((struct asking *)into)->limits;

    if (strcmp(value, "max") == 0)
        return json_object_set_new(limits, "memory", json_string(value));
    return take_size("--memory", value, limits, "memory", e);
}

static int set_secret(void *into, const char *value, struct err *e)
{
    return take_secret("--secret", value, ((struct asking *)into)->body, e);
}

static int set_env(void *into, const char *value, struct err *e)
{
    return take_pair("--env", value, ((struct asking *)into)->env, e);
}

static int set_net(void *into, const char *value, struct err *e)
{
    return take_net("--net", value, ((struct asking *)into)->settings, e);
}

static int set_allow(void *into, const char *value, struct err *e)
{
    return take_net("--allow", value, ((struct asking *)into)->settings, e);
}

static int set_deny(void *into, const char *value, struct err *e)
{
    return take_net("--deny", value, ((struct asking *)into)->settings, e);
}

static int set_packages(void *into, const char *value, struct err *e)
{
    return take_packages("--packages", value, ((struct asking *)into)->settings, e);
}

static int set_requirements(void *into, const char *value, struct err *e)
{
    return take_packages("--requirements", value, ((struct asking *)into)->settings, e);
}

static int set_python(void *into, const char *value, struct err *e)
{
    return take_python(value, ((struct asking *)into)->settings, e);
}

static int set_template(void *into, const char *value, struct err *e)
{
    return json_object_set_new(((struct asking *)into)->settings, "template", json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "--template is not UTF-8") : 0;
}

static int set_timeout(void *into, const char *value, struct err *e)
{
    return take_duration("--timeout", value, ((struct asking *)into)->body, "timeout", e);
}

static const char *target_of(struct buf *target, const char *name, const char *rest)
{
    buf_clear(target);
    target_add(target, "/v1/services/", name);
    buf_add_text(target, rest);
    return buf_error(target) < 0 ? "/" : target->data;
}

/* ---- create ---- */

static json_t *read_code(const char *path, struct err *e)
{
    FD fd = open(path, O_RDONLY | O_CLOEXEC);
    struct buf text;
    ssize_t n = 1;

    buf_init(&text, CODE_MOST);
    while (fd >= 0 && n > 0) {
        char *room = buf_reserve(&text, 65536);
        n = room ? read(fd, room, 65536) : -1;
        if (n > 0)
            buf_commit(&text, (size_t)n);
    }
    json_t *code = fd >= 0 && n == 0 ? json_stringn(buf_string(&text), text.length) : NULL;
    if (!code)
        (void)err_set(e, fd < 0 || n < 0 ? errno : EINVAL, STEP_USAGE, "%s cannot be read as a text of at most 4M",
                      parse_quote(path).text);
    buf_done(&text);
    return code;
}

static int create(const struct client *c, struct asking *a, const struct words *words)
{
    json_t *answer = NULL, *function;
    struct err e = { 0 };
    size_t i;

    if (words->n != 3)
        return client_misused(c, "create wants a name and a file, e.g. 'carrel service create tools interface.py'");
    const char *file = strrchr(words->at[2], '/');
    json_t *code = read_code(words->at[2], &e);
    if (!code)
        return client_complain(&e);
    json_object_set_new(a->body, "name", json_string(words->at[1]));
    json_object_set_new(a->body, "code", code);
    json_object_set_new(a->body, "filename", json_string(file ? file + 1 : words->at[2]));
    if (json_object_size(a->env))
        json_object_set(a->body, "env", a->env);
    if (json_object_size(a->limits))
        json_object_set(a->settings, "limits", a->limits);
    if (json_object_size(a->settings))
        json_object_set(a->body, "settings", a->settings);
    int status = client_ask(c, "POST", "/v1/services", json_incref(a->body), &answer, &e);
    if (status < 0)
        return client_complain(&e);
    const char *trace =
        text_of(json_object_get(json_object_get(answer, "error"), "details"), "traceback");
    if (status != 201 && trace[0] && !c->json)
        fprintf(stderr, "%s\n", trace);
    if (status != 201) {
        status = client_refused(status, answer);
        json_decref(answer);
        return status;
    }
    if (c->json)
        print_json(answer);
    else
        json_array_foreach(json_object_get(answer, "functions"), i, function)
            printf("%s%s\n", show_text(text_of(function, "name")), show_text(text_of(function, "signature")));
    json_decref(answer);
    return 0;
}

/* ---- looking ---- */

static int list(const struct client *c)
{
    static const char *const titles[] = { "NAME", "STATE", "BOX", "FUNCTIONS", "CALLS", "RESTARTS", "AGE", NULL };
    json_t *answer = NULL, *s;
    struct table t;
    size_t i;

    if (client_call(c, "GET", "/v1/services", NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(json_object_get(answer, "services"));
    } else {
        table_init(&t, titles, 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6);
        json_array_foreach(json_object_get(answer, "services"), i, s)
            table_add(&t, text_of(s, "name"), text_of(s, "state"), text_of(s, "box"),
                      show_number(json_array_size(json_object_get(s, "functions"))),
                      show_number((uint64_t)json_integer_value(json_object_get(s, "calls"))),
                      show_number((uint64_t)json_integer_value(json_object_get(s, "restarts"))),
                      show_age(text_of(s, "created_at")));
        table_print(&t);
        table_done(&t);
    }
    json_decref(answer);
    return 0;
}

static int show(const struct client *c, const struct words *words, struct buf *target)
{
    json_t *answer = NULL, *f;
    size_t i;

    if (words->n != 2)
        return client_misused(c, "show wants the name of one service");
    if (client_call(c, "GET", target_of(target, words->at[1], ""), NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(answer);
    } else {
        printf("%s: %s in box %s", show_text(text_of(answer, "name")), text_of(answer, "state"),
               show_text(text_of(answer, "box")));
        printf("%s%s\n", text_of(answer, "reason")[0] ? "; " : "", show_text(text_of(answer, "reason")));
        json_array_foreach(json_object_get(answer, "functions"), i, f) {
            printf("\n%s%s%s\n", json_is_true(json_object_get(f, "async")) ? "async " : "",
                   show_text(text_of(f, "name")), show_text(text_of(f, "signature")));
            if (text_of(f, "doc")[0])
                printf("    %s\n", show_text(text_of(f, "doc")));
        }
    }
    json_decref(answer);
    return 0;
}

static int show_log(const struct client *c, const struct words *words, struct buf *target)
{
    static const char *const titles[] = { "TIME", "WHO", "FUNCTION", "OUTCOME", "MS", "ARGS", "RESULT", NULL };
    json_t *answer = NULL, *one;
    struct table t;
    size_t i;

    if (words->n != 2)
        return client_misused(c, "log wants the name of one service");
    if (client_call(c, "GET", target_of(target, words->at[1], "/calls"), NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(json_object_get(answer, "calls"));
    } else {
        table_init(&t, titles, 1u << 4 | 1u << 5 | 1u << 6);
        json_array_foreach(json_object_get(answer, "calls"), i, one)
            table_add(&t, text_of(one, "time"), text_of(one, "who"), text_of(one, "function"), text_of(one, "outcome"),
                      show_format("%.1f", json_number_value(json_object_get(one, "wall_ms"))),
                      show_bytes((uint64_t)json_integer_value(json_object_get(one, "args_bytes"))),
                      show_bytes((uint64_t)json_integer_value(json_object_get(one, "result_bytes"))));
        table_print(&t);
        table_done(&t);
    }
    json_decref(answer);
    return 0;
}

/* ---- calling ---- */

/* JSON, or else plain text. */
static json_t *read_value(const char *text)
{
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);

    return value ? value : json_string(text);
}

static size_t name_length(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");

    return n > 0 && text[n] == '=' && !(text[0] >= '0' && text[0] <= '9') ? n : 0;
}

static int take_arguments(const struct client *c, const struct words *words, json_t *body)
{
    json_t *args = json_array(), *kwargs = json_object();
    int r = 0;

    for (int i = 3; i < words->n && r == 0; i++) {
        size_t n = name_length(words->at[i]);
        char name[128];
        json_t *value = read_value(words->at[i] + (n ? n + 1 : 0));
        snprintf(name, sizeof name, "%.*s", (int)n, words->at[i]);
        if (!value || n >= sizeof name)
            r = client_misused(c, "'%s' is neither JSON nor a text", parse_quote(words->at[i]).text);
        else if (n ? json_object_set(kwargs, name, value) : json_array_append(args, value))
            r = EXIT_CLIENT;
        json_decref(value);
    }
    json_object_set_new(body, "args", args);
    json_object_set_new(body, "kwargs", kwargs);
    return r;
}

/* The function's prints; the standard output is for its result. */
static void tell_prints(const json_t *answer)
{
    static const char *const streams[] = { "stdout", "stderr" };

    for (size_t i = 0; i < 2; i++) {
        const char *text = text_of(answer, streams[i]);
        while (*text) {
            size_t n = strcspn(text, "\n");
            char *line = strndup(text, n);
            fprintf(stderr, "%s\n", line ? show_text(line) : "");
            free(line);
            text += n + (text[n] == '\n');
        }
    }
    if (json_is_true(json_object_get(answer, "truncated")))
        fputs("carrel: the function printed more, which is left out\n", stderr);
}

static int call(const struct client *c, struct asking *a, const struct words *words, struct buf *target)
{
    json_t *answer = NULL;

    if (words->n < 3)
        return client_misused(c, "call wants a service and a function");
    json_object_set_new(a->body, "function", json_string(words->at[2]));
    json_object_set_new(a->body, "prints", json_true());
    int status = take_arguments(c, words, a->body);
    if (status)
        return status;
    if (client_call(c, "POST", target_of(target, words->at[1], "/call"), json_incref(a->body), &answer) < 0)
        return EXIT_CLIENT;
    json_t *error = json_object_get(answer, "error");
    if (!c->json)
        tell_prints(answer);
    if (c->json)
        print_json(answer);
    else if (error)
        fputs(text_of(error, "traceback"), stderr);
    else
        print_json(json_object_get(answer, "result"));
    if (!c->json)
        tell_refused(answer);
    status = error ? EXIT_RAISED : 0;
    json_decref(answer);
    return status;
}

static int end_some(const struct client *c, const struct words *words, struct buf *target)
{
    int status = 0;

    if (words->n < 2)
        return client_misused(c, "rm wants the names of services; 'carrel service ls' shows them");
    for (int i = 1; i < words->n; i++)
        if (client_call(c, "DELETE", target_of(target, words->at[i], ""), NULL, NULL) < 0)
            status = EXIT_CLIENT;
    return status;
}

static int restart(const struct client *c, const struct words *words, struct buf *target)
{
    if (words->n != 2)
        return client_misused(c, "restart wants the name of one service");
    return client_call(c, "POST", target_of(target, words->at[1], "/restart"), NULL, NULL) < 0 ? EXIT_CLIENT : 0;
}

int client_service(int argc, char **argv)
{
    static const struct flag flags[] = { NET_FLAGS(set_net, set_allow, set_deny)
                                         PACKAGE_FLAGS(set_packages, set_requirements)
                                         { "python", 0, true, set_python },
                                         { "template", 0, true, set_template },
                                         { "box", 0, true, set_box },
                                         { "memory", 'm', true, set_memory },
                                         { "env", 'e', true, set_env },
                                         { "secret", 0, true, set_secret },
                                         { "timeout", 0, true, set_timeout } };
    struct client c = { .name = "service", .usage = usage };
    struct asking a = { json_object(), json_object(), json_object(), json_object() };
    struct words words;
    struct buf target;
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &a, false, &words);
    const char *word = status < 0 && words.n ? words.at[0] : "";

    buf_init(&target, 4096);
    if (status >= 0)
        ;
    else if (strcmp(word, "create") == 0)
        status = create(&c, &a, &words);
    else if ((strcmp(word, "ls") == 0 || strcmp(word, "list") == 0) && words.n == 1)
        status = list(&c);
    else if (strcmp(word, "show") == 0)
        status = show(&c, &words, &target);
    else if (strcmp(word, "call") == 0)
        status = call(&c, &a, &words, &target);
    else if (strcmp(word, "log") == 0)
        status = show_log(&c, &words, &target);
    else if (strcmp(word, "restart") == 0)
        status = restart(&c, &words, &target);
    else if (strcmp(word, "rm") == 0)
        status = end_some(&c, &words, &target);
    else
        status =
            client_misused(&c, word[0] ? "there is no 'service %s'" : "name an action%s", parse_quote(word).text);
    buf_done(&target);
    json_decref(a.body);
    json_decref(a.env);
    json_decref(a.limits);
    json_decref(a.settings);
    return status;
}
