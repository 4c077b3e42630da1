#define _GNU_SOURCE
#include "front/fake_guest.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "proto/link.h"
#include "unit/unit.h"

static struct guest_text copy_of(const char *data, size_t size)
{
    struct guest_text t = { .data = malloc(size + 1), .size = size };

    assert_non_null(t.data);
    memcpy(t.data, data, size);
    t.data[size] = '\0';
    return t;
}

struct fake_guest *guest_new(int link, int out)
{
    struct fake_guest *g = calloc(1, sizeof *g);

    assert_non_null(g);
    g->link = link;
    g->out = out;
    return g;
}

void guest_close_link(struct fake_guest *g)
{
    g->link = fd_close(g->link);
    free(g->partial.data);
    g->partial = (struct guest_text){ 0 };
    for (; g->n; g->n--, g->first = (g->first + 1) % GUEST_QUEUE)
        free(g->say[g->first].data);
    while (g->n_waiting)
        free(g->waiting[--g->n_waiting].data);
}

void guest_free(struct fake_guest *g)
{
    if (!g)
        return;
    guest_close_link(g);
    fd_close(g->out);
    free(g->parent);
    free(g);
}

void guest_exit(struct fake_guest *g, int code, int signal)
{
    g->is_over = true;
    g->code = code;
    g->signal = signal;
}

/* ---- out ---- */

void guest_say(struct fake_guest *g, const char *data, size_t size)
{
    assert_true(g->n < GUEST_QUEUE);
    g->say[(g->first + g->n++) % GUEST_QUEUE] = copy_of(data, size);
}

void guest_print(struct fake_guest *g, const char *text)
{
    guest_say(g, text, strlen(text));
    g->say[(g->first + g->n - 1) % GUEST_QUEUE].is_printed = true;
}

static void send_packet(struct fake_guest *g, size_t total, size_t offset, const char *data, size_t size)
{
    struct link_packet head = { .total = htole32((uint32_t)total), .offset = htole32((uint32_t)offset) };
    struct iovec v[] = { { &head, sizeof head }, { (char *)(uintptr_t)data, size } };
    struct msghdr message = { .msg_iov = v, .msg_iovlen = 2 };

    ssize_t n = sendmsg(g->link, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    assert_true(n == (ssize_t)(sizeof head + size) || (n < 0 && (errno == EPIPE || errno == ECONNRESET)));
}

/* What it says is small: one packet. */
static void say_first(struct fake_guest *g, unsigned times)
{
    struct guest_text t = g->say[g->first];

    g->first = (g->first + 1) % GUEST_QUEUE;
    g->n--;
    assert_true(t.size <= LINK_PACKET);
    for (unsigned i = 0; i < times; i++)
        if (t.is_printed)
            assert_int_equal(fd_write_all(g->out, t.data, t.size), 0);
        else
            send_packet(g, t.size, 0, t.data, t.size);
    free(t.data);
}

void guest_lie(struct fake_guest *g)
{
    send_packet(g, 5, 3, "{}", 2);          /* not of what has begun, */
    send_packet(g, 2, 0, "[]", 2);          /* too short for a kernel, no object for a worker */
}

/* ---- in ---- */

static void hear(struct fake_guest *g, const char *data, size_t size)
{
    if (g->kind == GUEST_NEW)
        g->kind = data[0] == '{' ? GUEST_WORKER : GUEST_KERNEL;
    (g->kind == GUEST_KERNEL ? kernel_hear : worker_hear)(g, data, size);
}

void guest_put_off(struct fake_guest *g, const char *data, size_t size)
{
    assert_true(g->n_waiting < GUEST_WAITING);
    g->waiting[g->n_waiting++] = copy_of(data, size);
}

/* What was put off, if it can be done now. */
static void catch_up(struct fake_guest *g)
{
    while (!g->n && g->n_waiting && !g->task[0].is_there && !g->is_over) {
        struct guest_text first = g->waiting[0];
        memmove(g->waiting, g->waiting + 1, --g->n_waiting * sizeof *g->waiting);
        hear(g, first.data, first.size);
        free(first.data);
    }
}

static void hear_packet(struct fake_guest *g, unsigned times)
{
    static char packet[sizeof(struct link_packet) + LINK_PACKET];
    struct link_packet head;
    ssize_t n = recv(g->link, packet, sizeof packet, MSG_DONTWAIT);

    if (n <= (ssize_t)sizeof head) {
        guest_exit(g, 0, 0);        /* the front is gone */
        return;
    }
    memcpy(&head, packet, sizeof head);
    size_t total = le32toh(head.total), offset = le32toh(head.offset), size = (size_t)n - sizeof head;
    if (offset == 0) {
        free(g->partial.data);
        g->partial = (struct guest_text){ .data = malloc(total + 1) };
        assert_non_null(g->partial.data);
    }
    if (!g->partial.data)
        return;                     /* the rest of one whose beginning was lost */
    assert_true(offset == g->partial.size && offset + size <= total);
    memcpy(g->partial.data + offset, packet + sizeof head, size);
    g->partial.size += size;
    if (g->partial.size < total)
        return;
    struct guest_text whole = g->partial;
    g->partial = (struct guest_text){ 0 };
    for (unsigned i = 0; i < times && !g->is_over; i++)
        hear(g, whole.data, whole.size);
    free(whole.data);
}

/* ---- its turns ---- */

static bool can(const struct fake_guest *g, short what)
{
    struct pollfd p = { .fd = g->link, .events = what };

    return g->link >= 0 && poll(&p, 1, 0) == 1 && (p.revents & what);
}

bool guest_will_say(const struct fake_guest *g)
{
    return g->n && can(g, POLLOUT);
}

bool guest_has_work(const struct fake_guest *g)
{
    return !g->hangs && !g->is_over && (guest_will_say(g) || can(g, POLLIN));
}

void guest_turn(struct fake_guest *g, unsigned times)
{
    if (guest_will_say(g))
        say_first(g, times);
    else
        hear_packet(g, times);
    if (g->goes && !g->n)
        guest_exit(g, 3, 0);
    catch_up(g);
}

void guest_signal(struct fake_guest *g, int signal)
{
    if (g->hangs || g->is_over)
        return;
    (g->kind == GUEST_WORKER ? worker_feel : kernel_feel)(g, signal);
}
