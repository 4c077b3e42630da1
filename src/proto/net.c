/* Rules of the network as text. */
#define _GNU_SOURCE
#include "proto/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/parse.h"

enum { LABEL_MAX = 63, NAME_MAX_BYTES = 253 };

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* The length of the name at the start of the text. */
static size_t name_ends(const char *text, size_t length)
{
    size_t label = 0;

    for (size_t i = 0; i < length; i++) {
        if (text[i] == '.' && label > 0)
            label = 0;
        else if (is_letter(text[i]) && label < LABEL_MAX)
            label++;
        else
            return i;
    }
    return label > 0 || length == 0 ? length : length - 1;
}

/* The start of a last label that consists of digits only, or length. No name has one: it is a mistyped address, or a
 * notation that resolvers read as an address. */
static size_t number_begins(const char *text, size_t length)
{
    size_t at = length;

    while (at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9')
        at--;
    return at == 0 || text[at - 1] == '.' ? at : length;
}

bool net_name_clean(const char *text, size_t length, char ret[NET_NAME_SIZE])
{
    if (length > 0 && text[length - 1] == '.')
        length--;
    if (length == 0 || length > NAME_MAX_BYTES || name_ends(text, length) != length ||
        number_begins(text, length) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        ret[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]);
    ret[length] = '\0';
    return true;
}

bool net_address_parse(const char *text, struct net_address *ret)
{
    if (inet_pton(AF_INET, text, ret->byte) == 1)
        ret->size = 4;
    else if (inet_pton(AF_INET6, text, ret->byte) == 1)
        ret->size = 16;
    else
        return false;
    return true;
}

void net_address_show(const struct net_address *address, char ret[NET_ADDRESS_TEXT])
{
    if (!inet_ntop(address->size == 4 ? AF_INET : AF_INET6, address->byte, ret, NET_ADDRESS_TEXT))
        ret[0] = '\0';
}

bool net_address_is_stand_in(const struct net_address *address)
{
    return address->size == 4 && address->byte[0] == 198 && (address->byte[1] & 0xfe) == 18;
}

/* --- rules as text --- */

static int refuse(const char *option, const char *text, size_t at, const char *why, struct err *e)
{
    return err_set(e, EINVAL, STEP_USAGE, "%s '%s', character %zu: %s", option, parse_quote(text).text, at + 1, why);
}

/* "443" or "8000-8010". */
static int parse_ports(const char *option, const char *text, const char *ports, struct net_rule *ret, struct err *e)
{
    char *end;
    size_t at = (size_t)(ports - text);
    unsigned long first = strtoul(ports, &end, 10), last = first;

    if (ports[0] < '0' || ports[0] > '9')
        return refuse(option, text, at, "a port (443) or a range of ports (8000-8010) must stand here", e);
    if (*end == '-' && end[1] >= '0' && end[1] <= '9')
        last = strtoul(end + 1, &end, 10);
    if (*end)
        return refuse(option, text, (size_t)(end - text), "nothing may follow the port", e);
    if (first < 1 || last > 65535 || first > last)
        return refuse(option, text, at, "ports are numbers from 1 to 65535, the lower one first", e);
    ret->first = (uint16_t)first;
    ret->last = (uint16_t)last;
    return 0;
}

static bool has_host_bits(const struct net_address *address, unsigned bits)
{
    for (unsigned i = bits; i < address->size * 8u; i++)
        if (address->byte[i / 8] & 0x80 >> i % 8)
            return true;
    return false;
}

/* Rules are compared with unwrapped addresses: one that stayed in IPv6 notation would never match. All of IPv4, or 0/8,
 * in such a notation is hardly meant so, and "::/104" has addresses of IPv6 in it. */
static int unwrap_rule(const char *option, const char *text, size_t at, struct net_rule *rule, struct err *e)
{
    char shown[NET_RULE_TEXT];

    if (!net_rule_unwrap(rule) || (rule->bits >= 8 && rule->address.byte[0] != 0))
        return 0;
    net_rule_show(rule, shown);
    return err_set(e, EINVAL, STEP_USAGE, "%s '%s', character %zu: IPv4 addresses in this notation are judged as IPv4; "
                   "write %s", option, parse_quote(text).text, at + 1, shown);
}

/* at: where it stands in the text. */
static int settle_addresses(const char *option, const char *text, size_t at, struct net_rule *rule, struct err *e)
{
    int r = unwrap_rule(option, text, at, rule, e);

    if (r < 0)
        return r;
    if (net_address_is_stand_in(&rule->address))
        return refuse(option, text, at, "addresses of 198.18.0.0/15 stand for names in a box; write the name instead",
                      e);
    if (!rule->denies && rule->bits >= 8 && net_address_is_loopback(&rule->address))
        return refuse(option, text, at, "in a box that is the box itself; a server of the host is "
                      "host.carrel.internal:PORT", e);
    return 0;
}

/* Reads length bytes of "10.1.0.0/16" or "2001:db8::/32". 1: done; 0: no address. */
static int parse_addresses(const char *option, const char *text, const char *from, size_t length, struct net_rule *ret,
                           struct err *e)
{
    char copy[NET_ADDRESS_TEXT + 8], *slash, *end;

    if (length >= sizeof copy)
        return 0;
    memcpy(copy, from, length);
    copy[length] = '\0';
    if ((slash = strchr(copy, '/')))
        *slash = '\0';
    if (!net_address_parse(copy, &ret->address))
        return 0;
    ret->kind = NET_ADDRESSES;
    ret->bits = (uint8_t)(ret->address.size * 8);
    if (!slash)
        return 1;
    size_t at = (size_t)(from - text) + (size_t)(slash - copy) + 1;
    unsigned long bits = strtoul(slash + 1, &end, 10);
    if (slash[1] < '0' || slash[1] > '9' || *end || bits > ret->bits)
        return refuse(option, text, at, "the number of bits of the network must stand here, as in 10.1.0.0/16", e);
    if (has_host_bits(&ret->address, (unsigned)bits))
        return refuse(option, text, at, "the address has bits beyond its network; write 10.1.0.0/16, not 10.1.2.3/16",
                      e);
    ret->bits = (uint8_t)bits;
    return 1;
}

/* "localhost" itself is the box's own loopback for every program there; names below it, and below carrel.internal, are
 * servers of the host, and each must be meant. */
static int check_loopback(const char *option, const char *text, const struct net_rule *rule, struct err *e)
{
    bool is_bare = rule->kind == NET_NAME && strcmp(rule->name, "localhost") == 0;
    char below[NET_NAME_SIZE + 2];

    snprintf(below, sizeof below, "x.%s", rule->name);
    if (!is_bare && (rule->kind != NET_BELOW || !net_name_is_loopback(below)))
        return 0;
    return refuse(option, text, 0,
                  is_bare ? "in a box that is the box itself; a server of the host is host.carrel.internal:PORT"
                          : "a server of the host must be named exactly, as in host.carrel.internal:8080", e);
}

static int parse_name(const char *option, const char *text, size_t length, struct net_rule *ret, struct err *e)
{
    size_t skip = strncmp(text, "*.", 2) == 0 ? 2 : 0;

    ret->kind = skip ? NET_BELOW : NET_NAME;
    if (length == 0)
        return refuse(option, text, 0, "a name or an address must stand here", e);
    if (length == 1 && text[0] == '*')
        return refuse(option, text, 0, "this would be every name; ask for the network 'public' instead", e);
    if (length - skip > NAME_MAX_BYTES + 1)
        return refuse(option, text, NAME_MAX_BYTES + skip, "a name has at most 253 characters", e);
    if (net_name_clean(text + skip, length - skip, ret->name))
        return ret->denies ? 0 : check_loopback(option, text, ret, e);
    size_t bare = length - (text[length - 1] == '.'), number = number_begins(text, bare);
    if (number < bare && name_ends(text + skip, bare - skip) == bare - skip)
        return refuse(option, text, number, "a name does not end in a number, and this is no address", e);
    size_t at = skip + name_ends(text + skip, length - skip);
    return refuse(option, text, at < length ? at : length - 1,
                  text[at] == '*' ? "a star may only be the first label, as in *.example.org"
                  : text[at] & 0x80
                      ? "letters beyond ASCII are written as DNS has them, as in xn--bcher-kva.example.org"
                      : "names have letters, digits, '-', '_' and single dots, at most 63 between two dots",
                  e);
}

int net_rule_parse(const char *option, const char *text, bool denies, struct net_rule *ret, struct err *e)
{
    struct net_rule rule = { .denies = denies, .first = 0, .last = 65535 };
    const char *bracket = text[0] == '[' ? strchr(text, ']') : NULL, *port = NULL, *scheme = strstr(text, "://");
    size_t at = text[0] == '[' ? 1 : 0;
    int r = 0;

    if (scheme)
        return refuse(option, text, (size_t)(scheme - text),
                      "a rule has no scheme and no path: write index.example.org, or index.example.org:443", e);
    if (text[0] == '[') {
        r = bracket ? parse_addresses(option, text, text + 1, (size_t)(bracket - text) - 1, &rule, e) : 0;
        if (r < 0)
            return r;
        if (r == 0 || rule.address.size != 16)
            return refuse(option, text, 1, "an IPv6 address or network must stand in brackets, as in [2001:db8::1]:443",
                          e);
        if (bracket[1] && bracket[1] != ':')
            return refuse(option, text, (size_t)(bracket - text) + 1, "only ':' and a port may follow", e);
        port = bracket[1] ? bracket + 2 : NULL;
    } else {
        const char *colon = strchr(text, ':');
        size_t length = strlen(text);
        /* Two colons are IPv6 without a port. */
        if (colon && !strchr(colon + 1, ':')) {
            length = (size_t)(colon - text);
            port = colon + 1;
        }
        r = parse_addresses(option, text, text, length, &rule, e);
        if (r == 0)
            r = parse_name(option, text, length, &rule, e);
        if (r < 0)
            return r;
    }
    if (rule.kind == NET_ADDRESSES && (r = settle_addresses(option, text, at, &rule, e)) < 0)
        return r;
    if (port && (r = parse_ports(option, text, port, &rule, e)) < 0)
        return r;
    *ret = rule;
    return 0;
}

void net_rule_show(const struct net_rule *rule, char ret[NET_RULE_TEXT])
{
    char what[NET_ADDRESS_TEXT + 8], ports[16] = "";
    size_t length;

    if (rule->first == rule->last)
        snprintf(ports, sizeof ports, ":%u", rule->first);
    else if (rule->first > 0 || rule->last < 65535)
        snprintf(ports, sizeof ports, ":%u-%u", rule->first, rule->last);
    if (rule->kind != NET_ADDRESSES) {
        snprintf(ret, NET_RULE_TEXT, "%s%s%s", rule->kind == NET_BELOW ? "*." : "", rule->name, ports);
        return;
    }
    net_address_show(&rule->address, what);
    length = strlen(what);
    if (rule->bits < rule->address.size * 8)
        snprintf(what + length, sizeof what - length, "/%u", rule->bits);
    bool brackets = rule->address.size == 16 && ports[0];
    snprintf(ret, NET_RULE_TEXT, "%s%s%s%s", brackets ? "[" : "", what, brackets ? "]" : "", ports);
}

int net_policy_add(struct net_policy *policy, const char *option, const char *text, bool denies, struct err *e)
{
    if (policy->n_rules == NET_RULES)
        return err_set(e, E2BIG, STEP_USAGE, "%s: a box may have %d rules for the network", option, NET_RULES);
    int r = net_rule_parse(option, text, denies, &policy->rule[policy->n_rules], e);
    if (r < 0)
        return r;
    policy->n_rules++;
    if (!denies && policy->mode == NET_NONE)
        policy->mode = NET_LISTED;
    return 0;
}

int net_policy_read(const char *option, const char *text, struct net_policy *ret, struct err *e)
{
    struct net_policy policy = { .mode = NET_NONE };
    char word[NET_RULE_TEXT];
    int r = 0;

    for (const char *at = text + strspn(text, " ,"); *at && r == 0; at += strspn(at, " ,")) {
        size_t length = strcspn(at, " ,");
        if (length >= sizeof word)
            return err_set(e, EINVAL, STEP_USAGE, "%s: '%s' is too long for a rule", option, parse_quote(at).text);
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        at += length;
        if (strcmp(word, "public") == 0)
            policy.mode = NET_PUBLIC;
        else
            r = net_policy_add(&policy, option, word[0] == '!' ? word + 1 : word, word[0] == '!', e);
    }
    if (r == 0)
        *ret = policy;
    return r;
}

int net_bounds_parse(const char *option, const char *text, struct net_bounds *ret, struct err *e)
{
    struct net_bounds bounds = *ret;
    char word[64], name[80];
    int r = 0;

    for (const char *at = text; r == 0 && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        char *equals = strchr(word, '=');
        if (equals)
            *equals = '\0';
        snprintf(name, sizeof name, "%s %s=", option, word);
        if (equals && strcmp(word, "connections") == 0)
            r = parse_count(name, equals + 1, 1, NET_CONNECTIONS_MOST, &bounds.connections, e);
        else if (equals && strcmp(word, "bandwidth") == 0)
            r = parse_size(name, equals + 1, NET_BYTES_LEAST, &bounds.bytes_per_second, e);
        else
            r = err_set(e, EINVAL, STEP_USAGE, "%s %s: use connections=100, bandwidth=4M (bytes in a second), or both "
                        "with a comma between them", option, parse_quote(text).text);
    }
    if (r == 0)
        *ret = bounds;
    return r;
}

static bool is_sane(const struct net_rule *rule)
{
    struct net_rule copy = *rule;
    char clean[NET_NAME_SIZE];
    size_t length = strnlen(rule->name, sizeof rule->name);

    if (rule->kind > NET_ADDRESSES || rule->denies > 1 || rule->origin > NET_OF_SERVER || rule->first > rule->last)
        return false;
    if (rule->kind == NET_ADDRESSES)
        return (rule->address.size == 4 || rule->address.size == 16) && rule->bits <= rule->address.size * 8 &&
               !net_rule_unwrap(&copy);
    return length < sizeof rule->name && net_name_clean(rule->name, length, clean) && strcmp(clean, rule->name) == 0;
}

bool net_policy_is_sane(const struct net_policy *policy)
{
    if (policy->mode > NET_PUBLIC || policy->n_rules > NET_RULES || policy->no_host > 1)
        return false;
    for (uint32_t i = 0; i < policy->n_rules; i++)
        if (!is_sane(&policy->rule[i]))
            return false;
    return true;
}
