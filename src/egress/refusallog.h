/* What was refused to one box, kept so that it is told at once the first time and not too often later. Pure. */
#ifndef CARREL_EGRESS_REFUSALLOG_H
#define CARREL_EGRESS_REFUSALLOG_H

#include <stdbool.h>

#include "proto/egress.h"

enum {
    REFUSALLOG_KEPT = 64,
    REFUSALLOG_AGAIN_MS = 1000,
    REFUSALLOG_BURST = 64,        /* told per second, of all names together */
};

struct refusallog_entry {
    uint64_t noted_ms, told_ms;
    bool     is_new;            /* something has not been told */
    bool     was_told;
    struct egress_refused frame;
};

struct refusallog {
    struct refusallog_entry *entry;       /* REFUSALLOG_KEPT of them, when there was a first one */
    unsigned               n, burst;
    uint64_t               burst_ms;
};

/* The name or address in what; other may be NULL. */
void                         refusallog_note(struct refusallog *r, enum egress_why why, const char *what, uint16_t port,
                                           const char *other, uint64_t now_ms);
/* The next one that is to be told by now, or NULL. It counts as told only with refusallog_told. */
struct refusallog_entry       *refusallog_due(struct refusallog *r, uint64_t now_ms);
void                         refusallog_told(struct refusallog *r, struct refusallog_entry *entry, uint64_t now_ms);
bool                         refusallog_wait(const struct refusallog *r);
void                         refusallog_done(struct refusallog *r);

#endif
