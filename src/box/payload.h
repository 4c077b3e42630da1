/* A payload from birth to exec. Runs in a child of the keeper, in the box's pid namespace. */
#ifndef CARREL_BOX_PAYLOAD_H
#define CARREL_BOX_PAYLOAD_H

#include "base/fdpass.h"
#include "box/box.h"
#include "policy/policy.h"

/* The keeper's message to a payload, with descriptors. */
struct order {
    int kind;
    int has_stdio[3];
};
enum {
    ORDER_JOIN = 1,     /* the cgroup exists: fds are its `tasks` files */
    ORDER_START = 2,    /* fds are a memfd with the command (command.h) and its stdio */
};
enum { ORDER_FDS = 4 };

struct payload_job {
    const struct engine_box   *box;
    const struct start *start;      /* NULL: comes with ORDER_START */
    int                 link;
    int                 gate;       /* -1: the root exists already */
    bool                make_net;   /* the first payload makes the network namespace, the others join it */
    bool                wait_join;  /* the cgroup comes with ORDER_JOIN */
};

_Noreturn void payload_run(const struct payload_job *job);

/* The steps of sealing, in this order, also for other processes that are sealed like a payload. */
/* Closes all descriptors above 2 except these (-1 is no descriptor): a payload may live for hours and must hold nothing
 * of other boxes. */
MUST_CHECK int payload_keep_only(const int *keep, size_t n, struct err *e);
/* door: to init, which makes netlink sockets for this payload; -1: none. */
MUST_CHECK int payload_give_up_rights(const struct engine_box *box, const struct policy_filter *filter, int door,
                                      struct err *e);
MUST_CHECK int payload_check_root(dev_t device, struct err *e);
MUST_CHECK int payload_seal_files(const struct engine_box *box, struct err *e);
/* Waits for the command. Exits if the keeper has none. */
MUST_CHECK int payload_receive(int link, struct command_spec *command, int stdio[3], struct err *e);
/* Landlock, files of secrets, terminal, working directory, stdio, umask. Leaves only the link open besides 0, 1, 2. */
MUST_CHECK int payload_settle(const struct engine_box *box, int link, const struct command_spec *command, int stdio[3],
                              struct err *e);
/* Resets signals that the keeper ignores or blocks. */
void           payload_reset_signals(void);
/* Like execvpe: a name without a slash is looked up in the command's own PATH. Returns only with an error. */
MUST_CHECK int payload_exec(const struct command_spec *command, struct err *e);

/* One message with descriptors over a seqpacket socket. Received fds are owned, missing ones -1. */
MUST_CHECK int link_send(int link, const void *data, size_t size, const int *fds, size_t n_fds);
MUST_CHECK int link_receive(int link, void *data, size_t size, int *ret_fds, size_t n_fds, bool block);

/* One message of at most size bytes. Returns its length, 0 at the end, -EAGAIN if there is none; never blocks. */
/* Any message with its ancillary data: fdpass_receive() without its traps. */
MUST_CHECK ssize_t link_receive_message(int link, void *data, size_t size, struct fdpass *ret);
MUST_CHECK ssize_t link_receive_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n);
/* The same; the message stays for the next reader, and the descriptors are duplicates. */
MUST_CHECK ssize_t link_peek_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n);

#endif
