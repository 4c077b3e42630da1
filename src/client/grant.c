/* carrel grant create|ls|rm: rights to call functions of a service. A token is printed once, alone on standard
 * output. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"

static const char usage[] =
    "usage: carrel grant create SERVICE [FUNCTION]... [--box BOX] [--expires 1h] [--max-calls 100] [--json]\n"
    "       carrel grant ls [--json]\n"
    "       carrel grant rm ID...\n"
    "\n"
    "A grant is the right to call these functions of a service (all, if none is named), and nothing else of the\n"
    "server. With --box the code in that box has it, without a token, at http://127.0.0.1:807/v1/grant; else\n"
    "holders of the token, which is shown once.\n";

static int set_box(void *into, const char *value, struct err *e)
{
    (void)e;
    return json_object_set_new(into, "box", json_string(value));
}

static int set_expires(void *into, const char *value, struct err *e)
{
    return take_duration("--expires", value, into, "expires_in", e);
}

static int set_max_calls(void *into, const char *value, struct err *e)
{
    return take_count("--max-calls", value, into, "max_calls", e);
}

static int create(const struct client *c, json_t *body, const struct words *words)
{
    json_t *answer = NULL, *functions = json_array();

    for (int i = 2; i < words->n; i++)
        json_array_append_new(functions, json_string(words->at[i]));
    if (json_array_size(functions))
        json_object_set(body, "functions", functions);
    json_decref(functions);
    if (words->n < 2)
        return client_misused(c, "create wants a service; 'carrel service ls' shows them");
    json_object_set_new(body, "service", json_string(words->at[1]));
    if (client_call(c, "POST", "/v1/grants", json_incref(body), &answer) < 0)
        return EXIT_CLIENT;
    if (c->json)
        print_json(answer);
    else if (text_of(answer, "token")[0])
        puts(text_of(answer, "token"));
    if (!c->json && text_of(answer, "token")[0])
        fprintf(stderr, "grant %s of %s; the token is not shown again\n", show_text(text_of(answer, "id")),
                show_text(text_of(answer, "service")));
    else if (!c->json)
        puts(show_text(text_of(answer, "id")));
    json_decref(answer);
    return 0;
}

static const char *show_names(json_t *functions)
{
    char text[256] = "";
    size_t i, n = 0;
    json_t *one;

    if (!json_is_array(functions))
        return "all";
    json_array_foreach(functions, i, one)
        if (n < sizeof text - 1)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? "," : "", json_string_value(one));
    return show_text(text);
}

static int list(const struct client *c)
{
    static const char *const titles[] = { "ID", "SERVICE", "FUNCTIONS", "BOX", "CALLS", "EXPIRES", "AGE", NULL };
    json_t *answer = NULL, *g;
    struct table t;
    size_t i;

    if (client_call(c, "GET", "/v1/grants", NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(json_object_get(answer, "grants"));
    } else {
        table_init(&t, titles, 1u << 4 | 1u << 6);
        json_array_foreach(json_object_get(answer, "grants"), i, g) {
            uint64_t most = (uint64_t)json_integer_value(json_object_get(g, "max_calls"));
            uint64_t used = (uint64_t)json_integer_value(json_object_get(g, "calls"));
            table_add(&t, text_of(g, "id"), text_of(g, "service"), show_names(json_object_get(g, "functions")),
                      text_of(g, "box"),
                      most ? show_format("%llu/%llu", (unsigned long long)used, (unsigned long long)most)
                           : show_number(used),
                      text_of(g, "expires_at"), show_age(text_of(g, "created_at")));
        }
        table_print(&t);
        table_done(&t);
    }
    json_decref(answer);
    return 0;
}

static int take_back(const struct client *c, const struct words *words)
{
    int status = 0;

    if (words->n < 2)
        return client_misused(c, "rm wants the ids of grants; 'carrel grant ls' shows them");
    for (int i = 1; i < words->n; i++) {
        struct buf target;
        buf_init(&target, 1024);
        target_add(&target, "/v1/grants/", words->at[i]);
        if (buf_error(&target) < 0 || client_call(c, "DELETE", target.data, NULL, NULL) < 0)
            status = EXIT_CLIENT;
        buf_done(&target);
    }
    return status;
}

int client_grant(int argc, char **argv)
{
    static const struct flag flags[] = { { "box", 0, true, set_box },
                                         { "expires", 0, true, set_expires },
                                         { "max-calls", 0, true, set_max_calls } };
    struct client c = { .name = "grant", .usage = usage };
    json_t *body = json_object();
    struct words words;
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, body, false, &words);
    const char *word = status < 0 && words.n ? words.at[0] : "";

    if (status >= 0)
        ;
    else if (strcmp(word, "create") == 0)
        status = create(&c, body, &words);
    else if ((strcmp(word, "ls") == 0 || strcmp(word, "list") == 0) && words.n == 1)
        status = list(&c);
    else if (strcmp(word, "rm") == 0)
        status = take_back(&c, &words);
    else
        status =
            client_misused(&c, word[0] ? "there is no 'grant %s'" : "name an action%s", parse_quote(word).text);
    json_decref(body);
    return status;
}
