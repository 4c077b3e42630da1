#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int fd_close(int fd)
{
    if (fd >= 0) {
        int saved = errno;
        close(fd); /* no retry after EINTR: Linux has closed it, and the number may already be another file's */
        errno = saved;
    }
    return -1;
}

int fd_read_all(int fd, void *data, size_t size)
{
    char *p = data;

    while (size) {
        ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENODATA;
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

int fd_write_all(int fd, const void *data, size_t size)
{
    const char *p = data;

    while (size) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -EIO; /* no progress: a retry would spin */
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

ssize_t fd_read_file(int dir, const char *path, char *text, size_t size)
{
    if (!size)
        return -EINVAL;
    text[0] = 0;
    FD fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    size_t length = 0;
    for (;;) {
        /* The last byte is for the NUL. Only a read that gives nothing proves that the file ends. */
        char spare;
        bool full = length == size - 1;
        ssize_t n = full ? read(fd, &spare, 1) : read(fd, text + length, size - 1 - length);
        if (n < 0 && errno == EINTR)
            continue;
        int code = n < 0 ? errno : (full && n > 0) ? EFBIG : 0;
        if (code) {
            text[0] = 0;
            return -code;
        }
        if (n == 0)
            break;
        length += (size_t)n;
    }
    text[length] = 0;
    return (ssize_t)length;
}

int fd_write_file(int dir, const char *path, const char *text)
{
    size_t size = strlen(text);
    ssize_t n;

    FD fd = openat(dir, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    do
        n = write(fd, text, size);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -EIO;
}

bool fd_is_socket_pair(int fd)
{
    struct sockaddr_un own, other;
    socklen_t own_size = sizeof own, other_size = sizeof other, size = sizeof(int);
    int type = 0;

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM
           && getsockname(fd, (struct sockaddr *)&own, &own_size) == 0
           && getpeername(fd, (struct sockaddr *)&other, &other_size) == 0
           && own_size == sizeof(sa_family_t) && own.sun_family == AF_UNIX
           && other_size == sizeof(sa_family_t) && other.sun_family == AF_UNIX;
}

int fd_fill_standard(void)
{
    for (;;) {
        int fd = open("/dev/null", O_RDWR | O_CLOEXEC | O_NOCTTY);
        if (fd < 0)
            return -errno;
        if (fd > STDERR_FILENO) {
            close(fd);
            return 0;
        }
        if (fcntl(fd, F_SETFD, 0) < 0) /* 0, 1 and 2 are inherited by children */
            return -errno;
    }
}
