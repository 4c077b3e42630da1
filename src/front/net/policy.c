#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "front/config/config.h"
#include "front/net/net.h"
#include "front/request/fields.h"

struct net_body {
    const struct config *config;
    bool                 is_public;
    struct net_policy    policy;
};

static int take_rules(const char *name, json_t *v, struct net_policy *policy, bool denies, struct err *e)
{
    size_t i;
    json_t *one;
    int r = 0;

    if (!json_is_array(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of rules, as in [\"index.example.org\"]", name);
    json_array_foreach(v, i, one) {
        char where[64];
        const char *text;
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        if ((r = body_text(where, one, 1024, &text, e)) < 0 ||
            (r = net_policy_add(policy, where, text, denies, e)) < 0)
            return r;
    }
    return 0;
}

static int take_allow(const char *name, json_t *v, void *into, struct err *e)
{
    return take_rules(name, v, &((struct net_body *)into)->policy, false, e);
}

static int take_deny(const char *name, json_t *v, void *into, struct err *e)
{
    return take_rules(name, v, &((struct net_body *)into)->policy, true, e);
}

static int take_public(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct net_body *)into)->is_public, e);
}

/* Rules as they are shown: in their shortest form. */
static json_t *show_rules(const struct net_policy *policy, bool denies)
{
    json_t *list = json_array();
    char text[NET_RULE_TEXT];

    for (uint32_t i = 0; i < policy->n_rules; i++)
        if (policy->rule[i].denies == denies) {
            net_rule_show(&policy->rule[i], text);
            json_array_append_new(list, json_string(text));
        }
    return list;
}

static const struct config_network *find_network(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->n_networks; i++)
        if (strcmp(config->network[i].name, name) == 0)
            return &config->network[i];
    return NULL;
}

static int take_name(const struct config *config, const char *name, json_t *v, json_t **ret, struct err *e)
{
    const char *text = json_string_value(v);

    *ret = NULL;
    if (strcmp(text, "none") == 0)
        return 0;
    if (find_network(config, text) || (strcmp(text, "public") == 0 && config->network_ask == NETWORK_ANY)) {
        *ret = json_incref(v);
        return 0;
    }
    if (strcmp(text, "public") == 0)
        return err_set(e, EPERM, STEP_USAGE, "%s: this server allows only the networks that its configuration names",
                       name);
    return err_set(e, EINVAL, STEP_USAGE, "%s must be \"none\", \"public\", an object with allow and deny, or a "
                   "network that the server's configuration names; '%s' is none", name, parse_quote(text).text);
}

int net_take(const struct config *config, const char *name, json_t *value, json_t **ret, struct err *e)
{
    static const struct body_field fields[] = {
        { "allow", take_allow }, { "deny", take_deny }, { "public", take_public }
    };
    static struct net_body body;
    char where[32];

    if (json_is_null(value)) {
        *ret = NULL;
        return 0;
    }
    if (config->network_ask == NETWORK_NONE && !(json_is_string(value) && !strcmp(json_string_value(value), "none")))
        return err_set(e, EPERM, STEP_USAGE, "%s: this server gives boxes no network (network.ask)", name);
    if (json_is_string(value))
        return take_name(config, name, value, ret, e);
    body = (struct net_body){ .config = config };
    snprintf(where, sizeof where, "%s.", name);
    int r = json_is_object(value) ? body_fields(value, where, fields, sizeof fields / sizeof *fields, &body, e)
                                  : take_name(config, name, json_string(""), ret, e);
    if (r < 0)
        return r;
    if (config->network_ask != NETWORK_ANY)
        return err_set(e, EPERM, STEP_USAGE, "%s: this server allows only the networks that its configuration names",
                       name);
    *ret = NULL;
    if (!body.is_public && body.policy.mode == NET_NONE)
        return 0;       /* nothing is allowed */
    *ret = json_pack("{s:o,s:o,s:b}", "allow", show_rules(&body.policy, false), "deny", show_rules(&body.policy, true),
                     "public", body.is_public);
    return *ret ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, name);
}

/* Rules that were checked when they were taken. */
static void add_rules(struct net_policy *policy, const json_t *list, bool denies)
{
    struct err ignored;
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one)
        (void)!net_policy_add(policy, "net", json_string_value(one), denies, &ignored);
}

void net_policy_of(const struct config *config, const json_t *net, bool is_local, struct net_policy *ret)
{
    const struct config_network *network = json_is_string(net) ? find_network(config, json_string_value(net)) : NULL;

    *ret = (struct net_policy){ .mode = NET_NONE };
    if (network) {
        *ret = network->policy;
    } else if (json_is_string(net)) {
        ret->mode = strcmp(json_string_value(net), "public") == 0 ? NET_PUBLIC : NET_NONE;
    } else if (json_is_object(net)) {
        if (json_is_true(json_object_get(net, "public")))
            ret->mode = NET_PUBLIC;
        add_rules(ret, json_object_get(net, "allow"), false);
        add_rules(ret, json_object_get(net, "deny"), true);
    }
    ret->no_host = !is_local;
    for (uint32_t i = 0; i < config->network_deny.n_rules && ret->mode != NET_NONE; i++) {
        /* What is denied to all must hold; the rules of the box are fewer then. */
        if (ret->n_rules == NET_RULES)
            ret->n_rules--;
        memmove(&ret->rule[1], &ret->rule[0], ret->n_rules * sizeof ret->rule[0]);
        ret->rule[0] = config->network_deny.rule[i];
        ret->n_rules++;
    }
}
