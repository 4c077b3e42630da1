#define _GNU_SOURCE
#include "keeper/envelope.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/payload.h"

int envelope_open(int *fd, bool trusting, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    struct stat status;
    struct ucred maker;
    socklen_t size = sizeof maker;
    char mark;
    int inside;
    size_t n;

    if (fstat(*fd, &status) < 0)
        return err_at(e, errno, STEP_TREE, 0, "mount");
    if (!S_ISSOCK(status.st_mode)) {
        *ret_uid = geteuid();
        *ret_gid = getegid();
        return trusting ? 0 : err_at(e, EPERM, STEP_TREE, 0, "a mount must come in the caller's own envelope");
    }
    if (!fd_is_socket_pair(*fd))
        return err_at(e, EPERM, STEP_TREE, 0, "the envelope of a mount must be one end of a socket pair");
    if (getsockopt(*fd, SOL_SOCKET, SO_PEERCRED, &maker, &size) < 0)
        return err_at(e, errno, STEP_TREE, 0, "the maker of the envelope");
    ssize_t got = link_peek_any(*fd, &mark, 1, &inside, 1, &n);
    if (got != 1 || n != 1) {
        fd_close(inside);
        return err_at(e, EPROTO, STEP_TREE, 0, "the envelope of a mount is empty");
    }
    fd_close(*fd);
    *fd = inside;
    if (fcntl(inside, F_GETFL) & O_PATH)
        return err_at(e, EPERM, STEP_TREE, 0, "a mount must be opened for reading, not with O_PATH");
    *ret_uid = maker.uid;
    *ret_gid = maker.gid;
    return 0;
}
