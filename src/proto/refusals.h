/* The newest refused connections of a box, and the one line that reports them: the same in `carrel run`, in answers of
 * the API and for a model. */
#ifndef CARREL_PROTO_REFUSALS_H
#define CARREL_PROTO_REFUSALS_H

#include "base/buf.h"
#include "proto/egress.h"

enum { REFUSALS_MOST = 64 };

struct refusals {
    size_t   n;
    uint64_t more;              /* entries that newer ones have replaced */
    uint64_t replaced_us;       /* the newest time of these */
    struct net_refusal {
        char     what[NET_NAME_SIZE], other[NET_ADDRESS_TEXT];
        uint16_t port;
        uint8_t  why;           /* enum egress_why */
        uint64_t count;
        uint64_t last_us;       /* of the last occurrence */
    } list[REFUSALS_MOST];
};

/* Adds egress's report, in the place of the oldest entry if the table is full, and returns its entry. now_us: not
 * later. What is not printable in a name becomes '?'. */
const struct net_refusal *refusals_add(struct refusals *r, const struct egress_refused *word, uint64_t now_us);

/* Records that a box without network tried addresses; the kernel does not say which. */
const struct net_refusal *refusals_add_unrouted(struct refusals *r, uint64_t now_us);

/* In a few words, for a list. */
const char *net_refusal_why(unsigned why);

/* The rule that would allow it; "": no rule would, or one of this policy denies it. */
void net_refusal_rule(const struct net_refusal *one, const struct net_policy *policy, char ret[NET_RULE_TEXT]);
/* "denied by ..." with the rule of this policy that denies it; false: none does. deny: what comes before a rule of the
 * box's own in the reader's interface, "--deny ". */
bool net_refusal_denial(const struct net_refusal *one, const struct net_policy *policy, const char *deny,
                        struct buf *out);

/* One line, without its end, about all refusals since since_us; false: there were none. policy: the box's; deny: as
 * above. rule: would allow the first of them that a rule can allow; "": no rule would. */
bool refusals_write(const struct refusals *r, uint64_t since_us, const struct net_policy *policy, const char *deny,
                    struct buf *out, char rule[NET_RULE_TEXT]);
/* The remedy, in the words of the reader's interface: "; allow it with --allow NAME". Nothing without a rule.
 * packages: how that reader names packages of a box ("--packages NAME"): the other remedy for the index's rule. */
void refusals_advise(const char *before, const char *rule, const char *after, const char *packages, struct buf *out);
/* Whether it is the rule for the index of packages that pip and uv ask if nothing is configured. */
bool refusals_are_of_index(const char *rule);

#endif
