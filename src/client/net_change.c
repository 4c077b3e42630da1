#define _GNU_SOURCE
#include "client/net_change.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "proto/net.h"

/* The place of a rule in a list, however it is written; or the list's size. */
static size_t find_rule(const json_t *list, const struct net_rule *rule)
{
    char text[NET_RULE_TEXT], other[NET_RULE_TEXT];
    struct net_rule one;
    struct err ignored;
    size_t i = 0;

    net_rule_show(rule, text);
    for (; i < json_array_size(list); i++) {
        const char *shown = json_string_value(json_array_get(list, i));
        if (!shown || net_rule_parse("rule", shown, true, &one, &ignored) < 0)
            continue;
        net_rule_show(&one, other);
        if (strcmp(text, other) == 0)
            break;
    }
    return i;
}

static int remove_rule(const char *box, json_t *net, const char *text, struct err *e)
{
    static const char *const keys[] = { "allow", "deny" };
    struct net_rule rule;
    bool was_there = false;

    if (strcmp(text, "public") == 0) {
        was_there = json_is_true(json_object_get(net, "public"));
        json_object_set_new(net, "public", json_false());
    } else {
        int r = net_rule_parse("--remove", text, true, &rule, e);
        if (r < 0)
            return r;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            json_t *list = json_object_get(net, keys[k]);
            size_t at = find_rule(list, &rule);
            was_there |= at < json_array_size(list);
            (void)json_array_remove(list, at);
        }
    }
    return was_there ? 0 : err_set(e, ENOENT, STEP_USAGE, "--remove: there is no rule %s; 'carrel net %s' shows its "
                                   "rules", parse_quote(text).text, show_text(box));
}

/* Allowing what stays denied would change nothing: the user must know. */
static int check_denials(const json_t *net, const char *text, const struct net_rule *rule, struct err *e)
{
    struct net_rule denial;
    struct err ignored;
    size_t i;
    json_t *one;

    json_array_foreach(json_object_get(net, "deny"), i, one) {
        const char *shown = json_string_value(one);
        if (shown && net_rule_parse("rule", shown, true, &denial, &ignored) == 0 && net_rule_covers(&denial, rule))
            return err_set(e, EINVAL, STEP_USAGE, "--allow %s: the box's rule 'deny %s' denies it; add --remove %s to "
                           "take that rule away", parse_quote(text).text, show_text(shown), show_text(shown));
    }
    return 0;
}

static int add_rules(json_t *net, const json_t *asked, const char *key, struct err *e)
{
    json_t *list = json_object_get(net, key), *one;
    struct net_rule rule;
    int r = 0;
    size_t i;

    json_array_foreach(json_object_get(asked, key), i, one) {
        const char *text = json_string_value(one);
        bool denies = strcmp(key, "deny") == 0;
        if ((r = net_rule_parse(key, text, denies, &rule, e)) < 0 ||
            (!denies && (r = check_denials(net, text, &rule, e)) < 0))
            return r;
        if (find_rule(list, &rule) == json_array_size(list))
            (void)!json_array_append(list, one);
    }
    return 0;
}

static void add_bounds(json_t *net, const json_t *asked)
{
    static const char *const keys[] = { "connections", "bandwidth" };
    bool is_open = json_is_true(json_object_get(net, "public")) || json_array_size(json_object_get(net, "allow")) > 0;

    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        json_t *bound = json_object_get(asked, keys[k]);
        if (bound)
            json_object_set(net, keys[k], bound);
        else if (!is_open)      /* the API has bounds with rules that allow only */
            (void)json_object_del(net, keys[k]);
    }
}

/* The present policy as an object, to be changed. NULL: it is a network of the configuration. */
static json_t *open_policy(const json_t *now)
{
    const char *name = json_string_value(now);
    bool is_public = name ? strcmp(name, "public") == 0 : json_is_true(json_object_get(now, "public"));
    json_t *net;

    if (name && !is_public && strcmp(name, "none") != 0)
        return NULL;
    net = json_is_object(now) ? json_deep_copy(now) : json_object();
    json_object_set_new(net, "public", json_boolean(is_public));
    for (const char *const *key = (const char *const[]){ "allow", "deny", NULL }; *key; key++)
        if (!json_is_array(json_object_get(net, *key)))
            json_object_set_new(net, *key, json_array());
    return net;
}

int net_change(const char *box, const json_t *now, const json_t *asked, const json_t *remove, json_t **ret,
               struct err *e)
{
    const char *name = json_string_value(asked);
    bool is_public = name ? strcmp(name, "public") == 0 : json_is_true(json_object_get(asked, "public"));
    size_t i;
    json_t *one, *net;
    int r = 0;

    if (name && !is_public && json_array_size(remove) > 0)
        return err_set(e, EINVAL, STEP_USAGE, "--net %s excludes --remove: it replaces all rules",
                       parse_quote(name).text);
    if (name && !is_public) {
        *ret = json_string(name);
        return 0;
    }
    net = open_policy(now);
    if (!net && is_public)
        net = open_policy(NULL);
    if (!net)
        return err_set(e, EINVAL, STEP_USAGE, "the box has the network %s of the server's configuration, whose rules "
                       "are fixed; 'carrel net %s --net none' takes it away, then add rules",
                       parse_quote(json_string_value(now)).text, show_text(box));
    json_array_foreach(remove, i, one)
        if (r == 0)
            r = remove_rule(box, net, json_string_value(one), e);
    if (is_public)
        json_object_set_new(net, "public", json_true());
    if (r == 0)
        r = add_rules(net, asked, "deny", e);
    if (r == 0)
        r = add_rules(net, asked, "allow", e);
    add_bounds(net, asked);
    if (r < 0)
        json_decref(net);
    else
        *ret = net;
    return r;
}
