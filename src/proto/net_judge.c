/* What the rules of the network decide about names and addresses. A denying rule overrides allowing ones; an address
 * is judged without its notation, so that none hides it. */
#include "proto/net.h"

#include <string.h>

static bool is_within(const struct net_address *address, const uint8_t *prefix, unsigned bits)
{
    if (memcmp(address->byte, prefix, bits / 8) != 0)
        return false;
    return bits % 8 == 0 || ((address->byte[bits / 8] ^ prefix[bits / 8]) & 0xff << (8 - bits % 8) & 0xff) == 0;
}

/* IPv4 in IPv6: the networks of the notations, and the byte where the IPv4 address begins. */
static const struct v4_notation {
    uint8_t prefix[12];
    uint8_t bits, at;
} notations[] = {
    { { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff }, 96, 12 },      /* mapped */
    { { 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff }, 96, 12 },            /* translated (RFC 2765) */
    { { 0 }, 96, 12 },                                            /* compatible; ::1 stays what it is */
    { { 0, 0x64, 0xff, 0x9b }, 96, 12 },                          /* NAT64 */
    { { 0x20, 0x02 }, 16, 2 },                                    /* 6to4 */
};

/* The notation that contains this network of IPv6; NULL: it is IPv4, or IPv6 proper. */
static const struct v4_notation *find_notation(const struct net_address *address, unsigned bits)
{
    if (address->size != 16 || (bits >= 127 && is_within(address, (const uint8_t[16]){ 0 }, 127)))
        return NULL;
    for (size_t i = 0; i < sizeof notations / sizeof *notations; i++)
        if (bits >= notations[i].bits && is_within(address, notations[i].prefix, notations[i].bits))
            return &notations[i];
    return NULL;
}

struct net_address net_address_unwrap(const struct net_address *address)
{
    const struct v4_notation *notation = find_notation(address, 128);
    struct net_address inner = { .size = 4 };

    if (!notation)
        return *address;
    memcpy(inner.byte, address->byte + notation->at, 4);
    return inner;
}

bool net_rule_unwrap(struct net_rule *rule)
{
    const struct v4_notation *notation = find_notation(&rule->address, rule->bits);
    struct net_address inner = { .size = 4 };

    if (!notation)
        return false;
    unsigned bits = rule->bits - notation->at * 8u;
    memcpy(inner.byte, rule->address.byte + notation->at, 4);
    rule->address = inner;
    rule->bits = (uint8_t)(bits < 32 ? bits : 32);
    return true;
}

bool net_address_is_loopback(const struct net_address *bare)
{
    static const uint8_t v4[4] = { 127 }, v6[16] = { [15] = 1 };

    return bare->size == 4 ? is_within(bare, v4, 8) : is_within(bare, v6, 128);
}

static bool covers_name(const struct net_rule *rule, const char *name)
{
    size_t length = strlen(name), suffix = strlen(rule->name);

    if (rule->kind == NET_NAME)
        return strcmp(rule->name, name) == 0;
    return rule->kind == NET_BELOW && length > suffix + 1 && name[length - suffix - 1] == '.' &&
           strcmp(name + length - suffix, rule->name) == 0;
}

static bool covers_port(const struct net_rule *rule, uint16_t port)
{
    return port >= rule->first && port <= rule->last;
}

static bool covers_all_ports(const struct net_rule *rule)
{
    return rule->first <= 1 && rule->last == 65535;
}

bool net_name_is_loopback(const char *name)
{
    static const char *const suffixes[] = { ".localhost", ".carrel.internal" };
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t n = strlen(suffixes[i]);
        if (length > n && strcmp(name + length - n, suffixes[i]) == 0)
            return true;
    }
    return false;
}

bool net_resolves(const struct net_policy *policy, const char *name)
{
    bool is_loopback = net_name_is_loopback(name), allowed = policy->mode == NET_PUBLIC && !is_loopback;

    if (policy->mode == NET_NONE)
        return false;
    for (uint32_t i = 0; i < policy->n_rules; i++) {
        const struct net_rule *rule = &policy->rule[i];
        if (!covers_name(rule, name))
            continue;
        if (rule->denies && covers_all_ports(rule))
            return false;
        allowed |= !rule->denies && (rule->kind == NET_NAME || !is_loopback);
    }
    return allowed;
}

enum net_reach net_judge_name(const struct net_policy *policy, const char *name, uint16_t port)
{
    bool is_loopback = net_name_is_loopback(name);
    enum net_reach reach = policy->mode == NET_PUBLIC && !is_loopback ? NET_BY_WILDCARD : NET_REFUSED;

    if (policy->mode == NET_NONE)
        return NET_REFUSED;
    for (uint32_t i = 0; i < policy->n_rules; i++) {
        const struct net_rule *rule = &policy->rule[i];
        if (!covers_name(rule, name) || !covers_port(rule, port))
            continue;
        if (rule->denies)
            return NET_REFUSED;
        if (rule->kind == NET_NAME)
            reach = is_loopback ? NET_BY_LOOPBACK : NET_BY_NAME;
        else if (reach == NET_REFUSED && !is_loopback)
            reach = NET_BY_WILDCARD;
    }
    return reach;
}

/* Networks that are not public; the first that contains an address determines its class. */
static const struct known_network {
    uint8_t        prefix[16];
    uint8_t        size, bits;
    enum net_class class;
} known[] = {
    { { 0 }, 4, 8, NET_IS_SPECIAL },
    { { 127 }, 4, 8, NET_IS_SPECIAL },
    { { 169, 254 }, 4, 16, NET_IS_SPECIAL },
    { { 100, 100, 100, 200 }, 4, 32, NET_IS_SPECIAL },      /* metadata services outside of 169.254/16 */
    { { 192, 0, 0, 192 }, 4, 32, NET_IS_SPECIAL },
    { { 168, 63, 129, 16 }, 4, 32, NET_IS_SPECIAL },
    { { 224 }, 4, 3, NET_IS_SPECIAL },                      /* multicast, reserved, broadcast */
    { { 10 }, 4, 8, NET_IS_PRIVATE },
    { { 100, 64 }, 4, 10, NET_IS_PRIVATE },
    { { 172, 16 }, 4, 12, NET_IS_PRIVATE },
    { { 192, 168 }, 4, 16, NET_IS_PRIVATE },
    { { 0 }, 16, 127, NET_IS_SPECIAL },                     /* :: and ::1 */
    { { 0xfe, 0x80 }, 16, 10, NET_IS_SPECIAL },
    { { 0xfe, 0xc0 }, 16, 10, NET_IS_PRIVATE },
    { { 0xff }, 16, 8, NET_IS_SPECIAL },
    { { 0x20, 0x01, 0, 0 }, 16, 32, NET_IS_SPECIAL },       /* Teredo hides an IPv4 address */
    { { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 }, 16, 48, NET_IS_PRIVATE },
    { { 0xfd, 0x00, 0x0e, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54 }, 16, 128, NET_IS_SPECIAL },
    { { 0xfd, 0x20, 0x00, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54 }, 16, 128, NET_IS_SPECIAL },
    { { 0xfd, 0x00, 0x00, 0xc1, 0, 0, 0, 0, 0, 0, 0, 0, 0xa9, 0xfe, 0xa9, 0xfe }, 16, 128, NET_IS_SPECIAL },
    { { 0xfd, 0x00, 0x00, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x42 }, 16, 128, NET_IS_SPECIAL },
    { { 0xfc }, 16, 7, NET_IS_PRIVATE },
};

static const struct known_network *find_network(const struct net_address *bare)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (bare->size == known[i].size && is_within(bare, known[i].prefix, known[i].bits))
            return &known[i];
    return NULL;
}

enum net_class net_class(const struct net_address *address)
{
    struct net_address bare = net_address_unwrap(address);
    const struct known_network *network = find_network(&bare);

    return network ? network->class : NET_IS_PUBLIC;
}

/* Whether the rule covers this unwrapped address. Loopback, metadata services and the like must be named: 0.0.0.0/0
 * does not cover them, nor the host itself. */
static bool names_address(const struct net_rule *rule, const struct net_address *bare, bool is_own)
{
    const struct known_network *network = find_network(bare);
    bool is_special = network && network->class == NET_IS_SPECIAL;

    if (rule->address.size != bare->size || !is_within(bare, rule->address.byte, rule->bits))
        return false;
    return rule->denies || (is_special ? rule->bits >= network->bits : !is_own || rule->bits >= 8);
}

/* 2000::/3 denies 6to4, too, although that is judged as IPv4. */
static bool denies_address(const struct net_rule *rule, const struct net_address *address)
{
    struct net_address bare = net_address_unwrap(address);

    return rule->denies && (names_address(rule, &bare, false) || names_address(rule, address, false));
}

bool net_judge_address(const struct net_policy *policy, enum net_reach reach, const struct net_address *address,
                       uint16_t port, bool is_own)
{
    struct net_address bare = net_address_unwrap(address);
    bool is_named = false;

    if (policy->mode == NET_NONE)
        return false;
    for (uint32_t i = 0; i < policy->n_rules; i++) {
        const struct net_rule *rule = &policy->rule[i];
        if (rule->kind != NET_ADDRESSES || !covers_port(rule, port))
            continue;
        if (denies_address(rule, address))
            return false;
        is_named |= !rule->denies && names_address(rule, &bare, is_own);
    }
    enum net_class class = net_class(address);
    bool is_host = is_own || class == NET_IS_SPECIAL;
    if (is_host && policy->no_host)
        return false;
    if (is_named)
        return true;
    if (reach == NET_BY_LOOPBACK)
        return net_address_is_loopback(&bare);
    if (is_host)
        return false;
    if (reach == NET_BY_NAME)
        return true;
    return class == NET_IS_PUBLIC && (reach == NET_BY_WILDCARD || policy->mode == NET_PUBLIC);
}

/* --- explanations --- */

const struct net_rule *net_find_denial(const struct net_policy *policy, const char *what, uint16_t port)
{
    struct net_address address;
    bool is_address = net_address_parse(what, &address);

    for (uint32_t i = 0; i < policy->n_rules; i++) {
        const struct net_rule *rule = &policy->rule[i];
        if (!rule->denies || !(port ? covers_port(rule, port) : covers_all_ports(rule)))
            continue;
        if (is_address ? rule->kind == NET_ADDRESSES && denies_address(rule, &address) : covers_name(rule, what))
            return rule;
    }
    return NULL;
}

bool net_rule_covers(const struct net_rule *wide, const struct net_rule *narrow)
{
    bool has_ports = covers_all_ports(wide) || (wide->first <= narrow->first && wide->last >= narrow->last);

    if (!has_ports || (wide->kind == NET_ADDRESSES) != (narrow->kind == NET_ADDRESSES))
        return false;
    if (narrow->kind == NET_ADDRESSES)
        return wide->address.size == narrow->address.size && wide->bits <= narrow->bits &&
               is_within(&narrow->address, wide->address.byte, wide->bits);
    if (narrow->kind == NET_BELOW && wide->kind == NET_NAME)
        return false;
    return covers_name(wide, narrow->name) || (wide->kind == narrow->kind && strcmp(wide->name, narrow->name) == 0);
}
