/* Messages with descriptors over a unix socket (SCM_RIGHTS). Async-signal-safe. */
#ifndef CARREL_BASE_FDPASS_H
#define CARREL_BASE_FDPASS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { FDPASS_MAX = 32 };

/* What arrived with the bytes. */
struct fdpass {
    int    fd[FDPASS_MAX];      /* owned by the caller, close-on-exec */
    size_t n;
    pid_t  sender;              /* if SO_PASSCRED is set; else 0 */
    bool   cut;                 /* bytes or descriptors did not fit and are lost */
};

/* Sends data with n descriptors, which the caller keeps. flags: those of sendmsg(2); never raises SIGPIPE. Returns
 * bytes or -errno. */
ssize_t fdpass_send(int socket, const void *data, size_t size, const int *fds, size_t n, int flags);

/* Receives once. Returns bytes, 0 at the end, or -errno; writes *ret only on 0 or more. */
ssize_t fdpass_receive(int socket, void *data, size_t size, int flags, struct fdpass *ret);

/* Moves up to most descriptors to fds and closes the others. Leaves the rest of fds as it is. Returns how many it
 * moved. */
size_t fdpass_take(struct fdpass *p, int *fds, size_t most);

#endif
