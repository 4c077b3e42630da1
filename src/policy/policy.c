/* Profiles as data. The system calls of a profile are a column of syscalls.tbl; a further filter is a `filter` section
 * there, a line in filters.h and a function here. */
#include "policy/policy.h"

#include <linux/capability.h>

#include "policy/filters.h"

#define CAPABILITY(number) (UINT64_C(1) << (number))

static const struct {
    const struct policy_filter *filter, *zygote;
    uint64_t                    capabilities;
} profiles[PROFILE_COUNT] = {
    [PROFILE_STRICT]   = {&policy_filter_strict, &policy_filter_zygote_strict, 0},
    [PROFILE_STANDARD] = {&policy_filter_standard, &policy_filter_zygote_standard, 0},
    /* apt and pip as root need files of any owner, and to become other users of the box. */
    [PROFILE_SYSTEM]   = {&policy_filter_system, &policy_filter_zygote_system,
                          CAPABILITY(CAP_CHOWN) | CAPABILITY(CAP_DAC_OVERRIDE) | CAPABILITY(CAP_FOWNER) |
                              CAPABILITY(CAP_SETUID) | CAPABILITY(CAP_SETGID)},
};

const struct policy_filter *policy_payload_filter(enum profile profile, bool shares)
{
    return shares && profile == PROFILE_SYSTEM ? &policy_filter_system_sharing : profiles[profile].filter;
}

const struct policy_filter *policy_zygote_filter(enum profile profile)
{
    return profiles[profile].zygote;
}

const struct policy_filter *policy_helper_filter(void)
{
    return &policy_filter_helper;
}

const struct policy_filter *policy_init_filter(bool with_desk)
{
    return with_desk ? &policy_filter_init_desk : &policy_filter_init;
}

const struct policy_filter *policy_front_filter(void)
{
    return &policy_filter_front;
}

const struct policy_filter *policy_dialer_filter(void)
{
    return &policy_filter_dialer;
}

const struct policy_filter *policy_egress_filter(void)
{
    return &policy_filter_egress;
}

const struct policy_filter *policy_broker_filter(void)
{
    return &policy_filter_broker;
}

uint64_t policy_capabilities(enum profile profile)
{
    return profiles[profile].capabilities;
}
