/* The network rules of a box: their text form and their decisions. Pure; fuzzed. docs/network.md is for users.
 *
 *     index.example.org            this name, any port
 *     *.models.example.org:443     every name below, one port
 *     10.1.0.0/16:5432             addresses, one port
 *     [2001:db8::/32]:8000-8010    the same in IPv6, several ports
 *
 *     host.carrel.internal:11434   a server on the host's own loopback; so is ollama.localhost:11434
 *
 * A denying rule overrides an allowing one. Names are compared as DNS compares them. */
#ifndef CARREL_PROTO_NET_H
#define CARREL_PROTO_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    NET_RULES = 128,
    NET_NAME_SIZE = 256,        /* of a name as text: 253 bytes, no dot at its end, NUL */
    NET_RULE_TEXT = 288,
    NET_ADDRESS_TEXT = 48,
};

enum net_mode {
    NET_NONE,
    NET_LISTED,         /* only what the rules allow */
    NET_PUBLIC,         /* every public address, and what the rules allow */
};

/* An IPv4 address in 4 bytes, an IPv6 address in 16. */
struct net_address {
    uint8_t size;
    uint8_t byte[16];
};

enum net_kind { NET_NAME, NET_BELOW, NET_ADDRESSES };

/* Where a rule comes from, for messages. */
enum net_origin {
    NET_OF_BOX,
    NET_OF_NETWORK,     /* the box's network of the server's configuration */
    NET_OF_SERVER,      /* network.deny: for all boxes */
};

struct net_rule {
    uint8_t            kind;            /* enum net_kind */
    uint8_t            denies;
    uint8_t            bits;            /* leading bits of the address that must match */
    uint8_t            origin;          /* enum net_origin; it decides nothing */
    uint16_t           first, last;     /* ports */
    struct net_address address;
    char               name[NET_NAME_SIZE];     /* in lower case; of NET_BELOW without "*." */
    uint8_t            reserved_too;
};
_Static_assert(sizeof(struct net_rule) == 282, "a frame has no hidden bytes");

/* Part of frames of proto/egress.h. */
struct net_policy {
    uint32_t        mode;               /* enum net_mode */
    uint32_t        n_rules;
    uint32_t        no_host;            /* 1: no rule reaches the host itself or a special address */
    uint32_t        reserved;
    struct net_rule rule[NET_RULES];
};

/* option is the rule's place in the user's input: "--allow", "net.allow[2]". -EINVAL at STEP_USAGE with the
 * position. IPv4 in IPv6 notation becomes IPv4, as in net_address_unwrap(). */
MUST_CHECK int net_rule_parse(const char *option, const char *text, bool denies, struct net_rule *ret, struct err *e);
/* The shortest text for this rule. */
void           net_rule_show(const struct net_rule *rule, char ret[NET_RULE_TEXT]);
/* Appends a rule. An allowing rule turns a policy of no network into one of listed rules. -E2BIG. */
MUST_CHECK int net_policy_add(struct net_policy *policy, const char *option, const char *text, bool denies,
                              struct err *e);
/* Reads rules separated by spaces or commas, as in a file; "!" before a denying one, and the word "public". */
MUST_CHECK int net_policy_read(const char *option, const char *text, struct net_policy *ret, struct err *e);
/* Bounds of a box's network usage; 0: egress's own default. */
struct net_bounds {
    uint32_t connections;               /* at a time */
    uint64_t bytes_per_second;          /* both ways together */
};
enum { NET_CONNECTIONS_MOST = 65536, NET_BYTES_LEAST = 1024 };
/* "connections=100,bandwidth=4M", or one of them; the other stays unchanged. */
MUST_CHECK int net_bounds_parse(const char *option, const char *text, struct net_bounds *ret, struct err *e);

/* For a policy of another program: whether net_policy_add could have made it. */
bool           net_policy_is_sane(const struct net_policy *policy);

/* Below "localhost" or "carrel.internal": it means the host's loopback and is looked up nowhere. Some programs, curl
 * for one, take all that is below "localhost" for their own loopback and never ask. */
bool           net_name_is_loopback(const char *name);
/* Lower case, without the last dot. False: invalid in DNS. */
bool           net_name_clean(const char *text, size_t length, char ret[NET_NAME_SIZE]);
bool           net_address_parse(const char *text, struct net_address *ret);
void           net_address_show(const struct net_address *address, char ret[NET_ADDRESS_TEXT]);

/* Whether some port of this name is allowed, so that it may be resolved. */
bool           net_resolves(const struct net_policy *policy, const char *name);

/* How a name was allowed; it decides which of its addresses are accepted. */
enum net_reach {
    NET_REFUSED,
    NET_BY_NAME,        /* named exactly: any address, except the host's own and special ones */
    NET_BY_WILDCARD,    /* by *.name or as part of the public network: public addresses only */
    NET_BY_LOOPBACK,    /* such a name of the host's loopback, named exactly: that only */
};
enum net_reach net_judge_name(const struct net_policy *policy, const char *name, uint16_t port);

/* The rule that denies this name or address; NULL: none does, and another rule could allow it. port 0: the name was
 * looked up, which only a rule for all ports denies. */
const struct net_rule *net_find_denial(const struct net_policy *policy, const char *what, uint16_t port);
/* Whether all that the narrow rule names is named by the wide one, too. */
bool           net_rule_covers(const struct net_rule *wide, const struct net_rule *narrow);

enum net_class {
    NET_IS_PUBLIC,      /* documentation ranges, too: some sites use them */
    NET_IS_PRIVATE,     /* 10/8, 172.16/12, 192.168/16, fc00::/7, 100.64/10 */
    NET_IS_SPECIAL,     /* loopback, link-local, metadata services, multicast, unspecified, reserved */
};
/* IPv4 in IPv6 notation (mapped, compatible, translated, NAT64, 6to4) becomes IPv4: both reach the same host. */
struct net_address net_address_unwrap(const struct net_address *address);
bool               net_address_is_loopback(const struct net_address *bare);
/* A rule for a network in such a notation becomes one for IPv4. False: it is in none. */
bool               net_rule_unwrap(struct net_rule *rule);
/* Unwraps first, so that no notation hides an address. */
enum net_class net_class(const struct net_address *address);
/* 198.18.0.0/15: in a box these addresses stand for names. */
bool           net_address_is_stand_in(const struct net_address *address);

/* Whether a connection to this address and port is allowed. reach: how its name was allowed, or NET_REFUSED if the
 * program used the address directly. is_own: it is an address of the host. */
bool           net_judge_address(const struct net_policy *policy, enum net_reach reach,
                                 const struct net_address *address, uint16_t port, bool is_own);

#endif
