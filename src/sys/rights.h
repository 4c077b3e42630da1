/* Giving up rights, one step each, and looking at them. Only async-signal-safe calls; all return 0 or -errno. None of
 * them can be undone. */
#ifndef CARREL_SYS_RIGHTS_H
#define CARREL_SYS_RIGHTS_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* The name of a capability that a keeper needs to make boxes as root and that this process lacks, or NULL. Without it
 * root makes them as an ordinary user does: in a user namespace of its own, where it has all. */
const char *rights_lacking(void);

/* Becomes uid and gid without supplementary groups. can_setgroups is false in a user namespace where setgroups is
 * denied. */
MUST_CHECK int rights_become(uid_t uid, gid_t gid, int can_setgroups);

/* Keeps only these capabilities (bit mask), in every set and in the bounding set, and locks the securebits. */
MUST_CHECK int rights_keep_capabilities(uint64_t keep);

/* How many files a process may have open: usually, and if it asks for more. */
struct file_limit {
    uint32_t usual, most;
};

/* No core files, few descriptors, no locked memory, no real-time priority: what a cgroup does not count. Nothing is
 * ever raised. */
MUST_CHECK int rights_limit_resources(struct file_limit files);

/* A fresh, anonymous session keyring, so that nothing can be left for or found from another box. */
MUST_CHECK int rights_new_keyring(void);

MUST_CHECK int rights_no_new_privileges(void);
MUST_CHECK int rights_filter_calls(const struct sock_filter *code, unsigned short length);
/* The same with a listener for the calls that the filter leaves to one. If the process has one already, as in a
 * container whose runtime listens, these calls fail with EINVAL and the listener is -1. */
MUST_CHECK int rights_filter_listening(const struct sock_filter *code, unsigned short length, int *ret_listener);

/* Not traceable and not readable through /proc by anybody in the box. Ends on exec. */
MUST_CHECK int rights_hide(void);

/* SIGKILL when the parent ends. Cleared by every change of ids, so armed last. parent is a pidfd of it: -ESRCH if it
 * has ended already. */
MUST_CHECK int rights_die_with(int parent);

#endif
