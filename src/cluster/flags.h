/* The command line: our flags and the original's. */
#ifndef CARREL_CLUSTER_FLAGS_H
#define CARREL_CLUSTER_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct flags {
    const char *kubeconfig, *context;
    const char *metrics_address, *probe_address, *cluster_domain, *lease_namespace;
    const char *label_domains;
    bool        elects, kernels, extensions, selects_labels, print_version, print_help;
    bool        secure_defaults, retain_volumes, recreate_on_change, release_volumes;
    bool        evictable_pools, quiet_claims, bare_claims;
    unsigned    workers, max_batch;
    double      refill_rate;
    uint64_t    replenish_delay_ms, grace_ms, recheck_ms;
    int         verbosity;              /* enum log_level */
    const char *ignored[32];            /* flags of the original without effect here */
    unsigned    n_ignored;
};

/* Go's rules: one or two dashes, --name=value or --name value, and --flag alone for true. -EINVAL with a sentence. */
MUST_CHECK int flags_parse(int argc, char **argv, struct flags *ret, struct err *e);
void flags_print_help(void);

#endif
