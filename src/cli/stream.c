/* Our own standard output is shared with our parent, so it stays in blocking mode: we write only when poll reports room
 * for PIPE_BUF bytes, and never more at once, unless it is a file, which always takes all. */
#define _GNU_SOURCE
#include "cli/stream.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

void stream_init(struct stream *s, int from, bool owns_from, int to, bool owns_to, struct buf *capture)
{
    s->from = from;
    s->to = to;
    s->owns_from = owns_from;
    s->owns_to = owns_to;
    s->capture = capture;
    s->begin = s->end = 0;
    s->moved = 0;
    s->refused = false;
}

static void close_from(struct stream *s)
{
    if (s->owns_from)
        fd_close(s->from);
    s->from = -1;
}

static void close_to(struct stream *s)
{
    if (s->owns_to)
        fd_close(s->to);
    s->to = -1;
}

void stream_done(struct stream *s)
{
    close_from(s);
    close_to(s);
}

bool stream_is_over(const struct stream *s)
{
    return s->from < 0 && s->begin == s->end;
}

size_t stream_poll(const struct stream *s, struct pollfd *list)
{
    size_t n = 0;
    if (s->begin < s->end)
        list[n++] = (struct pollfd){ .fd = s->to, .events = POLLOUT };
    else if (s->from >= 0)
        list[n++] = (struct pollfd){ .fd = s->from, .events = POLLIN };
    return n;
}

static void push(struct stream *s)
{
    struct stat status;
    bool is_file = fstat(s->to, &status) == 0 && S_ISREG(status.st_mode);
    size_t size = s->end - s->begin;
    ssize_t n = write(s->to, s->data + s->begin, is_file || size < PIPE_BUF ? size : PIPE_BUF);

    if (n > 0)
        s->begin += (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        /* Our reader is gone: closing the pipe tells the writer. */
        s->refused = true;
        s->begin = s->end;
        close_from(s);
    }
    if (s->begin == s->end && s->from < 0)
        close_to(s);
}

static bool pull(struct stream *s, uint64_t room)
{
    ssize_t n = read(s->from, s->data, sizeof s->data);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) {
        close_from(s);
        close_to(s);
        return true;
    }
    s->moved += (uint64_t)n;
    bool fits = (uint64_t)n <= room;
    s->begin = 0;
    s->end = fits ? (size_t)n : (size_t)room;
    if (s->capture) {
        buf_add(s->capture, s->data, s->end);
        s->end = 0;
    }
    return fits;
}

bool stream_move(struct stream *s, const struct pollfd *list, size_t n, uint64_t room)
{
    if (n == 0 || list->revents == 0)
        return true;
    if (s->begin < s->end) {
        push(s);
        return true;
    }
    return pull(s, room);
}

void stream_stop(struct stream *s)
{
    close_from(s);
}
