#define _GNU_SOURCE
#include "front/boxes/zygote_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"

enum { LINES_MOST = 32 };

static void end_line(struct zygote_log *log)
{
    if (++log->lines <= LINES_MOST && log->line[0])
        log->on_line(log);
    log->length = 0;
}

void zygote_log_close(struct zygote_log *log)
{
    if (log->pipe.fd < 0)
        return;
    if (log->length)
        end_line(log);
    loop_fd_remove(log->loop, &log->pipe);
    log->pipe.fd = fd_close(log->pipe.fd);
}

static void on_readable(struct loop_fd *w, uint32_t events)
{
    struct zygote_log *log = container_of(w, struct zygote_log, pipe);
    char text[ZYGOTE_LINE_BYTES];
    ssize_t n = read(w->fd, text, sizeof text);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    for (ssize_t i = 0; i < n; i++) {
        bool ends = text[i] == '\n' || log->length == sizeof log->line - 1;
        if (!ends)
            log->line[log->length++] = text[i];
        log->line[log->length] = '\0';
        if (ends)
            end_line(log);
    }
    if (n <= 0)
        zygote_log_close(log);
}

int zygote_log_open(struct zygote_log *log, struct loop *loop, void (*on_line)(struct zygote_log *log), int *ret)
{
    int pair[2];

    zygote_log_close(log);
    *log = (struct zygote_log){ .loop = loop, .pipe.fd = -1, .pipe.on_event = on_readable, .on_line = on_line };
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    FD ours = pair[0], theirs = pair[1];
    int r = fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : loop_fd_add(loop, &log->pipe, ours, EPOLLIN);
    if (r < 0)
        return r;
    log->pipe.fd = TAKE_FD(ours);
    *ret = TAKE_FD(theirs);
    return 0;
}
