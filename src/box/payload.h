/* A payload from birth to exec. Runs in a child of the keeper, in the box's pid namespace. */
#ifndef CARREL_BOX_PAYLOAD_H
#define CARREL_BOX_PAYLOAD_H

#include "base/fdpass.h"
#include "box/box.h"
#include "policy/policy.h"

/* The keeper's word to a payload. Fds travel with it. */
struct order {
    int kind;
    int has_stdio[3];
};
enum {
    ORDER_JOIN = 1,     /* the cgroup is there: fds are its `tasks` files */
    ORDER_START = 2,    /* fds are a memfd with the command (command.h) and its stdio */
};
enum { ORDER_FDS = 4 };

struct payload_job {
    const struct engine_box   *box;
    const struct start *start;      /* NULL: comes with ORDER_START */
    int                 link;
    int                 gate;       /* -1: the root is there already */
    bool                make_net;   /* the first payload makes the network namespace, the others join it */
    bool                wait_join;  /* the cgroup comes with ORDER_JOIN */
};

_Noreturn void payload_run(const struct payload_job *job);

/* The steps of sealing, for whoever else must be sealed like a payload. In this order. */
/* Closes all descriptors above 2 but these (-1 is no descriptor): one may live for hours and must hold nothing of other
 * boxes. */
MUST_CHECK int payload_keep_only(const int *keep, size_t n, struct err *e);
/* door: to init, which makes netlink sockets for this payload; -1: it has none. */
MUST_CHECK int payload_give_up_rights(const struct engine_box *box, const struct policy_filter *filter, int door,
                                      struct err *e);
MUST_CHECK int payload_check_root(const struct engine_box *box, struct err *e);
MUST_CHECK int payload_seal_files(const struct engine_box *box, struct err *e);
/* Waits for the command. Ends the process if the keeper has none for it. */
MUST_CHECK int payload_receive(int link, struct command_spec *command, int stdio[3], struct err *e);
/* Landlock, terminal, working directory, stdio, umask. Only the link is left open besides 0, 1 and 2. */
MUST_CHECK int payload_settle(const struct engine_box *box, int link, const struct command_spec *command, int stdio[3],
                              struct err *e);
/* What the keeper ignores or blocks is nothing to the command. */
void           payload_reset_signals(void);
/* As execvpe: a name without a slash is looked up in the command's own PATH. Returns only with an error. */
MUST_CHECK int payload_exec(const struct command_spec *command, struct err *e);

/* One message with descriptors over a seqpacket socket. Received fds are owned, -1 where none came. */
MUST_CHECK int link_send(int link, const void *data, size_t size, const int *fds, size_t n_fds);
MUST_CHECK int link_receive(int link, void *data, size_t size, int *ret_fds, size_t n_fds, bool block);

/* One message of any size up to size. Returns its length, 0 at the end, -EAGAIN if nothing is there; never blocks. */
/* Any message, with what came beside it: fdpass_receive() without its traps. */
MUST_CHECK ssize_t link_receive_message(int link, void *data, size_t size, struct fdpass *ret);
MUST_CHECK ssize_t link_receive_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n);
/* The same; the message stays for the next who looks, and the descriptors are duplicates. */
MUST_CHECK ssize_t link_peek_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n);

#endif
