/* Keeps somebody's picture of one collection up to date: lists it in pages, then watches it, for ever. */
#ifndef CARREL_KUBE_WATCH_H
#define CARREL_KUBE_WATCH_H

#include "base/jsonscan.h"
#include "kube/client.h"

enum kube_watch_phase { KUBE_WATCH_OFF, KUBE_WATCH_LISTING, KUBE_WATCH_WATCHING, KUBE_WATCH_WAITING };

struct kube_watch {
    /* For the owner to set: */
    struct kube_client *client;
    struct loop        *loop;
    const char         *path;           /* "/api/v1/pods"; static */
    const char         *selector;       /* of labels, escaped; NULL: all */
    unsigned            page;           /* objects in one page; 0: 500 */
    void (*on_listing)(struct kube_watch *w);       /* a list begins: what is not told until on_listed() is gone */
    void (*on_object)(struct kube_watch *w, struct jsonslice object, bool is_deleted);
    void (*on_listed)(struct kube_watch *w);        /* version is the list's */
    void (*on_absent)(struct kube_watch *w);        /* the server does not serve it: there are no such objects */
    void (*on_trouble)(struct kube_watch *w, const char *text); /* once for each run of failures; "" when it is over */

    /* To be read: */
    enum kube_watch_phase phase;
    bool     synced;                    /* a whole list has come, once */
    char     version[64];               /* the newest that was seen */
    int      status;                    /* HTTP, of the last failure */
    unsigned failures;                  /* in a row */
    char     why[240];                  /* the last of them, in words */
    uint64_t n_lists, n_events, n_failures, begun_ms;

    struct kube_call  call;
    struct loop_timer again;
    struct buf        line;
    char             *more;             /* the list's continue token */
    struct buf        page_text;        /* a page that has come, and what of it is still to be told */
    struct jsonslice  items;
    struct loop_task  digest;
    bool              is_asked;         /* the request for the page after it has left, or there is none */
    bool              relist, is_heard, told;
    uint32_t          retry_after_ms;
};

void kube_watch_start(struct kube_watch *w);
void kube_watch_stop(struct kube_watch *w);

/* on_trouble() was told of failures, and since then neither a list nor an event has come and no watch has lasted. */
bool kube_watch_is_failing(const struct kube_watch *w);

/* The time before try n (from 1): 100 ms doubled each time, at most 30 s, and up to as much again at random. */
uint32_t kube_backoff_ms(unsigned n);

/* What one line of a watch says. */
enum kube_line {
    KUBE_LINE_BAD,
    KUBE_LINE_SET,
    KUBE_LINE_DELETED,
    KUBE_LINE_BOOKMARK,
    KUBE_LINE_EXPIRED,
    KUBE_LINE_ERROR
};
struct kube_line_parts {
    struct jsonslice object, version;
    uint32_t         retry_after_ms;
};
enum kube_line kube_line_parse(const char *line, size_t size, struct kube_line_parts *ret);

#endif
