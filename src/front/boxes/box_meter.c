/* The keeper passes two files of the box's cgroup, read-only. A cell is then billed with two reads, without the
 * keeper. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/boxes/box_private.h"
#include "front/front.h"
#include "front/keeper_link.h"

/* The keeper answers in order and reports a box's end before its slot is reused: the box in the slot is the one that
 * was asked about. */
static void on_meter(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box *b = event->head.result == 0 ? box_by_slot(arg, event->head.box) : NULL;
    size_t n = 0;

    if (!b || !b->meter.asked || b->meter.cpu >= 0 || b->meter.peak >= 0)
        return;
    b->meter.is_ns = event->meter.files & METER_CPU_NS;
    if (event->meter.files & (METER_CPU_US | METER_CPU_NS) && n < n_fds)
        b->meter.cpu = TAKE_FD(fds[n++]);
    if (event->meter.files & METER_MEMORY_PEAK && n < n_fds)
        b->meter.peak = TAKE_FD(fds[n]);
}

void box_meter_ask(struct box *b)
{
    struct request_head q = { .type = REQUEST_METER, .box = b->slot };

    if (b->meter.asked || b->slot == BOX_NO_SLOT)
        return;
    b->meter.asked = true;
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_meter, b->front);
}

static bool read_number(int fd, const char *key, uint64_t *ret)
{
    char text[512], *end;
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);

    if (n <= 0)
        return false;       /* for example, the box is gone */
    text[n] = '\0';
    const char *at = *key ? strstr(text, key) : text;
    if (!at)
        return false;
    at += strlen(key);
    errno = 0;
    *ret = strtoull(at, &end, 10);
    return errno == 0 && end != at;
}

bool box_meter_read(const struct box *b, uint64_t *ret_cpu_us, uint64_t *ret_peak_bytes)
{
    uint64_t cpu, peak;

    if (!read_number(b->meter.cpu, b->meter.is_ns ? "" : "usage_usec ", &cpu) || !read_number(b->meter.peak, "", &peak))
        return false;
    *ret_cpu_us = b->meter.is_ns ? cpu / 1000 : cpu;
    *ret_peak_bytes = peak;
    return true;
}

void box_meter_close(struct box *b)
{
    fd_close(b->meter.cpu);
    fd_close(b->meter.peak);
    b->meter = (struct box_meter){ .cpu = -1, .peak = -1 };
}
