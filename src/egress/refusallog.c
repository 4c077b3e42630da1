#define _GNU_SOURCE
#include "egress/refusallog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct refusallog_entry *find(struct refusallog *r, enum egress_why why, const char *what, uint16_t port)
{
    for (unsigned i = 0; i < r->n; i++) {
        struct egress_refused *frame = &r->entry[i].frame;
        if (frame->why == why && frame->port == port && strcmp(frame->what, what) == 0)
            return &r->entry[i];
    }
    return NULL;
}

/* A free place, or that of the oldest entry; reported entries are replaced first. */
static struct refusallog_entry *take_place(struct refusallog *r)
{
    struct refusallog_entry *oldest = r->entry;

    if (r->n < REFUSALLOG_KEPT)
        return &r->entry[r->n++];
    for (unsigned i = 1; i < r->n; i++) {
        struct refusallog_entry *e = &r->entry[i];
        if (e->is_new != oldest->is_new ? !e->is_new : e->frame.last_us < oldest->frame.last_us)
            oldest = e;
    }
    return oldest;
}

void refusallog_note(struct refusallog *r, enum egress_why why, const char *what, uint16_t port, const char *other,
                   uint64_t now_us)
{
    if (!r->entry && !(r->entry = calloc(REFUSALLOG_KEPT, sizeof *r->entry)))
        return;
    struct refusallog_entry *e = find(r, why, what, port);
    if (!e) {
        e = take_place(r);
        *e = (struct refusallog_entry){ .frame = { .head = { .type = EGRESS_REFUSED }, .why = why, .port = port } };
        snprintf(e->frame.what, sizeof e->frame.what, "%s", what);
    }
    memset(e->frame.other, 0, sizeof e->frame.other);
    snprintf(e->frame.other, sizeof e->frame.other, "%s", other ? other : "");
    e->frame.count++;
    e->is_new = true;
    e->frame.last_us = now_us;
}

void refusallog_renew(struct refusallog *r)
{
    r->burst = 0;
    for (unsigned i = 0; i < r->n; i++)
        r->entry[i].was_told = false;
}

struct refusallog_entry *refusallog_due(struct refusallog *r, uint64_t now_us)
{
    if (now_us - r->burst_us >= REFUSALLOG_AGAIN_US) {
        r->burst_us = now_us;
        r->burst = 0;
    }
    if (r->burst >= REFUSALLOG_BURST)
        return NULL;
    for (unsigned i = 0; i < r->n; i++) {
        struct refusallog_entry *e = &r->entry[i];
        if (e->is_new && (!e->was_told || now_us - e->told_us >= REFUSALLOG_AGAIN_US))
            return e;
    }
    return NULL;
}

void refusallog_told(struct refusallog *r, struct refusallog_entry *entry, uint64_t now_us)
{
    entry->is_new = false;
    entry->was_told = true;
    entry->told_us = now_us;
    r->burst++;
}

bool refusallog_wait(const struct refusallog *r)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->entry[i].is_new)
            return true;
    return false;
}

void refusallog_done(struct refusallog *r)
{
    free(r->entry);
    *r = (struct refusallog){ 0 };
}
