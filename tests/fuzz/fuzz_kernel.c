/* What a kernel may send: packets of any bytes over its link. Whatever they are, nothing is read beyond them, and what
 * comes through is a message that says of itself what is in it. Each packet of the input has two bytes of length before
 * it; the first byte says how the packet's own header is made, so that whole messages are found soon. */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "front/kernels/kernel_message.c"
#include "front/links/guest_link.c"
#include "front/links/guest_message.c"

/* The loop is not turned here: what is there is read at once. */
int loop_fd_add(struct loop *l, struct loop_fd *w, int fd, uint32_t events)
{
    (void)l;
    (void)fd;
    w->events = events;
    w->watching = true;
    return 0;
}

int loop_fd_set(struct loop *l, struct loop_fd *w, uint32_t events)
{
    (void)l;
    w->events = events;
    return 0;
}

void loop_fd_remove(struct loop *l, struct loop_fd *w)
{
    (void)l;
    w->watching = false;
}

static void on_message(struct guest_link *l, struct guest_message *raw)
{
    const struct kernel_message *m = kernel_message_of(raw);
    const char *end = m->raw.data + m->raw.size;

    (void)l;
    HOLDS(m->channel < KERNEL_CHANNELS && m->type[0] && m->id[0] && m->raw.size <= LINK_MESSAGE_MOST);
    for (unsigned i = 0; i < KERNEL_PARTS; i++) {
        struct jsonslice part = kernel_message_part(m, (enum kernel_part)i);
        HOLDS(part.data > m->raw.data && part.data + part.size <= end && jsonscan_is_object(part.data, part.size));
    }
    for (unsigned i = 0; i < m->n_buffers; i++) {
        struct iovec b = kernel_message_buffer(m, i);
        HOLDS((char *)b.iov_base >= m->raw.data && (char *)b.iov_base + b.iov_len <= end);
    }
}

static bool is_broken;

static void on_broken(struct guest_link *l, enum outcome outcome, const char *why)
{
    (void)l;
    (void)outcome;
    HOLDS(why && why[0]);
    is_broken = true;
}

static const char *check(struct guest_message *raw)
{
    return kernel_message_read(kernel_message_of(raw));
}

static const struct guest_link_owner owner = {
    .before = offsetof(struct kernel_message, raw),
    .least = KERNEL_MESSAGE_LEAST,
    .check = check,
    .on_message = on_message,
    .on_broken = on_broken,
};

static void send_packet(int fd, const uint8_t *data, size_t size, unsigned how, size_t *at)
{
    char out[sizeof(struct link_packet) + 4096];
    struct link_packet head = { .total = (uint32_t)(*at + size), .offset = (uint32_t)*at };

    if (how & 1)        /* more is to come */
        head.total += 100;
    if (how & 2) {      /* whatever it says itself */
        (void)!send(fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    }
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, data, size);
    (void)!send(fd, out, sizeof head + size, MSG_DONTWAIT | MSG_NOSIGNAL);
    *at = how & 1 ? *at + size : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct guest_link l;
    int pair[2];
    size_t at = 0;

    HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    is_broken = false;
    guest_link_init(&l, NULL, &owner);
    HOLDS(guest_link_open(&l, pair[0], false) == 0);
    while (size >= 3 && !is_broken) {
        size_t n = (size_t)(data[1] | data[2] << 8) % 2048;
        if (n > size - 3)
            n = size - 3;
        send_packet(pair[1], data + 3, n, data[0], &at);
        guest_link_drain(&l);
        data += 3 + n;
        size -= 3 + n;
    }
    guest_link_close(&l);
    HOLDS(l.partials.held == 0);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
