/* Information about the server: for people, for load balancers, for Prometheus. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "doors/native/door.h"
#include "front/boxes/box_devices.h"
#include "front/boxes/box_disk.h"
#include "doors/native/native.h"
#include "front/keeper_link.h"
#include "front/kernels/kernels.h"
#include "front/volumes/volumes.h"

enum { METRICS_MAX = 65536 };

/* The keeper may have come back with fewer than there are. */
static uint32_t room_left(const struct boxes *all)
{
    return all->most > all->alive ? all->most - all->alive : 0;
}

void ask_info(struct ask *a)
{
    const struct config *c = &a->front->config;
    const struct limits left = boxes_left(a->front);
    json_t *roots = json_array(), *templates = json_array(), *pythons = json_array();
    char started[32];

    json_array_append_new(roots, json_string("host"));
    for (uint32_t i = 0; i < c->n_roots; i++)
        json_array_append_new(roots, json_string(c->root_name[i]));
    for (uint32_t i = 0; i < c->n_templates; i++)
        json_array_append_new(templates, json_pack("{s:s,s:s}", "name", c->template[i].name, "python",
                                                   c->template[i].python));
    for (uint32_t i = 0; i < c->n_pythons; i++)
        json_array_append_new(pythons, json_string(c->python[i].name));
    front_time_text(a->front->started_ms, started);
    reply_json(a, 200,
               json_pack("{s:s,s:s,s:b,s:o,s:o,s:o,s:{s:I,s:f,s:i},s:{s:I,s:f,s:I},s:o,s:o,s:o}",
                         "version", CARREL_VERSION, "started_at", started, "ready", a->front->ready, "roots", roots,
                         "templates", templates, "pythons", pythons, "host",
                         "memory", (json_int_t)c->host_memory_bytes, "cpus", (double)c->host_cpu_milli / 1000, "boxes",
                         (int)a->front->boxes.most, "free", "memory", (json_int_t)left.memory_bytes, "cpus",
                         (double)left.cpu_milli / 1000, "boxes",
                         (json_int_t)room_left(&a->front->boxes), "defaults",
                         limits_json(&c->defaults, 0), "max", limits_json(&c->most, 0), "devices",
                         box_devices_json(a->front)));
}

void ask_health(struct ask *a)
{
    /* 200 means that the server can be used: clients poll this while a server starts. */
    if (a->front->was_ready)
        reply_data(a, 200, "{\"status\":\"ok\"}", 15);
    else
        reply_fail(a, 503, "unavailable", "the server is starting: it cannot reach its boxes yet");
}

void ask_ready(struct ask *a)
{
    if (a->front->ready && keeper_link_is_up(a->front->keeper))
        reply_data(a, 200, "{\"status\":\"ready\"}", 18);
    else
        reply_fail(a, 503, "unavailable", "the server cannot reach its boxes yet; its log says why");
}

void ask_openapi(struct ask *a)
{
    reply_data(a, 200, native_openapi, native_openapi_size);
}

/* ---- metrics ---- */

static void metric(struct buf *b, const char *name, const char *kind, const char *help, uint64_t value)
{
    buf_printf(b, "# HELP carrel_%s %s\n# TYPE carrel_%s %s\ncarrel_%s %llu\n", name, help, name, kind, name,
               (unsigned long long)value);
}

static void add_seconds(struct buf *b, uint64_t us)
{
    buf_printf(b, "%llu.%06llu", (unsigned long long)us / 1000000, (unsigned long long)us % 1000000);
}

/* Cumulative, as Prometheus expects; the last bucket counts everything. */
static void histogram(struct buf *b, const char *name, const char *help, const struct histogram *h)
{
    uint64_t sum = 0;

    buf_printf(b, "# HELP carrel_%s %s\n# TYPE carrel_%s histogram\n", name, help, name);
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
        sum += h->bucket[i];
        buf_printf(b, "carrel_%s_bucket{le=\"%g\"} %llu\n", name, (double)histogram_bound_us[i] / 1e6,
                   (unsigned long long)sum);
    }
    buf_printf(b, "carrel_%s_bucket{le=\"+Inf\"} %llu\ncarrel_%s_sum ", name, (unsigned long long)h->count, name);
    add_seconds(b, h->sum_us);
    buf_printf(b, "\ncarrel_%s_count %llu\n", name, (unsigned long long)h->count);
}

static uint64_t resident_bytes(void)
{
    char text[128];
    unsigned long long pages = 0;

    if (fd_read_file(AT_FDCWD, "/proc/self/statm", text, sizeof text) <= 0 || sscanf(text, "%*u %llu", &pages) != 1)
        return 0;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void boxes_by_phase(struct buf *b, const struct front *front, uint64_t *ret_execs)
{
    uint64_t count[PHASE_COUNT] = { 0 };

    for (const struct box *box = front->boxes.first; box; box = box->next) {
        count[box->phase]++;
        *ret_execs += box->running;
    }
    buf_add_text(b, "# HELP carrel_boxes Boxes that are known, by phase.\n# TYPE carrel_boxes gauge\n");
    for (unsigned i = 0; i < PHASE_COUNT; i++)
        buf_printf(b, "carrel_boxes{phase=\"%s\"} %llu\n", phase_names[i], (unsigned long long)count[i]);
}

static void disk(struct buf *b, const struct front *front)
{
    const struct disk_use use = box_disk_use(front, NULL);
    unsigned n;

    (void)volumes_promised(front, NULL, &n);
    metric(b, "volumes", "gauge", "Volumes.", n);
    buf_printf(b, "# HELP carrel_disk_bytes Disk that is promised to volumes and boxes, and that kept output takes.\n"
                  "# TYPE carrel_disk_bytes gauge\ncarrel_disk_bytes{of=\"volumes\"} %llu\n"
                  "carrel_disk_bytes{of=\"boxes\"} %llu\ncarrel_disk_bytes{of=\"output\"} %llu\n",
               (unsigned long long)use.volumes, (unsigned long long)use.boxes, (unsigned long long)use.output);
}

static void kernels(struct buf *b, const struct front *front)
{
    const struct metrics *m = &front->metrics;
    uint64_t count[KERNEL_DEAD + 1] = { 0 };

    for (const struct kernel *k = front->kernels; k; k = k->next)
        count[k->state]++;
    buf_add_text(b, "# HELP carrel_kernels Kernels that are known, by state.\n# TYPE carrel_kernels gauge\n");
    for (unsigned i = 0; i <= KERNEL_DEAD; i++)
        buf_printf(b, "carrel_kernels{state=\"%s\"} %llu\n", kernel_state_names[i], (unsigned long long)count[i]);
    metric(b, "kernels_started_total", "counter", "Requested kernels.", m->kernels_started);
    metric(b, "kernels_died_total", "counter", "Kernels that ended without being asked to.", m->kernels_died);
    buf_add_text(b, "# HELP carrel_runs_total Cells that ended, by outcome.\n# TYPE carrel_runs_total counter\n");
    for (enum outcome i = OUTCOME_OK; i < OUTCOME_COUNT; i++)
        buf_printf(b, "carrel_runs_total{outcome=\"%s\"} %llu\n", outcome_name(i),
                   (unsigned long long)m->run_outcome[i]);
    histogram(b, "first_result_seconds", "Time from asking for a kernel, or its box, to the end of its first cell.",
              &m->first_result);
}

void ask_metrics(struct ask *a)
{
    const struct front *front = a->front;
    const struct metrics *m = &front->metrics;
    uint64_t execs = 0;
    struct buf b;

    buf_init(&b, METRICS_MAX);
    metric(&b, "requests_total", "counter", "HTTP requests.", m->requests);
    metric(&b, "requests_refused_total", "counter", "HTTP requests answered with 400 or more.", m->requests_refused);
    metric(&b, "boxes_created_total", "counter", "Requested and admitted boxes.", m->boxes_created);
    metric(&b, "boxes_failed_total", "counter", "Boxes that could not be made or died on their own.", m->boxes_failed);
    metric(&b, "execs_started_total", "counter", "Requested commands.", m->execs_started);
    metric(&b, "execs_failed_total", "counter", "Commands that never ran.", m->execs_failed);
    metric(&b, "output_bytes_total", "counter", "Bytes that commands wrote.", m->output_bytes);
    metric(&b, "net_sent_bytes_total", "counter", "Bytes that boxes sent to the network.", m->net_sent);
    metric(&b, "net_received_bytes_total", "counter", "Bytes that boxes received from the network.", m->net_received);
    metric(&b, "net_connections_total", "counter", "Connections that boxes made.", m->net_connections);
    metric(&b, "net_refusals_total", "counter", "Names and connections that boxes were refused.", m->net_refusals);
    metric(&b, "keeper_losses_total", "counter", "Times that the keeper went away.", m->keeper_losses);
    histogram(&b, "request_seconds", "Time from a request's head to the last byte of its answer.", &m->request);
    histogram(&b, "create_seconds", "Time from asking for a box to its being ready.", &m->create);
    histogram(&b, "exec_start_seconds", "Time from asking for a command to its start.", &m->exec_start);
    histogram(&b, "exec_seconds", "Time that commands ran.", &m->exec);
    buf_add_text(&b, "# HELP carrel_exec_outcomes_total Commands that ended, by outcome.\n# TYPE "
                     "carrel_exec_outcomes_total counter\n");
    for (enum outcome i = OUTCOME_OK; i < OUTCOME_COMMAND_COUNT; i++)
        buf_printf(&b, "carrel_exec_outcomes_total{outcome=\"%s\"} %llu\n", outcome_name(i),
                   (unsigned long long)m->outcome[i]);
    boxes_by_phase(&b, front, &execs);
    disk(&b, front);
    kernels(&b, front);
    metric(&b, "execs_running", "gauge", "Commands that run.", execs);
    metric(&b, "connections", "gauge", "Open HTTP connections.", http_server_connections(front->http));
    metric(&b, "ready", "gauge", "Whether the keeper is there.", front->ready);
    metric(&b, "requested_memory_bytes", "gauge", "Memory that boxes are guaranteed.",
           front->boxes.requested.memory_bytes);
    metric(&b, "requested_cpu_milli", "gauge", "Thousandths of processors that boxes are guaranteed.",
           front->boxes.requested.cpu_milli);
    metric(&b, "host_memory_bytes", "gauge", "Memory that boxes may be guaranteed in all.",
           front->config.host_memory_bytes);
    metric(&b, "resident_bytes", "gauge", "Resident memory of the front.", resident_bytes());
    if (buf_error(&b) < 0 || http_reply(a->r, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.length) < 0)
        http_request_abort(a->r);
    buf_done(&b);
}
