/* carrel net: shows the rules of a box, its connections and refusals; changes the rules. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/net_change.h"
#include "proto/net.h"
#include "proto/net_options.h"

static const char usage[] =
    "usage: carrel net [OPTIONS] BOX\n"
    "\n"
    "Shows a box's network rules, its live connections and refused ones, each with the rule that would allow it.\n"
    "Options change its rules, and the rules that hold then are shown. Rules are added to those that are there;\n"
    "connections that are no longer allowed are cut. Of two changes at the same time the last one holds.\n"
    "\n"
    "  --allow RULE            adds a name (index.example.org), names below one (*.example.org:443), an address or a\n"
    "                          network (10.1.0.0/16:5432); may be given often\n"
    "  --deny RULE             adds one that overrides --allow\n"
    "  --remove RULE           takes a rule away, one that allows or one that denies; 'public' is one, too\n"
    "  --net none|NAME         replaces all rules: by nothing, or by a network of the server's configuration\n"
    "  --net public            adds every public address\n"
    "  --net-limit connections=100,bandwidth=4M   at a time, and bytes in a second; one of them or both\n"
    "  --json  --url URL\n";

struct change {
    json_t *body, *remove;
};

/* The options that have made this body. */
static struct net_options options_of(const json_t *body)
{
    static const char *const rules[] = { "allow", "--allow", "deny", "--deny", "connections", "--net-limit",
                                         "bandwidth", "--net-limit" };
    const json_t *net = json_object_get(body, "net");
    bool is_public = json_is_true(json_object_get(net, "public"));
    struct net_options said = { .net = is_public ? "public" : json_string_value(net) };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i += 2)
        if (json_object_get(net, rules[i]))
            said.rule = rules[i + 1];
    return said;
}

/* The object that rules go into. */
static json_t *object_of(json_t *body)
{
    json_t *net = json_object_get(body, "net");

    if (!json_is_object(net))
        json_object_set_new(body, "net", json_pack("{s:b}", "public", net != NULL));
    return json_object_get(body, "net");
}

static int take_net_limit(const char *value, json_t *net, struct err *e)
{
    struct net_bounds bounds = { 0 };
    int r = net_bounds_parse("--net-limit", value, &bounds, e);

    if (r < 0)
        return r;
    if (bounds.connections)
        json_object_set_new(net, "connections", json_integer(bounds.connections));
    if (bounds.bytes_per_second)
        json_object_set_new(net, "bandwidth", json_integer((json_int_t)bounds.bytes_per_second));
    return 0;
}

/* A rule is read here, too, so that the message names the option and not a member of the request. */
static int take_rule(const char *option, const char *value, json_t *net, struct err *e)
{
    const char *key = option + 2;
    struct net_rule ignored;
    int r = net_rule_parse(option, value, strcmp(key, "deny") == 0, &ignored, e);

    if (r < 0)
        return r;
    if (!json_object_get(net, key))
        json_object_set_new(net, key, json_array());
    return json_array_append_new(json_object_get(net, key), json_string(value));
}

int take_net(const char *option, const char *value, json_t *body, struct err *e)
{
    struct net_options said = options_of(body);
    int r = net_options_add(&said, option, value, e);

    if (r < 0)
        return r;
    if (strcmp(option, "--net-limit") == 0)
        return take_net_limit(value, object_of(body), e);
    if (strcmp(option, "--net") != 0)
        return take_rule(option, value, object_of(body), e);
    if (said.rule)
        return json_object_set_new(object_of(body), "public", json_true());
    return json_object_set_new(body, "net", json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "--net is not UTF-8") : 0;
}

static int set_net(void *into, const char *value, struct err *e)
{
    return take_net("--net", value, ((struct change *)into)->body, e);
}

static int set_allow(void *into, const char *value, struct err *e)
{
    return take_net("--allow", value, ((struct change *)into)->body, e);
}

static int set_deny(void *into, const char *value, struct err *e)
{
    return take_net("--deny", value, ((struct change *)into)->body, e);
}

static int set_net_limit(void *into, const char *value, struct err *e)
{
    return take_net("--net-limit", value, ((struct change *)into)->body, e);
}

static int set_remove(void *into, const char *value, struct err *e)
{
    return json_array_append_new(((struct change *)into)->remove, json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "--remove is not UTF-8") : 0;
}

static void print_rules(const json_t *net, const char *key)
{
    size_t i;
    json_t *one;

    json_array_foreach(json_object_get(net, key), i, one)
        printf("  %s %s\n", key, show_text(json_string_value(one)));
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void print_policy(const json_t *net)
{
    if (json_is_string(net)) {
        printf("network: %s\n", show_text(json_string_value(net)));
        return;
    }
    const json_t *allow = json_object_get(net, "allow"), *deny = json_object_get(net, "deny");
    bool is_public = json_is_true(json_object_get(net, "public"));
    bool has_bounds = json_object_get(net, "connections") || json_object_get(net, "bandwidth");
    bool has_more = json_array_size(allow) || json_array_size(deny) || has_bounds;
    printf("network:%s%s\n", is_public ? " public" : json_array_size(allow) ? "" : " none",
           (is_public || !json_array_size(allow)) && has_more ? ", and" : "");
    print_rules(net, "allow");
    print_rules(net, "deny");
    if (json_object_get(net, "connections"))
        printf("  at most %s connections\n", show_number(number_of(net, "connections")));
    if (json_object_get(net, "bandwidth"))
        printf("  at most %s in a second\n", show_bytes(number_of(net, "bandwidth")));
}

static void print_connections(const json_t *shown)
{
    static const char *const titles[] = { "NAME", "PORT", "ADDRESS", "SENT", "RECEIVED", "AGE", NULL };
    const json_t *list = json_object_get(shown, "connections");
    struct table table;
    size_t i;
    json_t *one;

    printf("%zu connections, %s sent, %s received in all\n", json_array_size(list),
           show_bytes(number_of(shown, "bytes_sent")), show_bytes(number_of(shown, "bytes_received")));
    if (json_array_size(list) == 0)
        return;
    table_init(&table, titles, 0x3a);
    json_array_foreach(list, i, one)
        table_add(&table, text_of(one, "name"), show_number(number_of(one, "port")), text_of(one, "address"),
                  show_bytes(number_of(one, "bytes_sent")), show_bytes(number_of(one, "bytes_received")),
                  show_format("%.0fs", (double)number_of(one, "age_ms") / 1000));
    table_print(&table);
    table_done(&table);
}

static void print_refused(const json_t *shown)
{
    static const char *const titles[] = { "REFUSED", "PORT", "TIMES", "WHY", "ALLOW IT WITH", NULL };
    const json_t *list = json_object_get(shown, "refused");
    struct table table;
    size_t i;
    json_t *one;

    if (json_array_size(list) == 0) {
        puts("nothing was refused");
        return;
    }
    table_init(&table, titles, 0x6);
    json_array_foreach(list, i, one)
        table_add(&table, text_of(one, "name"), number_of(one, "port") ? show_number(number_of(one, "port")) : "-",
                  show_number(number_of(one, "count")), text_of(one, "why"),
                  text_of(one, "rule")[0] ? show_format("--allow %s", text_of(one, "rule")) : "-");
    table_print(&table);
    table_done(&table);
    if (number_of(shown, "refused_more") > 0)
        printf("and %s before these\n", show_number(number_of(shown, "refused_more")));
}

static int show(struct client *c, const char *box)
{
    json_t *shown = NULL;

    if (client_call(c, "GET", target_box(box, "/net"), NULL, &shown) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(shown);
    } else {
        print_policy(json_object_get(shown, "net"));
        print_connections(shown);
        print_refused(shown);
    }
    json_decref(shown);
    return 0;
}

/* Reads the rules that are there, and sends all of them. */
static int change(struct client *c, const char *box, const struct change *asked)
{
    json_t *now = NULL, *answer = NULL, *net = NULL;
    struct err e = { 0 };

    if (client_call(c, "GET", target_box(box, ""), NULL, &now) < 0)
        return EXIT_CLIENT;
    int r = net_change(box, json_object_get(now, "net"), json_object_get(asked->body, "net"), asked->remove, &net, &e);
    json_decref(now);
    if (r < 0)
        return client_complain(&e);
    if (client_call(c, "PATCH", target_box(box, ""), json_pack("{s:o}", "net", net), &answer) < 0)
        return EXIT_CLIENT;
    if (c->json)
        print_json(answer);
    else
        print_policy(json_object_get(answer, "net"));
    json_decref(answer);
    return 0;
}

int client_net(int argc, char **argv)
{
    const struct flag flags[] = { NET_FLAGS(set_net, set_allow, set_deny) { "net-limit", 0, true, set_net_limit },
                                  { "remove", 0, true, set_remove } };
    struct client c = { .name = "net", .usage = usage };
    struct change asked = { json_object(), json_array() };
    struct words words;
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &asked, false, &words);

    if (status < 0 && words.n != 1)
        status = client_misused(&c, "it takes one box");
    if (status < 0)
        status = json_object_size(asked.body) + json_array_size(asked.remove) ? change(&c, words.at[0], &asked)
                                                                              : show(&c, words.at[0]);
    json_decref(asked.body);
    json_decref(asked.remove);
    return status;
}
