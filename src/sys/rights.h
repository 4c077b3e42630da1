/* Drops rights, one step each, and inspects them. Async-signal-safe; all return 0 or -errno. No step can be undone. */
#ifndef CARREL_SYS_RIGHTS_H
#define CARREL_SYS_RIGHTS_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* The name of a capability that a keeper needs to make boxes as root and that this process lacks, or NULL. A root that
 * lacks one makes boxes as an ordinary user does: in a user namespace of its own, where it has all capabilities. */
const char *rights_lacking(void);

/* Becomes uid and gid without supplementary groups. can_setgroups is false in a user namespace where setgroups is
 * denied. */
MUST_CHECK int rights_become(uid_t uid, gid_t gid, int can_setgroups);

/* Keeps only these capabilities (bit mask), in every set and in the bounding set, and locks the securebits. */
MUST_CHECK int rights_keep_capabilities(uint64_t keep);

/* RLIMIT_NOFILE of a process: soft and hard. */
struct file_limit {
    uint32_t usual, most;
};

/* No core files, few descriptors, no locked memory, no real-time priority: resources that no cgroup counts. Never
 * raises a limit. */
MUST_CHECK int rights_limit_resources(struct file_limit files);

/* A fresh, anonymous session keyring, so that no key passes from one box to another. */
MUST_CHECK int rights_new_keyring(void);

MUST_CHECK int rights_no_new_privileges(void);
MUST_CHECK int rights_filter_calls(const struct sock_filter *code, unsigned short length);
/* The same with a listener for the calls that the filter hands to it. If the process already has a listener, as in a
 * container whose runtime listens, these calls fail with EINVAL and the listener is -1. */
MUST_CHECK int rights_filter_listening(const struct sock_filter *code, unsigned short length, int *ret_listener);

/* Processes in the box cannot trace it or read it through /proc. Ends on exec. */
MUST_CHECK int rights_hide(void);

/* SIGKILL when the parent exits. Every change of ids clears it, so call it last. parent is its pidfd; -ESRCH if it has
 * exited already. */
MUST_CHECK int rights_die_with(int parent);

#endif
