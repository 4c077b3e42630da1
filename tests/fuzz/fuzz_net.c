/* Rules of the network: what is read is shown so that it is read the same; any bytes as a policy are judged safely. */
#include "fuzz.h"

#include "proto/net.h"

static void try_rule(const char *text)
{
    struct net_rule rule, again;
    struct err e = { 0 };
    char shown[NET_RULE_TEXT];

    int r = net_rule_parse("--allow", text, false, &rule, &e);
    if (r < 0) {
        fuzz_check_refusal(r, &e);
        return;
    }
    net_rule_show(&rule, shown);
    HOLDS(net_rule_parse("--allow", shown, false, &again, &e) == 0 && memcmp(&rule, &again, sizeof rule) == 0);
    struct net_policy policy = { .mode = NET_LISTED, .n_rules = 1, .rule = { rule } };
    HOLDS(net_policy_is_sane(&policy));
    if (rule.kind == NET_NAME)
        HOLDS(net_judge_name(&policy, rule.name, rule.first)
              == (net_name_is_loopback(rule.name) ? NET_BY_LOOPBACK : NET_BY_NAME));
    if (rule.kind == NET_BELOW)
        HOLDS(net_judge_name(&policy, rule.name, rule.first) == NET_REFUSED);
}

/* In every notation of an address, a rule that denies it does. */
static void try_address(const char *text)
{
    struct net_policy policy = { .mode = NET_PUBLIC, .n_rules = 1 };
    struct net_address address = { 0 };
    struct err e;

    if (net_address_parse(text, &address) && net_rule_parse("--deny", text, true, &policy.rule[0], &e) == 0)
        HOLDS(net_policy_is_sane(&policy) && !net_judge_address(&policy, NET_BY_NAME, &address, 443, false));
}

static void try_policy(const uint8_t *data, size_t size)
{
    static struct net_policy policy;
    struct net_address address = { .size = size & 1 ? 4 : 16 };

    memset(&policy, 0, sizeof policy);
    memcpy(&policy, data, size < sizeof policy ? size : sizeof policy);
    if (!net_policy_is_sane(&policy))
        return;
    memcpy(address.byte, data, size < 16 ? size : 16);
    bool accepted = net_judge_address(&policy, NET_BY_WILDCARD, &address, 443, false);
    HOLDS(!accepted || net_class(&address) == NET_IS_PUBLIC || policy.n_rules > 0);
    (void)net_resolves(&policy, "a.example.org");
    (void)net_judge_name(&policy, "a.example.org", 443);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size), clean[NET_NAME_SIZE], again[NET_NAME_SIZE];

    try_rule(text);
    try_address(text);
    if (net_name_clean(text, size, clean))
        HOLDS(net_name_clean(clean, strlen(clean), again) && strcmp(clean, again) == 0);
    try_policy(data, size);
    free(text);
    return 0;
}
