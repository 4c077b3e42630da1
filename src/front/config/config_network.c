/* Networks: policies that boxes may request by name, and rules for all boxes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "front/config/config_private.h"

/* "index.example.org *.example.org:443 !10.0.0.0/8", or with the word public. */
int config_network_set(struct config *c, const char *name, const char *value, struct err *e)
{
    char key[80];
    uint32_t i = 0;
    int r = config_check_name("networks", name, e);

    if (r == 0 && (strcmp(name, "none") == 0 || strcmp(name, "public") == 0))
        r = err_set(e, EINVAL, STEP_USAGE, "networks: 'none' and 'public' are there already; choose another name");
    if (r < 0)
        return r;
    while (i < c->n_networks && strcmp(c->network[i].name, name) != 0)
        i++;
    if (i == CONFIG_NETWORKS)
        return err_set(e, EINVAL, STEP_USAGE, "networks: there are more than %d", CONFIG_NETWORKS);
    snprintf(key, sizeof key, "networks.%s", name);
    r = net_policy_read(key, value, &c->network[i].policy, e);
    if (r < 0)
        return r;
    snprintf(c->network[i].name, sizeof c->network[i].name, "%s", name);
    if (i == c->n_networks)
        c->n_networks++;
    return 0;
}

int config_network_ask(const char *key, const char *value, enum network_ask *ret, struct err *e)
{
    static const char *const words[] = { [NETWORK_ANY] = "any", [NETWORK_NAMED] = "named", [NETWORK_NONE] = "none" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(value, words[i]) == 0) {
            *ret = (enum network_ask)i;
            return 0;
        }
    return err_set(e, EINVAL, STEP_USAGE, "%s must be any, named or none", key);
}

/* Every rule denies, with or without a "!". */
int config_network_deny(const char *key, const char *value, struct net_policy *ret, struct err *e)
{
    int r = net_policy_read(key, value, ret, e);

    for (uint32_t i = 0; i < ret->n_rules && r == 0; i++)
        ret->rule[i].denies = 1;
    return r;
}
