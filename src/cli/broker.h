/* `carrel run --key`: starts a carrel-broker for this run, which gets the keys. */
#ifndef CARREL_CLI_BROKER_H
#define CARREL_CLI_BROKER_H

#include "cli/egress.h"
#include "cli/options/options.h"

struct run_broker {
    int   link;         /* owned; -1: no broker */
    pid_t pid;
    void *files[2];     /* mapped: certificates for the box */
    size_t sizes[2];
};

/* Starts it and hands over the keys, which are overwritten in the options. The box's certificates go into its
 * specification. Without keys nothing is started. */
MUST_CHECK int run_broker_open(struct run_broker *broker, const struct run_egress *egress, struct run_options *options,
                               struct err *e);
void           run_broker_close(struct run_broker *broker);

#endif
