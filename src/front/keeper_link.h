/* The front's end of the keeper's socket. Requests are queued when the keeper is slow; answers come as callbacks. If
 * the keeper goes away, every open request fails with ECONNRESET, on_lost is called, and the link retries until it is
 * back. */
#ifndef CARREL_FRONT_KEEPER_LINK_H
#define CARREL_FRONT_KEEPER_LINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "http/loop.h"
#include "proto/events.h"

struct keeper_link;

/* The callee takes descriptors by setting entries to -1; the others are closed afterwards. */
typedef void keeper_answer(const union event *event, int *fds, size_t n_fds, void *arg);

struct keeper_handlers {
    void (*on_event)(const union event *event, int *fds, size_t n_fds, void *arg); /* serial 0: happened on its own */
    void (*on_synced)(void *arg);       /* after connecting: on_event has reported all boxes and payloads */
    void (*on_lost)(void *arg);
    void *arg;
};

/* helper: makes the connections (dial.h); taken over, also on failure. owner: the user who runs the server. A keeper
 * must be root's or that user's; any other is refused. path: for messages. */
MUST_CHECK int keeper_link_new(struct loop *loop, int helper, const char *path, uid_t owner,
                               const struct keeper_handlers *handlers, struct keeper_link **ret, struct err *e);
void           keeper_link_free(struct keeper_link *link);
bool           keeper_link_is_up(const struct keeper_link *link);

/* frame starts with a struct request_head whose serial is filled in here. The caller keeps fds and may close them at
 * once. answer is called exactly once, never from inside this function, unless cancelled. Returns the serial (never
 * 0). */
uint32_t keeper_link_request(struct keeper_link *link, void *frame, size_t size, const int *fds, size_t n_fds,
                             keeper_answer *answer, void *arg);
void           keeper_link_cancel(struct keeper_link *link, uint32_t serial);

#endif
