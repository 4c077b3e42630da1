#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "front/config/config.h"
#include "front/net/net.h"
#include "front/request/fields.h"
#include "proto/broker.h"

struct net_body {
    const struct config *config;
    bool                 is_public;
    struct net_policy    policy;
    struct net_bounds    bounds;
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

static int take_connections(const char *name, json_t *v, void *into, struct err *e)
{
    struct net_body *body = into;

    return body_count(name, v, 1, body->config->network_connections, &body->bounds.connections, e);
}

static int take_bandwidth(const char *name, json_t *v, void *into, struct err *e)
{
    struct net_body *body = into;
    uint64_t bytes, most = body->config->network_bandwidth;
    int r = body_size(name, v, &bytes, e);

    if (r < 0)
        return r;
    if (bytes < NET_BYTES_LEAST || (most && bytes > most))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be at least %d bytes in a second%s", name, NET_BYTES_LEAST,
                       most ? ", and at most what the server gives (network.bandwidth)" : "");
    body->bounds.bytes_per_second = bytes;
    return 0;
}

/* Rules in their shortest form. */
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

/* A rule that could never allow anything is not taken as if it did. name: "net". */
static int check_denied(const struct config *config, const char *name, const struct net_policy *policy, struct err *e)
{
    char asked[NET_RULE_TEXT], denial[NET_RULE_TEXT];
    uint32_t n = 0;

    for (uint32_t i = 0; i < policy->n_rules; i++) {
        const struct net_rule *rule = &policy->rule[i];
        if (rule->denies)
            continue;
        for (uint32_t k = 0; k < config->network_deny.n_rules; k++)
            if (net_rule_covers(&config->network_deny.rule[k], rule)) {
                net_rule_show(rule, asked);
                net_rule_show(&config->network_deny.rule[k], denial);
                return err_set(e, EPERM, STEP_USAGE, "%s.allow[%u]: %s is denied by this server (network.deny %s)",
                               name, n, parse_quote(asked).text, parse_quote(denial).text);
            }
        n++;
    }
    return 0;
}

int net_take(const struct config *config, const char *name, json_t *value, json_t **ret, struct err *e)
{
    static const struct body_field fields[] = {
        { "allow", take_allow }, { "deny", take_deny }, { "public", take_public },
        { "connections", take_connections }, { "bandwidth", take_bandwidth }
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
    if (!json_is_object(value))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be \"none\", \"public\", an object with allow and deny, or a "
                       "network that the server's configuration names", name);
    int r = body_fields(value, where, fields, sizeof fields / sizeof *fields, &body, e);
    if (r < 0)
        return r;
    if (body.policy.n_rules + config->network_deny.n_rules > NET_RULES)
        return err_set(e, E2BIG, STEP_USAGE, "%s: a box may have %u rules, because the server adds %u (network.deny)",
                       name, NET_RULES - config->network_deny.n_rules, config->network_deny.n_rules);
    if (config->network_ask != NETWORK_ANY)
        return err_set(e, EPERM, STEP_USAGE, "%s: this server allows only the networks that its configuration names",
                       name);
    if ((r = check_denied(config, name, &body.policy, e)) < 0)
        return r;
    *ret = NULL;
    if (!body.is_public && body.policy.mode == NET_NONE && (body.bounds.connections || body.bounds.bytes_per_second))
        return err_set(e, EINVAL, STEP_USAGE, "%s: connections and bandwidth go with rules; say all of them", name);
    if (!body.is_public && body.policy.n_rules == 0)
        return 0;       /* no connection is allowed; rules that only deny are kept for later */
    *ret = json_pack("{s:o,s:o,s:b}", "allow", show_rules(&body.policy, false), "deny", show_rules(&body.policy, true),
                     "public", body.is_public);
    if (*ret && body.bounds.connections)
        json_object_set_new(*ret, "connections", json_integer(body.bounds.connections));
    if (*ret && body.bounds.bytes_per_second)
        json_object_set_new(*ret, "bandwidth", json_integer((json_int_t)body.bounds.bytes_per_second));
    return *ret ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, name);
}

bool net_allows(const json_t *net)
{
    return net && !(json_is_object(net) && json_array_size(json_object_get(net, "allow")) == 0 &&
                    !json_is_true(json_object_get(net, "public")));
}

void net_bounds_of(const struct config *config, const json_t *net, struct net_bounds *ret)
{
    uint64_t connections = (uint64_t)json_integer_value(json_object_get(net, "connections"));
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(net, "bandwidth")), most = config->network_bandwidth;

    /* The configuration may say less by now than when the box was made. */
    ret->connections = connections && connections < config->network_connections ? (uint32_t)connections
                                                                                : config->network_connections;
    ret->bytes_per_second = bytes && (!most || bytes < most) ? bytes : most;
}

/* Adds rules that were checked before. */
static void add_rules(struct net_policy *policy, const json_t *list, bool denies)
{
    struct err ignored;
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one)
        (void)!net_policy_add(policy, "net", json_string_value(one), denies, &ignored);
}

/* Drops the last allowing rule. False: there is none. */
static bool drop_allowing(struct net_policy *policy)
{
    uint32_t i = policy->n_rules;

    while (i > 0 && policy->rule[i - 1].denies)
        i--;
    if (i == 0)
        return false;
    memmove(&policy->rule[i - 1], &policy->rule[i], (policy->n_rules - i) * sizeof policy->rule[0]);
    policy->n_rules--;
    return true;
}

/* They come first, so that no other rule takes their place. */
static void add_keys(struct net_policy *policy, const json_t *keys)
{
    char rule[NET_NAME_SIZE + 8];
    struct err ignored;
    size_t i;
    json_t *key;

    json_array_foreach(keys, i, key) {
        snprintf(rule, sizeof rule, "%s:%d", json_string_value(json_object_get(key, "host")), BROKER_PORT);
        (void)!net_policy_add(policy, "keys", rule, false, &ignored);
    }
}

static void add_network(struct net_policy *policy, const struct net_policy *network)
{
    policy->mode = network->mode > policy->mode ? network->mode : policy->mode;
    for (uint32_t i = 0; i < network->n_rules && policy->n_rules < NET_RULES; i++) {
        policy->rule[policy->n_rules] = network->rule[i];
        policy->rule[policy->n_rules++].origin = NET_OF_NETWORK;
    }
}

void net_policy_of(const struct config *config, const json_t *net, const json_t *keys, bool is_local,
                   struct net_policy *ret)
{
    const struct config_network *network = json_is_string(net) ? find_network(config, json_string_value(net)) : NULL;

    *ret = (struct net_policy){ .mode = NET_NONE };
    add_keys(ret, keys);
    if (network) {
        add_network(ret, &network->policy);
    } else if (json_is_string(net)) {
        ret->mode = strcmp(json_string_value(net), "public") == 0 ? NET_PUBLIC : ret->mode;
    } else if (json_is_object(net)) {
        if (json_is_true(json_object_get(net, "public")))
            ret->mode = NET_PUBLIC;
        add_rules(ret, json_object_get(net, "allow"), false);
        add_rules(ret, json_object_get(net, "deny"), true);
    }
    ret->no_host = !is_local;
    if (ret->mode == NET_NONE || config->network_deny.n_rules == 0)
        return;
    /* If the configuration denies more since the box was made, the box loses allowing rules, and gets all denying
     * ones. */
    while (ret->n_rules + config->network_deny.n_rules > NET_RULES && drop_allowing(ret))
        ;
    if (ret->n_rules + config->network_deny.n_rules > NET_RULES) {
        *ret = (struct net_policy){ .mode = NET_NONE };
        return;
    }
    for (uint32_t i = 0; i < config->network_deny.n_rules; i++) {
        ret->rule[ret->n_rules] = config->network_deny.rule[i];
        ret->rule[ret->n_rules++].origin = NET_OF_SERVER;
    }
}

int net_check_keys(const struct config *config, const json_t *net, const json_t *keys, struct err *e)
{
    static struct net_policy whole, alone;
    size_t i;
    json_t *key;

    if (!keys)
        return 0;
    if (config->network_ask == NETWORK_NONE)
        return err_set(e, EPERM, STEP_USAGE, "keys: this server gives boxes no network (network.ask)");
    net_policy_of(config, net, keys, true, &whole);
    net_policy_of(config, net, NULL, true, &alone);
    json_array_foreach(keys, i, key) {
        const char *host = json_string_value(json_object_get(key, "host"));
        if (net_judge_name(&whole, host, BROKER_PORT) == NET_REFUSED)
            return err_set(e, EINVAL, STEP_USAGE, "keys[%zu]: %s is denied by net, or by this server (network.deny)", i,
                           host);
        if (config->network_ask == NETWORK_NAMED && net_judge_name(&alone, host, BROKER_PORT) == NET_REFUSED)
            return err_set(e, EPERM, STEP_USAGE, "keys[%zu]: this server allows only the networks that its "
                           "configuration names; give net one that allows %s", i, host);
    }
    return 0;
}
