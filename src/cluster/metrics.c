/* Prometheus' text format. Metrics of Sandboxes have the original's names; the rest is ours. */
#include "cluster/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "cluster/controller.h"
#include "cluster/extension.h"

/* Label sets beyond this are not counted, so that changing namespaces do not exhaust memory. */
enum { SORTS_MAX = 4000 };

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct buf *out, const char *name, const char *type, const char *help, unsigned long long value)
{
    head(out, name, type, help);
    buf_printf(out, "%s %llu\n", name, value);
}

/* ---- agent_sandboxes: how many there are of each label set ---- */

struct sort {
    char  *labels;
    size_t count;
};

static void add_value(struct buf *b, const char *name, const char *value)
{
    buf_printf(b, "%s%s=\"", b->length > 0 ? "," : "", name);
    for (const char *p = value; *p; p++)
        if (*p == '"' || *p == '\\')
            buf_printf(b, "\\%c", *p);
        else if ((unsigned char)*p >= ' ')
            buf_add_char(b, *p);
    buf_add_char(b, '"');
}

static const char *creator_of(const char *label)
{
    static const char *const known[] = { "go-client", "python-client", "controller" };

    for (size_t i = 0; label && i < 3; i++)
        if (strcmp(label, known[i]) == 0)
            return known[i];
    return "unknown";
}

static char *labels_of(const struct sandbox *s)
{
    const struct condition *ready = &s->condition[COND_READY];
    const char *owner = "None";
    struct buf b;

    if (s->o.owner_group && s->o.owner_kind && !strcmp(s->o.owner_group, "extensions.agents.x-k8s.io") &&
        (!strcmp(s->o.owner_kind, "SandboxClaim") || !strcmp(s->o.owner_kind, "SandboxWarmPool")))
        owner = s->o.owner_kind;
    buf_init(&b, 8192);
    add_value(&b, "namespace", s->o.namespace);
    add_value(&b, "ready_condition", ready->status == COND_TRUE ? "true" : "false");
    add_value(&b, "expired", ready->reason && !strcmp(ready->reason, "SandboxExpired") ? "true" : "false");
    add_value(&b, "launch_type", s->launch && !strcmp(s->launch, "warm") ? "warm" : "cold");
    add_value(&b, "sandbox_template", s->template_ref ? s->template_ref : "unknown");
    add_value(&b, "owned_by", owner);
    add_value(&b, "created_by", creator_of(s->created_by));
    return b.data;
}

static int compare_sorts(const void *a, const void *b)
{
    return strcmp(((const struct sort *)a)->labels, ((const struct sort *)b)->labels);
}

static void write_sandboxes(const struct controller *c, struct buf *out)
{
    size_t n = 0, bucket, most = c->cache.of[KIND_SANDBOX].count;
    struct sort *all = calloc(most + 1, sizeof *all);

    head(out, "agent_sandboxes", "gauge", "Number of Sandboxes.");
    if (!all)
        return;
    for (struct object *o = NULL; n < most && (o = cache_walk(&c->cache, KIND_SANDBOX, &bucket, o));)
        if ((all[n].labels = labels_of((struct sandbox *)o)))
            n++;
    if (n > 1)
        qsort(all, n, sizeof *all, compare_sorts);
    for (size_t i = 0, same; i < n; i += same) {
        for (same = 1; i + same < n && strcmp(all[i].labels, all[i + same].labels) == 0;)
            same++;
        buf_printf(out, "agent_sandboxes{%s} %zu\n", all[i].labels, same);
    }
    for (size_t i = 0; i < n; i++)
        free(all[i].labels);
    free(all);
}

/* ---- histograms ---- */

static const struct { const char *name, *help; unsigned n, bounds[LATENCY_BUCKETS]; } histograms[HISTOGRAMS] = {
    [LATENCY_SANDBOX] = { "agent_sandbox_creation_latency_ms",
                          "Time from a Sandbox being seen to its Ready condition, in milliseconds.", 14,
                          { 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 240000, 300000,
                            600000 } },
#define CLAIM_BOUNDS 15, { 100, 250, 500, 750, 1000, 1250, 1500, 2000, 2500, 5000, 10000, 30000, 60000, 120000, 240000 }
    [LATENCY_CLAIM_WEBHOOK] = { "agent_sandbox_claim_startup_latency_ms",
                                "Time from a webhook seeing a SandboxClaim to its Ready condition, in milliseconds.",
                                CLAIM_BOUNDS },
    [LATENCY_CLAIM_CONTROLLER] = { "agent_sandbox_claim_controller_startup_latency_ms",
                                   "Time from a SandboxClaim being seen to its Ready condition, in milliseconds.",
                                   CLAIM_BOUNDS },
    [LATENCY_CLAIM_CLIENT] = { "agent_sandbox_client_claim_startup_latency_ms",
                               "Time from a client's request to the claim's Ready condition, in milliseconds.",
                               CLAIM_BOUNDS },
};

static char *sandbox_sort(const struct sandbox *s)
{
    struct buf b;

    buf_init(&b, 8192);
    add_value(&b, "namespace", s ? s->o.namespace : "");
    add_value(&b, "launch_type", s && s->launch && !strcmp(s->launch, "warm") ? "warm" : "cold");
    add_value(&b, "sandbox_template", s && s->template_ref ? s->template_ref : "unknown");
    return b.data;
}

static char *claim_sort(const struct sandbox *box)
{
    struct buf b;

    buf_init(&b, 8192);
    add_value(&b, "launch_type", !box ? "unknown" : box->launch && !strcmp(box->launch, "warm") ? "warm" : "cold");
    add_value(&b, "sandbox_template", box && box->template_ref ? box->template_ref : "__unknown__");
    return b.data;
}

/* labels is taken over. */
static struct latency *latency_of(struct metrics *m, enum histogram of, char *labels)
{
    struct latency **at = &m->latencies[of];

    while (*at && labels && strcmp((*at)->labels, labels) != 0)
        at = &(*at)->next;
    if (*at || !labels || m->n_sorts >= SORTS_MAX || !(*at = calloc(1, sizeof **at))) {
        free(labels);
        return *at;
    }
    (*at)->labels = labels;
    m->n_sorts++;
    return *at;
}

static void observe(struct metrics *m, enum histogram of, char *labels, uint64_t ms)
{
    struct latency *l = latency_of(m, of, labels);
    size_t i = 0;

    if (!l)
        return;
    while (i < histograms[of].n && ms > histograms[of].bounds[i])
        i++;
    l->bucket[i]++;
    l->count++;
    l->sum_ms += ms;
}

void metrics_ready(struct metrics *m, const struct sandbox *box, uint64_t ms)
{
    observe(m, LATENCY_SANDBOX, sandbox_sort(box), ms);
}

void metrics_claim_ready(struct metrics *m, const struct boxclaim *c, const struct sandbox *box, int64_t now_us)
{
    const struct { enum histogram of; const char *text; } from[] = {
        { LATENCY_CLAIM_WEBHOOK, c->webhook }, { LATENCY_CLAIM_CLIENT, c->requested } };
    int64_t at;

    if (c->ready.status == COND_TRUE)
        return;
    if (c->seen_us)
        observe(m, LATENCY_CLAIM_CONTROLLER, claim_sort(box), (uint64_t)(now_us - c->seen_us) / 1000);
    for (size_t i = 0; i < 2; i++)
        if (from[i].text && time_parse_us(from[i].text, &at) && at <= now_us)
            observe(m, from[i].of, claim_sort(box), (uint64_t)(now_us - at) / 1000);
}

void metrics_claim(struct metrics *m, const struct boxclaim *c, const struct sandbox *box, bool is_warm)
{
    struct tally **at = &m->tallies;
    struct buf b;

    buf_init(&b, 8192);
    add_value(&b, "namespace", c->o.namespace);
    add_value(&b, "sandbox_template", box->template_ref ? box->template_ref : "__unknown__");
    add_value(&b, "launch_type", is_warm ? "warm" : "cold");
    add_value(&b, "warmpool_name", c->pool_name ? c->pool_name : "");
    add_value(&b, "pod_condition", box->condition[COND_READY].status == COND_TRUE ? "ready" : "not_ready");
    add_value(&b, "created_by", creator_of(c->created_by));
    while (*at && b.data && strcmp((*at)->labels, b.data) != 0)
        at = &(*at)->next;
    if (*at || !b.data || m->n_sorts >= SORTS_MAX || !(*at = calloc(1, sizeof **at))) {
        buf_done(&b);
    } else {
        (*at)->labels = b.data;
        m->n_sorts++;
    }
    if (*at)
        (*at)->count++;
}

void metrics_done(struct metrics *m)
{
    for (size_t i = 0; i < HISTOGRAMS; i++)
        for (struct latency *l = m->latencies[i], *next; l; l = next) {
            next = l->next;
            free(l->labels);
            free(l);
        }
    for (struct tally *t = m->tallies, *next; t; t = next) {
        next = t->next;
        free(t->labels);
        free(t);
    }
    memset(m, 0, sizeof *m);
}

static void write_histogram(const struct metrics *m, enum histogram of, struct buf *out)
{
    const char *name = histograms[of].name;

    head(out, name, "histogram", histograms[of].help);
    for (const struct latency *l = m->latencies[of]; l; l = l->next) {
        uint64_t sum = 0;
        for (size_t i = 0; i < histograms[of].n; i++) {
            sum += l->bucket[i];
            buf_printf(out, "%s_bucket{%s,le=\"%u\"} %llu\n", name, l->labels, histograms[of].bounds[i],
                       (unsigned long long)sum);
        }
        buf_printf(out, "%s_bucket{%s,le=\"+Inf\"} %llu\n%s_sum{%s} %llu\n%s_count{%s} %llu\n", name, l->labels,
                   (unsigned long long)l->count, name, l->labels, (unsigned long long)l->sum_ms, name, l->labels,
                   (unsigned long long)l->count);
    }
}

static void write_tallies(const struct metrics *m, struct buf *out)
{
    static const char name[] = "agent_sandbox_claim_creation_total";

    head(out, name, "counter", "SandboxClaims that have got a Sandbox.");
    for (const struct tally *t = m->tallies; t; t = t->next)
        buf_printf(out, "%s{%s} %llu\n", name, t->labels, (unsigned long long)t->count);
}

static void write_process(struct buf *out)
{
    struct rusage use;
    char text[128];
    unsigned long long pages = 0;

    if (fd_read_file(-1, "/proc/self/statm", text, sizeof text) > 0)
        (void)sscanf(text, "%*u %llu", &pages);
    one(out, "process_resident_memory_bytes", "gauge", "Resident memory.",
        pages * (unsigned long long)sysconf(_SC_PAGESIZE));
    getrusage(RUSAGE_SELF, &use);
    head(out, "process_cpu_seconds_total", "counter", "Processor time, user and system.");
    unsigned long long us = (unsigned long long)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000ULL +
                            (unsigned long long)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    buf_printf(out, "process_cpu_seconds_total %llu.%06llu\n", us / 1000000, us % 1000000);
}

void metrics_write(const struct controller *c, struct buf *out)
{
    static const char *const verbs[VERBS] = { "get", "create", "patch", "status", "delete", "replace" };
    const struct metrics *m = &c->metrics;

    write_sandboxes(c, out);
    for (enum histogram i = 0; i < HISTOGRAMS; i++)
        write_histogram(m, i, out);
    write_tallies(m, out);
    head(out, "agent_sandbox_build_info", "gauge", "The program's version.");
    buf_printf(out, "agent_sandbox_build_info{version=\"carrel-" CARREL_VERSION "\"} 1\n");
    one(out, "carrel_controller_leader", "gauge", "Whether this one acts.", c->leads);
    one(out, "carrel_controller_reconciles_total", "counter", "Times that an object was looked at.", m->reconciles);
    one(out, "carrel_controller_retries_total", "counter", "Times that something was put off.", m->retries);
    one(out, "carrel_controller_queue", "gauge", "Objects that are looked at, or wait for something.", c->n_works);
    one(out, "carrel_controller_busy", "gauge", "Objects with writes under way.", c->n_busy);
    one(out, "carrel_controller_requests_total", "counter", "Requests to the API server.", kube_client_sent(c->client));
    one(out, "carrel_controller_write_failures_total", "counter", "Writes that were refused.", m->write_failures);
    one(out, "carrel_controller_events_total", "counter", "Events sent.", m->events);
    one(out, "carrel_controller_events_dropped_total", "counter", "Events not sent.", m->events_dropped);
    head(out, "carrel_controller_writes_total", "counter", "Answers to requests about objects.");
    for (size_t i = 0; i < VERBS; i++)
        buf_printf(out, "carrel_controller_writes_total{verb=\"%s\"} %llu\n", verbs[i],
                   (unsigned long long)m->writes[i]);
    head(out, "carrel_controller_objects", "gauge", "Objects in the cache.");
    for (size_t i = 0; i < KINDS; i++)
        buf_printf(out, "carrel_controller_objects{resource=\"%s\"} %zu\n", kind_info[i].plural, c->cache.of[i].count);
    head(out, "carrel_controller_watch_events_total", "counter", "Events received from watches.");
    for (size_t i = 0; i < KINDS; i++)
        buf_printf(out, "carrel_controller_watch_events_total{resource=\"%s\"} %llu\n", kind_info[i].plural,
                   (unsigned long long)c->watch[i].n_events);
    head(out, "carrel_controller_lists_total", "counter", "Whole lists.");
    for (size_t i = 0; i < KINDS; i++)
        buf_printf(out, "carrel_controller_lists_total{resource=\"%s\"} %llu\n", kind_info[i].plural,
                   (unsigned long long)c->watch[i].n_lists);
    write_process(out);
}
