/* carrel net: shows the rules of a box, its connections and refusals; changes the rules. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "proto/net.h"

static const char usage[] =
    "usage: carrel net [OPTIONS] BOX\n"
    "\n"
    "Shows a box's network rules, its live connections and refused ones, each with the rule that would allow it.\n"
    "Options change its rules; connections that are no longer allowed are cut.\n"
    "\n"
    "  --net none|public|NAME  nothing, every public address, or a network of the server's configuration\n"
    "  --allow RULE            a name (index.example.org), names below one (*.example.org:443), an address or a\n"
    "                          network (10.1.0.0/16:5432); may be given often\n"
    "  --deny RULE             the same; overrides --allow\n"
    "  --net-limit connections=100,bandwidth=4M   at a time, and bytes in a second; with all rules, which it replaces\n"
    "  --json  --url URL\n";

/* The object that rules go into; NULL: --net names something else. */
static json_t *object_of(json_t *body)
{
    json_t *net = json_object_get(body, "net");
    bool is_public = json_is_string(net) && strcmp(json_string_value(net), "public") == 0;

    if (net && !is_public && !json_is_object(net))
        return NULL;
    if (!json_is_object(net))
        json_object_set_new(body, "net", json_pack("{s:b}", "public", is_public));
    return json_object_get(body, "net");
}

static int take_net_limit(const char *value, json_t *body, struct err *e)
{
    struct net_bounds bounds = { 0 };
    int r = net_bounds_parse("--net-limit", value, &bounds, e);
    json_t *net = r == 0 ? object_of(body) : NULL;

    if (r < 0)
        return r;
    if (!net)
        return err_set(e, EINVAL, STEP_USAGE, "--net-limit goes with --net public, or without --net");
    if (bounds.connections)
        json_object_set_new(net, "connections", json_integer(bounds.connections));
    if (bounds.bytes_per_second)
        json_object_set_new(net, "bandwidth", json_integer((json_int_t)bounds.bytes_per_second));
    return 0;
}

int take_net(const char *option, const char *value, json_t *body, struct err *e)
{
    json_t *net = json_object_get(body, "net");

    if (strcmp(option, "--net-limit") == 0)
        return take_net_limit(value, body, e);
    if (strcmp(option, "--net") == 0) {
        if (json_is_object(net) && strcmp(value, "public") == 0)
            return json_object_set_new(net, "public", json_true());
        if (net)
            return err_set(e, EINVAL, STEP_USAGE, "--net %s excludes --allow, --deny and another --net",
                           parse_quote(value).text);
        return json_object_set_new(body, "net", json_string(value)) < 0
                   ? err_set(e, EINVAL, STEP_USAGE, "--net is not UTF-8") : 0;
    }
    if (!(net = object_of(body)))
        return err_set(e, EINVAL, STEP_USAGE, "%s goes with --net public, or without --net", option);
    const char *key = option + 2;
    if (!json_object_get(net, key))
        json_object_set_new(net, key, json_array());
    return json_array_append_new(json_object_get(net, key), json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "%s is not UTF-8", option) : 0;
}

static int set_net(void *into, const char *value, struct err *e)
{
    return take_net("--net", value, into, e);
}

static int set_allow(void *into, const char *value, struct err *e)
{
    return take_net("--allow", value, into, e);
}

static int set_deny(void *into, const char *value, struct err *e)
{
    return take_net("--deny", value, into, e);
}

static int set_net_limit(void *into, const char *value, struct err *e)
{
    return take_net("--net-limit", value, into, e);
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
    puts(json_is_true(json_object_get(net, "public")) ? "network: public, and" : "network:");
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

int client_net(int argc, char **argv)
{
    const struct flag flags[] = { NET_FLAGS(set_net, set_allow, set_deny) { "net-limit", 0, true, set_net_limit } };
    struct client c = { .name = "net", .usage = usage };
    json_t *body = json_object(), *answer = NULL;
    struct words words;
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, body, false, &words);

    if (status < 0 && words.n != 1)
        status = client_misused(&c, "it takes one box");
    if (status < 0 && json_object_size(body) > 0) {
        int r = client_call(&c, "PATCH", target_box(words.at[0], ""), json_incref(body), &answer);
        status = r < 0 ? EXIT_CLIENT : 0;
        if (status == 0 && c.json)
            print_json(answer);
        json_decref(answer);
    } else if (status < 0) {
        status = show(&c, words.at[0]);
    }
    json_decref(body);
    return status;
}
