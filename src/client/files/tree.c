/* The local end of a copied folder uses the same code as the box's end (src/files), in a child process behind a socket.
 * So a tar from a box is unpacked by the code for hostile archives: no entry leaves the folder, not even through a link
 * in the archive. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "client/files/transfer.h"
#include "proto/files.h"
#include "files/serve.h"

struct helper {
    int   fd;       /* owned */
    pid_t pid;
};

static int helper_open(struct helper *h, struct err *e)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(e, errno, STEP_HOST, "socketpair: %s", strerror(errno));
    h->pid = fork();
    if (h->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        signal(SIGPIPE, SIG_IGN);
        FD root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd_close(pair[0]);
        if (root >= 0)
            files_converse(pair[1], pair[1], root);
        _exit(0);
    }
    fd_close(pair[1]);
    h->fd = pair[0];
    if (h->pid < 0) {
        h->fd = fd_close(h->fd);
        return err_set(e, errno, STEP_HOST, "fork: %s", strerror(errno));
    }
    return 0;
}

static void helper_close(struct helper *h)
{
    h->fd = fd_close(h->fd);
    while (waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int broken(struct err *e)
{
    return err_set(e, EPIPE, STEP_HOST, "the process that works on the local folder died");
}

static int put_frame(int fd, enum files_frame type, const void *data, size_t size)
{
    struct files_head head = { .type = (uint16_t)type, .size = (uint32_t)size };
    struct iovec v[2] = { { &head, sizeof head }, { (void *)(uintptr_t)data, size } };
    struct msghdr m = { .msg_iov = v, .msg_iovlen = size ? 2 : 1 };
    size_t whole = sizeof head + size;
    ssize_t n;

    while ((n = sendmsg(fd, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR)
        ;
    if (n < 0)
        return -errno;
    for (size_t sent = (size_t)n; sent < whole; sent += (size_t)n) {
        bool in_head = sent < sizeof head;
        const char *from = in_head ? (const char *)&head + sent : (const char *)data + (sent - sizeof head);
        n = send(fd, from, in_head ? sizeof head - sent : whole - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return -errno;
        n = n < 0 ? 0 : n;
    }
    return 0;
}

static int ask(int fd, enum files_op op, unsigned flags, const char *path)
{
    struct {
        struct files_request request;
        char                 path[FILES_PATH_MAX];
    } frame = { .request = { .op = (uint16_t)op, .flags = (uint16_t)flags, .mode = 0755 } };
    size_t size = strlen(path);

    if (size > FILES_PATH_MAX)
        return -ENAMETOOLONG;
    frame.request.path_size = (uint16_t)size;
    memcpy(frame.path, path, size);
    return put_frame(fd, FILES_REQUEST, &frame, sizeof frame.request + size);
}

/* Reads the DONE at the end. */
static int take_done(int fd, size_t size, struct err *e)
{
    struct files_done done;

    if (size != sizeof done || fd_read_all(fd, &done, sizeof done) < 0)
        return broken(e);
    done.text[sizeof done.text - 1] = '\0';
    return done.code ? err_set(e, done.code, STEP_USAGE, "%s", done.text) : 0;
}

static int send_frames(int fd, struct exchange *x, struct progress *p, struct err *e)
{
    static char data[FILES_DATA_MAX];
    struct files_head head;

    for (;;) {
        if (fd_read_all(fd, &head, sizeof head) < 0)
            return broken(e);
        if (head.type == FILES_DONE)
            return take_done(fd, head.size, e);
        if (head.size > sizeof data || fd_read_all(fd, data, head.size) < 0)
            return broken(e);
        int r = head.type == FILES_DATA ? exchange_send(x, data, head.size) : 0;
        if (r < 0)
            return r == -EPIPE ? r : err_set(e, -r, STEP_USAGE, "the connection to the server broke: %s", strerror(-r));
        progress_add(p, head.size);
    }
}

int tree_send(const char *path, struct exchange *x, struct progress *p, struct err *e)
{
    struct helper h;
    int r = helper_open(&h, e);

    if (r < 0)
        return r;
    r = ask(h.fd, FILES_PACK, 0, path);
    r = r < 0 ? broken(e) : send_frames(h.fd, x, p, e);
    if (r == 0 && exchange_send_end(x) < 0)
        r = -EPIPE;
    helper_close(&h);
    return r;
}

/* True if it has sent something already, which means that it has failed. */
static bool has_failed(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, 0) > 0;
}

int tree_receive(const char *path, struct exchange *x, struct progress *p, struct err *e)
{
    static char data[256 << 10];
    struct files_head head;
    struct helper h;
    int r = helper_open(&h, e);
    ssize_t n = 0;

    if (r < 0)
        return r;
    r = ask(h.fd, FILES_UNPACK, FILES_PARENTS | FILES_NOFOLLOW, path);
    while (r == 0 && !has_failed(h.fd) && (n = exchange_read(x, data, sizeof data, true)) > 0) {
        r = put_frame(h.fd, FILES_DATA, data, (size_t)n);
        progress_add(p, (uint64_t)n);
    }
    if (r == 0)
        r = put_frame(h.fd, n < 0 ? FILES_ABORT : FILES_END, NULL, 0);
    if (r < 0 || fd_read_all(h.fd, &head, sizeof head) < 0 || head.type != FILES_DONE)
        r = broken(e);
    else
        r = take_done(h.fd, head.size, e);
    if (n < 0)
        r = err_set(e, (int)-n, STEP_USAGE, "the server closed the connection; the copy is incomplete");
    helper_close(&h);
    return r;
}
