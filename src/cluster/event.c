/* Events: shown by `kubectl describe` below an object. Nothing waits for an event, and few are under way at once:
 * surplus events are dropped and counted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "cluster/controller.h"

enum { TOKENS_MAX = 50, TOKEN_MS = 100, UNDER_WAY_MAX = 8, MESSAGE_MAX = 1000 };

struct event {
    struct kube_call   call;        /* first */
    struct controller *controller;
};

static void on_done(struct kube_call *call)
{
    struct event *x = (struct event *)call;

    x->controller->n_events_out--;
    kube_call_done(call);
    free(x);
}

static bool may_send(struct controller *c)
{
    uint64_t now = loop_now_ms(), earned = (now - c->event_tokens_at_ms) / TOKEN_MS;

    if (earned > 0) {
        c->event_tokens = c->event_tokens + earned > TOKENS_MAX ? TOKENS_MAX : c->event_tokens + (unsigned)earned;
        c->event_tokens_at_ms = now;
    }
    if (c->event_tokens == 0 || c->n_events_out >= UNDER_WAY_MAX)
        return false;
    c->event_tokens--;
    return true;
}

static void write_body(struct buf *out, struct work *w, const struct object *about, const char *type,
                       const char *reason, const char *message)
{
    struct jsonout j;
    struct timespec now;
    char name[300], time[24];
    size_t length = strlen(message);

    clock_gettime(CLOCK_REALTIME, &now);
    time_write(now.tv_sec, time);
    snprintf(name, sizeof name, "%.230s.%llx", w->name,
             (unsigned long long)now.tv_sec * 1000000000ULL + (unsigned long long)now.tv_nsec);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "Event");
    jsonout_open_object(&j, "metadata");
    jsonout_string(&j, "name", name);
    jsonout_string(&j, "namespace", w->namespace);
    jsonout_close(&j);
    jsonout_open_object(&j, "involvedObject");
    jsonout_string(&j, "apiVersion", kind_info[w->by->kind].api_version);
    jsonout_string(&j, "kind", kind_info[w->by->kind].name);
    jsonout_string(&j, "name", w->name);
    jsonout_string(&j, "namespace", w->namespace);
    jsonout_string(&j, "uid", about->uid);
    jsonout_close(&j);
    jsonout_string(&j, "type", type);
    jsonout_string(&j, "reason", reason);
    jsonout_bytes(&j, "message", message, length > MESSAGE_MAX ? MESSAGE_MAX : length);
    jsonout_open_object(&j, "source");
    jsonout_string(&j, "component", "sandbox-controller");
    jsonout_close(&j);
    jsonout_string(&j, "reportingComponent", "sandbox-controller");
    jsonout_string(&j, "reportingInstance", w->controller->identity);
    jsonout_string(&j, "firstTimestamp", time);
    jsonout_string(&j, "lastTimestamp", time);
    jsonout_unsigned(&j, "count", 1);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out->failure = out->failure ? out->failure : EINVAL;
}

void event_send(struct work *w, const struct object *about, const char *type, const char *reason, const char *message)
{
    struct controller *c = w->controller;
    struct event *x = may_send(c) ? calloc(1, sizeof *x) : NULL;

    if (!x) {
        c->metrics.events_dropped++;
        return;
    }
    x->controller = c;
    x->call.method = "POST";
    x->call.type = KUBE_JSON;
    x->call.path = kube_path("/api/v1/namespaces/%s/events", w->namespace);
    x->call.on_done = on_done;
    buf_init(&x->call.body, 65536);
    write_body(&x->call.body, w, about, type, reason, message);
    if (!x->call.path || buf_error(&x->call.body) < 0) {
        kube_call_done(&x->call);
        free(x);
        return;
    }
    c->metrics.events++;
    c->n_events_out++;
    kube_call_start(c->client, &x->call);
}
