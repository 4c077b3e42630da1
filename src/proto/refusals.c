#define _GNU_SOURCE
#include "proto/refusals.h"

#include <stdio.h>
#include <string.h>

#ifndef CARREL_INDEX
#define CARREL_INDEX ""     /* as in cli/layers/index.c; mk/build.mk */
#endif

enum { SHOWN = 3, PORT_HTTP = 80, PORT_HTTPS = 443 };

static void copy_printable(const char *from, size_t most, char *to, size_t size)
{
    size_t n = 0;

    for (; n + 1 < size && n < most && from[n]; n++)
        to[n] = (char)(from[n] > ' ' && from[n] < 0x7f ? from[n] : '?');
    to[n] = '\0';
}

static struct net_refusal *find(struct refusals *r, const struct net_refusal *one)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->list[i].port == one->port && r->list[i].why == one->why && strcmp(r->list[i].what, one->what) == 0)
            return &r->list[i];
    return NULL;
}

/* A free place, or that of the oldest entry. */
static struct net_refusal *take_place(struct refusals *r)
{
    struct net_refusal *oldest = r->list;

    if (r->n < REFUSALS_MOST)
        return &r->list[r->n++];
    for (size_t i = 1; i < r->n; i++)
        if (r->list[i].last_us < oldest->last_us)
            oldest = &r->list[i];
    r->more++;
    if (r->replaced_us < oldest->last_us)
        r->replaced_us = oldest->last_us;
    return oldest;
}

const struct net_refusal *refusals_add(struct refusals *r, const struct egress_refused *word, uint64_t now_us)
{
    struct net_refusal one = { .port = word->port, .why = (uint8_t)word->why, .count = word->count,
                               .last_us = word->last_us < now_us ? word->last_us : now_us };

    copy_printable(word->what, sizeof word->what, one.what, sizeof one.what);
    copy_printable(word->other, sizeof word->other, one.other, sizeof one.other);
    struct net_refusal *place = find(r, &one);
    if (!place)
        place = take_place(r);
    *place = one;
    return place;
}

const struct net_refusal *refusals_add_unrouted(struct refusals *r, uint64_t now_us)
{
    struct egress_refused word = { .why = EGRESS_NO_ROUTE, .count = 1, .what = "addresses", .last_us = now_us };

    for (size_t i = 0; i < r->n; i++)
        if (r->list[i].why == EGRESS_NO_ROUTE)
            word.count = r->list[i].count + 1;
    return refusals_add(r, &word, now_us);
}

const char *net_refusal_why(unsigned why)
{
    static const char *const words[] = {
        [EGRESS_NOT_ALLOWED] = "not allowed",
        [EGRESS_BAD_ADDRESS] = "its address is not allowed",
        [EGRESS_OTHER_NAME] = "another TLS server name",
        [EGRESS_TOO_MANY] = "too many connections",
        [EGRESS_UNRESOLVED] = "the host's resolver did not answer",
        [EGRESS_UDP] = "UDP is not carried",
        [EGRESS_NO_BROKER] = "the process that has its key is not there",
        [EGRESS_TOO_MANY_NAMES] = "too many names at once",
        [EGRESS_NO_ROUTE] = "the box has no network",
    };
    _Static_assert(sizeof words / sizeof *words == EGRESS_WHYS, "each reason has its words");

    return why < EGRESS_WHYS ? words[why] : "refused";
}

static const struct net_rule *find_denial(const struct net_refusal *one, const struct net_policy *policy)
{
    const struct net_rule *denial = NULL;

    if (one->why == EGRESS_NOT_ALLOWED || one->why == EGRESS_BAD_ADDRESS)
        denial = net_find_denial(policy, one->what, one->port);
    if (!denial && one->why == EGRESS_BAD_ADDRESS)
        denial = net_find_denial(policy, one->other, one->port);
    return denial;
}

bool net_refusal_denial(const struct net_refusal *one, const struct net_policy *policy, const char *deny,
                        struct buf *out)
{
    const struct net_rule *denial = find_denial(one, policy);
    char shown[NET_RULE_TEXT];

    if (!denial)
        return false;
    net_rule_show(denial, shown);
    if (denial->origin == NET_OF_SERVER)
        buf_printf(out, "denied by the server's network.deny %s", shown);
    else if (denial->origin == NET_OF_NETWORK)
        buf_printf(out, "denied by !%s of its network, in the server's configuration", shown);
    else
        buf_printf(out, "denied by %s%s", deny, shown);
    return true;
}

void net_refusal_rule(const struct net_refusal *one, const struct net_policy *policy, char ret[NET_RULE_TEXT])
{
    struct net_address address;
    /* A name that resolves to an address of the host or the like: only a rule for that address allows it. */
    bool by_address = one->why == EGRESS_BAD_ADDRESS && net_address_parse(one->other, &address) &&
                      net_class(&address) != NET_IS_PRIVATE;
    const char *what = by_address ? one->other : one->what;
    bool is_v6 = net_address_parse(what, &address) && address.size == 16;
    struct net_rule ignored;
    struct err e;

    ret[0] = '\0';
    if ((one->why != EGRESS_NOT_ALLOWED && one->why != EGRESS_BAD_ADDRESS) || find_denial(one, policy))
        return;
    if (one->port == 0 || (!by_address && (one->port == PORT_HTTP || one->port == PORT_HTTPS)))
        snprintf(ret, NET_RULE_TEXT, "%s", what);
    else
        snprintf(ret, NET_RULE_TEXT, is_v6 ? "[%s]:%u" : "%s:%u", what, one->port);
    if (net_rule_parse("rule", ret, false, &ignored, &e) < 0)      /* "localhost", 127.0.0.1 */
        ret[0] = '\0';
}

static void write_target(const struct net_refusal *one, struct buf *out)
{
    struct net_address address;
    bool is_v6 = net_address_parse(one->what, &address) && address.size == 16;

    if (one->why == EGRESS_NO_ROUTE)
        buf_add_text(out, "connections to ");
    buf_printf(out, is_v6 && one->port ? "[%s]" : "%s", one->what);
    if (one->port)
        buf_printf(out, ":%u", one->port);
}

/* Metadata services, loopback and the like can be allowed, but should not be recommended. */
static bool is_advisable(const struct net_refusal *one, const struct net_policy *policy)
{
    struct net_address address;
    const char *what = one->why == EGRESS_BAD_ADDRESS ? one->other : one->what;
    char rule[NET_RULE_TEXT];

    net_refusal_rule(one, policy, rule);
    return rule[0] && !(net_address_parse(what, &address) && net_class(&address) == NET_IS_SPECIAL);
}

/* " (it leads to 10.0.0.1, denied by --deny 10.0.0.0/8)", or one of the two. */
static void write_judgement(const struct net_refusal *one, const struct net_policy *policy, const char *deny,
                            struct buf *out)
{
    bool leads = one->why == EGRESS_BAD_ADDRESS, is_denied = find_denial(one, policy) != NULL;

    if (!leads && !is_denied)
        return;
    buf_add_text(out, " (");
    if (leads)
        buf_printf(out, "it leads to %s%s", one->other, is_denied ? ", " : "");
    (void)net_refusal_denial(one, policy, deny, out);
    buf_add_char(out, ')');
}

static void write_one(const struct net_refusal *one, const struct net_policy *policy, const char *deny, struct buf *out)
{
    write_target(one, out);
    switch (one->why) {
    case EGRESS_NOT_ALLOWED:
    case EGRESS_BAD_ADDRESS:
        write_judgement(one, policy, deny, out);
        break;
    case EGRESS_OTHER_NAME:
        buf_printf(out, " (a TLS connection that asked for %s)", one->other[0] ? one->other : "no server name");
        break;
    case EGRESS_TOO_MANY:
        buf_add_text(out, " (too many connections at once)");
        break;
    case EGRESS_NO_BROKER:
        buf_add_text(out, " (the process that has its key is not there)");
        break;
    case EGRESS_UDP:
        buf_add_text(out, " (UDP; only TCP and names are carried)");
        break;
    case EGRESS_TOO_MANY_NAMES:
        buf_add_text(out, " (the box looks up too many names at once)");
        break;
    case EGRESS_UNRESOLVED:
        buf_add_text(out, " (the host's resolver did not answer; see its /etc/resolv.conf)");
        break;
    default:
        break;
    }
}

bool refusals_write(const struct refusals *r, uint64_t since_us, const struct net_policy *policy, const char *deny,
                    struct buf *out, char rule[NET_RULE_TEXT])
{
    bool has_network = policy->mode != NET_NONE;
    const struct net_refusal *told[SHOWN], *advised = NULL;
    size_t n = 0;
    bool has_unrouted = false;

    for (size_t i = 0; i < r->n; i++)
        if (r->list[i].last_us >= since_us) {
            has_unrouted |= r->list[i].why == EGRESS_NO_ROUTE;
            if (n < SHOWN)
                told[n] = &r->list[i];
            if (!advised && is_advisable(&r->list[i], policy))
                advised = &r->list[i];
            n++;
        }
    rule[0] = '\0';
    if (n == 0)
        return false;
    buf_add_text(out, has_network ? "the network of this box refused " : "this box has no network: ");
    for (size_t i = 0; i < n && i < SHOWN; i++) {
        if (i > 0)
            buf_add_text(out, ", ");
        write_one(told[i], policy, deny, out);
    }
    if (n > SHOWN)
        buf_printf(out, " and %s%zu more", r->more && r->replaced_us >= since_us ? "at least " : "", n - SHOWN);
    if (!has_network)
        buf_add_text(out, n > 1 || told[0]->why == EGRESS_NO_ROUTE ? " were refused" : " was refused");
    if (has_unrouted)
        buf_add_text(out, "; rules can name addresses, too");
    if (advised)
        net_refusal_rule(advised, policy, rule);
    return true;
}

bool refusals_are_of_index(const char *rule)
{
    const char *host = strstr(CARREL_INDEX, "://");
    size_t length = host ? strcspn(host + 3, ":/") : 0;

    return length > 0 && rule && strncmp(rule, host + 3, length) == 0 && (!rule[length] || rule[length] == ':');
}

void refusals_advise(const char *before, const char *rule, const char *after, const char *packages, struct buf *out)
{
    if (rule && rule[0])
        buf_printf(out, "; allow it with %s%s%s", before, rule, after);
    if (packages && refusals_are_of_index(rule))
        buf_printf(out, ", or let Python packages be installed for the box: %s", packages);
}
