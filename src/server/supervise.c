/* The supervisor parses the configuration, opens the listeners and starts two children: the keeper (privileged) and the
 * front (which drops its rights and confines itself). If the front dies it is started again with the same listeners, so
 * that no client is refused meanwhile; if the keeper dies its boxes are gone, and a new one is started. */
#define _GNU_SOURCE
#include "server/supervise.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest.h"
#include "front/config/config.h"
#include "front/config/layers.h"
#include "front/front.h"
#include "server/supervise.h"

enum { FRONT_UID_DEFAULT = 64998, RESTART_MS = 100, RETRY_S = 1, BACKLOG = 1024, ARGS_MAX = 96 };

struct supervisor {
    struct config config;
    const char   *config_path;      /* the file that was read, and that the front shall read; NULL: none */
    char          own_config[300];
    const char   *keeper_path;      /* of a keeper that somebody else runs; NULL: ours */
    char          keeper_socket[300], program[4096], engine[4096];
    uid_t         uid;              /* the front's */
    gid_t         gid;
    int           unix_fd, tcp_fd;
    pid_t         keeper, front;
    int           argc;             /* --set options to hand on */
    char         *set[32];
    char          layers[CONFIG_TEMPLATES][4096];       /* NAME=DIR:DIR... */
    char          python[GUEST_PATH];                   /* of templates that name none */
};

static const char usage[] =
    "usage: carrel serve [--listen 127.0.0.1:7070] [--socket PATH] [--state DIR] [--set KEY=VALUE]...\n"
    "                    [--config FILE | --no-config] [--allow-anonymous] [--keeper SOCKET]\n"
    "\n"
    "Serves the API on a unix socket and, if asked, on TCP. --keeper: use a keeper that runs already.\n";

static int fail(const struct err *e)
{
    char text[512];

    err_text(e, text, sizeof text);
    fprintf(stderr, "carrel: %s\n", text);
    return 125;
}

/* Where the file of settings is if nobody says so. */
static void find_config(char *path, size_t size)
{
    const char *home = getenv("XDG_CONFIG_HOME");

    if (geteuid() == 0)
        snprintf(path, size, "/etc/carrel/carrel.yaml");
    else if (home)
        snprintf(path, size, "%s/carrel/carrel.yaml", home);
    else
        snprintf(path, size, "%s/.config/carrel/carrel.yaml", getenv("HOME") ? getenv("HOME") : "");
}

/* Before the flags, which are stronger. */
static int load_config(int argc, char **argv, struct supervisor *s, struct err *e)
{
    bool without = false;

    config_defaults(&s->config, geteuid() == 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-config") == 0)
            without = true;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            s->config_path = argv[i + 1];
    }
    if (s->config_path)
        return without ? err_set(e, EINVAL, STEP_USAGE, "give either --config or --no-config")
                       : config_load(&s->config, s->config_path, true, e);
    find_config(s->own_config, sizeof s->own_config);
    if (without || (access(s->own_config, F_OK) < 0 && errno == ENOENT))
        return 0;
    s->config_path = s->own_config;
    return config_load(&s->config, s->config_path, true, e);
}

/* What the front is told as well. */
static int add_setting(struct supervisor *s, const char *key, const char *value, struct err *e)
{
    char *text = NULL;

    if (s->argc == (int)(sizeof s->set / sizeof *s->set))
        return err_set(e, E2BIG, STEP_USAGE, "there are more than %d settings here; use a file",
                       s->argc);
    if (asprintf(&text, "%s%s%s", key ? key : "", key ? "=" : "", value) < 0)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "settings");
    s->set[s->argc++] = text;
    return config_set_line(&s->config, text, e);
}

static int read_options(int argc, char **argv, struct supervisor *s, struct err *e)
{
    static const struct {
        const char *option, *key;
    } keys[] = { { "--listen", "listen" }, { "--socket", "socket" }, { "--state", "state" }, { "--run", "run" } };
    int r = load_config(argc, argv, s, e);

    for (int i = 1; i < argc && r == 0; i++) {
        const char *key = NULL, *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--no-config") == 0)
            continue;
        if (strcmp(argv[i], "--allow-anonymous") == 0) {
            r = add_setting(s, "allow_anonymous", "true", e);
            continue;
        }
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strcmp(argv[i], keys[k].option) == 0)
                key = keys[k].key;
        if (!value)
            return err_set(e, EINVAL, STEP_USAGE, "%s wants a value; 'carrel serve --help' shows how", argv[i]);
        if (key || strcmp(argv[i], "--set") == 0)
            r = add_setting(s, key, value, e);
        else if (strcmp(argv[i], "--keeper") == 0)
            s->keeper_path = value;
        else if (strcmp(argv[i], "--config") != 0)
            return err_set(e, EINVAL, STEP_USAGE, "unknown option %s; 'carrel serve --help' lists them", argv[i]);
        i++;
    }
    return r < 0 ? r : config_check(&s->config, e);
}

/* carrel and carrel-server lie side by side, or in bin and libexec. */
static int find_programs(struct supervisor *s, struct err *e)
{
    ssize_t n = readlink("/proc/self/exe", s->program, sizeof s->program - 1);

    if (n <= 0)
        return err_at(e, errno, STEP_HOST, 0, "/proc/self/exe");
    s->program[n] = '\0';
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

/* In the folder of the keeper's socket nobody else may put another one; /tmp is everybody's. */
static int check_run(const char *path, struct err *e)
{
    FD dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (dir < 0 || fstat(dir, &status) < 0)
        return err_set(e, errno, STEP_HOST, "%s", path);
    if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)))
        return err_set(e, EPERM, STEP_HOST, "%s belongs to somebody else or others may write there: remove it, or "
                       "choose another folder with --run", path);
    return 0;
}

/* Whom the front becomes. */
static int choose_user(struct supervisor *s, struct err *e)
{
    const char *name = s->config.user;

    s->uid = geteuid() != 0 ? geteuid() : FRONT_UID_DEFAULT;
    s->gid = geteuid() != 0 ? getegid() : FRONT_UID_DEFAULT;
    if (geteuid() != 0 || !name[0])
        return 0;
    struct passwd *user = getpwnam(name);
    if (!user)
        return err_set(e, EINVAL, STEP_USAGE, "user '%s': there is no such user here", name);
    if (user->pw_uid == 0 || user->pw_gid == 0)
        return err_set(e, EINVAL, STEP_USAGE, "user '%s' has root's rights, which the front must not have", name);
    s->uid = user->pw_uid;
    s->gid = user->pw_gid;
    return 0;
}

static int listen_unix(const char *path, int *ret, struct err *e)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat there;

    if (strlen(path) >= sizeof address.sun_path)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "--socket %s", path);
    memcpy(address.sun_path, path, strlen(path));
    FD probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof address) == 0)
        return err_set(e, EADDRINUSE, STEP_HOST, "a server is running at %s already", path);
    FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lstat(path, &there) == 0 && !S_ISSOCK(there.st_mode))
        return err_set(e, EEXIST, STEP_USAGE, "%s is there already, and is no socket", path);
    (void)unlink(path);
    /* Anybody may connect to root's: who it is, the kernel tells, and everybody sees only his own boxes. An ordinary
     * user's boxes have that user's rights, so they are for nobody else. */
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        chmod(path, geteuid() == 0 ? 0666 : 0600) < 0 || listen(fd, BACKLOG) < 0)
        return err_set(e, errno, STEP_HOST, "listening at %s", path);
    *ret = TAKE_FD(fd);
    return 0;
}

static int listen_tcp(const char *address, int *ret, struct err *e)
{
    char host[128];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM },
                    *found = NULL;
    int one = 1;

    if (!colon)
        return err_set(e, EINVAL, STEP_USAGE, "--listen wants ADDRESS:PORT, not %s", address);
    const char *start = address[0] == '[' ? address + 1 : address;
    snprintf(host, sizeof host, "%.*s", (int)(colon - start - (address[0] == '[')), start);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return err_set(e, EINVAL, STEP_USAGE, "--listen %s: not an address", address);
    FD fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = 0;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        r = err_set(e, errno, STEP_HOST, "listening at %s", address);
    freeaddrinfo(found);
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}

/* 0: there was no room for another process, and supervise() tries again. */
static pid_t spawn(char *const *argv, const int *keep, size_t n)
{
    sigset_t none;
    pid_t pid = fork();

    if (pid < 0)
        front_log("error", "cannot start a process; trying again", "program", argv[1], "error", strerror(errno), NULL);
    if (pid != 0)
        return pid < 0 ? 0 : pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < n; i++)
        if (keep[i] >= 0)
            fcntl(keep[i], F_SETFD, 0);
    execv(argv[0], argv);
    fprintf(stderr, "carrel: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* The interpreter of templates that name none. Where 'carrel setup' has not been yet, its folder is made: what boxes
 * see of it is what will be in it. */
static void find_python(struct supervisor *s)
{
    char place[GUEST_PATH];
    struct err ignored;

    bool found = guest_find_python(s->python, sizeof s->python);
    config_template_fill(&s->config, s->python);
    if (found || !s->config.template[0].python_is_default)
        return;
    front_log("warning", "there is no Python for kernels yet", "fix", "carrel setup", NULL);
    snprintf(place, sizeof place, "%s", s->python);
    guest_cut(place, 2);
    if (strncmp(place, "/usr/", 5) != 0)
        (void)!make_directory(place, 0755, 0, 0, &ignored);
}

/* The administrator's word for what of the host boxes see, so that the front has none in it. */
static int find_layers(struct supervisor *s, struct err *e)
{
    int r = 0;

    guest_find_files(s->config.guest, sizeof s->config.guest);
    find_python(s);
    for (uint32_t i = 0; i < s->config.n_templates && r == 0; i++) {
        struct config_template t = s->config.template[i];
        int n = snprintf(s->layers[i], sizeof s->layers[i], "%s=", t.name);
        r = layers_of(&t, s->config.guest, s->layers[i] + n, sizeof s->layers[i] - (size_t)n, e);
    }
    return r;
}

static void start_keeper(struct supervisor *s)
{
    char uid[16], stores[sizeof s->config.state + 16];
    char *argv[16 + 2 * CONFIG_ROOTS + 2 * CONFIG_TEMPLATES] = { s->engine,        "keeper",        "--listen",
                                                                 s->keeper_socket, "--front-uid", uid };
    int n = 6;

    /* A rootless keeper lives in a user namespace of its own, in which its user, who is also the front's, is 0. */
    snprintf(uid, sizeof uid, "%u", geteuid() == 0 ? s->uid : 0);
    /* Beside the database that says whose they are; but the keeper's own, and closed to the front. */
    snprintf(stores, sizeof stores, "%s/stores", s->config.state);
    argv[n++] = "--stores";
    argv[n++] = stores;
    if (s->config.device_kinds[0]) {
        argv[n++] = "--devices";
        argv[n++] = s->config.device_kinds;
    }
    for (uint32_t i = 0; i < s->config.n_roots; i++) {
        argv[n++] = "--root";
        argv[n++] = s->config.root_path[i];
    }
    for (uint32_t i = 0; i < s->config.n_templates; i++) {
        argv[n++] = "--template";
        argv[n++] = s->layers[i];
    }
    argv[n] = NULL;
    s->keeper = spawn(argv, NULL, 0);
}

static void start_front(struct supervisor *s)
{
    char uid[16], gid[16], owner[16], unix_arg[32], tcp_arg[32];
    char *argv[ARGS_MAX];
    int n = 0;

    snprintf(uid, sizeof uid, "%u", s->uid);
    snprintf(gid, sizeof gid, "%u", s->gid);
    snprintf(owner, sizeof owner, "%u", geteuid());
    snprintf(unix_arg, sizeof unix_arg, "%d:unix", s->unix_fd);
    snprintf(tcp_arg, sizeof tcp_arg, "%d:tcp", s->tcp_fd);
    const char *fixed[] = { s->program, "front", "--keeper", s->keeper_socket, "--state", s->config.state, "--uid",
                            uid,        "--gid", gid,        "--owner-uid",    owner,     "--python",      s->python,
                            "--listen-fd", unix_arg };
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        argv[n++] = (char *)(uintptr_t)fixed[i];
    if (s->tcp_fd >= 0) {
        argv[n++] = "--listen-fd";
        argv[n++] = tcp_arg;
    }
    if (s->config_path) {
        argv[n++] = "--config";
        argv[n++] = (char *)(uintptr_t)s->config_path;
    }
    for (int i = 0; i < s->argc; i++) {
        argv[n++] = "--set";
        argv[n++] = s->set[i];
    }
    argv[n] = NULL;
    s->front = spawn(argv, (int[]){ s->unix_fd, s->tcp_fd }, 2);
}

static void end_child(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGTERM);
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *pid = 0;
}

/* Returns when told to stop. */
static void supervise(struct supervisor *s)
{
    const struct timespec pause = { .tv_nsec = RESTART_MS * 1000000L }, retry = { .tv_sec = RETRY_S };
    sigset_t signals;
    int status;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    /* A keeper that is killed leaves its boxes' processes, which end only when somebody reaps them; not every pid 1
     * does. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (;;) {
        if (!s->keeper_path && s->keeper == 0)
            start_keeper(s);
        if (s->front == 0)
            start_front(s);
        bool is_whole = s->front != 0 && (s->keeper_path || s->keeper != 0);
        int number = is_whole ? sigwaitinfo(&signals, NULL) : sigtimedwait(&signals, NULL, &retry);
        if (number > 0 && number != SIGCHLD)
            return;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
            bool is_keeper = pid == s->keeper;
            if (!is_keeper && pid != s->front)
                continue;
            front_log("error", is_keeper ? "the keeper ended; starting another" : "the front ended; starting another",
                      NULL);
            nanosleep(&pause, NULL);
            *(is_keeper ? &s->keeper : &s->front) = 0;
        }
    }
}

/* For somebody who has just started it in a terminal. */
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

int serve_main(int argc, char **argv)
{
    static struct supervisor s = { .unix_fd = -1, .tcp_fd = -1 };
    struct err e = { 0 };

    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    umask(022);
    front_log_open();
    int r = read_options(argc, argv, &s, &e);
    if (r == 0)
        r = find_programs(&s, &e);
    if (r == 0)
        r = find_layers(&s, &e);
    if (r == 0)
        r = choose_user(&s, &e);
    if (r == 0)
        r = make_directory(s.config.run, geteuid() == 0 ? 0755 : 0700, 0, 0, &e);
    if (r == 0)
        r = check_run(s.config.run, &e);
    if (r == 0)
        r = make_directory(s.config.state, 0700, s.uid, s.gid, &e);
    if (r == 0)
        r = listen_unix(s.config.socket, &s.unix_fd, &e);
    if (r == 0 && s.config.listen[0])
        r = listen_tcp(s.config.listen, &s.tcp_fd, &e);
    if (r < 0)
        return fail(&e);
    snprintf(s.keeper_socket, sizeof s.keeper_socket, "%s", s.keeper_path ? s.keeper_path : "");
    if (!s.keeper_path)
        snprintf(s.keeper_socket, sizeof s.keeper_socket, "%s/keeper.sock", s.config.run);
    if (front_log_is_for_people())
        greet(&s.config);
    else
        front_log("info", "serving", "socket", s.config.socket, "listen", s.config.listen, "state", s.config.state,
                  NULL);
    supervise(&s);
    end_child(&s.front);
    end_child(&s.keeper);
    (void)unlink(s.config.socket);
    return 0;
}

int config_main(int argc, char **argv)
{
    static struct supervisor s;
    char *words[] = { argv[0], "--config", argc > 2 ? argv[2] : NULL };
    struct err e = { 0 };

    if (argc < 2 || strcmp(argv[1], "check") != 0 || argc > 3) {
        fputs("usage: carrel config check [FILE]\n", stderr);
        return 125;
    }
    int r = load_config(argc > 2 ? 3 : 1, words, &s, &e);
    if (r == 0)
        r = config_check(&s.config, &e);
    if (r == 0)
        r = choose_user(&s, &e);
    if (r < 0)
        return fail(&e);
    puts("the configuration is good");
    return 0;
}
