/* Calls to the API server over a few kept connections, on one loop. Nothing here knows what an object means. */
#ifndef CARREL_KUBE_CLIENT_H
#define CARREL_KUBE_CLIENT_H

#include "base/buf.h"
#include "http/loop.h"
#include "kube/config.h"

struct kube_client;
struct kube_conn;

#define KUBE_JSON        "application/json"
#define KUBE_MERGE_PATCH "application/merge-patch+json"
#define KUBE_JSON_PATCH  "application/json-patch+json"

/* One request and its answer. Embedded in its user's struct. Zeroed = not started. */
struct kube_call {
    /* Set by the caller. */
    const char *method;             /* static */
    char       *path;               /* owned by the call: "/api/v1/…", escaped */
    const char *type;               /* of the body; static; NULL: there is none */
    struct buf  body;
    size_t      answer_max;         /* 0: ANSWER_MAX */
    uint32_t    deadline_ms;        /* for the whole call, from the first try; 0: none */
    uint32_t    silence_ms;         /* the longest time without a byte; 0: a default */
    bool        is_urgent;          /* does not wait for other calls */
    void      (*on_done)(struct kube_call *c);          /* exactly once, from the loop; may start it again or free it */
    void      (*on_data)(struct kube_call *c, const char *data, size_t size);   /* a stream's; see below */

    /* The result. */
    int         status;             /* 0: no answer; e has the reason */
    struct buf  answer;             /* whole, unless on_data is set and status is 200 */
    uint32_t    retry_after_ms;     /* as the server demanded; 0: it did not */
    struct err  e;

    /* Private to the client. */
    struct kube_client *client;
    struct kube_conn   *conn;
    struct kube_call   *next, **back;   /* in the queue */
    struct loop_timer   deadline, silence;
    bool                running, again;
};

/* Resolves the host's name and runs a credential plugin, and blocks for both; nothing blocks later. config is borrowed,
 * and the client may change it (token). */
MUST_CHECK int kube_client_new(struct loop *l, struct kube_config *config, struct kube_client **ret, struct err *e);
void kube_client_free(struct kube_client *c);
/* Called with a sentence when credentials cannot be renewed; the old ones are kept. */
void kube_client_on_trouble(struct kube_client *c, void (*on_trouble)(const char *text));

/* kube_call_done() frees path, body and answer; until then the call can be started again. */
void kube_call_start(struct kube_client *client, struct kube_call *c);
/* Cancels it without on_done(). */
void kube_call_cancel(struct kube_call *c);
void kube_call_done(struct kube_call *c);

/* How many calls wait for a connection or an answer; streams do not count. */
unsigned kube_client_pending(const struct kube_client *c);
uint64_t kube_client_sent(const struct kube_client *c);     /* requests so far */

/* "%s/%s?%s" with a segment escaped where it is %s and kept where it is %r. NULL when memory is short. */
char *kube_path(const char *format, ...);

/* One sentence about a call that failed: the server's message, or why there was none. */
void kube_call_text(const struct kube_call *c, char *text, size_t size);

#endif
