/* The front's state of one box's network; for this folder. */
#ifndef CARREL_FRONT_NET_BOX_NET_H
#define CARREL_FRONT_NET_BOX_NET_H

#include "front/net/net.h"
#include "proto/refusals.h"

struct box_net {
    struct refusals     refusals;
    struct egress_usage usage;          /* egress's last report; it begins again when egress restarts */
    struct egress_usage total;          /* over all of egress's lives: sent, received, connections, refusals */
    uint64_t            told_us;        /* time of the last event about a refusal */
    bool                has_heard;      /* of a refusal, since the last command began */
};

/* Allocated on first use. NULL: memory is short. */
struct box_net *box_net_of(struct box *b);
/* Adds the increase of egress's counters to the box's totals and to the metrics. */
void            box_net_took(struct box *b, const struct egress_usage *usage);
/* word NULL: addresses, which the kernel refused. */
void            box_net_refused(struct box *b, const struct egress_refused *word);
/* Makes egress report refusals at once again. */
void            box_net_renew(struct box *b);
json_t         *box_net_json(const struct box *b, json_t *connections);

#endif
