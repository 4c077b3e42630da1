/* The refusals of one box. The first of each kind is reported at once, and again when a command begins; others are
 * counted, and reported once a second. Pure. */
#ifndef CARREL_EGRESS_REFUSALLOG_H
#define CARREL_EGRESS_REFUSALLOG_H

#include <stdbool.h>

#include "proto/egress.h"

enum {
    REFUSALLOG_KEPT = 64,
    REFUSALLOG_AGAIN_US = 1000000,
    REFUSALLOG_BURST = 64,        /* reports per second and command, of all names together */
};

struct refusallog_entry {
    uint64_t told_us;
    bool     is_new;            /* has an unreported refusal */
    bool     was_told;
    struct egress_refused frame;
};

struct refusallog {
    struct refusallog_entry *entry;       /* REFUSALLOG_KEPT of them, allocated with the first */
    unsigned               n, burst;
    uint64_t               burst_us;
};

/* what: the name or address; other may be NULL. */
void                         refusallog_note(struct refusallog *r, enum egress_why why, const char *what, uint16_t port,
                                           const char *other, uint64_t now_us);
/* A command begins: refusals are due at once again, also repeated ones. */
void                         refusallog_renew(struct refusallog *r);
/* The next entry to report by now, or NULL. It stays due until refusallog_told. */
struct refusallog_entry       *refusallog_due(struct refusallog *r, uint64_t now_us);
void                         refusallog_told(struct refusallog *r, struct refusallog_entry *entry, uint64_t now_us);
bool                         refusallog_wait(const struct refusallog *r);
void                         refusallog_done(struct refusallog *r);

#endif
