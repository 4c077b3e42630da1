/* Which of the options --net, --allow, --deny and --net-limit go together: the same for every command, in any order. */
#ifndef CARREL_PROTO_NET_OPTIONS_H
#define CARREL_PROTO_NET_OPTIONS_H

#include "base/err.h"

/* The options so far. */
struct net_options {
    const char *net;        /* the value of --net; NULL: not given */
    const char *rule;       /* "--allow", "--deny" or "--net-limit", one that was given; NULL: none was */
};

/* Adds an option. -EINVAL at STEP_USAGE: it contradicts an earlier one. value is kept by reference. */
MUST_CHECK int net_options_add(struct net_options *options, const char *option, const char *value, struct err *e);

#endif
