/* File descriptors that close themselves. An fd is -1 or valid, and O_CLOEXEC at birth. */
#ifndef CARREL_BASE_FD_H
#define CARREL_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/types.h>

static inline void fd_close_cleanup(int *fd);
static inline void free_cleanup(void *pointer)
{
    free(*(void **)pointer);
}

/* FD x = -1; closed at scope end.  AUTO_FREE char *s = NULL; freed at scope end. */
#define FD __attribute__((cleanup(fd_close_cleanup))) int
#define AUTO_FREE __attribute__((cleanup(free_cleanup)))

/* Hands a self-closing fd on to another owner. */
#define TAKE_FD(fd) __extension__({ int *from_ = &(fd), taken_ = *from_; *from_ = -1; taken_; })
#define TAKE_PTR(p) __extension__({ __typeof__(p) *from_ = &(p), taken_ = *from_; *from_ = NULL; taken_; })

/* Closes fd if it is not -1; keeps errno; returns -1, so that `x = fd_close(x)` is the idiom. */
int fd_close(int fd);

static inline void fd_close_cleanup(int *fd)
{
    *fd = fd_close(*fd);
}

/* Reads or writes all of it, through EINTR. 0 or -errno; a read that meets the end early gives -ENODATA. */
int fd_read_all(int fd, void *data, size_t size);
int fd_write_all(int fd, const void *data, size_t size);

/* The whole of a small file as a NUL-terminated string. Returns its length or -errno; -EFBIG if it does not fit. */
ssize_t fd_read_file(int dir, const char *path, char *text, size_t size);

/* Writes text into an existing file with one write, as /proc and cgroup files want it. 0 or -errno. */
int fd_write_file(int dir, const char *path, const char *text);

/* True for an end of a stream socketpair(2), also after the other end was closed: neither end has a name. Of a
 * connection made by connect() the listener's end has a name; SO_PEERCRED there names the listener, not the process
 * that made it. */
bool fd_is_socket_pair(int fd);

/* Opens /dev/null on 0, 1 and 2 where they are closed, so that no other file can get these numbers. */
int fd_fill_standard(void);

#endif
