/* What the front knows of one box's network; for this folder. */
#ifndef CARREL_FRONT_NET_BOX_NET_H
#define CARREL_FRONT_NET_BOX_NET_H

#include "front/net/net.h"
#include "proto/refusals.h"

struct box_net {
    struct refusals     refusals;
    struct egress_usage usage;
    uint64_t            told_us;        /* when the last event about a refusal was written */
};

/* Made when there is something to keep. NULL: memory is short. */
struct box_net *box_net_of(struct box *b);
void            box_net_refused(struct box *b, const struct egress_refused *word);
json_t         *box_net_json(const struct box *b, json_t *connections);

#endif
