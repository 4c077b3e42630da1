/* Frames of the owner and of egress (proto/broker.h). A wrong frame of the owner is answered with FAILED; one of egress
 * is dropped with a line on standard error. When the owner goes, so does the process; but that of a server waits for
 * the next one, and its boxes keep their keys meanwhile. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/list.h"
#include "broker/broker.h"

enum { FRAMES_PER_TURN = 32 };

static union {
    struct broker_head       head;
    struct broker_key        key;
    struct broker_box        box;
    struct broker_connection connection;
} frame;

static void answer_failed(struct broker *b, uint64_t box, const struct err *e)
{
    struct broker_failed failed = { .head = { .type = BROKER_FAILED, .box = box } };

    keybox_remove(b, box);
    err_text(e, failed.why, sizeof failed.why);
    (void)!fdpass_send(b->owner.fd, &failed, sizeof failed, NULL, 0, MSG_DONTWAIT);
}

static void on_box(struct broker *b)
{
    struct broker_head ready = { .type = BROKER_READY, .box = frame.head.box };
    struct err e = { 0 };
    int fds[2];

    if (keybox_make(b, &frame.box, fds, &e) < 0) {
        answer_failed(b, ready.box, &e);
        return;
    }
    if (fds[0] < 0)
        return;
    (void)!fdpass_send(b->owner.fd, &ready, sizeof ready, fds, 2, MSG_DONTWAIT);
    fd_close(fds[0]);
    fd_close(fds[1]);
}

static void on_connection(struct broker *b, int *fds, size_t n)
{
    struct keybox *box = keybox_find(b, frame.head.box);
    bool is_named = memchr(frame.connection.host, 0, sizeof frame.connection.host) != NULL;
    struct broker_host *host = box && is_named ? keybox_host(box, frame.connection.host) : NULL;

    if (host && n == 2) {
        relay_open(box, host, fds[0], fds[1]);
        return;
    }
    fprintf(stderr, "carrel-broker: a connection is dropped: box %llu has no key for its host\n",
            (unsigned long long)frame.head.box);
    for (size_t i = 0; i < n; i++)
        fd_close(fds[i]);
}

static void on_egress(struct loop_fd *w, uint32_t events);

static void set_egress(struct broker *b, int fd)
{
    loop_fd_remove(b->loop, &b->egress);
    fd_close(b->egress.fd);
    b->egress.fd = -1;
    b->egress.on_event = on_egress;
    if (loop_fd_add(b->loop, &b->egress, fd, EPOLLIN) < 0)
        fd_close(fd);
}

static void drop_frame(const int *fds, size_t n)
{
    explicit_bzero(&frame, sizeof frame);
    for (size_t i = 0; i < n; i++)
        fd_close(fds[i]);
}

static void on_owners_frame(struct broker *b, size_t size, int *fds, size_t n)
{
    struct err e = { 0 };
    size_t expected = 0;

    if (b->why_unable[0]) {
        drop_frame(fds, n);
        return;
    }
    switch (frame.head.type) {
    case BROKER_KEY:
        expected = sizeof frame.key;
        if (size == expected && keybox_add_key(b, &frame.key, &e) < 0)
            answer_failed(b, frame.head.box, &e);
        break;
    case BROKER_BOX:
        expected = sizeof frame.box;
        if (size == expected)
            on_box(b);
        break;
    case BROKER_GONE:
        expected = sizeof frame.head;
        keybox_remove(b, frame.head.box);
        break;
    case BROKER_EGRESS:
        expected = sizeof frame.head;
        if (n == 1) {
            set_egress(b, fds[0]);
            n = 0;
        }
        break;
    case BROKER_ALL:
        expected = sizeof frame.head;
        keybox_remove_others(b);
        break;
    default:
        break;
    }
    if (size != expected)
        fprintf(stderr, "carrel-broker: a frame of type %u is dropped\n", frame.head.type);
    drop_frame(fds, n);
}

/* Bytes, 0 at the end, -EAGAIN, or another error. */
static ssize_t receive(int fd, int fds[FDPASS_MAX], size_t *ret_n)
{
    struct fdpass passed;
    ssize_t n = fdpass_receive(fd, &frame, sizeof frame, MSG_DONTWAIT, &passed);

    *ret_n = n >= 0 ? fdpass_take(&passed, fds, FDPASS_MAX) : 0;
    return n > 0 && (passed.cut || (size_t)n < sizeof frame.head) ? -EPROTO : n;
}

static void drop_owner(struct broker *b)
{
    loop_fd_remove(b->loop, &b->owner);
    b->owner.fd = fd_close(b->owner.fd);
}

static void on_owner(struct loop_fd *w, uint32_t events)
{
    struct broker *b = container_of(w, struct broker, owner);
    int fds[FDPASS_MAX];
    size_t n_fds;

    (void)events;
    for (int i = 0; i < FRAMES_PER_TURN; i++) {
        ssize_t n = receive(w->fd, fds, &n_fds);
        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n <= 0 && n != -EPROTO) {
            if (b->outlives_owner)
                drop_owner(b);
            else
                loop_stop(b->loop);
            return;
        }
        on_owners_frame(b, n < 0 ? 0 : (size_t)n, fds, n_fds);
    }
}

static void on_egress(struct loop_fd *w, uint32_t events)
{
    struct broker *b = container_of(w, struct broker, egress);
    int fds[FDPASS_MAX];
    size_t n_fds;

    (void)events;
    for (int i = 0; i < FRAMES_PER_TURN; i++) {
        ssize_t n = receive(w->fd, fds, &n_fds);
        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n == sizeof frame.connection && frame.head.type == BROKER_CONNECTION) {
            on_connection(b, fds, n_fds);
            continue;
        }
        for (size_t k = 0; k < n_fds; k++)
            fd_close(fds[k]);
        if (n <= 0 && n != -EPROTO) {
            loop_fd_remove(b->loop, w);
            w->fd = fd_close(w->fd);
            return;
        }
    }
}

static void tell_unable(const struct broker *b, int fd)
{
    struct broker_failed unable = { .head.type = BROKER_UNABLE };

    snprintf(unable.why, sizeof unable.why, "%s", b->why_unable);
    (void)!fdpass_send(fd, &unable, sizeof unable, NULL, 0, MSG_DONTWAIT);
}

int broker_link_owner(struct broker *b, int fd)
{
    drop_owner(b);
    if (b->why_unable[0])
        tell_unable(b, fd);
    b->owner.on_event = on_owner;
    b->n_owners++;
    int r = loop_fd_add(b->loop, &b->owner, fd, EPOLLIN);
    b->owner.fd = r < 0 ? fd_close(fd) : fd;
    return r;
}

void broker_links_close(struct broker *b)
{
    loop_fd_remove(b->loop, &b->owner);
    loop_fd_remove(b->loop, &b->egress);
    fd_close(b->owner.fd);
    fd_close(b->egress.fd);
}
