/* What this kernel allows this process, found out by trying in short-lived children. Takes some milliseconds: for
 * `carrel doctor` and for explaining a failure, not for the start of every box. */
#ifndef CARREL_SYS_FEATURES_H
#define CARREL_SYS_FEATURES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum feature {
    FEATURE_USER_NAMESPACE,
    FEATURE_MOUNT_NAMESPACE,
    FEATURE_PID_NAMESPACE,
    FEATURE_IPC_NAMESPACE,
    FEATURE_UTS_NAMESPACE,
    FEATURE_NET_NAMESPACE,
    FEATURE_MOUNT_API,      /* open_tree, mount_setattr, fsmount, as the keeper uses them */
    FEATURE_TMPFS_SIZE,     /* a tmpfs that refuses what is over its size */
    FEATURE_ID_MAPPED,      /* idmapped mounts of the host's /usr */
    FEATURE_PROC,           /* a fresh /proc in a box */
    FEATURE_DEVPTS,         /* terminals private to a box */
    FEATURE_OVERLAY,        /* overlayfs in a box */
    FEATURE_LOOPBACK,       /* `lo` up in a box */
    FEATURE_NO_NESTING,     /* user namespaces inside a box can be forbidden */
    FEATURE_SECCOMP,
    FEATURE_CLONE3,     /* clone3 and pidfds */
    FEATURE_COUNT
};

enum setting {
    SETTING_MAX_USER_NAMESPACES,
    SETTING_USERNS_CLONE,       /* Debian's switch */
    SETTING_LEGACY_TIOCSTI,
    SETTING_DMESG_RESTRICT,
    SETTING_KPTR_RESTRICT,
    SETTING_BPF_DISABLED,
    SETTING_PERF_PARANOID,
    SETTING_PROTECTED_SYMLINKS,
    SETTING_PROTECTED_HARDLINKS,
    SETTING_KSM,
    SETTING_COUNT
};
enum { SETTING_ABSENT = -1 };

/* The reserve of ids for boxes: the line of /etc/subuid and /etc/subgid. */
struct features_ids {
    char     owner[40];         /* "carrel" for root, else the user's name; "" if there is no line */
    uint64_t uid_first, uid_count, gid_first, gid_count;
    bool     has_mappers;       /* newuidmap and newgidmap, with the rights they need */
};

struct features {
    char     release[65];
    unsigned major, minor;
    uid_t    uid;
    bool     is_keeper_root;            /* uid 0 with all capabilities that a keeper needs */
    const char *lacks;                  /* the first missing one, or NULL */
    bool     is_first_user_namespace;
    bool     has_dev_shm;
    int      error[FEATURE_COUNT];      /* 0: works, else errno */
    int      landlock_abi;              /* 0: none */
    long     setting[SETTING_COUNT];    /* or SETTING_ABSENT */
    char     core_pattern[128];
    struct features_ids ids;
};

MUST_CHECK int features_probe(struct features *ret, struct err *e);

/* "pid namespace". */
const char *feature_name(enum feature feature);
/* "kernel.dmesg_restrict". */
const char *setting_name(enum setting setting);

#endif
