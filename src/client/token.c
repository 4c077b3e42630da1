/* carrel token create|list|revoke: for the server's admins. The secret is printed once, alone on standard output, so
 * that a script can read it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"

static const char usage[] =
    "usage: carrel token create IDENTITY [--scope SCOPE]... [--expires 30d] [--json] [--url URL]\n"
    "       carrel token list [--json]\n"
    "       carrel token revoke ID...\n"
    "\n"
    "Tokens are for callers over TCP; boxes belong to the token's identity. A token is shown once, when it is made.\n"
    "Scopes: boxes:read boxes:write exec files ports (all of these by default), admin.\n";

struct making {
    json_t *body, *scopes;
};

static int add_scope(void *into, const char *value, struct err *e)
{
    (void)e;
    return json_array_append_new(((struct making *)into)->scopes, json_string(value));
}

static int set_expires(void *into, const char *value, struct err *e)
{
    return take_duration("--expires", value, ((struct making *)into)->body, "expires_in", e);
}

static int create(const struct client *c, struct making *m, const struct words *words)
{
    json_t *answer = NULL;

    if (words->n != 2)
        return client_misused(c, "create wants one identity, e.g. 'carrel token create ci-bot'");
    json_object_set_new(m->body, "identity", json_string(words->at[1]));
    if (json_array_size(m->scopes))
        json_object_set(m->body, "scopes", m->scopes);
    if (client_call(c, "POST", "/v1/tokens", json_incref(m->body), &answer) < 0)
        return EXIT_CLIENT;
    if (c->json)
        print_json(answer);
    else
        puts(text_of(answer, "token"));
    if (!c->json)
        fprintf(stderr, "token %s of %s: %s; it is not shown again\n", show_text(text_of(answer, "id")),
                show_text(text_of(answer, "identity")), show_text(text_of(answer, "scopes")));
    json_decref(answer);
    return 0;
}

static int list(const struct client *c)
{
    static const char *const titles[] = { "ID", "IDENTITY", "SCOPES", "AGE", "USED", "EXPIRES", "REVOKED", NULL };
    json_t *answer = NULL, *token;
    struct table t;
    size_t i;

    if (client_call(c, "GET", "/v1/tokens", NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(json_object_get(answer, "tokens"));
    } else {
        table_init(&t, titles, 1u << 3);
        json_array_foreach(json_object_get(answer, "tokens"), i, token)
            table_add(&t, text_of(token, "id"), text_of(token, "identity"), text_of(token, "scopes"),
                      show_age(text_of(token, "created_at")), show_age(text_of(token, "used_at")),
                      text_of(token, "expires_at"), json_is_true(json_object_get(token, "revoked")) ? "yes" : "");
        table_print(&t);
        table_done(&t);
    }
    json_decref(answer);
    return 0;
}

static int revoke(const struct client *c, const struct words *words)
{
    int status = 0;

    if (words->n < 2)
        return client_misused(c, "revoke wants the ids of tokens; 'carrel token list' shows them");
    for (int i = 1; i < words->n; i++) {
        struct buf target;
        buf_init(&target, 1024);
        target_add(&target, "/v1/tokens/", words->at[i]);
        if (buf_error(&target) < 0 || client_call(c, "DELETE", target.data, NULL, NULL) < 0)
            status = EXIT_CLIENT;
        buf_done(&target);
    }
    return status;
}

int client_token(int argc, char **argv)
{
    static const struct flag flags[] = { { "scope", 0, true, add_scope }, { "expires", 0, true, set_expires } };
    struct client c = { .name = "token", .usage = usage };
    struct making m = { json_object(), json_array() };
    struct words words;
    int status = client_begin(&c, argc, argv, flags, 2, &m, false, &words);
    const char *word = status < 0 && words.n ? words.at[0] : "";

    if (status >= 0)
        ;
    else if (strcmp(word, "create") == 0)
        status = create(&c, &m, &words);
    else if (strcmp(word, "list") == 0 && words.n == 1)
        status = list(&c);
    else if (strcmp(word, "revoke") == 0)
        status = revoke(&c, &words);
    else
        status =
            client_misused(&c, word[0] ? "there is no 'token %s'" : "name an action%s", parse_quote(word).text);
    json_decref(m.body);
    json_decref(m.scopes);
    return status;
}
