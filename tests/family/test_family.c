/* A family with several boxes and several payloads in a box, through the library: what `carrel run` does not show.
 * Needs root or user namespaces. Usage: test_family ZYGOTE. Prints what it measured; exits with 1 at the first thing
 * that is not as it should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/family/family.h"
#include "box/init.h"

enum { BOXES = 8, ROUNDS = 40, BIRTHS = 120, MOMENT_US = 100, PATIENCE_MS = 60000 };

static struct box_host host;
static struct family   family;
static struct plan     plan, tree;
static struct err      e;

static _Noreturn void fail(const char *what)
{
    char text[300];
    err_text(&e, text, sizeof text);
    fprintf(stderr, "test_family: %s: %s\n", what, text);
    exit(1);
}

static void must(int r, const char *what)
{
    if (r < 0)
        fail(what);
}

static void expect(bool holds, const char *what)
{
    e.code = 0;
    if (!holds)
        fail(what);
}

static void make_family(const char *program)
{
    static struct box_spec spec = {
        .profile = PROFILE_STANDARD, .uid = 1000, .gid = 1000, .limits.disk_bytes = 16 << 20
    };
    static struct box_spec with;
    static char *argv[] = { "/run/zygote", NULL }, *env[] = { "PATH=/usr/bin", NULL };
    struct command_spec command = { .argv = argv, .env = env };
    struct start start = { .command = &command, .stdio = { -1, -1, 2 } };

    must(box_host_open(&host, &e), "host");
    must(facts_read_root(&host.facts, NULL, false, &e), "facts");
    must(plan_make(&spec, &host.facts, &plan, &e), "plan");
    FD file = open(program, O_PATH | O_CLOEXEC);
    with = spec;
    with.n_mounts = 1;
    with.mount[0] = (struct mount_spec){ .source = program, .target = "/run/zygote", .is_file = true, .fd = file };
    must(plan_make(&with, &host.facts, &tree, &e), "plan");
    family_plan(&tree);
    must(family_create(&host, &tree, &start, &family, &e), "family");
    expect(family_ready(&family, FAMILY_READY_MS, &e) == 1, "the zygote is ready");
}

/* Gives a command, waits for its end and returns what it wrote. */
static const char *run(struct payload *payload, struct engine_box *box, bool is_forked, char **argv, int wanted)
{
    static char text[256];
    char *env[] = { "PATH=/usr/bin", NULL };
    struct command_spec command = { .argv = argv, .env = env };
    struct process_end end;
    int out[2], r;

    expect(pipe2(out, O_CLOEXEC) == 0, "pipe");
    struct start start = { .command = &command, .stdio = { -1, out[1], -1 } };
    must(is_forked ? family_order(box, payload, &start, &e) : box_start_payload(box, &start, payload, &e), "order");
    close(out[1]);
    size_t length = 0;
    for (ssize_t n; (n = read(out[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)n;
    text[length] = '\0';
    close(out[0]);
    while ((r = payload_reap(payload, &end)) == 0) {
        struct pollfd ended = { .fd = payload->process.pidfd, .events = POLLIN };
        expect(poll(&ended, 1, PATIENCE_MS) == 1, "the payload ends");
    }
    if (end.code != wanted && payload_started(payload, &e) < 0)
        fail(argv[0]);
    expect(r == 1 && end.code == wanted, "its status is the keeper's to read");
    payload_done(payload);
    return text;
}

static void test_boxes_of_one_family_are_apart(void)
{
    static struct engine_box box[BOXES];
    struct payload payload;
    struct process_end end;
    char name[BOXES][256];

    for (int i = 0; i < BOXES; i++)
        must(family_box_create(&host, &family, &plan, false, &box[i], &e), "box");
    for (int i = 0; i < BOXES; i++)
        expect(box_ready(&box[i], true, &e) == 1, "the box is ready");
    for (int i = 0; i < BOXES; i++) {
        char *argv[] = {
            "/bin/sh", "-c",
            "ls /tmp/mine 2>/dev/null; echo x >/tmp/mine; cat /proc/sys/kernel/random/boot_id | wc -l;"
            " readlink /proc/self/ns/user", NULL
        };
        snprintf(name[i], sizeof name[i], "%s", run(&payload, &box[i], false, argv, 0));
        expect(strncmp(name[i], "1\nuser:", 7) == 0, "its files are its own");
        for (int k = 0; k < i; k++)
            expect(strcmp(name[i], name[k]) != 0, "its user namespace is its own");
        expect(host.ids.size == 1 || i == 0 || box[i].ids.base != box[i - 1].ids.base, "its ids are its own");
    }
    for (int i = 0; i < BOXES; i++)
        box_destroy(&host, &box[i], &end);
}

static void test_a_box_takes_forked_and_executed_payloads(void)
{
    static struct engine_box box;
    struct payload forked[3], executed;
    struct process_end end;
    char *random[] = { "@random", NULL }, *ls[] = { "/bin/sh", "-c", "cat /tmp/left; exit 3", NULL };
    char *leave[] = { "/bin/sh", "-c", "echo left >/tmp/left", NULL };
    char first[256] = "";

    must(family_box_create(&host, &family, &plan, false, &box, &e), "box");
    expect(box_ready(&box, true, &e) == 1, "the box is ready");
    for (int i = 0; i < 3; i++)
        must(family_fork(&box, &forked[i], &e), "fork");
    for (int i = 0; i < 3; i++) {
        expect(family_forked(&box, &forked[i], FAMILY_FORK_MS, &e) == 1, "the child waits");
        expect(forked[i].process.pid > 0 && forked[i].waiting, "and the keeper knows it");
    }
    /* The first payload of the box still waits; the others are used before it. */
    for (int i = 0; i < 3; i++) {
        const char *text = run(&forked[i], &box, true, random, 0);
        expect(strcmp(text, first) != 0, "random numbers differ");
        snprintf(first, sizeof first, "%s", text);
    }
    (void)run(&executed, &box, false, leave, 0);
    expect(!box.first.waiting, "the first is used up");
    expect(strcmp(run(&executed, &box, false, ls, 3), "left\n") == 0, "an executed payload is in the same box");
    box_destroy(&host, &box, &end);
}

static size_t count_children(void)
{
    char text[4096];
    size_t n = 0;
    FD children = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t size = read(children, text, sizeof text);

    for (ssize_t i = 0; i < size; i++)
        n += text[i] == ' ';
    return n;
}

static size_t count_descriptors(void)
{
    size_t n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* The midwife is killed at one moment after another, or the box is ended. A born and unreported process is found. */
static void test_a_birth_that_is_ended_at_any_moment_leaves_nobody(void)
{
    static struct engine_box box;
    struct process_end end;
    size_t children = count_children(), descriptors = count_descriptors(), n_born = 0, n_lost = 0;

    for (unsigned i = 0; i < BIRTHS; i++) {
        must(family_box_create(&host, &family, &plan, false, &box, &e), "box");
        usleep(i / 2 * MOMENT_US);
        if (i % 2 == 0) {
            expect(process_signal(&box.midwife, SIGKILL) == 0, "kill");
            int r = box_ready(&box, true, &e);
            expect(r == 1 || r == -ECHILD, "born, or not");
            n_born += r == 1;
            n_lost += r < 0 && box.init.pidfd >= 0;
        }
        box_destroy(&host, &box, &end);
    }
    for (int i = 0; i < PATIENCE_MS && count_children() > children; i++) {
        family_reap(&family);
        usleep(1000);
    }
    printf("test_family: of %d births, %zu came before the midwife's end, and %zu without a word\n", BIRTHS / 2, n_born,
           n_lost);
    expect(count_children() == children, "no child is left of a birth");
    expect(count_descriptors() == descriptors, "no descriptor is left of a birth");
}

/* Each such word is answered where the cgroup is of v2; a plain folder stands in for one. */
static void test_a_helper_is_born_once(void)
{
    static struct engine_box box;
    struct payload payload = { .process.pidfd = -1, .terminal = -1 };
    struct note born = { .kind = NOTE_BORN };
    char folder[] = "/tmp/test-family-XXXXXX";
    int pair[2], on = 1;

    expect(mkdtemp(folder) != NULL, "folder");
    FD dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    FD file = openat(dir, "cgroup.procs", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    expect(file >= 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "link");
    expect(setsockopt(pair[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0, "link");
    pid_t pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2; i++)
            (void)!send(pair[1], &born, sizeof born, MSG_NOSIGNAL);
        for (;;)
            pause();
    }
    box.leaf.v2 = dir;
    payload.link = pair[0];
    int r = family_forked(&box, &payload, PATIENCE_MS, &e);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlinkat(dir, "cgroup.procs", 0);
    rmdir(folder);
    close(pair[0]);
    close(pair[1]);
    expect(payload.born && r == -EPROTO, "a helper is born once");
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void measure(void)
{
    static struct engine_box box;
    uint64_t create[ROUNDS], wake[ROUNDS], destroy[ROUNDS];
    char *argv[] = { "@echo", NULL };
    struct payload payload;
    struct process_end end;

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = clock_monotonic_us();
        must(family_box_create(&host, &family, &plan, false, &box, &e), "box");
        expect(box_ready(&box, true, &e) == 1, "ready");
        create[i] = clock_monotonic_us() - start;
        start = clock_monotonic_us();
        (void)run(&payload, &box, false, argv, 0);
        wake[i] = clock_monotonic_us() - start;
        start = clock_monotonic_us();
        box_destroy(&host, &box, &end);
        destroy[i] = clock_monotonic_us() - start;
    }
    qsort(create, ROUNDS, sizeof *create, by_size);
    qsort(wake, ROUNDS, sizeof *wake, by_size);
    qsort(destroy, ROUNDS, sizeof *destroy, by_size);
    printf("test_family: p50 of %d: box with a sealed child %llu us, parked child runs and ends %llu us, destroy %llu "
           "us\n",
           ROUNDS, (unsigned long long)create[ROUNDS / 2], (unsigned long long)wake[ROUNDS / 2],
           (unsigned long long)destroy[ROUNDS / 2]);
}

static void test_a_dead_zygote_is_noticed(void)
{
    static struct engine_box box;

    expect(process_signal(&family.zygote, 9) == 0, "kill");
    struct pollfd ended = { .fd = family.zygote.pidfd, .events = POLLIN };
    expect(poll(&ended, 1, PATIENCE_MS) == 1, "the zygote ends");
    expect(family_box_create(&host, &family, &plan, false, &box, &e) == -ECHILD, "no box without a zygote");
    expect(family.zygote.pidfd < 0 && family.zygote_end.signal == 9, "and why");
}

int main(int argc, char **argv)
{
    if (argc != 2 || fd_fill_standard() < 0)
        return 2;
    make_family(argv[1]);
    test_boxes_of_one_family_are_apart();
    test_a_box_takes_forked_and_executed_payloads();
    test_a_helper_is_born_once();
    test_a_birth_that_is_ended_at_any_moment_leaves_nobody();
    measure();
    test_a_dead_zygote_is_noticed();
    family_destroy(&host, &family);
    box_host_close(&host);
    char left[4096];
    FD children = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    expect(children < 0 || read(children, left, sizeof left) == 0, "no child is left");
    return 0;
}
