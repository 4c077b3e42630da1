/* The programs that tools/gen-seccomp makes from syscalls.tbl. Only policy.c and tests use them; others use
 * policy.h. */
#ifndef CARREL_POLICY_FILTERS_H
#define CARREL_POLICY_FILTERS_H

#include "policy/policy.h"

extern const struct policy_filter policy_filter_strict;
extern const struct policy_filter policy_filter_standard;
extern const struct policy_filter policy_filter_system;
extern const struct policy_filter policy_filter_init;
extern const struct policy_filter policy_filter_init_desk;
extern const struct policy_filter policy_filter_helper;
extern const struct policy_filter policy_filter_front;
extern const struct policy_filter policy_filter_dialer;
extern const struct policy_filter policy_filter_egress;
extern const struct policy_filter policy_filter_broker;
extern const struct policy_filter policy_filter_system_sharing;
extern const struct policy_filter policy_filter_zygote_strict;
extern const struct policy_filter policy_filter_zygote_standard;
extern const struct policy_filter policy_filter_zygote_system;

#endif
