#define _GNU_SOURCE
#include "proto/net_options.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"

int net_options_add(struct net_options *options, const char *option, const char *value, struct err *e)
{
    struct net_options all = *options;

    if (strcmp(option, "--net") != 0)
        all.rule = option;
    else if (all.net && strcmp(all.net, value) != 0)
        return err_set(e, EINVAL, STEP_USAGE, "--net %s and --net %s exclude each other", parse_quote(all.net).text,
                       parse_quote(value).text);
    else
        all.net = value;
    /* After "none" no other option may give the box a network, nor before it. */
    if (all.net && all.rule && strcmp(all.net, "none") == 0)
        return err_set(e, EINVAL, STEP_USAGE, "--net none excludes %s: leave out one of them", all.rule);
    if (all.net && all.rule && strcmp(all.net, "public") != 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s goes with --net public, or without --net: the network %s has "
                       "the rules of the server's configuration", all.rule, parse_quote(all.net).text);
    *options = all;
    return 0;
}
