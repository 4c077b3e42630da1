/* Memory is short if little of it is available, or if processes waited for it: for a twentieth of the last ten seconds,
 * by the kernel's own account (PSI, which a kernel may be built or started without). */
#define _GNU_SOURCE
#include "front/boxes/headroom.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

enum { LOOK_MS = 1000, SHARE = 64, SHORT_SHARE = 16, STALLED_PERCENT = 5 };

struct headroom {
    int      memory, pressure;  /* owned */
    uint64_t looked_ms, bytes;
};

struct headroom *headroom_new(int memory, int pressure)
{
    struct headroom *h = calloc(1, sizeof *h);

    if (!h) {
        fd_close(memory);
        fd_close(pressure);
        return NULL;
    }
    h->memory = memory;
    h->pressure = pressure;
    return h;
}

struct headroom *headroom_open(void)
{
    return headroom_new(open("/proc/meminfo", O_RDONLY | O_CLOEXEC),
                        open("/proc/pressure/memory", O_RDONLY | O_CLOEXEC));
}

void headroom_free(struct headroom *h)
{
    if (!h)
        return;
    fd_close(h->memory);
    fd_close(h->pressure);
    free(h);
}

/* The number behind this word; UINT64_MAX: it is not there. */
static uint64_t read_number(int fd, const char *word)
{
    char text[512];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);

    if (n <= 0)
        return UINT64_MAX;
    text[n] = '\0';
    const char *at = strstr(text, word);
    return at ? strtoull(at + strlen(word), NULL, 10) : UINT64_MAX;
}

static uint64_t look(const struct headroom *h)
{
    uint64_t total = read_number(h->memory, "MemTotal:"), left = read_number(h->memory, "MemAvailable:");
    uint64_t stalled = read_number(h->pressure, "some avg10=");

    if (stalled != UINT64_MAX && stalled >= STALLED_PERCENT)
        return 0;
    if (total == UINT64_MAX || left == UINT64_MAX)
        return UINT64_MAX;
    return left < total / SHORT_SHARE ? 0 : left * 1024 / SHARE;
}

uint64_t headroom_bytes(struct headroom *h, uint64_t now_ms)
{
    if (!h)
        return UINT64_MAX;
    if (!h->looked_ms || now_ms - h->looked_ms >= LOOK_MS) {
        h->looked_ms = now_ms;
        h->bytes = look(h);
    }
    return h->bytes;
}
