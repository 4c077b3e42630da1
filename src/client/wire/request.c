/* Requests with JSON, and messages when they fail. The server's message says what is wrong; the remedy with this
 * program is added here. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "proto/defaults.h"

enum { ANSWER_MAX = 256 << 20, TARGET_MAX = 16 << 10 };

int client_complain(const struct err *e)
{
    /* Our messages are whole sentences with the reason in them. */
    fprintf(stderr, "carrel: %s\n", e->what);
    return EXIT_CLIENT;
}

static const char *hint_of(int status, const char *code, const char *message)
{
    static const struct {
        const char *code, *hint;
    } hints[] = {
        { "unauthorized", "set CARREL_TOKEN to a token from 'carrel token create'" },
        { "quota_exceeded", "'carrel ps' lists your boxes, 'carrel rm' makes room" },
        { "host_full", "ask for less, or make room with 'carrel rm'" },
        { "unavailable", "try again in a moment" },
    };
    static const struct {
        const char *word, *hint;
    } rooms[] = { { "remove a volume", "'carrel df' shows what takes disk, 'carrel volume rm' makes room" },
                  { "remove a box", "'carrel df' shows what takes disk, 'carrel rm' makes room" },
                  { " volumes, and may", "'carrel volume list' shows them, 'carrel volume rm' makes room" } };
    static const struct {
        const char *word, *hint;
    } phases[] = {
        { "paused", "'carrel resume' lets it go on" },
        { "stopped", "'carrel start' starts it again" },
        { "creating", "try again in a moment" },
        { "starting", "try again in a moment" },
        { "failed", "'carrel ps' says why; 'carrel rm' removes it" },
    };

    for (size_t i = 0; i < sizeof rooms / sizeof *rooms && strcmp(code, "quota_exceeded") == 0; i++)
        if (strstr(message, rooms[i].word))
            return rooms[i].hint;
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (strcmp(hints[i].code, code) == 0)
            return hints[i].hint;
    for (size_t i = 0; i < sizeof phases / sizeof *phases && strcmp(code, "wrong_phase") == 0; i++)
        if (strstr(message, phases[i].word))
            return phases[i].hint;
    static const struct {
        const char *word, *hint;
    } lists[] = { { "there is no box", "'carrel ps' lists your boxes" },
                  { "there is no service", "'carrel service ls' lists your services" },
                  { "there is no grant", "'carrel grant ls' lists your grants" },
                  { "there is no token", "'carrel token list' shows them" } };
    for (size_t i = 0; i < sizeof lists / sizeof *lists && status == 404; i++)
        if (strstr(message, lists[i].word))
            return lists[i].hint;
    return "";
}

int client_refused(int status, json_t *answer)
{
    json_t *error = json_object_get(answer, "error");
    const char *message = text_of(error, "message"), *code = text_of(error, "code"), *hint = text_of(error, "hint");

    if (!message[0]) {
        fprintf(stderr, "carrel: the server answered with HTTP status %d\n", status);
        return EXIT_CLIENT;
    }
    if (!hint[0])
        hint = hint_of(status, code, message);
    struct buf words;
    buf_init(&words, 16384);
    client_words(message, &words);
    fprintf(stderr, "carrel: %s%s%s\n", show_text(words.failure ? message : buf_string(&words)), hint[0] ? "; " : "",
            show_text(hint));
    buf_done(&words);
    return EXIT_CLIENT;
}

json_t *client_read_json(struct exchange *x)
{
    struct buf all;
    ssize_t n;

    buf_init(&all, ANSWER_MAX);
    do {
        char *room = buf_reserve(&all, 65536);
        n = room ? exchange_read(x, room, 65536, true) : -ENOMEM;
        if (n > 0)
            buf_commit(&all, (size_t)n);
    } while (n > 0);
    json_t *value = n == 0 && all.length ? json_loadb(all.data, all.length, JSON_DECODE_ANY, NULL) : NULL;
    buf_done(&all);
    return value;
}

int client_ask_with(const struct client *c, const char *method, const char *target, const char *fields, json_t *body,
                    const struct handover *h, json_t **ret, struct err *e)
{
    char head[512];
    struct exchange *x = malloc(sizeof *x);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    bool posts = strcmp(method, "GET") != 0 && strcmp(method, "DELETE") != 0;
    int64_t size = text ? (int64_t)strlen(text) : posts ? 0 : EXCHANGE_NO_BODY;

    *ret = NULL;
    snprintf(head, sizeof head, "%sAccept: application/json\r\nConnection: close\r\n%s",
             text ? "Content-Type: application/json\r\n" : "", fields ? fields : "");
    int r = !x || (body && !text) ? err_set(e, ENOMEM, STEP_MEMORY, "out of memory, or a text is not UTF-8") : 0;
    json_decref(body);
    if (r == 0 && h && h->n && !c->server.is_unix)
        r = err_set(e, ENOTSUP, STEP_USAGE, "a mount needs a server on this machine, reached by its unix socket");
    if (r == 0)
        r = exchange_open_with(x, &c->server, method, target, head, size, h ? h->fd : NULL, h ? h->n : 0, e);
    if (r == 0) {
        if (text)
            (void)!exchange_send(x, text, (size_t)size);    /* if it fails, the answer says why */
        r = exchange_answer(x, e);
        if (r == 0) {
            r = x->status;
            *ret = client_read_json(x);
        }
        exchange_close(x);
    }
    free(text);
    free(x);
    return r;
}

int client_ask(const struct client *c, const char *method, const char *target, json_t *body, json_t **ret,
               struct err *e)
{
    return client_ask_with(c, method, target, NULL, body, NULL, ret, e);
}

int client_call_with(const struct client *c, const char *method, const char *target, const char *fields, json_t *body,
                     const struct handover *h, json_t **ret)
{
    struct err e = { 0 };
    json_t *answer = NULL;
    int status = client_ask_with(c, method, target, fields, body, h, &answer, &e);

    if (status < 0)
        (void)client_complain(&e);
    else if (status >= 300)
        (void)client_refused(status, answer);
    if (status < 0 || status >= 300 || !ret)
        json_decref(answer);
    else
        *ret = answer;
    return status >= 200 && status < 300 ? 0 : -1;
}

int client_call(const struct client *c, const char *method, const char *target, json_t *body, json_t **ret)
{
    return client_call_with(c, method, target, NULL, body, NULL, ret);
}

static bool is_plain(char c, bool in_path)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("-._~", c)) ||
           (in_path && c == '/');
}

static void add_escaped(struct buf *target, const char *text, bool in_path)
{
    for (; *text; text++) {
        if (is_plain(*text, in_path))
            buf_add_char(target, *text);
        else
            buf_printf(target, "%%%02X", (unsigned char)*text);
    }
}

void target_add(struct buf *target, const char *literal, const char *value)
{
    buf_add_text(target, literal);
    if (value)
        add_escaped(target, value, false);
}

/* A path in the box, below its home unless it is absolute; "." and empty parts are dropped, because a URL may not have
 * them. */
void target_add_path(struct buf *target, const char *path)
{
    if (path[0] != '/')
        buf_add_text(target, BOX_HOME);
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length > 0 && !(length == 1 && path[0] == '.')) {
            char *part = strndup(path, length);
            buf_add_char(target, '/');
            add_escaped(target, part ? part : "", true);
            free(part);
        }
        path += length;
        path += *path == '/';
    }
}

const char *target_box(const char *box, const char *rest)
{
    static char text[TARGET_MAX];
    struct buf target;

    buf_init_fixed(&target, text, sizeof text);
    target_add(&target, "/v1/boxes/", box);
    buf_add_text(&target, rest);
    return text;
}

const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* In ASCII: a box's text may hold characters that a terminal obeys, and not all of them are below U+0020. */
void print_json(const json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    putchar('\n');
}

void print_json_line(const json_t *value)
{
    json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    putchar('\n');
    fflush(stdout);
}
