#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/files/transfer.h"

enum { WORTH_IT_US = 400000, AGAIN_US = 100000, BAR = 24 };

void progress_begin(struct progress *p, const char *name, uint64_t total)
{
    *p = (struct progress){
        .name = name, .total = total, .started_us = clock_monotonic_us(), .is_on = isatty(STDERR_FILENO)
    };
}

static void show(struct progress *p, uint64_t now)
{
    char bar[BAR + 1];
    double seconds = (double)(now - p->started_us) / 1000000;
    const char *rate = show_bytes((uint64_t)((double)p->done / (seconds > 0 ? seconds : 1)));

    if (p->total) {
        unsigned filled = p->done >= p->total ? BAR : (unsigned)(p->done * BAR / p->total);
        memset(bar, ' ', BAR);
        memset(bar, '=', filled);
        if (filled < BAR)
            bar[filled] = '>';
        bar[BAR] = '\0';
        fprintf(stderr, "\r\033[K%.40s  [%s] %3u%%  %s of %s  %s/s", show_text(p->name), bar,
                (unsigned)(p->done * 100 / p->total), show_bytes(p->done), show_bytes(p->total), rate);
    } else {
        fprintf(stderr, "\r\033[K%.40s  %s  %s/s", show_text(p->name), show_bytes(p->done), rate);
    }
    p->shown_us = now;
    p->is_shown = true;
}

void progress_add(struct progress *p, uint64_t bytes)
{
    p->done += bytes;
    if (!p->is_on)
        return;
    uint64_t now = clock_monotonic_us();
    if (now - p->started_us >= WORTH_IT_US && now - p->shown_us >= AGAIN_US)
        show(p, now);
}

void progress_end(struct progress *p)
{
    if (!p->is_shown)
        return;
    show(p, clock_monotonic_us());
    fputc('\n', stderr);
}
