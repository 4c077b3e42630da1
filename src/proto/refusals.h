/* What a box was refused on the network, and the one line that says so: the same in `carrel run`, in answers of the API
 * and in what a model reads. */
#ifndef CARREL_PROTO_REFUSALS_H
#define CARREL_PROTO_REFUSALS_H

#include "base/buf.h"
#include "proto/egress.h"

enum { REFUSALS_MOST = 64 };

struct refusals {
    size_t   n;
    uint64_t more;              /* refusals of what found no place */
    struct net_refusal {
        char     what[NET_NAME_SIZE], other[NET_ADDRESS_TEXT];
        uint16_t port;
        uint8_t  why;           /* enum egress_why */
        uint64_t count;
        uint64_t last_us;       /* when it was last told of */
    } list[REFUSALS_MOST];
};

/* Takes egress's word; now_us is noted. Names that are not printable are none. */
void refusals_add(struct refusals *r, const struct egress_refused *word, uint64_t now_us);

/* The rule that would allow it. */
void net_refusal_rule(const struct net_refusal *one, char ret[NET_RULE_TEXT]);

/* One line, without its end, about all that were told of since since_us; false: there is nothing to tell. has_network:
 * the box has a policy. rule: what would allow the first of them; "": no rule would. */
bool refusals_write(const struct refusals *r, uint64_t since_us, bool has_network, struct buf *out,
                    char rule[NET_RULE_TEXT]);
/* What a reader can do about it, in the words of the interface at hand: "; allow it with --allow NAME". Nothing without
 * a rule. */
void refusals_advise(const char *before, const char *rule, const char *after, struct buf *out);

#endif
