/* Messages in packets over one seqpacket socket. The interpreter is not trusted: a packet that does not continue the
 * present message, or announces too much, breaks the link. Messages to send wait in a bounded queue. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/jsonscan.h"
#include "base/list.h"
#include "front/links/guest_link.h"

enum {
    QUEUE_BYTES_MOST = LINK_MESSAGE_MOST,
    QUEUE_MOST = 4096,
    TURN_BYTES = 1 << 20,               /* of one kernel before the others get their turn */
    TURN_PACKETS = 64,
    FIRST_ROOM = 256 << 10,
    KEPT_MOST = 4 << 20,
};

static char packet[sizeof(struct link_packet) + LINK_PACKET + 1];   /* not used across calls */

static void on_event(struct loop_fd *w, uint32_t events);

void guest_link_init(struct guest_link *l, struct loop *loop, const struct guest_link_owner *owner)
{
    *l = (struct guest_link){ .loop = loop, .owner = owner, .watch = { .fd = -1, .on_event = on_event } };
    l->queue_end = &l->queue;
    l->kept_end = &l->kept;
}

static void free_outs(struct guest_out **list)
{
    while (*list) {
        struct guest_out *o = *list;
        *list = o->next;
        guest_message_unref(o->message);
        free(o);
    }
}

/* Room for small messages is not counted: an interpreter that has used up the bound can still send these. */
static size_t counted(size_t room)
{
    return room > FIRST_ROOM ? room : 0;
}

static void drop_partial(struct guest_link *l)
{
    (void)share_move(&l->partials, counted(l->room), 0);
    if (l->partial)
        free(guest_message_block(l->partial));
    l->partial = NULL;
    l->room = l->got = 0;
}

static bool wants_out(const struct guest_link *l)
{
    return l->queue && (!l->keep || l->kept_bytes < KEPT_MOST);
}

static void arm(struct guest_link *l)
{
    uint32_t events = (l->held ? 0 : (uint32_t)EPOLLIN) | (wants_out(l) ? (uint32_t)EPOLLOUT : 0);

    if (l->watch.fd < 0)
        return;
    if (!events)
        loop_fd_remove(l->loop, &l->watch);     /* otherwise its end would be reported all the time */
    else if (!l->watch.watching) {
        if (loop_fd_add(l->loop, &l->watch, l->watch.fd, events) < 0)
            abort();
    } else if (l->watch.events != events && loop_fd_set(l->loop, &l->watch, events) < 0) {
        abort();
    }
}

static void flush(struct guest_link *l);

int guest_link_open(struct guest_link *l, int fd, bool keep)
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

void guest_link_close(struct guest_link *l)
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

void guest_link_confirm(struct guest_link *l)
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

void guest_link_rewind(struct guest_link *l)
{
    loop_fd_remove(l->loop, &l->watch);
    l->watch.fd = -1;
    drop_partial(l);
    for (struct guest_out *o = l->kept; o; o = o->next)
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

/* ---- output ---- */

/* 0: the first message was sent; -errno. */
static int send_first(struct guest_link *l)
{
    const struct guest_message *m = l->queue->message;

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

static void flush(struct guest_link *l)
{
    while (wants_out(l)) {
        int r = send_first(l);
        if (r == -EAGAIN || r == -EINTR || r == -ENOBUFS || r == -ENOMEM)
            break;
        /* The other side has closed, so it is dropped. The end of the process is reported by its exec. */
        struct guest_out *o = l->queue;
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
        guest_message_unref(o->message);
        free(o);
    }
    arm(l);
}

int guest_link_send(struct guest_link *l, struct guest_message *m)
{
    if (l->queue && (l->queued + m->size > QUEUE_BYTES_MOST || l->n_queued >= QUEUE_MOST))
        return -ENOBUFS;
    size_t before = l->queued + l->kept_bytes;
    if (!share_move_bytes(&l->share, before, before + m->size))
        return -EDQUOT;
    struct guest_out *o = malloc(sizeof *o);
    if (!o) {
        (void)share_move_bytes(&l->share, before + m->size, before);
        return -ENOMEM;
    }
    *o = (struct guest_out){ .message = m };
    guest_message_ref(m);
    *l->queue_end = o;
    l->queue_end = &o->next;
    l->queued += m->size;
    l->n_queued++;
    if (l->watch.fd >= 0 && l->queue == o)
        flush(l);
    return 0;
}

/* ---- input ---- */

static void broken(struct guest_link *l, enum outcome outcome, const char *why)
{
    loop_fd_remove(l->loop, &l->watch);
    l->watch.fd = -1;
    drop_partial(l);
    l->owner->on_broken(l, outcome, why);
}

/* Room for n more bytes of a message of total. */
static bool grow(struct guest_link *l, size_t total, size_t n)
{
    if (l->partial && l->got + n <= l->room)
        return true;
    size_t room = l->room ? l->room * 2 : FIRST_ROOM;
    if (room < l->got + n)
        room = l->got + n;
    if (room > total)
        room = total;
    size_t before = counted(l->room), now = counted(room);
    if (!share_move(&l->partials, before, now))
        return false;
    size_t own = l->owner->before;
    char *old = l->partial ? guest_message_block(l->partial) : NULL;
    char *block = realloc(old, own + sizeof(struct guest_message) + room + 1);
    if (!block) {
        (void)share_move(&l->partials, now, before);
        return false;
    }
    l->partial = (struct guest_message *)(void *)(block + own);
    l->partial->before = own;
    l->room = room;
    return true;
}

static void complete(struct guest_link *l)
{
    struct guest_message *m = l->partial;

    (void)share_move(&l->partials, counted(l->room), 0);
    l->partial = NULL;
    size_t size = l->got;
    l->room = l->got = 0;
    memset(guest_message_block(m), 0, m->before);
    *m = (struct guest_message){ .refs = 1, .before = m->before, .size = size };
    m->data[size] = '\0';
    const char *wrong = l->owner->check(m);
    if (wrong)
        broken(l, OUTCOME_ERROR, wrong);
    else
        l->owner->on_message(l, m);
    guest_message_unref(m);
}

static void take_packet(struct guest_link *l, size_t size)
{
    struct link_packet head;

    if (size <= sizeof head) {
        broken(l, OUTCOME_ERROR, "a packet without contents");
        return;
    }
    memcpy(&head, packet, sizeof head);
    size_t total = le32toh(head.total), offset = le32toh(head.offset), n = size - sizeof head;
    if (offset == 0) {
        drop_partial(l);        /* the rest of the previous message will never come */
        l->synced = true;
    } else if (!l->synced) {
        return;
    }
    if (total > LINK_MESSAGE_MOST) {
        broken(l, OUTCOME_OUTPUT, "a message that is too large");
        return;
    }
    bool continues = offset == l->got && n <= total - offset && (!l->partial || l->partial->size == total);
    if (total < l->owner->least || !continues) {
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

    /* If the process ended without reading everything, the socket reports a reset once, before its last messages. */
    while ((n = recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC)) < 0 && (errno == EINTR || errno == ECONNRESET))
        ;
    return n;
}

/* Bytes, 0: nothing there (any more). */
static size_t receive(struct guest_link *l)
{
    struct iovec v = { packet, sizeof packet };
    struct msghdr message = { .msg_iov = &v, .msg_iovlen = 1 };
    ssize_t n = receive_packet(l->watch.fd, &message);

    if (n == 0) {
        /* If it sent a message and ended while we looked, the end is reported before that message; see box/link.c. */
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

void guest_link_drain(struct guest_link *l)
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
    struct guest_link *l = container_of(w, struct guest_link, watch);

    if (events & EPOLLOUT)
        flush(l);
    if (events & ~(uint32_t)EPOLLOUT)
        guest_link_turn(l);
}

void guest_link_turn(struct guest_link *l)
{
    size_t turn = 0, n;

    for (int i = 0; i < TURN_PACKETS && turn < TURN_BYTES && l->watch.fd >= 0 && !l->held; i++, turn += n)
        if ((n = receive(l)) == 0)
            return;
}

void guest_link_hold(struct guest_link *l, bool hold)
{
    if (l->held == hold)
        return;
    l->held = hold;
    arm(l);
}

bool guest_link_last_words(const char *tail, size_t tail_size, int status, char *ret, size_t size)
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
