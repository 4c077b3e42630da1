/* Messages in packets over one seqpacket socket. What comes is a stranger's word: a packet that does not continue what
 * is there, or promises too much, ends the conversation. What goes waits in a queue with a bound. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/list.h"
#include "front/kernels/kernel_link.h"
#include "proto/service.h"

enum {
    QUEUE_BYTES_MOST = LINK_MESSAGE_MOST,
    QUEUE_MOST = 4096,
    TURN_BYTES = 1 << 20,               /* of one kernel before the others have their turn */
    TURN_PACKETS = 64,
    FIRST_ROOM = 256 << 10,
    KEPT_MOST = 4 << 20,
};
#define PARTIAL_ALL_MOST (UINT64_C(1) << 30)    /* of all kernels together */

static uint64_t partial_all;            /* allocated for messages that are not complete */
static char     packet[sizeof(struct link_packet) + LINK_PACKET + 1];   /* used by nobody across calls */

static void on_event(struct loop_fd *w, uint32_t events);

void kernel_link_init(struct kernel_link *l, struct loop *loop)
{
    *l = (struct kernel_link){ .loop = loop, .watch = { .fd = -1, .on_event = on_event } };
    l->queue_end = &l->queue;
    l->kept_end = &l->kept;
}

static void free_outs(struct kernel_out **list)
{
    while (*list) {
        struct kernel_out *o = *list;
        *list = o->next;
        kernel_message_unref(o->message);
        free(o);
    }
}

/* Room for small messages is not counted: whoever has used up the bound with large ones goes on with these. */
static size_t counted(size_t room)
{
    return room > FIRST_ROOM ? room : 0;
}

static void drop_partial(struct kernel_link *l)
{
    partial_all -= counted(l->room);
    (void)share_move(&l->partials, counted(l->room), 0);
    free(l->partial);
    l->partial = NULL;
    l->room = l->got = 0;
}

static bool wants_out(const struct kernel_link *l)
{
    return l->queue && (!l->keep || l->kept_bytes < KEPT_MOST);
}

static void arm(struct kernel_link *l)
{
    uint32_t events = (l->held ? 0 : (uint32_t)EPOLLIN) | (wants_out(l) ? (uint32_t)EPOLLOUT : 0);

    if (l->watch.fd < 0)
        return;
    if (!events)
        loop_fd_remove(l->loop, &l->watch);     /* else its end would be told all the time */
    else if (!l->watch.watching) {
        if (loop_fd_add(l->loop, &l->watch, l->watch.fd, events) < 0)
            abort();
    } else if (l->watch.events != events && loop_fd_set(l->loop, &l->watch, events) < 0) {
        abort();
    }
}

static void flush(struct kernel_link *l);

int kernel_link_open(struct kernel_link *l, int fd, bool keep)
{
    int bytes = 1 << 20;

    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    l->synced = false;
    l->keep = keep;
    int r = loop_fd_add(l->loop, &l->watch, fd, EPOLLIN);
    l->watch.fd = r < 0 ? -1 : fd;
    if (r == 0)
        flush(l);
    return r;
}

void kernel_link_close(struct kernel_link *l)
{
    loop_fd_remove(l->loop, &l->watch);
    l->watch.fd = -1;
    l->held = false;
    drop_partial(l);
    free_outs(&l->queue);
    free_outs(&l->kept);
    l->queue_end = &l->queue;
    l->kept_end = &l->kept;
    (void)share_move_bytes(&l->share, l->queued + l->kept_bytes, 0);
    l->queued = l->sent = l->kept_bytes = 0;
    l->n_queued = 0;
    l->keep = false;
}

void kernel_link_confirm(struct kernel_link *l)
{
    if (!l->keep)
        return;
    l->keep = false;
    free_outs(&l->kept);
    l->kept_end = &l->kept;
    (void)share_move_bytes(&l->share, l->queued + l->kept_bytes, l->queued);
    l->kept_bytes = 0;
    if (l->watch.fd >= 0)
        flush(l);
}

void kernel_link_rewind(struct kernel_link *l)
{
    loop_fd_remove(l->loop, &l->watch);
    l->watch.fd = -1;
    drop_partial(l);
    for (struct kernel_out *o = l->kept; o; o = o->next)
        l->n_queued++;
    *l->kept_end = l->queue;
    if (!l->queue)
        l->queue_end = l->kept_end;
    l->queue = l->kept;
    l->queued += l->kept_bytes;
    l->kept = NULL;
    l->kept_end = &l->kept;
    l->kept_bytes = l->sent = 0;
    if (!l->queue)
        l->queue_end = &l->queue;
}

/* ---- out ---- */

/* 0: the first message is gone; -errno. */
static int send_first(struct kernel_link *l)
{
    const struct kernel_message *m = l->queue->message;

    while (l->sent < m->size) {
        size_t n = m->size - l->sent < LINK_PACKET ? m->size - l->sent : LINK_PACKET;
        struct link_packet head = { .total = htole32((uint32_t)m->size), .offset = htole32((uint32_t)l->sent) };
        struct iovec v[] = { { &head, sizeof head }, { (char *)(uintptr_t)m->data + l->sent, n } };
        struct msghdr message = { .msg_iov = v, .msg_iovlen = 2 };
        if (sendmsg(l->watch.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            return -errno;
        l->sent += n;
    }
    return 0;
}

static void flush(struct kernel_link *l)
{
    while (wants_out(l)) {
        int r = send_first(l);
        if (r == -EAGAIN || r == -EINTR || r == -ENOBUFS || r == -ENOMEM)
            break;
        /* Nobody will read it; that the kernel is dead is told by others. */
        struct kernel_out *o = l->queue;
        l->queue = o->next;
        if (!l->queue)
            l->queue_end = &l->queue;
        l->queued -= o->message->size;
        l->n_queued--;
        l->sent = 0;
        if (l->keep) {
            o->next = NULL;
            *l->kept_end = o;
            l->kept_end = &o->next;
            l->kept_bytes += o->message->size;
            continue;
        }
        size_t rest = l->queued + l->kept_bytes;
        (void)share_move_bytes(&l->share, rest + o->message->size, rest);
        kernel_message_unref(o->message);
        free(o);
    }
    arm(l);
}

int kernel_link_send(struct kernel_link *l, struct kernel_message *m)
{
    if (l->queue && (l->queued + m->size > QUEUE_BYTES_MOST || l->n_queued >= QUEUE_MOST))
        return -ENOBUFS;
    size_t before = l->queued + l->kept_bytes;
    if (!share_move_bytes(&l->share, before, before + m->size))
        return -EDQUOT;
    struct kernel_out *o = malloc(sizeof *o);
    if (!o) {
        (void)share_move_bytes(&l->share, before + m->size, before);
        return -ENOMEM;
    }
    *o = (struct kernel_out){ .message = m };
    kernel_message_ref(m);
    *l->queue_end = o;
    l->queue_end = &o->next;
    l->queued += m->size;
    l->n_queued++;
    if (l->watch.fd >= 0 && l->queue == o)
        flush(l);
    return 0;
}

/* ---- in ---- */

static void broken(struct kernel_link *l, enum outcome outcome, const char *why)
{
    loop_fd_remove(l->loop, &l->watch);
    l->watch.fd = -1;
    drop_partial(l);
    l->on_broken(l, outcome, why);
}

/* Room for n more bytes of a message of total. */
static bool grow(struct kernel_link *l, size_t total, size_t n)
{
    if (l->partial && l->got + n <= l->room)
        return true;
    size_t room = l->room ? l->room * 2 : FIRST_ROOM;
    if (room < l->got + n)
        room = l->got + n;
    if (room > total)
        room = total;
    size_t before = counted(l->room), now = counted(room);
    if ((now > before && partial_all - before + now > PARTIAL_ALL_MOST) || !share_move(&l->partials, before, now))
        return false;
    struct kernel_message *m = realloc(l->partial, sizeof *m + room + 1);
    if (!m) {
        (void)share_move(&l->partials, now, before);
        return false;
    }
    partial_all += now - before;
    l->partial = m;
    l->room = room;
    return true;
}

static void complete(struct kernel_link *l)
{
    struct kernel_message *m = l->partial;

    partial_all -= counted(l->room);
    (void)share_move(&l->partials, counted(l->room), 0);
    l->partial = NULL;
    size_t size = l->got;
    l->room = l->got = 0;
    *m = (struct kernel_message){ .refs = 1, .size = size };
    m->data[size] = '\0';
    const char *wrong = !l->plain                        ? kernel_message_read(m)
                        : jsonscan_is_object(m->data, size) ? NULL
                                                            : "what is no JSON object";
    if (wrong)
        broken(l, OUTCOME_ERROR, wrong);
    else
        l->on_message(l, m);
    kernel_message_unref(m);
}

static void take_packet(struct kernel_link *l, size_t size)
{
    struct link_packet head;

    if (size <= sizeof head) {
        broken(l, OUTCOME_ERROR, "a packet without contents");
        return;
    }
    memcpy(&head, packet, sizeof head);
    size_t total = le32toh(head.total), offset = le32toh(head.offset), n = size - sizeof head;
    if (offset == 0) {
        drop_partial(l);        /* the rest of the last one will never come */
        l->synced = true;
    } else if (!l->synced) {
        return;
    }
    if (total > LINK_MESSAGE_MOST) {
        broken(l, OUTCOME_OUTPUT, "a message that is too large");
        return;
    }
    size_t least = l->plain ? (size_t)SERVICE_MESSAGE_LEAST : (size_t)KERNEL_MESSAGE_LEAST;
    if (total < least || offset != l->got || n > total - offset || (l->partial && l->partial->size != total)) {
        broken(l, OUTCOME_ERROR, "a packet that does not belong to its message");
        return;
    }
    if (!grow(l, total, n)) {
        broken(l, OUTCOME_OUTPUT, "a message for which there is no memory");
        return;
    }
    l->partial->size = total;
    memcpy(l->partial->data + l->got, packet + sizeof head, n);
    l->got += n;
    if (l->got == total)
        complete(l);
}

static ssize_t receive_packet(int fd, struct msghdr *message)
{
    ssize_t n;

    /* A kernel that ended without reading all is told as a reset, once, before what it said itself. */
    while ((n = recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && (errno == EINTR || errno == ECONNRESET))
        ;
    return n;
}

/* Bytes, 0: nothing there (any more). */
static size_t receive(struct kernel_link *l)
{
    struct iovec v = { packet, sizeof packet };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1 };
    ssize_t n = receive_packet(l->watch.fd, &message);

    if (n == 0) {
        /* If it said its last word and ended while we looked, the end is told before that word; see box/link.c. */
        n = receive_packet(l->watch.fd, &message);
        if (n < 0 && errno == EAGAIN)
            n = 0;
    } else if (n < 0 && errno == EAGAIN) {
        return 0;
    }
    if (n <= 0)
        broken(l, OUTCOME_NONE, "closed its link");
    else if (message.msg_flags & MSG_TRUNC || (size_t)n == sizeof packet)
        broken(l, OUTCOME_ERROR, "a packet that is too large");
    else
        take_packet(l, (size_t)n);
    return n > 0 ? (size_t)n : 0;
}

void kernel_link_drain(struct kernel_link *l)
{
    int left = 0;
    size_t n;

    if (l->watch.fd < 0 || ioctl(l->watch.fd, FIONREAD, &left) < 0)
        left = 0;
    /* Once at least: a message without contents, or the end, is not counted. */
    do
        n = l->watch.fd >= 0 ? receive(l) : 0;
    while (n > 0 && (left -= (int)n) > 0);
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct kernel_link *l = container_of(w, struct kernel_link, watch);

    if (events & EPOLLOUT)
        flush(l);
    if (events & ~(uint32_t)EPOLLOUT)
        kernel_link_turn(l);
}

void kernel_link_turn(struct kernel_link *l)
{
    size_t turn = 0, n;

    for (int i = 0; i < TURN_PACKETS && turn < TURN_BYTES && l->watch.fd >= 0 && !l->held; i++, turn += n)
        if ((n = receive(l)) == 0)
            return;
}

void kernel_link_hold(struct kernel_link *l, bool hold)
{
    if (l->held == hold)
        return;
    l->held = hold;
    arm(l);
}

bool kernel_link_last_words(const char *tail, size_t tail_size, int status, char *ret, size_t size)
{
    size_t end = tail_size, start;
    char error[256], hint[160];

    while (end > 0 && (unsigned char)tail[end - 1] <= ' ')
        end--;
    for (start = end; start > 0 && tail[start - 1] != '\n';)
        start--;
    struct jsonslice line = { .data = tail + start, .size = end - start };
    if (status != LINK_UNFIT || !jsonscan_is_object(line.data, line.size) ||
        !jsonscan_text(jsonscan_find(line, LINK_ERROR), error, sizeof error)) {
        snprintf(ret, size, "%.*s", (int)line.size, line.data);
        return false;
    }
    bool has_hint = jsonscan_text(jsonscan_find(line, LINK_HINT), hint, sizeof hint);
    snprintf(ret, size, "%s%s%s", error, has_hint ? "; " : "", has_hint ? hint : "");
    return true;
}
