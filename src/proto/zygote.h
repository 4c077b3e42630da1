/* The protocol between keeper and zygote: one fixed frame each way over a seqpacket socket. A child answers on a link
 * of its own, in the protocol of every payload (init.h, payload.h). */
#ifndef CARREL_PROTO_ZYGOTE_H
#define CARREL_PROTO_ZYGOTE_H

#include <stdint.h>

enum {
    ZYGOTE_CONTROL = 3,
    ZYGOTE_VERSION = 5,
    ZYGOTE_RULES = 80,          /* of a plan */
    ZYGOTE_PATHS = 8192,
    ZYGOTE_CONTROLLERS = 5,     /* cgroup v1: `tasks` files, one for each controller */
};

/* From the zygote, once: it is ready to fork. */
struct zygote_hello {
    uint32_t version;
};

/* To the zygote: fork a payload into the box of these descriptors. */
struct zygote_request {
    uint32_t version;
    uint32_t profile;
    uint32_t shares;        /* a caller's folder is mounted for writing */
    uint32_t files_usual, files_most;   /* struct file_limit */
    uint32_t uid, gid;              /* in the box */
    uint32_t can_setgroups;
    int32_t  landlock_abi;
    uint32_t wait_join;             /* the keeper moves the child to its cgroup: send NOTE_BORN, wait for ORDER_JOIN */
    uint32_t has_door;              /* a descriptor to init follows, for the payload's seccomp listener */
    uint32_t n_tasks;               /* `tasks` files to write to */
    uint32_t n_rules;
    uint8_t  rights[ZYGOTE_RULES];  /* enum landlock_rights */
    char     paths[ZYGOTE_PATHS];   /* n_rules strings */
};
_Static_assert(sizeof(struct zygote_request) == 13 * 4 + ZYGOTE_RULES + ZYGOTE_PATHS, "a frame has no hidden bytes");

/* The order of the descriptors. */
/* The door follows the `tasks` files. */
enum { ZYGOTE_USER, ZYGOTE_MOUNT, ZYGOTE_PID, ZYGOTE_IPC, ZYGOTE_UTS, ZYGOTE_NET, ZYGOTE_LINK, ZYGOTE_TASKS,
       ZYGOTE_FDS = ZYGOTE_TASKS + ZYGOTE_CONTROLLERS + 1 };

#endif
