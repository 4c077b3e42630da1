/* Profiles as data: the system calls, capabilities and /proc that a payload gets. Filters are generated at build
 * time. */
#ifndef CARREL_POLICY_POLICY_H
#define CARREL_POLICY_POLICY_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/names.h"

struct policy_filter {
    const struct sock_filter *code;
    unsigned short            length;
};

/* The payload's filter: default deny with ENOSYS/EPERM, a foreign architecture kills. */
/* shares: a caller's folder is mounted for writing, in which set-id programs must not be created. */
const struct policy_filter *policy_payload_filter(enum profile profile, bool shares);
/* The filter of a zygote whose children become payloads of this profile: it stays on them. */
const struct policy_filter *policy_zygote_filter(enum profile profile);
/* The file helper's: a process of ours that resolves paths carefully. */
const struct policy_filter *policy_helper_filter(void);
/* Init may only report that the box is ready, close its sockets, wait for children and exit; with a desk it may also
 * make netlink sockets for the box's processes and answer their DNS queries. */
const struct policy_filter *policy_init_filter(bool with_desk);
/* The server's front once it has its listeners, and the process that connects to the keeper for it (dial.c). */
const struct policy_filter *policy_front_filter(void);
const struct policy_filter *policy_dialer_filter(void);
/* carrel-egress, once it has its first link. */
const struct policy_filter *policy_egress_filter(void);
/* carrel-broker, once it has read the host's certificates. */
const struct policy_filter *policy_broker_filter(void);
/* Bit mask of the capabilities that a payload holds in its own user namespace. */
uint64_t policy_capabilities(enum profile profile);

#endif
