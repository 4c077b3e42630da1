#define _GNU_SOURCE
#include "cli/options/netarg.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "cli/options/options.h"

/* Networks by name are of a server's configuration. If a server runs the command, it is for other reasons. */
static int check_net(const char *value, struct err *e)
{
    if (strcmp(value, "public") == 0 || strcmp(value, "none") == 0)
        return 0;
    return err_set(e, EINVAL, STEP_USAGE, "--net %s: a run has the networks none and public, because those with other "
                   "names are in a server's configuration: use 'carrel create --net NAME' and 'carrel exec', or allow "
                   "names and addresses with --allow", parse_quote(value).text);
}

int netarg_add(struct run_options *o, const char *option, const char *value, struct err *e)
{
    bool is_net = strcmp(option, "--net") == 0;
    int r = is_net ? check_net(value, e) : 0;

    if (r == 0)
        r = net_options_add(&o->net_options, option, value, e);
    if (r < 0)
        return r;
    if (strcmp(option, "--net-limit") == 0)
        return net_bounds_parse(option, value, &o->net_bounds, e);
    if (!is_net)
        return net_policy_add(&o->net, option, value, strcmp(option, "--deny") == 0, e);
    if (strcmp(value, "public") == 0)
        o->net.mode = NET_PUBLIC;
    return 0;
}

int netarg_settle(const struct run_options *o, struct err *e)
{
    if (o->net.mode == NET_NONE && (o->net_bounds.connections || o->net_bounds.bytes_per_second))
        return err_set(e, EINVAL, STEP_USAGE, "--net-limit goes with --allow or --net public: this box has no network");
    if (o->zygote && o->net.mode != NET_NONE)
        return err_set(e, ENOTSUP, STEP_USAGE, "--allow and --net cannot be used with --zygote");
    return 0;
}
