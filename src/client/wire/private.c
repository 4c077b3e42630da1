/* this process --> guardian --> carrel-server serve
 *
 * The guardian only holds the read end of a pipe. When the pipe closes, because this process has exited in any way, it
 * ends the server, waits for it and removes the folder that it made. So if our process is killed at any moment, either
 * there is no folder yet or the guardian removes it. The guardian has a session of its own, so that signals of a
 * terminal or a notebook to our process group do not reach the server. */
#define _GNU_SOURCE
#include "client/wire/private.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/parse.h"
#include "proto/defaults.h"
#include "proto/places.h"

enum { START_MS = 60000, END_MS = 60000, POLL_MS = 5, ARGUMENTS = 64, SAID = 200, COMPLAINTS = 3 };

/* The guardian's first message. */
struct private_place {
    int  error;
    char folder[24];
};

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    (void)remove(path);
    return 0;
}

static _Noreturn void serve(char *folder, char *const *settings, pid_t parent)
{
    char log[128];
    /* Without the file of settings, which belongs to the shared server: its addresses are taken. */
    char *argv[ARGUMENTS] = { "carrel-server", "serve", "--no-config", "--private", folder };
    size_t n = 5;

    snprintf(log, sizeof log, "%s/log", folder);
    for (; settings && *settings && n < ARGUMENTS - 2; settings++) {
        argv[n++] = "--set";
        argv[n++] = *settings;
    }
    int null = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    /* If the guardian was killed before this call, the signal never comes. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
        _exit(125);
    if (null < 0 || out < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(125);
    execv("/proc/self/exe", argv);
    _exit(125);
}

static _Noreturn void guard(char *const *settings, int alive, int told)
{
    struct private_place place = { .folder = "/tmp/carrel-XXXXXX" };
    char *folder = place.folder;
    sigset_t all, none;
    pid_t parent = getpid();

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (!mkdtemp(folder))
        place.error = errno;
    if (write(told, &place, sizeof place) != sizeof place || place.error) {
        (void)rmdir(folder);
        _exit(125);
    }
    /* Other processes may wait until our descriptors are closed: a launcher's ports, for its successor. */
    if (alive > 3)
        (void)syscall(SYS_close_range, 3, (unsigned)alive - 1, 0);
    (void)syscall(SYS_close_range, (unsigned)alive + 1, ~0U, 0);
    (void)setsid();
    pid_t pid = fork();
    if (pid == 0) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        serve(folder, settings, parent);
    }
    int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd ends[2] = { { .fd = alive, .events = POLLIN }, { .fd = pidfd, .events = POLLIN } };
    (void)syscall(SYS_close_range, 0, 2, 0);
    while (pidfd >= 0 && poll(ends, 2, -1) < 0 && errno == EINTR)
        ;
    if (pidfd >= 0) {
        (void)kill(pid, SIGTERM);
        if (poll(&ends[1], 1, END_MS) == 0)
            (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    _exit(0);
}

static bool is_ready(const struct server_address *s)
{
    struct exchange *x = malloc(sizeof *x);
    struct err ignored;
    bool ready = x && access(s->address, F_OK) == 0 &&
                 exchange_open(x, s, "GET", "/readyz", "Connection: close\r\n", EXCHANGE_NO_BODY, &ignored) == 0;

    if (ready) {
        ready = exchange_answer(x, &ignored) == 0 && x->status == 200;
        exchange_close(x);
    }
    free(x);
    return ready;
}

/* Returns how often one of its programs ended with a complaint. said: the last such complaint, else the log's last
 * line, if it can be read. */
static unsigned last_words(const char *folder, char said[SAID])
{
    static const char complaint[] = "carrel: ";
    char path[128], text[65536];
    unsigned n = 0;

    snprintf(path, sizeof path, "%s/log", folder);
    if (fd_read_file(AT_FDCWD, path, text, sizeof text) <= 0)
        return 0;
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = '\0';
        bool complains = strncmp(line, complaint, strlen(complaint)) == 0;
        if (complains || n == 0)
            snprintf(said, SAID, "%.*s", SAID - 1, complains ? line + strlen(complaint) : line);
        n += complains;
    }
    return n;
}

/* Finds the program's folder on PATH. */
static bool find_folder(const char *name, char ret[PATH_MAX])
{
    const char *path = getenv("PATH");

    for (const char *at = path ? path : BOX_PATH; *at; at += strcspn(at, ":"), at += *at == ':') {
        char whole[PATH_MAX], folder[PATH_MAX];
        snprintf(folder, sizeof folder, "%.*s", (int)strcspn(at, ":"), at);
        if (folder[0] == '/' && snprintf(whole, sizeof whole, "%s/%s", folder, name) < (int)sizeof whole &&
            access(whole, X_OK) == 0)
            return realpath(folder, ret);
    }
    errno = ENOENT;
    return false;
}

int private_server_python(const char *python, char setting[PRIVATE_SETTING], struct err *e)
{
    char folder[PATH_MAX], above[PATH_MAX];
    const char *slash = strrchr(python, '/'), *name = slash ? slash + 1 : python;
    bool found = false;

    if (!slash)
        found = find_folder(name, folder);
    else if (snprintf(above, sizeof above, "%.*s/", (int)(slash - python), python) < (int)sizeof above)
        found = access(python, X_OK) == 0 && realpath(above, folder);
    if (!found)
        return err_set(e, errno, STEP_USAGE, "--python %s: %s", parse_quote(python).text, strerror(errno));
    if (snprintf(setting, PRIVATE_SETTING, "templates.python.python=%s/%s", folder, name) >= PRIVATE_SETTING)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "--python: the path is too long");
    return 0;
}

/* Two names of an interpreter in one folder belong to the same environment. */
static bool is_same_folder(const char *one, const char *other)
{
    const char *slash = strrchr(one, '/'), *last = strrchr(other, '/');

    return slash && last && slash - one == last - other && memcmp(one, other, (size_t)(slash - one)) == 0;
}

int private_server_find(struct client *c, bool names_template, struct err *e)
{
    char own[GUEST_PATH];
    json_t *info = NULL;
    int r = server_find(c->url, &c->server, e);

    if (r < 0 || c->url || server_named() || names_template || !guest_find_own_python(own, sizeof own) ||
        !guest_has_ipykernel(own))
        return r;
    r = client_ask(c, "GET", "/v1/info", NULL, &info, e);
    const char *theirs = text_of(json_array_get(json_object_get(info, "templates"), 0), "python");
    bool is_ours = r == 200 && is_same_folder(theirs, own);
    json_decref(info);
    return is_ours ? 0 : err_set(e, ENOENT, STEP_USAGE, "the server's kernels are not of %s", own);
}

int private_server_start(struct private_server *p, char *const *settings, struct server_address *ret, struct err *e)
{
    struct private_place place = { .error = ECHILD };
    const char *folder = place.folder;
    char url[64], said[SAID] = "it said nothing";
    int alive[2], told[2];

    if (pipe2(alive, O_CLOEXEC) < 0)
        return err_set(e, errno, STEP_MEMORY, "pipe");
    if (pipe2(told, O_CLOEXEC) < 0) {
        fd_close(alive[0]);
        fd_close(alive[1]);
        return err_set(e, errno, STEP_MEMORY, "pipe");
    }
    *p = (struct private_server){ .guardian = fork(), .alive = alive[1] };
    if (p->guardian == 0) {
        fd_close(alive[1]);
        fd_close(told[0]);
        guard(settings, alive[0], told[1]);
    }
    fd_close(alive[0]);
    fd_close(told[1]);
    int got = fd_read_all(told[0], &place, sizeof place);
    fd_close(told[0]);
    if (got < 0 || place.error) {
        private_server_end(p);
        return err_set(e, place.error, STEP_USAGE, "a folder for a server of our own: %s", strerror(place.error));
    }
    snprintf(url, sizeof url, "unix:%s/" PLACES_SOCKET_NAME, folder);
    int r = server_parse(url, ret, e);
    uint64_t end = clock_monotonic_us() + START_MS * 1000ull;
    while (r == 0 && !is_ready(ret)) {
        bool is_over = p->guardian < 0 || waitpid(p->guardian, NULL, WNOHANG) != 0 || clock_monotonic_us() > end;
        /* The server restarts children that end again and again, but a keeper that cannot start here is not waited
         * for. */
        if (last_words(folder, said) >= COMPLAINTS || is_over)
            r = err_set(e, ECHILD, STEP_USAGE, "a server of our own did not start: %s", said);
        (void)poll(NULL, 0, POLL_MS);
    }
    if (r < 0)
        private_server_end(p);
    return r;
}

void private_server_end(struct private_server *p)
{
    if (p->guardian == 0)
        return;
    p->alive = fd_close(p->alive);
    if (p->guardian > 0)
        while (waitpid(p->guardian, NULL, 0) < 0 && errno == EINTR)
            ;
    p->guardian = 0;
}
