/* How the tail moves. Frames are appended until the tail has its maximum length (half of the bound) and some slack.
 * Then each of these steps is one write that happens or does not, so that a front may be killed between any two:
 *
 *   1. the gap is rewritten: the tail begins later, and the part before it is counted as dropped;
 *   2. the tail is copied down to where tails begin, into bytes that nothing points to any more;
 *   3. the gap is rewritten: the tail begins there, and the file must be cut behind it;
 *   4. the file is cut, and the gap rewritten: no cut is due.
 *
 * The end of the file is the end of the log all the time: it shows how much of an open frame was written. */
#define _GNU_SOURCE
#include "front/execs/exec_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { SLACK_LEAST = 1 << 20, WALK_BYTES = 16384, COPY_BYTES = 256 << 10, GAP_BLOCK = 16 + 63 + 64 };

_Static_assert(sizeof(struct exec_gap) == 64 && sizeof(struct exec_frame) == 16, "they are on disk");

static char copy_buffer[COPY_BYTES];        /* not used across calls */

/* A frame's weight in the bound: its bytes; but small ones weigh as much as their headers, so that the file is never
 * more than twice as long as the kept output. */
static uint64_t weigh(uint64_t size)
{
    return size > sizeof(struct exec_frame) ? size : sizeof(struct exec_frame);
}

static uint64_t head_most(const struct exec_log *l)
{
    return l->bound / 2;
}

static uint64_t tail_most(const struct exec_log *l)
{
    return l->bound - l->bound / 2;
}

/* The weight at which frames are dropped. At least as much is dropped at a time as is copied. */
static uint64_t tail_full(const struct exec_log *l)
{
    uint64_t tail = tail_most(l);

    return tail + (tail > SLACK_LEAST ? tail : SLACK_LEAST);
}

static uint64_t tail_base(const struct exec_log *l)
{
    return l->gap_at + sizeof l->gap;
}

/* The difference between a tail frame's offset and its place in the file. */
static uint64_t tail_shift(const struct exec_log *l)
{
    return l->gap.start + l->gap.skip - l->gap.offset;
}

static int write_at(int fd, const void *data, size_t size, uint64_t at)
{
    errno = 0;
    if (pwrite(fd, data, size, (off_t)at) != (ssize_t)size)
        return errno ? -errno : -EIO;
    return 0;
}

static int write_gap(struct exec_log *l, const struct exec_gap *gap)
{
    int r = write_at(l->fd, gap, sizeof *gap, l->gap_at);

    if (r == 0)
        l->gap = *gap;
    return r;
}

void exec_log_init(struct exec_log *l, int dir, const char *id)
{
    *l = (struct exec_log){ .dir = dir, .fd = -1 };
    snprintf(l->name, sizeof l->name, "%s.log", id);
}

void exec_log_close(struct exec_log *l)
{
    l->fd = fd_close(l->fd);
}

void exec_log_unlink(const struct exec_log *l)
{
    (void)unlinkat(l->dir, l->name, 0);
}

/* ---- opening an existing log ---- */

/* Headers of frames one after the other, read in large pieces. */
struct walk {
    int      fd;
    uint64_t base;
    size_t   size;
    char     data[WALK_BYTES];
};

static bool walk_read(struct walk *w, uint64_t at, struct exec_frame *ret)
{
    if (at < w->base || at + sizeof *ret > w->base + w->size) {
        ssize_t n = pread(w->fd, w->data, sizeof w->data, (off_t)at);
        w->base = at;
        w->size = n > 0 ? (size_t)n : 0;
    }
    if (w->size < at - w->base + sizeof *ret)
        return false;
    memcpy(ret, w->data + (at - w->base), sizeof *ret);
    return true;
}

static int finish_cut(struct exec_log *l)
{
    struct exec_gap gap = l->gap;

    if (!gap.cut)
        return 0;
    if (ftruncate(l->fd, (off_t)gap.cut) < 0)
        return -errno;
    gap.cut = 0;
    return write_gap(l, &gap);
}

/* Reads the gap's frame at this place; *size is the file's, which may be cut. False: it is incomplete. */
static bool open_gap(struct exec_log *l, uint64_t at, const struct exec_frame *frame, uint64_t *size)
{
    uint64_t gap_at = at + sizeof *frame + frame->size - sizeof l->gap;
    struct exec_gap gap;

    if (frame->size < sizeof gap || gap_at + sizeof gap > *size
        || pread(l->fd, &gap, sizeof gap, (off_t)gap_at) != sizeof gap || gap.start > *size)
        return false;
    l->gap = gap;
    l->gap_at = gap_at;
    l->head_end = at;
    l->weight = 0;
    if (l->gap.cut && l->gap.cut < *size)
        *size = l->gap.cut;
    (void)!finish_cut(l);       /* if this fails, it is retried before the next frame */
    for (int i = 0; i < 2; i++) {
        l->head_bytes[i] = l->bytes[i];
        l->bytes[i] += l->gap.dropped[i];
    }
    return true;
}

/* Walks the frames to the end. A cut-off header was never followed by data and is cut away; a frame with incomplete
 * data is owed the rest, which is still in the pipe, because splice takes nothing out of a pipe that it does not put
 * into the file. */
void exec_log_open(struct exec_log *l)
{
    struct exec_frame frame;
    struct stat status;
    struct walk w = { 0 };

    l->fd = openat(l->dir, l->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (l->fd < 0 || fstat(l->fd, &status) < 0)
        return;
    uint64_t size = (uint64_t)status.st_size, at = 0, skip = 0;
    w.fd = l->fd;
    while (at + sizeof frame <= size && walk_read(&w, at, &frame)) {
        uint64_t end = at + sizeof frame + frame.size;
        if (frame.stream == EXEC_GAP) {
            if (l->gap_at || !open_gap(l, at, &frame, &size))
                break;
            at = l->gap.start;
            skip = l->gap.skip;
            continue;
        }
        uint64_t *bytes = &l->bytes[frame.stream == EXEC_STDERR];
        if (end > size) {
            l->owed = (uint32_t)(end - size);
            l->owed_stream = frame.stream;
            *bytes += frame.size - l->owed;
            l->end = at;
            l->at = size;
            return;
        }
        *bytes += frame.size - skip;
        l->weight += weigh(frame.size - skip);
        skip = 0;
        at = end;
    }
    l->end = l->at = at;
    if (at < size)
        (void)!ftruncate(l->fd, (off_t)at);
}

/* ---- head, gap and tail ---- */

static int make_log(struct exec_log *l)
{
    if (l->fd >= 0)
        return 0;
    l->fd = openat(l->dir, l->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return l->fd < 0 ? -errno : 0;
}

/* The head is full: a gap with nothing missing follows it. */
static int make_gap(struct exec_log *l)
{
    char block[GAP_BLOCK] = { 0 };
    struct exec_frame frame = { .stream = EXEC_GAP };
    uint64_t gap_at = (l->end + sizeof frame + 63) / 64 * 64, base = gap_at + sizeof(struct exec_gap);
    struct exec_gap gap = { .start = base, .offset = base };

    frame.size = (uint32_t)(base - l->end - sizeof frame);
    memcpy(block, &frame, sizeof frame);
    memcpy(block + (gap_at - l->end), &gap, sizeof gap);
    int r = write_at(l->fd, block, base - l->end, l->end);
    if (r < 0) {
        (void)!ftruncate(l->fd, (off_t)l->end);
        return r;
    }
    l->head_end = l->end;
    l->gap_at = gap_at;
    l->gap = gap;
    l->weight = 0;
    l->end = l->at = base;
    memcpy(l->head_bytes, l->bytes, sizeof l->head_bytes);
    return 0;
}

static int copy_down(struct exec_log *l, uint64_t from, uint64_t to, uint64_t size)
{
    while (size > 0) {
        size_t want = size < COPY_BYTES ? (size_t)size : COPY_BYTES;
        ssize_t n = pread(l->fd, copy_buffer, want, (off_t)from);
        int r = n <= 0 ? -EIO : write_at(l->fd, copy_buffer, (size_t)n, to);
        if (r < 0)
            return r;
        from += (uint64_t)n;
        to += (uint64_t)n;
        size -= (uint64_t)n;
    }
    return 0;
}

/* Steps 2 to 4. Rewrites the first frame's header with its remaining length. */
static int move_down(struct exec_log *l)
{
    struct exec_gap gap = l->gap;
    struct exec_frame first;
    const uint64_t to = tail_base(l), from = gap.start + sizeof first + gap.skip;
    const uint64_t left = l->end > from ? l->end - from : 0;

    /* It would overwrite itself, so it waits. If the file system can, the room is freed at once. */
    if (to + sizeof first + left > gap.start || left == 0) {
        if (gap.start > to)
            (void)!fallocate(l->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)to, (off_t)(gap.start - to));
        return 0;
    }
    if (pread(l->fd, &first, sizeof first, (off_t)gap.start) != sizeof first)
        return -EIO;
    first.size -= (uint32_t)gap.skip;
    int r = write_at(l->fd, &first, sizeof first, to);
    if (r == 0)
        r = copy_down(l, from, to + sizeof first, left);
    if (r < 0)
        return r;
    gap.start = to;
    gap.skip = 0;
    gap.cut = to + sizeof first + left;
    r = write_gap(l, &gap);
    if (r < 0)
        return r;
    l->end = l->at = gap.cut;
    return finish_cut(l);
}

/* Drops the beginning of the tail until it weighs at most keep. */
static int drop(struct exec_log *l, uint64_t keep, uint64_t needed)
{
    struct walk w = { .fd = l->fd };
    struct exec_gap gap = l->gap;
    struct exec_frame frame;
    uint64_t weight = l->weight;

    while (weight > keep && gap.start < l->end) {
        if (!walk_read(&w, gap.start, &frame))
            return -EIO;
        uint64_t *dropped = &gap.dropped[frame.stream == EXEC_STDERR];
        uint64_t size = frame.size - gap.skip, over = weight - keep;
        if (over < size && size > sizeof frame) {
            *dropped += over;
            gap.skip += over;
            gap.offset += over;
            weight += weigh(size - over) - weigh(size);
            break;
        }
        *dropped += size;
        gap.start += sizeof frame + frame.size;
        gap.offset += sizeof frame + size;
        gap.skip = 0;
        weight -= weigh(size);
    }
    if (gap.offset > needed)
        return -EAGAIN;
    int r = write_gap(l, &gap);
    if (r < 0)
        return r;
    l->weight = weight;
    return move_down(l);
}

int exec_log_room(struct exec_log *l, uint64_t needed)
{
    int r = make_log(l);

    if (r == 0)
        r = finish_cut(l);
    if (r < 0 || !l->bound)
        return r;
    if (!l->gap_at)
        return l->weight < head_most(l) ? 0 : make_gap(l);
    return l->weight < tail_full(l) ? 0 : drop(l, tail_most(l), needed);
}

uint64_t exec_log_room_bytes(const struct exec_log *l)
{
    uint64_t most = l->gap_at ? tail_full(l) : head_most(l);

    return !l->bound ? UINT64_MAX : most > l->weight ? most - l->weight : 0;
}

uint64_t exec_log_kept_bytes(const struct exec_log *l)
{
    return l->gap_at ? l->head_end + l->weight : l->at;
}

void exec_log_finish(struct exec_log *l, uint64_t needed)
{
    if (l->fd >= 0 && l->bound && l->gap_at && finish_cut(l) == 0 && l->owed == 0 && l->weight > tail_most(l))
        (void)!drop(l, tail_most(l), needed);
}

/* ---- frames ---- */

int exec_log_reserve(struct exec_log *l, uint32_t size)
{
    int r = make_log(l);

    if (r == 0 && fallocate(l->fd, FALLOC_FL_KEEP_SIZE, (off_t)l->at, (off_t)(sizeof(struct exec_frame) + size)) < 0)
        r = errno == EOPNOTSUPP ? 0 : -errno;
    return r;
}

int exec_log_begin(struct exec_log *l, uint8_t stream, uint32_t size, int64_t now_ms)
{
    struct exec_frame frame = { .size = size, .stream = stream, .time_ms = now_ms };
    int r = make_log(l);

    if (r == 0)
        r = write_at(l->fd, &frame, sizeof frame, l->at);
    if (r < 0)
        return r;
    l->at += sizeof frame;
    l->owed = size;
    l->owed_stream = stream;
    return 0;
}

static void end_frame(struct exec_log *l)
{
    l->weight += weigh(l->at - l->end - sizeof(struct exec_frame));
    l->end = l->at;
    l->owed = 0;
}

void exec_log_paid(struct exec_log *l, size_t size)
{
    l->at += size;
    l->owed -= (uint32_t)size;
    l->bytes[l->owed_stream == EXEC_STDERR] += size;
    if (l->owed == 0)
        end_frame(l);
}

int exec_log_shorten(struct exec_log *l)
{
    struct exec_frame frame;
    uint64_t end = l->end + sizeof frame;

    if (l->at <= end) {
        if (ftruncate(l->fd, (off_t)l->end) < 0)
            return -errno;
        l->at = l->end;
        l->owed = 0;
        return 0;
    }
    errno = 0;
    if (pread(l->fd, &frame, sizeof frame, (off_t)l->end) != sizeof frame)
        return errno ? -errno : -EIO;
    frame.size = (uint32_t)(l->at - end);
    int r = write_at(l->fd, &frame, sizeof frame, l->end);
    if (r < 0)
        return r;
    end_frame(l);
    return 1;
}

/* ---- reading ---- */

uint64_t exec_log_offset(const struct exec_log *l)
{
    return l->gap_at ? l->end - tail_shift(l) : l->end;
}

void exec_reader_init(struct exec_reader *r, uint64_t offset)
{
    *r = (struct exec_reader){ .at = offset, .is_counted = offset == 0 };
}

static bool is_in_gap(const struct exec_log *l, uint64_t offset)
{
    return l->gap_at && offset >= l->head_end && offset < l->gap.offset;
}

/* The header of the frame at an offset, and the place of its bytes. */
static bool read_header(const struct exec_log *l, int fd, uint64_t offset, struct exec_frame *ret, uint64_t *ret_data)
{
    bool in_tail = l->gap_at && offset >= l->gap.offset, is_first = in_tail && offset == l->gap.offset;
    uint64_t at = offset + (in_tail ? tail_shift(l) : 0), end = in_tail || !l->gap_at ? l->end : l->head_end;

    if (pread(fd, ret, sizeof *ret, (off_t)(is_first ? l->gap.start : at)) != sizeof *ret)
        return false;
    if (is_first)
        ret->size -= (uint32_t)l->gap.skip;
    *ret_data = at + sizeof *ret;
    if (*ret_data > end || ret->size > end - *ret_data)
        return false;
    return (ret->stream == EXEC_STDOUT || ret->stream == EXEC_STDERR) && !ret->reserved[0] && !ret->reserved[1]
           && !ret->reserved[2];
}

/* An ended command keeps no descriptor open: there may be very many. */
static int borrow_fd(const struct exec_log *l, int *own)
{
    if (l->fd >= 0)
        return l->fd;
    *own = openat(l->dir, l->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return *own < 0 ? -errno : *own;
}

bool exec_log_has(const struct exec_log *l, uint64_t offset)
{
    struct exec_frame frame;
    uint64_t data;
    FD own = -1;

    if (offset == 0 || offset == exec_log_offset(l) || is_in_gap(l, offset))
        return true;
    int fd = offset < exec_log_offset(l) ? borrow_fd(l, &own) : -1;
    return fd >= 0 && read_header(l, fd, offset, &frame, &data);
}

/* Moves the reader behind the gap. True: it has missed something. */
static bool pass_gap(const struct exec_log *l, struct exec_reader *r)
{
    uint64_t further = l->gap.offset - r->at;

    /* The frame that it is reading was cut, but only in the part it has read. */
    if (further < r->part) {
        r->at = l->gap.offset;
        r->part -= (uint32_t)further;
        return false;
    }
    for (int i = 0; i < 2; i++) {
        uint64_t before = l->head_bytes[i] + l->gap.dropped[i];
        uint64_t most = l->gap.dropped[i] < further ? l->gap.dropped[i] : further;
        r->missed[i] = r->is_counted ? before - r->seen[i] : most;
        r->seen[i] = before;
    }
    r->at = l->gap.offset;
    r->part = 0;
    r->is_counted = true;
    return r->missed[0] + r->missed[1] > 0;
}

ssize_t exec_log_read(const struct exec_log *l, struct exec_reader *r, struct exec_frame *frame, void *data,
                      size_t size)
{
    uint64_t from;
    FD own = -1;

    if (is_in_gap(l, r->at) && pass_gap(l, r)) {
        *frame = (struct exec_frame){ .stream = EXEC_GAP };
        return 1;
    }
    if (r->at >= exec_log_offset(l))
        return 0;
    int fd = borrow_fd(l, &own);
    if (fd < 0)
        return fd;
    if (!read_header(l, fd, r->at, frame, &from) || r->part > frame->size)
        return -EINVAL;
    size_t left = frame->size - r->part;
    ssize_t n = pread(fd, data, left < size ? left : size, (off_t)(from + r->part));
    if (n < 0)
        return -errno;
    r->part += (uint32_t)n;
    r->seen[frame->stream == EXEC_STDERR] += (uint64_t)n;
    if (r->part == frame->size) {
        r->at += sizeof *frame + frame->size;
        r->part = 0;
    }
    return n;
}
