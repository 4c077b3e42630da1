/* Every two seconds the lease is read, and written if it is ours, free, or expired. It has expired when its record has
 * not changed for the duration that it names, measured by this machine's clock since we first saw that record: the
 * holder's timestamps are never compared with our time. Each write names the version that was read, so that of two
 * contenders one gets 409. A holder that cannot renew for ten seconds stops acting, five seconds before another may
 * take over. */
#include "kube/lease.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/jsonout.h"
#include "base/list.h"

static void ask(struct kube_lease *l);

static void later(struct kube_lease *l, uint32_t ms)
{
    if (!l->ended)
        loop_timer_set(l->loop, &l->tick, ms);
}

bool kube_lease_is_held(const struct kube_lease *l)
{
    return l->held && !l->releasing && loop_now_ms() < l->until_ms;
}

bool kube_lease_take(struct kube_lease *l, struct jsonslice object, uint64_t now_ms)
{
    struct jsonslice spec = jsonscan_find(object, "spec"), meta = jsonscan_find(object, "metadata");
    struct jsonslice holder = jsonscan_find(spec, "holderIdentity"), renewed = jsonscan_find(spec, "renewTime");
    char version[sizeof l->version], who[sizeof l->holder] = "", when[sizeof l->renewed] = "";
    unsigned long long seconds = LEASE_DURATION_MS / 1000;

    if (!jsonscan_text(jsonscan_find(meta, "resourceVersion"), version, sizeof version))
        return false;
    if (holder.data && *holder.data == '"' && !jsonscan_text(holder, who, sizeof who))
        return false;
    if (renewed.data && *renewed.data == '"' && !jsonscan_text(renewed, when, sizeof when))
        return false;
    (void)jsonscan_number(jsonscan_find(spec, "leaseDurationSeconds"), &seconds);
    if (!jsonscan_number(jsonscan_find(spec, "leaseTransitions"), &l->transitions))
        l->transitions = 0;
    if (strcmp(who, l->holder) != 0 || strcmp(when, l->renewed) != 0 || strcmp(version, l->version) != 0 || !l->seen_ms)
        l->seen_ms = now_ms;
    if (strcmp(who, l->holder) != 0 && *who && strcmp(who, l->identity) != 0 && l->on_other)
        l->on_other(l, who);
    memcpy(l->version, version, sizeof version);
    memcpy(l->holder, who, sizeof who);
    memcpy(l->renewed, when, sizeof when);
    l->seen_for_ms = (seconds > 3600 ? 3600 : seconds) * 1000;
    return true;
}

static void on_end(struct loop_timer *t)
{
    struct kube_lease *l = container_of(t, struct kube_lease, end);

    l->held = false;
    l->ended = true;
    kube_call_cancel(&l->call);
    loop_timer_cancel(l->loop, &l->tick);
    l->on_lost(l, "it could not be renewed in time");
}

static void write_time(struct jsonout *j, const char *key)
{
    struct timespec now;
    struct tm tm;
    char text[64], day[32];

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, sizeof text, "%s.%06ldZ", day, now.tv_nsec / 1000);
    jsonout_string(j, key, text);
}

static void start(struct kube_lease *l, const char *method, char *path, void (*on_done)(struct kube_call *))
{
    free(l->call.path);
    l->call.path = path;
    l->call.method = method;
    l->call.type = l->call.body.length ? (method[1] == 'A' ? KUBE_MERGE_PATCH : KUBE_JSON) : NULL;
    l->call.is_urgent = true;
    l->call.deadline_ms = LEASE_RENEW_MS / 2;
    l->call.on_done = on_done;
    l->asked_ms = loop_now_ms();
    if (path)
        kube_call_start(l->client, &l->call);
    else
        later(l, LEASE_RETRY_MS);
}

static void is_ours(struct kube_lease *l)
{
    bool is_new = !l->held;

    l->held = true;
    l->failures = 0;
    l->until_ms = l->asked_ms + LEASE_RENEW_MS;
    uint64_t now = loop_now_ms();
    loop_timer_set(l->loop, &l->end, l->until_ms > now ? l->until_ms - now : 0);
    if (is_new)
        l->on_held(l);
}

static void is_others(struct kube_lease *l)
{
    if (!l->held)
        return;
    l->held = false;
    l->ended = true;
    loop_timer_cancel(l->loop, &l->end);
    l->on_lost(l, "another holder has taken it");
}

static void trouble(struct kube_lease *l, struct kube_call *call)
{
    char text[240];

    if (l->failures++ == 2 && l->on_trouble) {
        kube_call_text(call, text, sizeof text);
        l->on_trouble(l, text);
    }
    /* The holder retries in any case before the lease expires. */
    uint32_t wait = call->retry_after_ms > LEASE_RETRY_MS ? call->retry_after_ms : LEASE_RETRY_MS;
    later(l, l->held && wait > LEASE_RENEW_MS / 4 ? LEASE_RENEW_MS / 4 : wait);
}

static void on_written(struct kube_call *call)
{
    struct kube_lease *l = container_of(call, struct kube_lease, call);
    const char *text = buf_string(&call->answer);

    if (l->releasing) {
        l->ended = true;
        l->on_released(l);
        return;
    }
    if ((call->status == 200 || call->status == 201) && jsonscan_is_object(text, call->answer.length) &&
        kube_lease_take(l, (struct jsonslice){ text, call->answer.length }, loop_now_ms())) {
        is_ours(l);
        later(l, LEASE_RETRY_MS);
    } else if (call->status == 409 || call->status == 404) {
        l->version[0] = '\0';       /* lost a race, or it was deleted: read it again */
        later(l, 100 + arc4random_uniform(200));
    } else {
        trouble(l, call);
    }
}

static void write_record(struct kube_lease *l, bool release)
{
    struct jsonout j;
    bool is_new = !l->version[0];
    bool changes = strcmp(l->holder, l->identity) != 0;

    buf_done(&l->call.body);
    buf_init(&l->call.body, 8192);
    jsonout_init(&j, &l->call.body);
    jsonout_open_object(&j, NULL);
    if (is_new) {
        jsonout_string(&j, "apiVersion", "coordination.k8s.io/v1");
        jsonout_string(&j, "kind", "Lease");
    }
    jsonout_open_object(&j, "metadata");
    jsonout_string(&j, "name", l->name);
    jsonout_string(&j, "namespace", l->namespace);
    if (!is_new)
        jsonout_string(&j, "resourceVersion", l->version);
    jsonout_close(&j);
    jsonout_open_object(&j, "spec");
    jsonout_string(&j, "holderIdentity", release ? "" : l->identity);
    jsonout_unsigned(&j, "leaseDurationSeconds", release ? 1 : LEASE_DURATION_MS / 1000);
    if (changes || is_new) {
        jsonout_unsigned(&j, "leaseTransitions", is_new ? 0 : l->transitions + 1);
        write_time(&j, "acquireTime");
    }
    write_time(&j, "renewTime");
    jsonout_close(&j);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        buf_clear(&l->call.body);
    if (is_new)
        start(l, "POST", kube_path("/apis/coordination.k8s.io/v1/namespaces/%s/leases", l->namespace), on_written);
    else
        start(l, "PATCH", kube_path("/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", l->namespace, l->name),
              on_written);
}

static void on_read(struct kube_call *call)
{
    struct kube_lease *l = container_of(call, struct kube_lease, call);
    const char *text = buf_string(&call->answer);
    uint64_t now = loop_now_ms();

    if (call->status == 404) {
        l->version[0] = '\0';
        write_record(l, false);
    } else if (call->status == 200 && jsonscan_is_object(text, call->answer.length) &&
               kube_lease_take(l, (struct jsonslice){ text, call->answer.length }, now)) {
        bool ours = strcmp(l->holder, l->identity) == 0;
        if (!ours && l->holder[0])
            is_others(l);
        if (l->ended)
            return;
        if (ours || !l->holder[0] || now - l->seen_ms >= l->seen_for_ms)
            write_record(l, false);
        else
            later(l, LEASE_RETRY_MS);
    } else {
        trouble(l, call);
    }
}

static void ask(struct kube_lease *l)
{
    buf_clear(&l->call.body);
    start(l, "GET", kube_path("/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", l->namespace, l->name), on_read);
}

static void on_tick(struct loop_timer *t)
{
    struct kube_lease *l = container_of(t, struct kube_lease, tick);

    if (l->held && l->version[0])
        write_record(l, false);     /* a renewal needs no read: 409 shows another's write */
    else
        ask(l);
}

void kube_lease_start(struct kube_lease *l)
{
    l->tick.on_expire = on_tick;
    l->end.on_expire = on_end;
    ask(l);
}

void kube_lease_release(struct kube_lease *l)
{
    loop_timer_cancel(l->loop, &l->tick);
    loop_timer_cancel(l->loop, &l->end);
    kube_call_cancel(&l->call);
    l->releasing = true;
    if (l->held && l->version[0]) {
        write_record(l, true);
    } else {
        l->ended = true;
        l->on_released(l);
    }
}

void kube_lease_stop(struct kube_lease *l)
{
    loop_timer_cancel(l->loop, &l->tick);
    loop_timer_cancel(l->loop, &l->end);
    kube_call_done(&l->call);
}
