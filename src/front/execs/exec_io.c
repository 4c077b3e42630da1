/* A command reads at its own pace. Bytes that it does not take at once are kept here (one piece), and the sender is
 * held back until they are written. A terminal exists only after the command has started, so input may have to wait for
 * that first. */
#define _GNU_SOURCE
#include "front/execs/exec_io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/boxes/boxes.h"
#include "front/front.h"

static char piece[1 << 16];        /* of a log that is being collected; not used across calls */

static bool is_coming(const struct exec *x)
{
    return x->terminal && x->state == EXEC_STARTING;
}

/* Writes the kept bytes. 0: all written. */
static int push(struct exec_input *f)
{
    while (f->at < f->size) {
        ssize_t n = is_coming(f->exec) ? -EAGAIN : exec_stdin_write(f->exec, f->data + f->at, f->size - f->at);
        if (n < 0)
            return (int)n;
        f->at += (size_t)n;
    }
    return 0;
}

static void go_on(struct exec_input *f)
{
    if (!f->busy || push(f) == -EAGAIN)
        return;
    f->busy = false;
    free(f->data);
    f->data = NULL;
    share_leave(&f->share);
    f->on_room(f);
}

static void on_stdin(struct exec *x, void *arg)
{
    (void)x;
    go_on(arg);
}

static void on_change(struct exec_follower *follower)
{
    struct exec_input *f = container_of(follower, struct exec_input, follower);

    if (f->busy && !is_coming(f->exec))
        go_on(f);
}

int exec_input_init(struct exec_input *f, struct exec *x, void (*on_room)(struct exec_input *f))
{
    if (x->on_stdin)
        return -EBUSY;
    *f = (struct exec_input){ .exec = x, .follower = { .on_change = on_change }, .on_room = on_room };
    x->on_stdin = on_stdin;
    x->stdin_arg = f;
    exec_follow(x, &f->follower);
    return 0;
}

void exec_input_done(struct exec_input *f)
{
    if (!f->exec)
        return;
    exec_unfollow(&f->follower);
    f->exec->on_stdin = NULL;
    f->exec->stdin_arg = NULL;
    f->exec = NULL;
    f->busy = false;
    free(f->data);
    f->data = NULL;
    share_leave(&f->share);
}

int exec_input_write(struct exec_input *f, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = is_coming(f->exec) ? -EAGAIN : exec_stdin_write(f->exec, data, size);
        if (n == -EAGAIN)
            break;
        if (n < 0)
            return (int)n;
        data += n;
        size -= (size_t)n;
    }
    if (size == 0)
        return 0;
    if (share_join(&f->share, &f->exec->box->front->memory, f->exec->box->owner) < 0)
        return -ENOMEM;
    f->data = share_move_bytes(&f->share, 0, size) ? malloc(size) : NULL;
    if (!f->data) {
        bool is_full = f->share.held == 0 && !share_fits(&f->share, size);
        share_leave(&f->share);
        return is_full ? -EDQUOT : -ENOMEM;
    }
    memcpy(f->data, data, size);
    f->at = 0;
    f->size = size;
    f->busy = true;
    return -EAGAIN;
}

/* ---- a whole input, sent without further requests ---- */

static void all_sent(struct exec_input *f)
{
    exec_stdin_close(f->exec);
    exec_input_done(f);
    free(f);
}

int exec_io_feed(struct exec *x, const char *data, size_t size)
{
    struct exec_input *f = malloc(sizeof *f);
    int r = f ? exec_input_init(f, x, all_sent) : -ENOMEM;

    if (r < 0) {
        free(f);
        return r;
    }
    r = is_coming(x) && size == 0 ? -EAGAIN : exec_input_write(f, data, size);
    if (r == -EAGAIN) {
        f->busy = true;
        return 0;
    }
    all_sent(f);
    return r == -ENOMEM || r == -EDQUOT ? r : 0;
}

/* ---- output ---- */

/* The parts of one stream to show: its beginning and its end. */
struct shown_part {
    uint64_t at;                /* of the next byte in the log */
    uint64_t head, tail;        /* bytes before head and from tail on are shown */
};

/* Half of the shown bytes are the beginning, unless the log has less of one part. */
static struct shown_part choose(const struct exec_log *l, int stream, uint64_t most)
{
    uint64_t total = l->bytes[stream], dropped = l->gap.dropped[stream];
    uint64_t before = dropped ? l->head_bytes[stream] : total, after = total - before - dropped, head = most / 2;

    if (total - dropped <= most)
        return (struct shown_part){ .head = before, .tail = before + dropped };
    if (dropped && head > before)
        head = before;
    if (dropped && most - head > after)
        head = most - after;
    return (struct shown_part){ .head = head, .tail = total - (most - head) };
}

static void add_shown(struct buf *text, struct shown_part *p, const char *data, size_t size)
{
    uint64_t end = p->at + size, head = end < p->head ? end : p->head, tail = p->at > p->tail ? p->at : p->tail;

    if (p->at < head)
        buf_add(text, data, (size_t)(head - p->at));
    if (tail < end)
        buf_add(text, data + (tail - p->at), (size_t)(end - tail));
    p->at = end;
}

static bool continues(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Removes a character that was cut in two. */
static void trim_seam(struct exec_text *t)
{
    size_t begin = t->missing_at, end = t->missing_at;
    char *data = t->text.data;

    if (!data)
        return;
    while (end < t->text.length && end - t->missing_at < 3 && continues(data[end]))
        end++;
    while (begin > 0 && t->missing_at - begin < 3 && continues(data[begin - 1]))
        begin--;
    unsigned char lead = begin > 0 ? (unsigned char)data[begin - 1] : 0;
    size_t wants = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
    begin = wants > t->missing_at - begin + 1 ? begin - 1 : t->missing_at;
    memmove(data + begin, data + end, t->text.length - end);
    t->text.length -= end - begin;
    data[t->text.length] = '\0';
    t->missing_at = begin;
}

bool exec_io_collect(const struct exec *x, size_t most_bytes, struct exec_text ret[2])
{
    const struct exec_log *l = &x->log;
    struct exec_reader reader;
    struct exec_frame frame;
    struct shown_part part[2];
    uint64_t kept[2], most[2];
    ssize_t n;

    for (int i = 0; i < 2; i++)
        kept[i] = l->bytes[i] - l->gap.dropped[i];
    /* One stream may use what the other does not need. */
    most[1] = kept[0] < most_bytes / 2 ? most_bytes - kept[0] : most_bytes / 2;
    most[1] = kept[1] < most[1] ? kept[1] : most[1];
    most[0] = most_bytes - most[1];
    for (int i = 0; i < 2; i++) {
        ret[i] = (struct exec_text){ 0 };
        buf_init(&ret[i].text, most_bytes);
        part[i] = choose(l, i, most[i]);
    }
    exec_reader_init(&reader, 0);
    while ((n = exec_log_read(l, &reader, &frame, piece, sizeof piece)) > 0) {
        int i = frame.stream == EXEC_STDERR;
        if (frame.stream != EXEC_GAP)
            add_shown(&ret[i].text, &part[i], piece, (size_t)n);
        for (i = 0; frame.stream == EXEC_GAP && i < 2; i++)
            part[i].at += reader.missed[i];
    }
    for (int i = 0; i < 2; i++) {
        size_t length = ret[i].text.length;
        ret[i].missing_at = part[i].head < length ? (size_t)part[i].head : length;
        if (length < l->bytes[i])
            trim_seam(&ret[i]);
        ret[i].missing = l->bytes[i] - ret[i].text.length;
    }
    return n == 0 && buf_error(&ret[0].text) == 0 && buf_error(&ret[1].text) == 0;
}

void exec_text_done(struct exec_text text[2])
{
    buf_done(&text[0].text);
    buf_done(&text[1].text);
}
