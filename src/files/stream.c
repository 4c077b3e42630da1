/* Frames on the socket. All reads and writes block; a slow front slows only this helper. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"

static int lose(struct conversation *c, int r)
{
    c->broken = true;
    return r;
}

int stream_get(struct conversation *c, void *data, size_t size)
{
    int r = c->broken ? -EPIPE : fd_read_all(c->in, data, size);
    return r < 0 ? lose(c, r) : 0;
}

static int put_all(struct conversation *c, const void *data, size_t size)
{
    int r = c->broken ? -EPIPE : fd_write_all(c->out, data, size);
    return r < 0 ? lose(c, r) : 0;
}

int stream_put(struct conversation *c, enum files_frame type, const void *data, size_t size)
{
    struct files_head head = { .type = (uint16_t)type, .size = (uint32_t)size };
    struct iovec parts[2] = { { &head, sizeof head }, { (void *)(uintptr_t)data, size } };
    ssize_t n;

    if (c->broken)
        return -EPIPE;
    while ((n = writev(c->out, parts, 2)) < 0 && errno == EINTR)
        ;
    if (n < 0)
        return lose(c, -errno);
    if ((size_t)n < sizeof head) {
        int r = put_all(c, (const char *)&head + n, sizeof head - (size_t)n);
        if (r < 0)
            return r;
        n = sizeof head;
    }
    size_t sent = (size_t)n - sizeof head;
    return put_all(c, (const char *)data + sent, size - sent);
}

ssize_t upload_read(struct conversation *c, void *data, size_t size)
{
    if (!c->uploading)
        return 0;
    if (c->left == 0) {
        struct files_head head;
        int r = stream_get(c, &head, sizeof head);
        if (r < 0)
            return r;
        bool is_data = head.type == FILES_DATA && head.size >= 1 && head.size <= FILES_DATA_MAX;
        bool is_end = (head.type == FILES_END || head.type == FILES_ABORT) && head.size == 0;
        if (head.reserved || (!is_data && !is_end))
            return lose(c, -EPROTO);
        if (is_end) {
            c->uploading = false;
            return head.type == FILES_END ? 0 : -ECANCELED;
        }
        c->left = head.size;
    }
    size_t wanted = size < c->left ? size : c->left;
    ssize_t n;
    while ((n = c->broken ? -1 : read(c->in, data, wanted)) < 0 && !c->broken && errno == EINTR)
        ;
    if (n <= 0)
        return lose(c, n < 0 && !c->broken ? -errno : -EPIPE);
    c->left -= (uint32_t)n;
    return n;
}

int upload_read_all(struct conversation *c, void *data, size_t size)
{
    for (char *at = data; size > 0;) {
        ssize_t n = upload_read(c, at, size);
        if (n <= 0)
            return n < 0 ? (int)n : -ENODATA;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

void upload_drain(struct conversation *c)
{
    while (c->uploading && !c->broken)
        (void)!upload_read(c, c->buffer, FILES_BUFFER);
}

/* Copies bytes of the file to the socket, without a frame. Returns how many; fewer only at the end of the file. */
static ssize_t copy_out(struct conversation *c, int fd, uint64_t offset, size_t size)
{
    size_t sent = 0;

    while (sent < size) {
        off_t at = (off_t)(offset + sent);
        ssize_t n = c->no_sendfile ? -1 : sendfile(c->out, fd, &at, size - sent);
        if (n < 0 && !c->no_sendfile && errno == EINTR)
            continue;
        if (n < 0 && !c->no_sendfile && errno != EINVAL && errno != ENOSYS)
            return lose(c, -errno);
        if (n < 0) {
            c->no_sendfile = true;
            size_t wanted = size - sent < FILES_BUFFER ? size - sent : FILES_BUFFER;
            while ((n = pread(fd, c->buffer, wanted, at)) < 0 && errno == EINTR)
                ;
            if (n < 0)
                break;      /* the file cannot be read here; zeros take its place, and DONE reports it */
            int r = put_all(c, c->buffer, (size_t)n);
            if (r < 0)
                return r;
        }
        if (n == 0)
            break;
        sent += (size_t)n;
    }
    return (ssize_t)sent;
}

int stream_put_file(struct conversation *c, int fd, uint64_t offset, uint64_t size)
{
    static const char zeros[4096];
    bool is_short = false;

    while (size > 0 && !is_short) {
        size_t chunk = size < FILES_DATA_MAX ? (size_t)size : FILES_DATA_MAX;
        struct files_head head = { .type = FILES_DATA, .size = (uint32_t)chunk };
        int r = put_all(c, &head, sizeof head);
        ssize_t n = r < 0 ? r : copy_out(c, fd, offset, chunk);
        if (n < 0)
            return (int)n;
        is_short = (size_t)n < chunk;
        for (size_t rest = chunk - (size_t)n, part; rest > 0; rest -= part) {
            part = rest < sizeof zeros ? rest : sizeof zeros;
            if ((r = put_all(c, zeros, part)) < 0)
                return r;
        }
        offset += chunk;
        size -= chunk;
    }
    return is_short ? -ESTALE : 0;
}

bool stream_is_deserted(const struct conversation *c)
{
    struct pollfd peer = { .fd = c->out, .events = 0 };
    return c->broken || (poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR)));
}
