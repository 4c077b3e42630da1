/* Keeps a copy of one collection up to date: lists it in pages, then watches it permanently. */
#ifndef CARREL_KUBE_WATCH_H
#define CARREL_KUBE_WATCH_H

#include "base/jsonscan.h"
#include "kube/client.h"

enum kube_watch_phase { KUBE_WATCH_OFF, KUBE_WATCH_LISTING, KUBE_WATCH_WATCHING, KUBE_WATCH_WAITING };

struct kube_watch {
    /* Set by the owner. */
    struct kube_client *client;
    struct loop        *loop;
    const char         *path;           /* "/api/v1/pods"; static */
    const char         *selector;       /* of labels, escaped; NULL: all */
    unsigned            page;           /* objects in one page; 0: 500 */
    void (*on_listing)(struct kube_watch *w);       /* a list begins: objects that are not reported until on_listed()
                                                     * are gone */
    void (*on_object)(struct kube_watch *w, struct jsonslice object, bool is_deleted);
    void (*on_listed)(struct kube_watch *w);        /* version is now the list's */
    void (*on_absent)(struct kube_watch *w);        /* the server does not know this kind, so there are no such
                                                     * objects */
    /* Once for each run of failures with one status; "" when it is over. */
    void (*on_trouble)(struct kube_watch *w, const char *text);

    /* Readable. */
    enum kube_watch_phase phase;
    bool     synced;                    /* at least one list was complete */
    char     version[64];               /* the newest seen */
    int      status;                    /* HTTP, of the last failure; 0: no answer */
    unsigned failures;                  /* in a row */
    unsigned repeats;                   /* the last ones of these with the same status */
    char     why[240];                  /* the last of them, as a sentence */
    uint64_t n_lists, n_events, n_failures, begun_ms;

    struct kube_call  call;
    struct loop_timer again;
    struct buf        line;
    char             *more;             /* the list's continue token */
    struct buf        page_text;        /* a received page, and its objects that were not reported yet */
    struct jsonslice  items;
    struct loop_task  digest;
    bool              is_asked;         /* the request for the next page was sent, or there is none */
    bool              relist, is_heard, told;
    int               last_status, told_status;
    uint32_t          retry_after_ms;
};

void kube_watch_start(struct kube_watch *w);
void kube_watch_stop(struct kube_watch *w);

/* on_trouble() has reported failures, and since then neither a list nor an event has come and no watch has lasted. */
bool kube_watch_is_failing(const struct kube_watch *w);

/* Whether the present run of failures is long enough for on_trouble(). */
bool kube_watch_should_tell(const struct kube_watch *w);

/* The delay before try n (from 1): 100 ms, doubled each time up to 30 s, plus up to as much again at random. */
uint32_t kube_backoff_ms(unsigned n);

/* The kinds of lines in a watch. */
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
