/* Two locks on the file `lock` in the state directory. The kernel drops both with their holders, however these end.
 *
 *   byte 0   a record lock of the supervisor alone; the kernel gives its pid to other processes
 *   byte 1   a lock of the open file, which the children inherit: it is held until the last of them is gone
 *
 * So a second supervisor is refused at once, with the pid of the first. The successor of a killed supervisor gets byte
 * 0 and waits with byte 1 for the orphaned front, which must not write any more, and for the keeper, which ends its
 * boxes first.
 *
 * The directory is the front's. Root only opens and locks the file, and never writes to it. */
#define _GNU_SOURCE
#include "server/state_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "front/front.h"

enum { BYTE_SUPERVISOR, BYTE_WRITERS, PATIENCE_MS = 30000, POLL_MS = 5 };

/* 0, or -errno; -EAGAIN: another process holds it. */
static int try_lock(int fd, int command, off_t byte)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };

    if (fcntl(fd, command, &lock) == 0)
        return 0;
    return errno == EACCES ? -EAGAIN : -errno;
}

static int refuse(int fd, const char *state, struct err *e)
{
    struct flock other = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = BYTE_SUPERVISOR, .l_len = 1 };
    char pid[32] = "";

    /* A holder in another pid namespace has no pid here. */
    if (fcntl(fd, F_GETLK, &other) == 0 && other.l_type != F_UNLCK && other.l_pid > 0)
        snprintf(pid, sizeof pid, " (pid %d)", (int)other.l_pid);
    return err_set(e, EBUSY, STEP_USAGE,
                   "another server%s uses the state directory %.100s: end it, or choose another directory with --state",
                   pid, state);
}

/* No other way waits for an inherited lock with a deadline. */
static int wait_for_writers(int fd, const char *state, bool *ret_left, struct err *e)
{
    uint64_t end_us = clock_monotonic_us() + PATIENCE_MS * 1000ull;
    const struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };
    int r;

    *ret_left = false;
    while ((r = try_lock(fd, F_OFD_SETLK, BYTE_WRITERS)) == -EAGAIN) {
        if (!*ret_left)
            front_log("warning", "waiting for the processes of a server that was killed", "state", state, NULL);
        *ret_left = true;
        if (clock_monotonic_us() > end_us)
            return err_set(e, EBUSY, STEP_USAGE,
                           "processes of a server that was killed still use the state directory %.100s: end them "
                           "('fuser -v %.50s/lock' lists them)", state, state);
        nanosleep(&pause, NULL);
    }
    return r < 0 ? err_set(e, -r, STEP_HOST, "locking %s/lock", state) : 0;
}

int state_lock(const char *state, int *ret, bool *ret_left, struct err *e)
{
    char path[300];
    struct stat status;

    if (snprintf(path, sizeof path, "%s/lock", state) >= (int)sizeof path)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "state '%.100s'", state);
    /* If it is a pipe or a device, open() must not block. */
    FD fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &status) < 0)
        return err_set(e, errno, STEP_HOST, "%s", path);
    if (!S_ISREG(status.st_mode))
        return err_set(e, EINVAL, STEP_USAGE, "%s is no file: remove it", path);
    int r = try_lock(fd, F_SETLK, BYTE_SUPERVISOR);
    if (r == -EAGAIN)
        return refuse(fd, state, e);
    if (r < 0)
        return err_set(e, -r, STEP_HOST, "locking %s", path);
    r = wait_for_writers(fd, state, ret_left, e);
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}
