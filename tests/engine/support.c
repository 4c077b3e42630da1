#define _GNU_SOURCE
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box/payload.h"
#include "proto/command.h"

struct front front = { .socket = -1 };
const char *keeper_template;
void (*keeper_companion)(void);
const struct limits usual = { .memory_bytes = 96 << 20, .disk_bytes = 16 << 20, .pids = 32, .cpu_milli = 1000 };

static void spawn_keeper(int socket)
{
    const char *program = getenv("CARREL");
    const char *option = keeper_template ? "--template" : NULL;
    char number[16];

    snprintf(number, sizeof number, "%d", socket);
    assert_non_null(program);
    front.keeper = fork();
    assert_return_code(front.keeper, errno);
    if (front.keeper)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (keeper_companion && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        keeper_companion();
        _exit(0);
    }
    if (socket >= 0) {
        fcntl(socket, F_SETFD, 0);
        execl(program, "carrel", "keeper", "--fd", number, option, keeper_template, (char *)NULL);
    } else {
        execl(program, "carrel", "keeper", "--listen", front.path, "--front-uid", "0", option, keeper_template,
              (char *)NULL);
    }
    _exit(120);
}

int setup_private(void **state)
{
    int pair[2];

    (void)state;
    front = (struct front){ .socket = -1 };
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    front.socket = pair[0];
    spawn_keeper(pair[1]);
    close(pair[1]);
    front_expect(EVENT_SYNCED, 0, -1);
    return 0;
}

int setup_listening(void **state)
{
    (void)state;
    front = (struct front){ .socket = -1 };
    snprintf(front.path, sizeof front.path, "/tmp/carrel-engine-%d.sock", (int)getpid());
    unlink(front.path);
    spawn_keeper(-1);
    int fd = -1;
    /* It serves when it accepts. */
    wait_for((fd = front_connect_as(0)) >= 0);
    front.socket = fd;
    front_expect(EVENT_HELLO, 0, -1);
    front_close();
    return 0;
}

int front_connect_as(uid_t uid)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, front.path, sizeof front.path);
    if (uid && seteuid(uid) < 0)
        abort();
    int r = connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
    if (uid && seteuid(0) < 0)
        abort();
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

void front_connect(void)
{
    front.socket = front_connect_as(0);
    assert_true(front.socket >= 0);
    assert_int_equal(front_next().event.head.type, EVENT_HELLO);
}

void front_close(void)
{
    close(front.socket);
    front.socket = -1;
    for (size_t i = 0; i < front.n_queued; i++)
        told_close(&front.queue[i]);
    front.n_queued = 0;
}

int keeper_wait(void)
{
    int status = -1;
    pid_t pid = front.keeper, got = 0;

    wait_for((got = waitpid(pid, &status, WNOHANG)) != 0);
    assert_int_equal(got, pid);
    front.keeper = 0;
    return status;
}

int teardown(void **state)
{
    pid_t keeper = front.keeper;

    (void)state;
    front_close();
    if (keeper == 0)
        return 0;
    if (front.path[0])
        kill(keeper, SIGTERM);
    int status = keeper_wait();
    if (front.path[0])
        unlink(front.path);
    assert_int_equal(status, 0);
    assert_int_equal(cgroups_of(keeper), 0);
    return 0;
}

void told_close(struct told *told)
{
    for (size_t i = 0; i < told->n_fds; i++)
        close(told->fds[i]);
    told->n_fds = 0;
}

uint32_t front_send(void *frame, size_t size, const int *fds, size_t n_fds)
{
    ((struct request_head *)frame)->serial = ++front.serial;
    assert_int_equal(link_send(front.socket, frame, size, fds, n_fds), 0);
    return front.serial;
}

static struct told receive(void)
{
    struct pollfd ready = { .fd = front.socket, .events = POLLIN };
    struct told told = { 0 };

    if (poll(&ready, 1, DEADLINE_MS) != 1)
        fail_msg("the keeper is silent");
    ssize_t n = link_receive_any(front.socket, &told.event, sizeof told.event, told.fds, KEEPER_FDS, &told.n_fds);
    if (n == 0)
        fail_msg("the keeper has gone or dropped us");
    assert_in_range(n, sizeof told.event.head, sizeof told.event);
    return told;
}

struct told front_next(void)
{
    if (front.n_queued == 0)
        return receive();
    struct told told = front.queue[0];
    memmove(front.queue, front.queue + 1, --front.n_queued * sizeof told);
    return told;
}

static bool matches(const union event *event, enum event_type type, uint32_t slot, int payload)
{
    uint32_t its = type == EVENT_FAMILY        ? event->family.slot
                   : type == EVENT_FAMILY_GONE ? event->family_gone.slot
                                               : event->head.box;

    return event->head.type == type && its == slot && (payload < 0 || event->head.payload == payload);
}

/* What will never come, because the payload or the box failed. */
static void check_hope(const union event *event, enum event_type type, uint32_t box, int payload)
{
    char text[300];
    const struct err *e = type == EVENT_READY ? event_failure(event)
                          : event->head.type == EVENT_FAILED && event->head.payload == payload ? &event->failed.err
                                                                                              : NULL;

    if (!e || event->head.box != box)
        return;
    err_text(e, text, sizeof text);
    fail_msg("box %u, payload %d failed: %d %s", box, payload, e->code, text);
}

static struct told take_queued(size_t i)
{
    struct told told = front.queue[i];
    memmove(front.queue + i, front.queue + i + 1, (--front.n_queued - i) * sizeof told);
    return told;
}

struct told front_expect(enum event_type type, uint32_t slot, int payload)
{
    for (size_t i = 0; i < front.n_queued; i++)
        if (matches(&front.queue[i].event, type, slot, payload))
            return take_queued(i);
    for (size_t i = 0; i < front.n_queued; i++)
        check_hope(&front.queue[i].event, type, slot, payload);
    for (;;) {
        struct told told = receive();
        if (matches(&told.event, type, slot, payload))
            return told;
        check_hope(&told.event, type, slot, payload);
        assert_true(front.n_queued < QUEUE);
        front.queue[front.n_queued++] = told;
    }
}

struct told front_answer(uint32_t serial)
{
    for (size_t i = 0; i < front.n_queued; i++)
        if (front.queue[i].event.head.serial == serial)
            return take_queued(i);
    for (;;) {
        struct told told = receive();
        if (told.event.head.serial == serial)
            return told;
        assert_true(front.n_queued < QUEUE);
        front.queue[front.n_queued++] = told;
    }
}

bool front_is_dropped(void)
{
    union event event;
    struct pollfd ready = { .fd = front.socket, .events = POLLIN };
    ssize_t n;

    /* Earlier events do not count. */
    do {
        if (poll(&ready, 1, DEADLINE_MS) != 1)
            return false;
        n = recv(front.socket, &event, sizeof event, MSG_DONTWAIT);
    } while (n > 0);
    return n == 0 || errno == ECONNRESET || errno == EPIPE;
}

struct request_create create_frame(uint32_t box)
{
    return (struct request_create){
        .head = { .type = REQUEST_CREATE, .box = box },
        .token = 1000 + box,
        .limits = usual,
        .profile = PROFILE_STANDARD,
        .flags = CREATE_TERMINAL,
        .uid = 1000,
        .gid = 1000,
        .hostname = "box",
    };
}

static void must_work(const struct told *told, const char *what)
{
    char text[300];

    if (told->event.head.result >= 0)
        return;
    err_text(&told->event.done.err, text, sizeof text);
    fail_msg("%s: %d %s", what, told->event.head.result, text);
}

void box_make(uint32_t box, const struct limits *limits)
{
    struct request_create frame = create_frame(box);

    if (limits)
        frame.limits = *limits;
    struct told told = front_answer(front_send(&frame, sizeof frame, NULL, 0));
    must_work(&told, "create");
    assert_int_equal(told.event.head.type, EVENT_READY);
}

struct told box_ask(enum request_type type, uint32_t box, unsigned payload)
{
    struct request_head frame = { .type = (uint16_t)type, .box = box, .payload = (uint16_t)payload };
    return front_answer(front_send(&frame, sizeof frame, NULL, 0));
}

void box_end(uint32_t box)
{
    struct told told = box_ask(REQUEST_DESTROY, box, 0);
    must_work(&told, "destroy");
    assert_int_equal(told.event.head.type, EVENT_GONE);
}

uint32_t box_order(uint32_t box, unsigned payload, struct run run)
{
    char *shell[] = { "/bin/sh", "-c", (char *)(uintptr_t)run.script, NULL };
    char *env[] = { "PATH=/usr/bin:/bin", "HOME=/home/box", "LANG=C.UTF-8", NULL };
    struct command_spec command = { .argv = run.argv ? run.argv : shell, .env = env, .terminal = run.terminal };
    struct request_start frame = { .head = { .type = REQUEST_START, .box = box, .payload = (uint16_t)payload },
                                   .token = run.token, .timeout_ms = run.timeout_ms, .n_held = (uint8_t)run.n_held,
                                   .way = run.way, .user = run.user, .group = run.group };
    int fds[8], n = 0;
    struct err e;

    assert_int_equal(command_pack(&command, &fds[n++], &e), 0);
    if (run.in > 0) {
        frame.has_stdio[0] = 1;
        fds[n++] = run.in;
    }
    if (run.out > 0) {
        frame.has_stdio[1] = frame.has_stdio[2] = 1;
        fds[n++] = run.out;
        fds[n++] = run.out;
    }
    for (size_t i = 0; i < run.n_held; i++)
        fds[n++] = run.held[i];
    uint32_t serial = front_send(&frame, sizeof frame, fds, (size_t)n);
    close(fds[0]);
    return serial;
}

struct told box_run(uint32_t box, unsigned payload, struct run run)
{
    return front_answer(box_order(box, payload, run));
}

struct frame_end box_sh(uint32_t box, unsigned payload, const char *script, char *out, size_t size)
{
    return box_do(box, payload, (struct run){ .script = script }, out, size, NULL);
}

struct frame_end box_do(uint32_t box, unsigned payload, struct run run, char *out, size_t size, int *ret_way)
{
    int pipe[2] = { -1, -1 };

    assert_return_code(pipe2(pipe, O_CLOEXEC), errno);
    run.out = pipe[1];
    struct told told = box_run(box, payload, run);
    must_work(&told, run.script ? run.script : run.argv[0]);
    close(pipe[1]);
    if (ret_way)
        *ret_way = front_expect(EVENT_STARTED, box, (int)payload).event.started.way;
    struct frame_end end = front_expect(EVENT_ENDED, box, (int)payload).event.ended.end;
    if (out)
        out[read_some(pipe[0], out, size - 1, 1000)] = 0;
    close(pipe[0]);
    told = box_ask(REQUEST_FORGET, box, payload);
    must_work(&told, "forget");
    return end;
}

int keeper_fds(void)
{
    char path[64];
    int n = 0;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)front.keeper);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* A number from a file of /proc/PID, or -1. *ret_last: the last number of the line. */
static long number_of(pid_t pid, const char *file, const char *field, long *ret_last)
{
    char path[64], text[4096];
    size_t length = strlen(field);

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    if (fd_read_file(AT_FDCWD, path, text, sizeof text) < 0)
        return -1;
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, field, length) != 0)
            continue;
        char *at = line + length, *next;
        long first = strtol(at, &next, 10);
        *ret_last = first;
        for (long n; at = next, n = strtol(at, &next, 10), next > at && !memchr(at, '\n', (size_t)(next - at));)
            *ret_last = n;
        return first;
    }
    return -1;
}

static long status_of(pid_t pid, const char *field, long *ret_last)
{
    return number_of(pid, "status", field, ret_last);
}

/* Counted page by page: VmRSS is off by up to some hundred kilobytes, and grows with the code that has been used. */
long keeper_anonymous_kb(void)
{
    long last;
    return number_of(front.keeper, "smaps_rollup", "Anonymous:", &last);
}

bool is_running(pid_t pid)
{
    char path[64], text[512];

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (fd_read_file(AT_FDCWD, path, text, sizeof text) < 0)
        return false;
    const char *state = strrchr(text, ')');
    return state && state[2] != 'Z' && state[2] != 'X';
}

size_t keeper_children(pid_t *ret, size_t room)
{
    DIR *dir = opendir("/proc");
    size_t n = 0;
    long last;

    for (struct dirent *e; (e = readdir(dir)) && n < room;) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        for (pid_t up = pid; up > 1; up = (pid_t)status_of(up, "PPid:", &last))
            if (up != pid && up == front.keeper && is_running(pid)) {
                ret[n++] = pid;
                break;
            }
    }
    closedir(dir);
    return n;
}

pid_t keeper_init(void)
{
    pid_t pids[256];
    size_t n = keeper_children(pids, 256);

    for (size_t i = 0; i < n; i++) {
        long last = 0, first = status_of(pids[i], "NSpid:", &last);
        if (first > 1 && last == 1)
            return pids[i];
    }
    return -1;
}

static pid_t leaf_owner;
static int   leaves;

static int count_leaf(const char *path, const struct stat *st, int type, struct FTW *where)
{
    int owner;

    (void)st;
    if (type == FTW_D && sscanf(path + where->base, "carrel-%*u-%d-", &owner) == 1 && owner == leaf_owner)
        leaves++;
    return 0;
}

int cgroups_of(pid_t keeper)
{
    leaf_owner = keeper;
    /* A stranger's cgroup that vanishes in this moment ends the walk. */
    for (int i = 0; i < 100; i++) {
        leaves = 0;
        if (nftw("/sys/fs/cgroup", count_leaf, 16, FTW_PHYS) == 0)
            return leaves;
    }
    fail_msg("cannot walk through /sys/fs/cgroup: %s", strerror(errno));
    return -1;
}

size_t read_some(int fd, char *text, size_t size, int ms)
{
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    size_t n = 0;

    while (n < size && poll(&ready, 1, ms) == 1) {
        ssize_t got = read(fd, text + n, size - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    return n;
}

void read_until(int fd, const char *wanted)
{
    char text[65536] = "";
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    size_t n = 0;

    while (!strstr(text, wanted)) {
        if (n == sizeof text - 1 || poll(&ready, 1, DEADLINE_MS) != 1)
            fail_msg("waited in vain for %s in: %s", wanted, text);
        ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        if (got <= 0)
            fail_msg("the end came before %s in: %s", wanted, text);
        n += (size_t)got;
        text[n] = 0;
    }
}
