/* The front's main loop. It inherits its open listeners and the path of the keeper's socket, and opens everything else
 * before it confines itself. */
#define _GNU_SOURCE
#include "server/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/boxes/box_devices.h"
#include "front/boxes/headroom.h"
#include "base/guest.h"
#include "base/list.h"
#include "base/parse.h"
#include "front/db/db.h"
#include "front/dial.h"
#include "front/door.h"
#include "front/front.h"
#include "front/identity/auth.h"
#include "front/keeper_link.h"
#include "front/keys/keys.h"
#include "front/layers/layers.h"
#include "front/net/net.h"
#include "front/secrets/secrets.h"
#include "front/services/grants.h"
#include "front/services/inlets.h"
#include "front/services/services.h"
#include "front/volumes/volumes.h"
#include "server/confine.h"
#include "server/doors.h"
#include "proto/certificates.h"

enum {
    LISTENERS = 2 + DOORS_MOST,
    TAG_UNIX = 1,
    TAG_TCP = 2,
    TAG_DOOR = 16,                      /* and up: the listener of the door with this index in the list */
    PRUNE_MS = 60000,
    QUIET_MS = 5000,
    KEEP_DEAD_MS = 3600000,
    DRAIN_MS = 5000,
    PARTIALS_BYTES = 256 << 20,         /* of one identity */
    PARTIALS_ALL_BYTES = 1 << 30
};

struct front_options {
    const char *keeper, *config, *python;      /* python: for templates that name none */
    const char *broker, *no_broker;     /* its socket; or why there is none */
    uint32_t    lock_fd;                /* held as long as this process lives; 0: none */
    uint32_t    uid, gid;
    uid_t       owner_uid;              /* the user who runs the server: an admin */
    uint32_t    ends_boxes;             /* 1: the boxes end when this server is asked to end */
    size_t      n_listeners;
    int         listener[LISTENERS];
    unsigned    tag[LISTENERS];
};

struct front_program {
    struct front       front;
    struct doors       doors;
    struct loop_signal signals;
    struct loop_timer  prune, maintain;
    uint64_t           requests_seen;   /* at the last look for idle time */
    bool               draining, ends_boxes;
};

static bool find_tag(const char *text, unsigned *ret)
{
    const char *colon = strchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : strlen(text);
    bool is_unix = size == 4 && strncmp(text, "unix", 4) == 0;

    if (!is_unix && (size != 3 || strncmp(text, "tcp", 3) != 0))
        return false;
    *ret = is_unix ? TAG_UNIX : TAG_TCP;
    for (unsigned i = 0; colon && server_doors[i]; i++)
        if (strcmp(server_doors[i]->name, colon + 1) == 0) {
            *ret = TAG_DOOR + i;
            return true;
        }
    return !colon;
}

static int read_listener(struct front_options *o, const char *value, struct err *e)
{
    char *end;
    long fd = strtol(value, &end, 10);

    if (o->n_listeners == LISTENERS || fd < 3 || *end != ':' || !find_tag(end + 1, &o->tag[o->n_listeners]))
        return err_set(e, EINVAL, STEP_USAGE, "--listen-fd wants N:unix or N:tcp, perhaps with :DOOR, not %s", value);
    o->listener[o->n_listeners++] = (int)fd;
    return fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0 ? err_file(e, errno, "--listen-fd %s", value) : 0;
}

/* Twice: the file first, so that flags override it. */
static int read_options(int argc, char **argv, struct front_options *o, struct config *config, bool only_config,
                        struct err *e)
{
    int r = 0;

    for (int i = 1; i < argc && r == 0; i += 2) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!value)
            return err_set(e, EINVAL, STEP_USAGE, "%s wants a value", name);
        if (strcmp(name, "--config") == 0) {
            if (only_config)
                r = config_load(config, value, true, e);
        } else if (only_config) {
            continue;
        } else if (strcmp(name, "--keeper") == 0) {
            o->keeper = value;
        } else if (strcmp(name, "--python") == 0) {
            o->python = value;
        } else if (strcmp(name, "--broker") == 0) {
            o->broker = value;
        } else if (strcmp(name, "--no-broker") == 0) {
            o->no_broker = value;
        } else if (strcmp(name, "--state") == 0) {
            r = config_set(config, "state", value, e);
        } else if (strcmp(name, "--set") == 0) {
            r = config_set_line(config, value, e);
        } else if (strcmp(name, "--listen-fd") == 0) {
            r = read_listener(o, value, e);
        } else if (strcmp(name, "--lock-fd") == 0) {
            r = parse_count(name, value, 3, 1 << 20, &o->lock_fd, e);
        } else if (strcmp(name, "--uid") == 0) {
            r = parse_count(name, value, 0, UINT32_MAX - 1, &o->uid, e);
        } else if (strcmp(name, "--gid") == 0) {
            r = parse_count(name, value, 0, UINT32_MAX - 1, &o->gid, e);
        } else if (strcmp(name, "--owner-uid") == 0) {
            r = parse_count(name, value, 0, UINT32_MAX - 1, &o->owner_uid, e);
        } else if (strcmp(name, "--ends-boxes") == 0) {
            r = parse_count(name, value, 0, 1, &o->ends_boxes, e);
        } else {
            r = err_set(e, EINVAL, STEP_USAGE, "carrel-server front: unknown option %s", name);
        }
    }
    return r;
}

/* How much boxes may request in all, if the configuration does not say. */
static void measure_host(struct config *c)
{
    struct sysinfo info;

    if (!c->host_memory_bytes && sysinfo(&info) == 0) {
        uint64_t total = (uint64_t)info.totalram * info.mem_unit;
        c->host_memory_bytes = total - total / 8;
        c->host_memory_measured = true;
    }
    if (!c->host_cpu_milli)
        c->host_cpu_milli = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) * 1000;
}

/* A connection takes one descriptor, a command up to four. A shell's soft limit is often 1,024. */
static void raise_descriptors(void)
{
    enum { WANTED = 65536 };
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        (limit.rlim_max >= WANTED || setrlimit(RLIMIT_NOFILE, &(struct rlimit){ WANTED, WANTED }) < 0)) {
        limit.rlim_cur = limit.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int open_state(struct front *front, struct err *e)
{
    char path[300];

    snprintf(path, sizeof path, "%s/execs", front->config.state);
    if ((mkdir(front->config.state, 0700) < 0 && errno != EEXIST) || (mkdir(path, 0700) < 0 && errno != EEXIST))
        return err_set(e, errno, STEP_HOST, "%s", path);
    front->execs_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (front->execs_dir < 0)
        return err_set(e, errno, STEP_HOST, "%s", path);
    return db_open(front->config.state, &front->db, e);
}

static void on_request(struct http_request *r, void *owner)
{
    struct front_program *server = owner;
    unsigned tag = r->peer->tag;
    bool is_doors_own = tag >= TAG_DOOR && tag < TAG_DOOR + DOORS_MOST;

    server->front.metrics.requests++;
    doors_dispatch(&server->doors, is_doors_own ? server_doors[tag - TAG_DOOR] : NULL, r);
}

static void on_access(const struct http_access *a, void *owner)
{
    struct front *front = &((struct front_program *)owner)->front;
    char status[16], us[24], method[16], target[256];

    front->metrics.requests_refused += a->status >= 400;
    if (a->status != 101)       /* a WebSocket's lifetime is no request time */
        histogram_add(&front->metrics.request, a->duration_us);
    if (strcmp(front->config.log_level, "debug") != 0 && a->status < 500)
        return;
    snprintf(status, sizeof status, "%d", a->status);
    snprintf(us, sizeof us, "%llu", (unsigned long long)a->duration_us);
    snprintf(method, sizeof method, "%.*s", (int)a->method.size, a->method.data);
    /* Without the query, which may hold a token. */
    const char *query = a->target.size ? memchr(a->target.data, '?', a->target.size) : NULL;
    size_t size = query ? (size_t)(query - a->target.data) : a->target.size;
    snprintf(target, sizeof target, "%.*s", (int)size, a->target.data);
    front_log(a->status < 500 ? "debug" : "error", "request", "id", a->id, "method", method, "target", target, "status",
              status, "us", us, NULL);
}

static void on_keeper_event(const union event *event, int *fds, size_t n_fds, void *arg)
{
    boxes_on_keeper_event(arg, event, fds, n_fds);
}

static void on_synced(void *arg)
{
    boxes_on_synced(arg);
    front_log("info", "the keeper is there", NULL);
}

static void on_lost(void *arg)
{
    struct front *front = arg;

    if (front->ready)
        front_log("error", "the keeper is gone", NULL);
    boxes_on_lost(front);
}

static void on_drained(void *owner)
{
    struct front_program *server = owner;
    loop_stop(server->front.loop);
}

/* For the user who stops it: prints how much ends with it. */
static void tell_end(const struct front *front)
{
    unsigned ended = 0, stopped = 0;
    char text[160], also[64] = "";

    for (const struct box *b = front->boxes.first; b; b = b->next)
        if (b->slot != BOX_NO_SLOT)
            *(box_mounts_on_disk(&b->settings.mounts) ? &stopped : &ended) += 1;
    if (stopped)
        snprintf(also, sizeof also, "; %u on disk %s and can be started again", stopped,
                 stopped == 1 ? "is stopped" : "are stopped");
    snprintf(text, sizeof text, "the server ends, and %u %s with it%s", ended, ended == 1 ? "box" : "boxes", also);
    if (ended || stopped)
        front_log("info", text, NULL);
}

static void on_signal(struct loop_signal *s, const struct signalfd_siginfo *info)
{
    struct front_program *server = container_of(s, struct front_program, signals);

    (void)info;
    if (server->draining)
        loop_stop(server->front.loop);
    else if (server->ends_boxes)
        tell_end(&server->front);
    server->draining = true;
    http_server_drain(server->front.http, DRAIN_MS);
}

static void on_prune(struct loop_timer *t)
{
    struct front_program *server = container_of(t, struct front_program, prune);
    struct err e;

    boxes_prune(&server->front, front_now_ms() - KEEP_DEAD_MS);
    if (db_prune(server->front.db, front_now_ms() - KEEP_DEAD_MS, &e) < 0)
        front_log("error", "cannot prune the database", NULL);
    loop_timer_set(server->front.loop, t, PRUNE_MS);
}

/* Work that blocks on the disk is done while no requests come. */
static void on_maintain(struct loop_timer *t)
{
    struct front_program *server = container_of(t, struct front_program, maintain);
    struct err e;

    if (server->requests_seen == server->front.metrics.requests && db_maintain(server->front.db, &e) < 0)
        front_log("error", "cannot move the log into the database", NULL);
    server->requests_seen = server->front.metrics.requests;
    loop_timer_set(server->front.loop, t, QUIET_MS);
}

static int open_http(struct front_program *server, const struct front_options *o, struct err *e)
{
    struct front *front = &server->front;
    struct http_server_config config = {
        .on_request = on_request, .on_access = on_access, .on_drained = on_drained, .owner = server
    };
    int r = doors_open(&server->doors, server_doors, front, e);

    if (r < 0)
        return r;
    r = http_server_new(front->loop, &config, &front->http);
    for (size_t i = 0; i < o->n_listeners && r == 0; i++)
        r = http_server_listen(front->http, o->listener[i], o->tag[i]);
    return r < 0 ? err_at(e, -r, STEP_HOST, 0, "HTTP server") : 0;
}

static int open_all(struct front_program *server, const struct front_options *o, struct err *e)
{
    struct front *front = &server->front;
    sigset_t signals;
    FD helper = -1, broker_helper = -1;

    signal(SIGPIPE, SIG_IGN);
    umask(077);
    raise_descriptors();
    measure_host(&front->config);
    guest_find_files(front->config.guest, sizeof front->config.guest);
    front->config.certificates = certificates_find();
    box_devices_open(front);        /* before the process is confined */
    front->headroom = headroom_open();
    int r = config_template_fill(&front->config, o->python ? o->python : "/usr/bin/python3", e);
    if (r == 0)
        r = config_check(&front->config, e);
    if (r == 0)
        r = doors_check(server_doors, &front->config, e);
    if (r == 0)
        secrets_open_credentials(front);
    if (r == 0)
        r = confine_network("front", e);
    if (r == 0)
        r = confine_user(o->uid, o->gid, e);
    if (r == 0)
        r = dial_start("keeper", o->keeper, &helper, e);    /* early: it gets a copy of this process's memory */
    if (r == 0 && o->broker)
        r = dial_start("broker", o->broker, &broker_helper, e);
    if (r == 0)
        r = open_state(front, e);
    if (r == 0)
        r = secrets_load(front, e);
    if (r == 0)
        r = auth_new(front->db, &front->config, o->owner_uid, &front->auth, e);
    if (r == 0 && (r = loop_new(&front->loop)) < 0)
        r = err_at(e, -r, STEP_HOST, 0, "event loop");
    if (r < 0)
        return r;
    front->memory.most = front->config.quota.buffer_bytes;
    front->partials.most = PARTIALS_BYTES;
    front->partials.all_most = PARTIALS_ALL_BYTES;
    front->started_ms = front_now_ms();
    front->owner_uid = o->owner_uid;
    server->ends_boxes = o->ends_boxes;
    front_init_parts(front);
    layers_init(front);
    boxes_init(front);
    net_init(front);
    if ((r = keys_init(front, TAKE_FD(broker_helper), o->no_broker, e)) < 0)
        return r;
    volumes_init(front);
    r = volumes_load(front, e);
    if (r == 0)
        r = boxes_load(front, e);
    if (r == 0)
        r = services_load(front, e);
    if (r == 0)
        r = grants_load(front, e);
    if (r == 0)
        r = open_http(server, o, e);
    if (r < 0)
        return r;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    server->signals.on_signal = on_signal;
    if ((r = loop_signal_open(front->loop, &server->signals, &signals)) < 0)
        return err_at(e, -r, STEP_HOST, 0, "signals");
    server->prune.on_expire = on_prune;
    loop_timer_set(front->loop, &server->prune, PRUNE_MS);
    server->maintain.on_expire = on_maintain;
    loop_timer_set(front->loop, &server->maintain, QUIET_MS);
    const struct keeper_handlers handlers = {
        .on_event = on_keeper_event, .on_synced = on_synced, .on_lost = on_lost, .arg = front
    };
    r = keeper_link_new(front->loop, TAKE_FD(helper), o->keeper, o->owner_uid, &handlers, &front->keeper, e);
    return r < 0 ? r : confine_process("front", front->config.state, policy_front_filter(), e);
}

int front_main(int argc, char **argv)
{
    static struct front_program server;
    struct front_options o = { .uid = geteuid(), .gid = getegid(), .owner_uid = geteuid() };
    struct err e = { 0 };

    front_log_open();
    server.front.execs_dir = -1;
    config_defaults(&server.front.config, geteuid() == 0);
    int r = doors_configure(server_doors, &server.front.config, &e);
    if (r == 0)
        r = read_options(argc, argv, &o, &server.front.config, true, &e);
    if (r == 0)
        r = read_options(argc, argv, &o, &server.front.config, false, &e);
    if (r == 0 && (!o.keeper || !o.lock_fd))
        r = err_set(&e, EINVAL, STEP_USAGE, "carrel-server front: --%s is missing", o.keeper ? "lock-fd" : "keeper");
    if (r == 0 && fcntl((int)o.lock_fd, F_SETFD, FD_CLOEXEC) < 0)
        r = err_file(&e, errno, "--lock-fd %u", o.lock_fd);
    if (r == 0)
        r = open_all(&server, &o, &e);
    if (r == 0 && (r = loop_run(server.front.loop)) < 0)
        r = err_at(&e, -r, STEP_WAIT, 0, "event loop");
    if (r < 0) {
        char text[512];
        err_text(&e, text, sizeof text);
        front_log("error", text, NULL);
        return 125;
    }
    http_server_free(server.front.http);
    doors_close(&server.doors);
    keeper_link_free(server.front.keeper);
    grants_free(&server.front);
    services_free(&server.front);
    boxes_free(&server.front);
    layers_free(&server.front);
    volumes_free(&server.front);
    keys_free(&server.front);
    secrets_free(&server.front);
    net_free(&server.front);
    box_devices_free(&server.front);
    headroom_free(server.front.headroom);
#ifdef __SANITIZE_ADDRESS__
    if (!budgets_are_empty(&server.front.memory) || !budgets_are_empty(&server.front.partials))
        front_log("error", "runtime error: memory is still charged to somebody at the end", NULL);  /* tests look */
#endif
    db_close(server.front.db);
    return 0;
}
