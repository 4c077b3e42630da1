/* --net, --allow, --deny and --net-limit of `carrel run` and `carrel plan`. */
#ifndef CARREL_CLI_OPTIONS_NETARG_H
#define CARREL_CLI_OPTIONS_NETARG_H

#include "base/err.h"

struct run_options;

/* -EINVAL at STEP_USAGE: it is malformed, or contradicts an earlier one. */
MUST_CHECK int netarg_add(struct run_options *o, const char *option, const char *value, struct err *e);
/* After all options. */
MUST_CHECK int netarg_settle(const struct run_options *o, struct err *e);

#endif
