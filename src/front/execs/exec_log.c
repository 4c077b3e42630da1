#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/boxes/box_private.h"
#include "front/execs/exec_private.h"
#include "front/front.h"

static void log_name(const struct exec *x, char name[24])
{
    snprintf(name, 24, "%s.log", x->id);
}

void exec_log_unlink(const struct exec *x)
{
    char name[24];

    log_name(x, name);
    (void)unlinkat(x->box->front->execs_dir, name, 0);
}

/* Walks the frames to the end. A header that is cut off was never followed by data and is cut away; a frame whose data
 * are not complete is owed the rest, which is still in the pipe, because splice takes nothing out of a pipe that it
 * does not put into the file. */
void exec_log_open(struct exec *x)
{
    char name[24];
    struct exec_frame frame;
    struct stat status;

    log_name(x, name);
    x->log = openat(x->box->front->execs_dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (x->log < 0 || fstat(x->log, &status) < 0)
        return;
    uint64_t size = (uint64_t)status.st_size, at = 0;
    x->output_bytes = 0;
    while (at + sizeof frame <= size && pread(x->log, &frame, sizeof frame, (off_t)at) == sizeof frame) {
        uint64_t end = at + sizeof frame + frame.size;
        if (end > size) {
            x->owed = (uint32_t)(end - size);
            x->owed_stream = frame.stream;
            x->output_bytes += frame.size - x->owed;
            x->log_bytes = at;
            x->log_at = size;
            return;
        }
        x->output_bytes += frame.size;
        at = end;
    }
    x->log_bytes = x->log_at = at;
    if (at < size)
        (void)!ftruncate(x->log, (off_t)at);
}

static int make_log(struct exec *x)
{
    char name[24];

    if (x->log >= 0)
        return 0;
    log_name(x, name);
    x->log = openat(x->box->front->execs_dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return x->log < 0 ? -errno : 0;
}

int exec_log_reserve(struct exec *x, uint32_t size)
{
    int r = make_log(x);

    if (r == 0 &&
        fallocate(x->log, FALLOC_FL_KEEP_SIZE, (off_t)x->log_at, (off_t)(sizeof(struct exec_frame) + size)) < 0)
        r = errno == EOPNOTSUPP ? 0 : -errno;
    return r;
}

int exec_log_begin(struct exec *x, uint8_t stream, uint32_t size)
{
    struct exec_frame frame = { .size = size, .stream = stream, .time_ms = front_now_ms() };
    int r = make_log(x);

    if (r < 0)
        return r;
    errno = 0;
    if (pwrite(x->log, &frame, sizeof frame, (off_t)x->log_at) != sizeof frame)
        return errno ? -errno : -EIO;
    x->log_at += sizeof frame;
    x->owed = size;
    x->owed_stream = stream;
    return 0;
}

int exec_log_shorten(struct exec *x)
{
    struct exec_frame frame;
    uint64_t end = x->log_bytes + sizeof frame;

    if (x->log_at <= end) {
        if (ftruncate(x->log, (off_t)x->log_bytes) < 0)
            return -errno;
        x->log_at = x->log_bytes;
        x->owed = 0;
        return 0;
    }
    errno = 0;
    if (pread(x->log, &frame, sizeof frame, (off_t)x->log_bytes) != sizeof frame)
        return errno ? -errno : -EIO;
    frame.size = (uint32_t)(x->log_at - end);
    if (pwrite(x->log, &frame, sizeof frame, (off_t)x->log_bytes) != sizeof frame)
        return errno ? -errno : -EIO;
    x->log_bytes = x->log_at;
    x->owed = 0;
    return 1;
}

ssize_t exec_log_read(const struct exec *x, uint64_t *offset, uint32_t *part, struct exec_frame *frame, void *data,
                      size_t size)
{
    FD own = -1;
    int log = x->log;

    if (*offset >= x->log_bytes)
        return 0;
    if (log < 0) {
        char name[24];
        log_name(x, name);
        log = own = openat(x->box->front->execs_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (log < 0)
            return -errno;
    }
    if (pread(log, frame, sizeof *frame, (off_t)*offset) != sizeof *frame ||
        *offset + sizeof *frame + frame->size > x->log_bytes || *part > frame->size)
        return -EINVAL;
    size_t left = frame->size - *part;
    ssize_t n = pread(log, data, left < size ? left : size, (off_t)(*offset + sizeof *frame + *part));
    if (n < 0)
        return -errno;
    *part += (uint32_t)n;
    if (*part == frame->size) {
        *offset += sizeof *frame + frame->size;
        *part = 0;
    }
    return n;
}
