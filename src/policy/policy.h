/* Profiles as data: which system calls, capabilities and /proc a payload gets. Filters are generated at build time. */
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
/* shares: a folder of the caller's is mounted for writing, where no set-id program may be left. */
const struct policy_filter *policy_payload_filter(enum profile profile, bool shares);
/* The filter of a zygote whose children become payloads of this profile: it stays on them. */
const struct policy_filter *policy_zygote_filter(enum profile profile);
/* The file helper's: a payload of ours that resolves paths carefully. */
const struct policy_filter *policy_helper_filter(void);
/* What init may still do: say that the box is ready, close its sockets, wait for children and exit; with a desk also
 * make netlink sockets for the box's processes and answer their questions for names. */
const struct policy_filter *policy_init_filter(bool with_desk);
/* The server's front, once it has its listeners; and who connects to the keeper for it. */
const struct policy_filter *policy_front_filter(void);
const struct policy_filter *policy_dialer_filter(void);
/* carrel-egress, once it has its first link. */
const struct policy_filter *policy_egress_filter(void);
/* Bit mask of the capabilities that a payload holds in its own user namespace. */
uint64_t policy_capabilities(enum profile profile);

#endif
