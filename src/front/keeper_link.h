/* The front's end of the keeper's socket. Requests are queued when the keeper is slow; an answer comes as a callback.
 * If the keeper goes away, every request that is open fails with ECONNRESET, on_lost is called, and the link tries
 * again until it is back. */
#ifndef CARREL_FRONT_KEEPER_LINK_H
#define CARREL_FRONT_KEEPER_LINK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "http/loop.h"
#include "proto/keeper.h"

struct keeper_link;

/* fds are the callee's: what it does not take (by setting the entry to -1) is closed afterwards. */
typedef void keeper_answer(const struct event *event, int *fds, size_t n_fds, void *arg);

struct keeper_handlers {
    void (*on_event)(const struct event *event, int *fds, size_t n_fds, void *arg); /* serial 0: happened on its own */
    void (*on_synced)(void *arg);       /* after connecting: all boxes and payloads have been told through on_event */
    void (*on_lost)(void *arg);
    void *arg;
};

/* helper: who connects (dial.h); taken over, also on failure. owner: who runs the server. A keeper is root's or that
 * user's; one of somebody else is not spoken to. path: for messages. */
MUST_CHECK int keeper_link_new(struct loop *loop, int helper, const char *path, uid_t owner,
                               const struct keeper_handlers *handlers, struct keeper_link **ret, struct err *e);
void           keeper_link_free(struct keeper_link *link);
bool           keeper_link_is_up(const struct keeper_link *link);

/* frame starts with a struct request_head whose serial is filled in here. fds stay the caller's, who may close them at
 * once. answer is called exactly once, never from inside this function, unless cancelled. Returns the serial
 * (never 0). */
uint32_t keeper_link_request(struct keeper_link *link, void *frame, size_t size, const int *fds, size_t n_fds,
                             keeper_answer *answer, void *arg);
void           keeper_link_cancel(struct keeper_link *link, uint32_t serial);

#endif
