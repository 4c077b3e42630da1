/* The supervisor reads the settings, opens the listeners and keeps its children running: the keeper (privileged), the
 * front (which drops its rights and confines itself), egress and the broker. It restarts a dead front with the same
 * listeners, so that no client is refused meanwhile. A dead keeper's boxes are gone; a new keeper is started. If the
 * supervisor is killed, both end: the front at once, because its successor may be about to start; the keeper when it
 * has ended its boxes. Another server on the same state waits for that (state_lock.c).
 *
 * Another child is a line in serve_main()'s table and a function that describes how to start it. */
#define _GNU_SOURCE
#include "server/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/interpreter.h"
#include "base/prefix.h"
#include "front/config/layers.h"
#include "front/front.h"
#include "proto/broker.h"
#include "proto/certificates.h"
#include "proto/defaults.h"
#include "server/children.h"
#include "server/doors.h"
#include "server/listen.h"
#include "server/serve_options.h"
#include "server/state_lock.h"

_Static_assert(20 + 2 * CONFIG_ROOTS + 4 * (CONFIG_TEMPLATES + CONFIG_PYTHONS) <= CHILD_WORDS,
               "the keeper's command line");
_Static_assert(3 + DOORS_MOST <= CHILD_FDS, "the front's listeners, and the lock");

enum { LISTEN_AGAIN_MS = 5000, LISTEN_POLL_MS = 5 };

struct supervisor {
    struct serve_options options;
    char                 keeper_socket[300], egress_socket[300], broker_socket[300];
    char                 program[4096], engine[4096], egress[4096], broker[4096];
    const char          *certificates;      /* the host's, for the broker; NULL: none */
    uid_t                uid;               /* the front's */
    gid_t                gid;
    int                  lock_fd;           /* of the state */
    int                  unix_fd, tcp_fd;
    int                  egress_fd;         /* the keeper connects to egress here; outlives both */
    int                  broker_fd;         /* the same for the front and the broker */
    int                  door_fd[DOORS_MOST];   /* of doors with a listener of their own, by their place in the list */
    /* NAME=DIR:DIR..., of each template, then of each of pythons */
    char                 layers[CONFIG_TEMPLATES + CONFIG_PYTHONS][4096];
    char                 interpreter[CONFIG_PYTHONS][CONFIG_PYTHON_PATH];
    char                 python[GUEST_PATH];                    /* for templates that name none */
};

static const char usage[] =
    "usage: carrel serve [--listen 127.0.0.1:7070] [--socket PATH] [--state DIR] [--set KEY=VALUE]...\n"
    "                    [--config FILE | --no-config] [--allow-anonymous] [--private DIR] [--keeper SOCKET]\n"
    "\n"
    "Serves the API on a unix socket and, if asked, on TCP. --private: serve only its own user; socket and state are\n"
    "in DIR, which is closed to others. --keeper: use a keeper that runs already.\n";

static int fail(const struct err *e)
{
    char text[512];

    err_text(e, text, sizeof text);
    fprintf(stderr, "carrel: %s\n", text);
    return 125;
}

/* Beside this program. "": it is not there. */
static void find_beside(const struct supervisor *s, const char *name, char ret[4096])
{
    const char *slash = strrchr(s->program, '/');

    if (snprintf(ret, 4096, "%.*s/%s", (int)(slash - s->program), s->program, name) >= 4096 || access(ret, X_OK) < 0)
        ret[0] = '\0';
}

/* carrel and carrel-server lie side by side, or in bin and libexec. */
static int find_programs(struct supervisor *s, struct err *e)
{
    ssize_t n = readlink("/proc/self/exe", s->program, sizeof s->program - 1);

    if (n <= 0)
        return err_at(e, errno, STEP_HOST, 0, "/proc/self/exe");
    s->program[n] = '\0';
    find_beside(s, "carrel-egress", s->egress);     /* without it boxes work, but none has network */
    find_beside(s, "carrel-broker", s->broker);     /* and none has keys */
    s->certificates = certificates_find();
    const char *own = getenv("CARREL_ENGINE");
    if (own) {
        snprintf(s->engine, sizeof s->engine, "%s", own);
        return 0;
    }
    char *slash = strrchr(s->program, '/');
    snprintf(s->engine, sizeof s->engine, "%.*s/carrel", (int)(slash - s->program), s->program);
    if (access(s->engine, X_OK) == 0)
        return 0;
    snprintf(s->engine, sizeof s->engine, "%.*s/../bin/carrel", (int)(slash - s->program), s->program);
    return access(s->engine, X_OK) == 0 ? 0 : err_set(e, errno, STEP_HOST, "carrel is not beside %s", s->program);
}

static int make_directory(const char *path, mode_t mode, uid_t uid, gid_t gid, struct err *e)
{
    char part[300];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_set(e, errno, STEP_HOST, "%s", part);
    }
    if (mkdir(path, mode) < 0 && errno != EEXIST)
        return err_set(e, errno, STEP_HOST, "%s", path);
    if (geteuid() == 0 && chown(path, uid, gid) < 0)
        return err_set(e, errno, STEP_HOST, "%s", path);
    return 0;
}

/* No other user may place a socket in the folder of the keeper's socket; /tmp is open to all. option: the option that
 * names the folder. */
static int open_own(const char *path, const char *option, int *ret, struct err *e)
{
    FD dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (dir < 0 || fstat(dir, &status) < 0)
        return err_set(e, errno, STEP_HOST, "%s", path);
    if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)))
        return err_set(e, EPERM, STEP_HOST, "%s belongs to another user or others may write there: remove it, or "
                       "choose another folder with %s", path, option);
    *ret = TAKE_FD(dir);
    return 0;
}

/* No other user may look into a private server's folder. Only root's front, which has an id of its own, must pass
 * through it: to its state and to the keeper's socket. */
static int make_private(const char *path, gid_t gid, struct err *e)
{
    FD dir = -1;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set(e, errno, STEP_HOST, "%s", path);
    int r = open_own(path, "--private", &dir, e);
    if (r < 0)
        return r;
    bool is_root = geteuid() == 0;
    if ((is_root && fchown(dir, 0, gid) < 0) || fchmod(dir, is_root ? 0710 : 0700) < 0)
        return err_set(e, errno, STEP_HOST, "%s", path);
    return 0;
}

static void add_python(const char *version, const char *path, void *arg)
{
    struct serve_options *o = arg;
    char key[16 + PYTHON_VERSION];
    struct err ignored;

    snprintf(key, sizeof key, "pythons.%s", version);
    for (uint32_t i = 0; i < o->config.n_pythons; i++)
        if (strcmp(o->config.python[i].name, version) == 0)
            return;
    if (o->config.n_pythons < CONFIG_PYTHONS)
        (void)!serve_options_add(o, key, path, &ignored);
}

/* The user of a private server may use any interpreter that 'carrel run --python' would find. Others list them;
 * that of the first template is always there, by its version. */
static void find_pythons(struct supervisor *s)
{
    char path[PYTHON_MAX], version[PYTHON_VERSION];
    const struct config *c = &s->options.config;
    struct err ignored;

    if (geteuid() != 0 || c->owner_only)
        interpreters_each(add_python, &s->options);
    snprintf(path, sizeof path, "%s", c->template[0].python);
    if ((path[0] == '/' || interpreter_find(NULL, path, &ignored) == 0) && interpreter_version(path, version))
        add_python(version, path, &s->options);
}

/* The interpreter of templates that name none. If 'carrel setup' has not run yet, its folder is made: boxes will see
 * what setup puts there. */
static int find_python(struct supervisor *s, struct err *e)
{
    char place[GUEST_PATH];
    struct err ignored;

    find_pythons(s);
    bool found = guest_find_python(s->python, sizeof s->python);
    int r = config_template_fill(&s->options.config, s->python, e);
    if (r < 0 || found || !s->options.config.template[0].python_is_default)
        return r;
    front_log("warning", "there is no Python for kernels yet", "fix", "carrel setup", NULL);
    snprintf(place, sizeof place, "%s", s->python);
    guest_cut(place, 2);
    if (strncmp(place, "/usr/", 5) != 0)
        (void)!make_directory(place, 0755, 0, 0, &ignored);
    return 0;
}

/* Read here and not by the front: only the administrator decides which host files boxes see. */
static int find_layers(struct supervisor *s, struct err *e)
{
    int r = 0;

    guest_find_files(s->options.config.guest, sizeof s->options.config.guest);
    const struct config *c = &s->options.config;
    r = find_python(s, e);
    for (uint32_t i = 0; i < c->n_pythons && r == 0; i++) {
        char name[sizeof c->python[0].name], *layers = s->layers[c->n_templates + i];
        memcpy(name, c->python[i].name, sizeof name);
        int n = snprintf(layers, sizeof s->layers[0], "%s=", name);
        config_python_path(c, i + 1, s->interpreter[i]);
        if (access(s->interpreter[i], X_OK) < 0)
            r = err_file(e, errno, "pythons.%s: %s", name, s->interpreter[i]);
        else
            r = prefix_add_python(s->interpreter[i], layers + n, sizeof s->layers[0] - (size_t)n, e);
    }
    for (uint32_t i = 0; i < c->n_templates && r == 0; i++) {
        struct config_template t = c->template[i];
        int n = snprintf(s->layers[i], sizeof s->layers[i], "%s=", t.name);
        r = layers_of(&t, s->options.config.guest, s->layers[i] + n, sizeof s->layers[i] - (size_t)n, e);
    }
    return r;
}

static void give_lock(const struct supervisor *s, struct child_command *c)
{
    child_keep(c, s->lock_fd);
    child_word(c, "--lock-fd");
    child_format(c, "%d", s->lock_fd);
}

static void describe_keeper(const void *owner, struct child_command *c)
{
    const struct supervisor *s = owner;
    const struct config *config = &s->options.config;

    child_word(c, s->engine);
    child_word(c, "keeper");
    child_word(c, "--listen");
    child_word(c, s->keeper_socket);
    child_word(c, "--front-uid");
    /* A rootless keeper lives in a user namespace of its own, in which its user, who also runs the front, has id 0. */
    child_format(c, "%u", geteuid() == 0 ? s->uid : 0);
    /* Beside the database that records their owners; but they are the keeper's own, and closed to the front. */
    child_word(c, "--stores");
    child_format(c, "%s/stores", config->state);
    give_lock(s, c);
    if (s->egress_fd >= 0) {
        child_word(c, "--egress");
        child_word(c, s->egress_socket);
    }
    if (config->device_kinds[0]) {
        child_word(c, "--devices");
        child_word(c, config->device_kinds);
    }
    for (uint32_t i = 0; i < config->n_roots; i++) {
        child_word(c, "--root");
        child_word(c, config->root_path[i]);
    }
    for (uint32_t i = 0; i < config->n_templates; i++) {
        child_word(c, "--template");
        child_word(c, s->layers[i]);
        /* Empty for the environment of 'carrel setup': it takes no packages and may be missing. */
        child_word(c, "--python");
        child_word(c, config->template[i].python_is_default ? "" : config->template[i].python);
    }
    for (uint32_t i = 0; i < config->n_pythons; i++) {
        child_word(c, "--template");
        child_word(c, s->layers[config->n_templates + i]);
        child_word(c, "--python");
        child_word(c, s->interpreter[i]);
    }
}

static void describe_egress(const void *owner, struct child_command *c)
{
    const struct supervisor *s = owner;

    child_word(c, s->egress);
    child_keep(c, s->egress_fd);
    child_word(c, "--listen-fd");
    child_format(c, "%d", s->egress_fd);
    child_word(c, "--peer-uid");
    child_format(c, "%u", geteuid());
    if (geteuid() != 0)
        return;
    child_word(c, "--uid");
    child_format(c, "%d", EGRESS_ID);
    child_word(c, "--gid");
    child_format(c, "%d", EGRESS_ID);
}

static void describe_broker(const void *owner, struct child_command *c)
{
    const struct supervisor *s = owner;

    child_word(c, s->broker);
    child_keep(c, s->broker_fd);
    child_word(c, "--listen-fd");
    child_format(c, "%d", s->broker_fd);
    child_word(c, "--peer-uid");
    child_format(c, "%u", s->uid);
    child_word(c, "--certificates");
    child_word(c, s->certificates);
    if (geteuid() != 0)
        return;
    child_word(c, "--uid");
    child_format(c, "%d", BROKER_ID);
    child_word(c, "--gid");
    child_format(c, "%d", BROKER_ID);
}

/* Any user may connect to root's server: the kernel reports who it is, and each user sees only their own boxes. An
 * ordinary user's boxes have that user's rights, so only that user may connect. */
static int listen_local(const struct supervisor *s, const char *path, int *ret, struct err *e)
{
    return listen_unix(path, geteuid() == 0 && !s->options.config.owner_only ? 0666 : 0600, ret, e);
}

/* again_ms: for how long an address may still be closing. */
static int listen_at(const struct supervisor *s, const char *address, uint64_t again_ms, int *ret, struct err *e)
{
    uint64_t end_us = clock_monotonic_us() + again_ms * 1000;
    const struct timespec pause = { .tv_nsec = LISTEN_POLL_MS * 1000000L };

    for (;;) {
        int r = address[0] == '/' ? listen_local(s, address, ret, e) : listen_tcp(address, ret, e);
        if (r != -EADDRINUSE || clock_monotonic_us() >= end_us)
            return r;
        nanosleep(&pause, NULL);
    }
}

static int listen_at_all(struct supervisor *s, uint64_t again_ms, struct err *e)
{
    const struct config *config = &s->options.config;
    int r = listen_at(s, config->socket, again_ms, &s->unix_fd, e);

    if (r == 0 && config->listen[0])
        r = listen_at(s, config->listen, again_ms, &s->tcp_fd, e);
    for (size_t i = 0; server_doors[i] && r == 0; i++) {
        const char *address = door_address(server_doors[i], config);
        if (address[0])
            r = listen_at(s, address, again_ms, &s->door_fd[i], e);
    }
    return r;
}

static void give_listener(struct child_command *c, int fd, const char *kind, const char *door)
{
    if (fd < 0)
        return;
    child_keep(c, fd);
    child_word(c, "--listen-fd");
    child_format(c, "%d:%s%s%s", fd, kind, door ? ":" : "", door ? door : "");
}

/* For callers that want keys for a box. */
static const char *why_no_broker(const struct supervisor *s)
{
    return !s->broker[0]     ? "carrel-broker is not installed beside carrel-server; it is built where OpenSSL is"
           : !s->certificates ? "this host has no file of CA certificates by which a server could be checked; install "
                                "ca-certificates and restart the server"
                              : "this server gives boxes no network (network.ask)";
}

static void describe_front(const void *owner, struct child_command *c)
{
    const struct supervisor *s = owner;
    const char *const fixed[] = { s->program, "front", "--keeper", s->keeper_socket, "--state",
                                  s->options.config.state, "--python", s->python };

    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        child_word(c, fixed[i]);
    child_word(c, "--uid");
    child_format(c, "%u", s->uid);
    child_word(c, "--gid");
    child_format(c, "%u", s->gid);
    child_word(c, "--owner-uid");
    child_format(c, "%u", geteuid());
    child_word(c, "--ends-boxes");
    child_word(c, s->options.keeper_path ? "0" : "1");
    if (s->broker_fd >= 0) {
        child_word(c, "--broker");
        child_word(c, s->broker_socket);
    } else {
        child_word(c, "--no-broker");
        child_word(c, why_no_broker(s));
    }
    give_lock(s, c);
    give_listener(c, s->unix_fd, "unix", NULL);
    give_listener(c, s->tcp_fd, "tcp", NULL);
    for (size_t i = 0; server_doors[i]; i++)
        give_listener(c, s->door_fd[i], door_address(server_doors[i], &s->options.config)[0] == '/' ? "unix" : "tcp",
                      server_doors[i]->name);
    if (s->options.config_path) {
        child_word(c, "--config");
        child_word(c, s->options.config_path);
    }
    for (int i = 0; i < s->options.n_set; i++) {
        child_word(c, "--set");
        child_word(c, s->options.set[i]);
    }
}

/* For a person who has just started it in a terminal. */
static void greet(const struct config *c)
{
    const char *address = c->listen;

    fprintf(stderr, "carrel is serving; Ctrl-C ends it and its boxes\n  unix socket  %s\n", c->socket);
    if (address[0])
        fprintf(stderr, "  HTTP         http://%s\n", address);
    fputs("  a box        carrel create --name job && carrel exec job -- python3 -c 'print(2 + 2)'\n", stderr);
    if (address[0])
        fprintf(stderr, "  JupyterLab   jupyter lab --gateway-url=http://%s%s\n", address,
                c->allow_anonymous ? "" : " --GatewayClient.auth_token=\"$(carrel token create lab)\"");
    else
        fputs("  JupyterLab   needs a port: carrel serve --listen 127.0.0.1:7070\n", stderr);
}

/* Only the front may connect, and the broker looks who does. */
static int listen_for_front(struct supervisor *s, unsigned name, struct err *e)
{
    const struct config *config = &s->options.config;

    if (!s->broker[0] || !s->certificates || config->network_ask == NETWORK_NONE)
        return 0;
    snprintf(s->broker_socket, sizeof s->broker_socket, "%s/broker-%08x.sock", config->run, name);
    int r = listen_packets(s->broker_socket, &s->broker_fd, e);
    if (r == 0 && geteuid() == 0 && chown(s->broker_socket, s->uid, s->gid) < 0)
        r = err_set(e, errno, STEP_HOST, "%s", s->broker_socket);
    return r;
}

/* Named after the state directory: servers of one user share the folder, and a restarted one finds its own socket. */
static int name_sockets(struct supervisor *s, struct err *e)
{
    const struct config *config = &s->options.config;
    struct stat status;

    if (stat(config->state, &status) < 0)
        return err_set(e, errno, STEP_HOST, "%s", config->state);
    /* Mixed, because inodes of one file system and small device numbers collide. */
    uint64_t identity = (status.st_ino ^ status.st_dev << 40) * 0x9e3779b97f4a7c15ull;
    const unsigned name = (unsigned)(identity >> 32);
    int r = listen_for_front(s, name, e);
    if (s->options.keeper_path) {
        snprintf(s->keeper_socket, sizeof s->keeper_socket, "%s", s->options.keeper_path);
        return r;
    }
    snprintf(s->keeper_socket, sizeof s->keeper_socket, "%s/keeper-%08x.sock", config->run, name);
    if (r < 0 || !s->egress[0] || config->network_ask == NETWORK_NONE)
        return r;
    snprintf(s->egress_socket, sizeof s->egress_socket, "%s/egress-%08x.sock", config->run, name);
    return listen_packets(s->egress_socket, &s->egress_fd, e);
}

/* Everything that can fail, before a child is started. */
static int prepare(struct supervisor *s, struct err *e)
{
    const struct config *config = &s->options.config;
    FD run = -1;
    bool left = false;
    int r = find_programs(s, e);

    if (r == 0)
        r = find_layers(s, e);
    if (r == 0)
        r = serve_options_user(&s->options, &s->uid, &s->gid, e);
    if (r == 0 && s->options.private_dir)
        r = make_private(s->options.private_dir, s->gid, e);
    if (r == 0)
        r = make_directory(config->run, geteuid() == 0 ? 0755 : 0700, 0, 0, e);
    if (r == 0)
        r = open_own(config->run, "--run", &run, e);
    if (r == 0)
        r = make_directory(config->state, 0700, s->uid, s->gid, e);
    if (r == 0)
        r = state_lock(config->state, &s->lock_fd, &left, e);
    if (r == 0)
        r = name_sockets(s, e);
    return r < 0 ? r : listen_at_all(s, left ? LISTEN_AGAIN_MS : 0, e);
}

int serve_main(int argc, char **argv)
{
    static struct supervisor s = { .lock_fd = -1, .unix_fd = -1, .tcp_fd = -1, .egress_fd = -1,
                                   .broker_fd = -1,
                                   .door_fd = { [0 ... DOORS_MOST - 1] = -1 } };
    static const struct child known[] = {
        { .name = "keeper", .describe = describe_keeper, .death_signal = SIGTERM },
        { .name = "front", .describe = describe_front, .death_signal = SIGKILL },
        { .name = "egress", .describe = describe_egress, .death_signal = SIGKILL },
        { .name = "broker", .describe = describe_broker, .death_signal = SIGKILL },
    };
    static struct child children[sizeof known / sizeof *known];
    const struct config *config = &s.options.config;
    struct err e = { 0 };

    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    umask(022);
    front_log_open();
    int r = serve_options_read(argc, argv, &s.options, &e);
    if (r == 0)
        r = prepare(&s, &e);
    if (r < 0)
        return fail(&e);
    if (front_log_is_for_people())
        greet(config);
    else
        front_log("info", "serving", "socket", config->socket, "listen", config->listen, "state", config->state, NULL);
    /* The keeper may belong to another, and egress then, too. */
    const bool is_ours[] = { !s.options.keeper_path, true, s.egress_fd >= 0, s.broker_fd >= 0 };
    size_t n = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_ours[i])
            children[n++] = known[i];
    children_run(children, n, &s);
    children_end(children, n);
    (void)unlink(config->socket);
    if (!s.options.keeper_path)
        (void)unlink(s.keeper_socket);
    if (s.egress_fd >= 0)
        (void)unlink(s.egress_socket);
    if (s.broker_fd >= 0)
        (void)unlink(s.broker_socket);
    for (size_t i = 0; server_doors[i]; i++)
        if (s.door_fd[i] >= 0 && door_address(server_doors[i], &s.options.config)[0] == '/')
            (void)unlink(door_address(server_doors[i], &s.options.config));
    return 0;
}

int config_main(int argc, char **argv)
{
    static struct serve_options o;
    uid_t uid;
    gid_t gid;
    char *words[] = { argv[0], "--config", argc > 2 ? argv[2] : NULL };
    struct err e = { 0 };

    if (argc < 2 || strcmp(argv[1], "check") != 0 || argc > 3) {
        fputs("usage: carrel config check [FILE]\n", stderr);
        return 125;
    }
    int r = serve_options_load(argc > 2 ? 3 : 1, words, &o, &e);
    if (r == 0)
        r = config_check(&o.config, &e);
    if (r == 0)
        r = doors_check(server_doors, &o.config, &e);
    if (r == 0)
        r = serve_options_user(&o, &uid, &gid, &e);
    if (r < 0)
        return fail(&e);
    puts("the configuration is good");
    return 0;
}
