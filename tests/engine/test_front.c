/* Fronts that come and go, and fronts that talk nonsense. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box/payload.h"

static void test_the_next_front_is_told_everything(void **state)
{
    (void)state;
    int held[2][2], in[2];
    front_connect();
    front_expect(EVENT_SYNCED, 0, -1);
    box_make(5, NULL);
    box_make(9, NULL);
    assert_return_code(pipe2(held[0], O_CLOEXEC) | pipe2(held[1], O_CLOEXEC) | pipe2(in, O_CLOEXEC), errno);
    /* One that runs on, one that ends, one with a terminal, one that cannot run. */
    struct run run = {
        .script = "read x; exit 4", .in = in[0], .token = 51, .held = (int[]){ held[0][0], held[1][1] }, .n_held = 2
    };
    assert_int_equal(box_run(5, 0, run).event.head.result, 0);
    assert_int_equal(box_run(5, 1, (struct run){ .script = "exit 3", .token = 52 }).event.head.result, 0);
    run = (struct run){ .script = "echo hi; read x; exit 6", .terminal = true, .token = 53 };
    assert_int_equal(box_run(5, 2, run).event.head.result, 0);
    char *missing[] = { "/none", NULL };
    assert_int_equal(box_run(5, 3, (struct run){ .argv = missing, .token = 54 }).event.head.result, 0);
    front_expect(EVENT_STARTED, 5, 0);
    front_expect(EVENT_ENDED, 5, 1);
    struct told master = front_expect(EVENT_STARTED, 5, 2);
    read_until(master.fds[0], "hi");
    told_close(&master);
    front_expect(EVENT_FAILED, 5, 3);
    assert_int_equal(box_ask(REQUEST_FREEZE, 9, 0).event.head.result, 0);
    front_close();
    close(held[0][0]);
    close(held[1][1]);

    front_connect();
    struct told first = front_next(), told[4];
    assert_int_equal(first.event.head.type, EVENT_BOX);
    assert_int_equal(first.event.head.box, 5);
    assert_int_equal(first.event.box.token, 1005);
    assert_int_equal(first.event.box.state, BOX_READY);
    for (int i = 0; i < 4; i++) {
        told[i] = front_next();
        assert_int_equal(told[i].event.head.type, EVENT_PAYLOAD);
        assert_int_equal(told[i].event.head.payload, i);
        assert_int_equal(told[i].event.payload.token, 51 + i);
        assert_int_equal(told[i].event.payload.has_ended, i == 1 || i == 3);
        if (!told[i].event.payload.has_ended)
            continue;
        struct told end = front_next();
        assert_int_equal(end.event.head.type, i == 1 ? EVENT_ENDED : EVENT_FAILED);
        assert_int_equal(end.event.head.payload, i);
        if (i == 1) {
            assert_int_equal(end.event.ended.end.code, 3);
            assert_int_equal(end.event.ended.end.outcome, OUTCOME_ERROR);
        } else {
            assert_int_equal(end.event.failed.err.code, ENOENT);
        }
    }
    assert_int_equal(told[0].n_fds, 2);
    assert_int_equal(told[0].event.payload.n_held, 2);
    assert_int_equal(told[2].n_fds, 1);         /* the terminal, which is not among the held */
    assert_int_equal(told[2].event.payload.n_held, 0);
    struct told second = front_next();
    assert_int_equal(second.event.head.type, EVENT_BOX);
    assert_int_equal(second.event.head.box, 9);
    assert_int_equal(second.event.box.state, BOX_FROZEN);
    assert_int_equal(front_next().event.head.type, EVENT_SYNCED);

    /* What was held is what was given. */
    char byte = 0;
    assert_int_equal(write(held[0][1], "a", 1), 1);
    assert_int_equal(read(told[0].fds[0], &byte, 1), 1);
    assert_int_equal(byte, 'a');
    assert_int_equal(write(told[0].fds[1], "b", 1), 1);
    assert_int_equal(read(held[1][0], &byte, 1), 1);
    assert_int_equal(byte, 'b');
    /* And the payloads are still under control. */
    assert_int_equal(write(in[1], "x\n", 2), 2);
    assert_int_equal(front_expect(EVENT_ENDED, 5, 0).event.ended.end.code, 4);
    assert_int_equal(write(told[2].fds[0], "x\n", 2), 2);
    assert_int_equal(front_expect(EVENT_ENDED, 5, 2).event.ended.end.code, 6);
    assert_int_equal(box_ask(REQUEST_THAW, 9, 0).event.head.result, 0);
    for (int i = 0; i < 4; i++)
        told_close(&told[i]);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(box_ask(REQUEST_FORGET, 5, i).event.head.result, 0);
    front_close();

    /* A forgotten payload is not reported again. */
    front_connect();
    assert_int_equal(front_next().event.head.type, EVENT_BOX);
    assert_int_equal(front_next().event.head.type, EVENT_BOX);
    assert_int_equal(front_next().event.head.type, EVENT_SYNCED);
    box_end(5);
    box_end(9);
    int *all[] = { &held[0][1], &held[1][0], &in[0], &in[1] };
    for (size_t i = 0; i < 4; i++)
        close(*all[i]);
}

static void test_time_goes_on_without_a_front(void **state)
{
    (void)state;
    front_connect();
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "sleep 60", .timeout_ms = 100 });
    box_run(0, 1, (struct run){ .script = "exit 2" });
    front_close();
    pid_t pids[16];
    wait_for(keeper_children(pids, 16) == 2);       /* janitor and init */
    front_connect();
    front_expect(EVENT_BOX, 0, -1);
    assert_int_equal(front_expect(EVENT_PAYLOAD, 0, 0).event.payload.has_ended, 1);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.outcome, OUTCOME_TIMEOUT);
    assert_int_equal(front_expect(EVENT_PAYLOAD, 0, 1).event.payload.has_ended, 1);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 1).event.ended.end.code, 2);
    box_end(0);
}

static void test_a_new_front_gets_no_answers_to_the_last_one(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        front_connect();
        front_expect(EVENT_SYNCED, 0, -1);
        struct request_create q = create_frame(0);
        struct request_head end = { .type = REQUEST_DESTROY, .box = 0 };
        front_send(&q, sizeof q, NULL, 0);
        front_send(&end, sizeof end, NULL, 0);
        front_close();
        front_connect();
        struct told told;
        do {
            told = front_next();
            assert_int_equal(told.event.head.serial, 0);
        } while (told.event.head.type != EVENT_SYNCED);
        /* Whatever is left of that box goes. */
        wait_for(cgroups_of(front.keeper) == 0);
        struct request_head usage = { .type = REQUEST_USAGE, .box = 0 };
        wait_for(front_answer(front_send(&usage, sizeof usage, NULL, 0)).event.head.result == -ENOENT);
        while (front.n_queued)
            assert_int_equal(front_next().event.head.serial, 0);
        front_close();
    }
}

static void test_what_a_front_said_before_it_went_is_done(void **state)
{
    (void)state;
    struct request_head ask = { .type = REQUEST_USAGE, .box = 0 }, end = { .type = REQUEST_DESTROY, .box = 0 };
    int status;
    front_connect();
    front_expect(EVENT_SYNCED, 0, -1);
    box_make(0, NULL);
    /* It handles both requests when no front is left for the answers. */
    assert_return_code(kill(front.keeper, SIGSTOP), errno);
    assert_int_equal(waitpid(front.keeper, &status, WUNTRACED), front.keeper);
    assert_true(WIFSTOPPED(status));
    front_send(&ask, sizeof ask, NULL, 0);
    front_send(&end, sizeof end, NULL, 0);
    front_close();
    assert_return_code(kill(front.keeper, SIGCONT), errno);
    wait_for(cgroups_of(front.keeper) == 0);
    front_connect();
    assert_int_equal(front_next().event.head.type, EVENT_SYNCED);
}

static void test_strangers_are_refused(void **state)
{
    (void)state;
    char byte;
    assert_int_equal(front_connect_as(12345), -EACCES);     /* by the socket's mode */
    assert_return_code(chmod(front.path, 0666), errno);
    int fd = front_connect_as(12345);
    assert_true(fd >= 0);
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    assert_int_equal(poll(&ready, 1, DEADLINE_MS), 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 0);             /* nothing, not even HELLO */
    close(fd);
    front_connect();
    box_make(0, NULL);
    box_end(0);
}

static void test_a_second_front_is_refused(void **state)
{
    (void)state;
    char byte;
    front_connect();
    for (int i = 0; i < 3; i++) {
        int fd = front_connect_as(0);
        assert_true(fd >= 0);
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        assert_int_equal(poll(&ready, 1, DEADLINE_MS), 1);
        assert_int_equal(recv(fd, &byte, 1, 0), 0);
        close(fd);
    }
    box_make(0, NULL);
    box_end(0);
}

/* The front was dropped, but the keeper and its box live. */
static void assert_dropped_but_alive(const char *what)
{
    if (!front_is_dropped())
        fail_msg("%s: not dropped", what);
    front_close();
    front_connect();
    front_expect(EVENT_BOX, 0, -1);
    front_expect(EVENT_PAYLOAD, 0, 0);
    front_expect(EVENT_SYNCED, 0, -1);
}

static void send_raw(const void *frame, size_t size, const int *fds, size_t n_fds)
{
    assert_int_equal(link_send(front.socket, frame, size, fds, n_fds), 0);
}

static void test_illegal_frames_cost_the_connection(void **state)
{
    (void)state;
    front_connect();
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "sleep 300" });
    front_expect(EVENT_STARTED, 0, 0);
    int fds_before = keeper_fds();

    static char big[sizeof(struct request_create) + 100];
    struct request_create create = create_frame(1);
    create.head.serial = 1;
    const struct {
        const char         *what;
        struct request_head head;
        size_t              size, n_fds;
    } bad[] = {
        { "one byte", { .type = REQUEST_USAGE, .serial = 1 }, 1, 0 },
        { "a head without its last byte", { .type = REQUEST_USAGE, .serial = 1 }, sizeof create.head - 1, 0 },
        { "too long", { .type = REQUEST_USAGE, .serial = 1 }, sizeof create.head + 1, 0 },
        { "far too long", { .type = REQUEST_USAGE, .serial = 1 }, sizeof big, 0 },
        { "type 0", { .type = 0, .serial = 1 }, sizeof create.head, 0 },
        { "an unknown type", { .type = REQUEST_COUNT, .serial = 1 }, sizeof create.head, 0 },
        { "type 65535", { .type = 65535, .serial = 1 }, sizeof create.head, 0 },
        { "serial 0", { .type = REQUEST_USAGE }, sizeof create.head, 0 },
        { "a box out of range", { .type = REQUEST_USAGE, .serial = 1, .box = KEEPER_BOXES }, sizeof create.head, 0 },
        { "box 2^32-1", { .type = REQUEST_USAGE, .serial = 1, .box = UINT32_MAX }, sizeof create.head, 0 },
        { "a payload out of range",
          { .type = REQUEST_FORGET, .serial = 1, .payload = KEEPER_PAYLOADS },
          sizeof create.head,
          0 },
        { "an fd too many", { .type = REQUEST_USAGE, .serial = 1 }, sizeof create.head, 1 },
        { "many fds", { .type = REQUEST_USAGE, .serial = 1 }, sizeof create.head, 32 },
        { "no fd for files", { .type = REQUEST_FILES, .serial = 1, .payload = 1 }, sizeof create.head, 0 },
        { "two fds for files", { .type = REQUEST_FILES, .serial = 1, .payload = 1 }, sizeof create.head, 2 },
        { "a start without its command",
          { .type = REQUEST_START, .serial = 1, .payload = 1 },
          sizeof(struct request_start),
          0 },
        { "too many fds to start",
          { .type = REQUEST_START, .serial = 1, .payload = 1 },
          sizeof(struct request_start),
          8 },
        { "an empty frame", { .type = 0 }, 0, 0 },
    };
    int fds[32];
    for (size_t i = 0; i < 32; i++)
        fds[i] = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(big, &bad[i].head, sizeof bad[i].head);
        send_raw(big, bad[i].size, fds, bad[i].n_fds);
        assert_dropped_but_alive(bad[i].what);
    }
    assert_int_equal(keeper_fds(), fds_before);
    assert_int_equal(box_sh(0, 1, "exit 0", NULL, 0).outcome, OUTCOME_OK);
    box_end(0);
}

static void test_fds_of_an_empty_frame_are_not_kept(void **state)
{
    (void)state;
    front_connect();
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "sleep 300" });
    front_expect(EVENT_STARTED, 0, 0);
    int before = keeper_fds(), fds[20] = { 0 };
    for (int i = 0; i < 3; i++) {
        send_raw("", 0, fds, 20);
        assert_dropped_but_alive("an empty frame with descriptors");
    }
    assert_int_equal(keeper_fds(), before);
    box_end(0);
}

static int create_result(struct request_create *q, const int *fds, size_t n)
{
    return front_answer(front_send(q, sizeof *q, fds, n)).event.head.result;
}

static void test_wrong_requests_are_answered(void **state)
{
    (void)state;
    front_connect();
    int fds_before = keeper_fds();
    struct request_create q = create_frame(0);
    q.profile = 99;
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    q = create_frame(0);
    frame_mount_add(&q.mounts, MOUNT_ROOT, 1);                     /* this keeper has none */
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    q = create_frame(0);
    q.mounts.n = UINT32_MAX;
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    q = create_frame(0);
    q.mounts.n = 1;                                         /* but no fd */
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    q = create_frame(0);
    frame_mount_add(&q.mounts, MOUNT_KINDS, 0);
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    /* One root, one template, one place to write to, and each must be one that there is. */
    static const enum mount_kind pairs[][2] = { { MOUNT_ROOT, MOUNT_ROOT }, { MOUNT_TMPFS, MOUNT_TMPFS },
                                                { MOUNT_TMPFS, MOUNT_STORE }, { MOUNT_STORE, MOUNT_STORE } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        q = create_frame(0);
        frame_mount_add(&q.mounts, pairs[i][0], pairs[i][0] == MOUNT_STORE);
        frame_mount_add(&q.mounts, pairs[i][1], pairs[i][1] == MOUNT_STORE);
        assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    }
    q = create_frame(0);
    frame_mount_add(&q.mounts, MOUNT_LAYER, 0);
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    q = create_frame(0);
    frame_mount_add(&q.mounts, MOUNT_STORE, 0);
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    static const char *const targets[] = { "", "data", "/a/../b", "/proc/x", "/dev/x", "/" };
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        q = create_frame(0);
        snprintf(frame_mount_add(&q.mounts, MOUNT_VOLUME, 7)->target, 16, "%s", targets[i]);
        assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    }
    q = create_frame(0);
    snprintf(frame_mount_add(&q.mounts, MOUNT_VOLUME, 0)->target, 16, "/data");
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    q = create_frame(0);
    snprintf(frame_mount_add(&q.mounts, MOUNT_VOLUME, 7)->target, 16, "/data");
    assert_int_equal(create_result(&q, NULL, 0), -ENOTSUP);       /* this keeper has none */
    q = create_frame(0);
    for (int i = 0; i <= KEEPER_VOLUMES; i++)
        snprintf(frame_mount_add(&q.mounts, MOUNT_VOLUME, 7)->target, 32, "/data-%d", i);
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    q = create_frame(0);
    memset(q.hostname, 'h', sizeof q.hostname);             /* no NUL */
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    static const char *const names[] = { "", "a/b", "a b", "a\n", "\xff" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        q = create_frame(0);
        memset(q.hostname, 0, sizeof q.hostname);
        memcpy(q.hostname, names[i], strlen(names[i]));
        assert_int_equal(create_result(&q, NULL, 0), -EINVAL);
    }
    q = create_frame(0);
    q.uid = 65535;
    assert_int_equal(create_result(&q, NULL, 0), -EINVAL);

    static const struct request_head no_box[] = { { .type = REQUEST_FREEZE },
                                                  { .type = REQUEST_THAW },
                                                  { .type = REQUEST_USAGE }, { .type = REQUEST_NAMES },
                                                  { .type = REQUEST_FORGET },
                                                  { .type = REQUEST_DESTROY } };
    for (size_t i = 0; i < sizeof no_box / sizeof *no_box; i++)
        assert_int_equal(box_ask(no_box[i].type, 17, 3).event.head.result, -ENOENT);
    assert_int_equal(box_run(17, 0, (struct run){ .script = "true" }).event.head.result, -ENOENT);
    box_make(0, NULL);
    q = create_frame(0);
    assert_int_equal(create_result(&q, NULL, 0), -EBUSY);
    assert_int_equal(box_ask(REQUEST_FORGET, 0, 3).event.head.result, -ENOENT);
    /* Fewer fds than the frame says. */
    struct request_start start = { .head = { .type = REQUEST_START }, .n_held = 255 };
    assert_int_equal(front_answer(front_send(&start, sizeof start, (int[]){ 0 }, 1)).event.head.result, -EINVAL);
    start.n_held = 0;
    start.has_stdio[0] = 255;
    assert_int_equal(front_answer(front_send(&start, sizeof start, (int[]){ 0 }, 1)).event.head.result, -EINVAL);
    /* A command that is none: the payload says so, not the keeper. */
    start.has_stdio[0] = 0;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(front_answer(front_send(&start, sizeof start, &null, 1)).event.head.result, 0);
    assert_int_not_equal(front_expect(EVENT_FAILED, 0, 0).event.failed.err.code, 0);
    close(null);
    box_end(0);
    assert_int_equal(keeper_fds(), fds_before);
}

/* As a caller does it: a socket pair with the opened directory in it. */
static int envelope(const char *path, int flags)
{
    int pair[2], dir = open(path, flags | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(link_send(pair[0], "m", 1, &dir, 1), 0);
    close(dir);
    close(pair[0]);
    return pair[1];
}

static int create_with(const char *target, size_t size, int fd)
{
    struct request_create q = create_frame(0);
    memcpy(frame_mount_add(&q.mounts, MOUNT_HOST, 0)->target, target, size);
    int r = create_result(&q, &fd, 1);
    close(fd);
    return r;
}

static void test_a_mount_comes_in_its_caller_s_envelope(void **state)
{
    (void)state;
    int fds_before, empty[2];

    front_connect();
    fds_before = keeper_fds();
    assert_int_equal(create_with("/data", 6, open("/usr/share", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), -EPERM);
    assert_int_equal(create_with("/data", 6, envelope("/usr/share", O_PATH)), -EPERM);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, empty), 0);
    close(empty[0]);
    assert_int_equal(create_with("/data", 6, empty[1]), -EPROTO);
    /* An answer comes before the request's descriptors are closed; the next one after. */
    struct request_create nonsense = create_frame(0);
    nonsense.profile = 99;
    assert_int_equal(create_result(&nonsense, NULL, 0), -EINVAL);
    /* And what the opener was known by, when it has ended. */
    wait_for(keeper_fds() <= fds_before);
}

/* Of a connected socket the kernel names who listens: with any service of root's that passes descriptors on, everybody
 * would be root. */
static void test_a_connected_socket_is_no_envelope(void **state)
{
    (void)state;
    front_connect();
    int fds_before = keeper_fds();
    for (int i = 0; i < 12; i++) {
        bool give_accepted = i & 1, bound = i & 2;
        int type = i < 4 ? SOCK_STREAM : i < 8 ? SOCK_SEQPACKET : SOCK_STREAM;
        struct sockaddr_un own = { .sun_family = AF_UNIX }, address = own;
        socklen_t size = sizeof address;
        int listener = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        /* An abstract name, which the kernel chooses. */
        assert_int_equal(bind(listener, (struct sockaddr *)&own, sizeof(sa_family_t)), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
        int client = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        if (bound)
            assert_int_equal(bind(client, (struct sockaddr *)&own, sizeof(sa_family_t)), 0);
        assert_int_equal(connect(client, (struct sockaddr *)&address, size), 0);
        int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(accepted >= 0);
        int dir = open("/usr/share", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(link_send(give_accepted ? client : accepted, "m", 1, &dir, 1), 0);
        close(dir);
        close(listener);
        if (i >= 8)     /* the other end is gone, as a caller's is */
            close(give_accepted ? client : accepted);
        int r = create_with("/data", 6, give_accepted ? accepted : client);
        if (i < 8)
            close(give_accepted ? client : accepted);
        if (r != -EPERM)
            fail_msg("connected socket %d: %d", i, r);
    }
    /* Nor are those whose pair was given a name, or which are of another kind. */
    for (int i = 0; i < 2; i++) {
        struct sockaddr_un own = { .sun_family = AF_UNIX };
        int pair[2], dir = open("/usr/share", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(socketpair(AF_UNIX, (i ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0, pair), 0);
        if (i == 0)
            assert_int_equal(bind(pair[1], (struct sockaddr *)&own, sizeof(sa_family_t)), 0);
        assert_int_equal(link_send(pair[0], "m", 1, &dir, 1), 0);
        close(dir);
        close(pair[0]);
        assert_int_equal(create_with("/data", 6, pair[1]), -EPERM);
    }
    struct request_create nonsense = create_frame(0);
    nonsense.profile = 99;
    assert_int_equal(create_result(&nonsense, NULL, 0), -EINVAL);
    assert_int_equal(keeper_fds(), fds_before);
}

static void test_mount_targets_are_plain_paths_in_the_box(void **state)
{
    (void)state;
    static const char *const bad[] = { "",        "/",     "a",          "//a",
                                       "/a/",     "/a//b", "/..",        "/a/../b",
                                       "/a/..",   "/.",    "/a/./b",     "/proc",
                                       "/proc/x", "/dev",  "/dev/shm/x", "///tmp/carrel-engine-evil" };
    char target[sizeof ((struct frame_mount *)0)->target];
    front_connect();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int r = create_with(bad[i], strlen(bad[i]), envelope("/usr/share", O_RDONLY));
        if (r != -EINVAL)
            fail_msg("target '%s': %d", bad[i], r);
    }
    memset(target, '/', sizeof target);
    assert_int_equal(create_with(target, sizeof target, envelope("/usr/share", O_RDONLY)), -EINVAL);
    memset(target, 'a', sizeof target);       /* no NUL */
    target[0] = '/';
    assert_int_equal(create_with(target, sizeof target, envelope("/usr/share", O_RDONLY)), -EINVAL);
    assert_int_equal(access("/tmp/carrel-engine-evil", F_OK), -1);
    /* And a good one works. */
    assert_int_equal(create_with("/process/data", 14, envelope("/usr/share", O_RDONLY)), 0);
    char out[32];
    box_sh(0, 0, "test -d /process/data/doc && ! touch /process/data/x 2>/dev/null && echo good", out, sizeof out);
    assert_string_equal(out, "good\n");
    box_end(0);
}

static void test_a_front_that_does_not_read_does_not_stop_time(void **state)
{
    (void)state;
    front_connect();
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "sleep 300", .timeout_ms = 1 });
    front_expect(EVENT_ENDED, 0, 0);
    /* Requests whose answers are not read, until the socket is full both ways. */
    struct request_head q = { .type = REQUEST_USAGE, .serial = 1 };
    struct pollfd room = { .fd = front.socket, .events = POLLOUT };
    for (int i = 0; i < 100000 && !(room.revents & POLLHUP); i++) {
        assert_int_equal(poll(&room, 1, DEADLINE_MS), 1);
        (void)!send(front.socket, &q, sizeof q, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    assert_true(room.revents & POLLHUP);        /* it hangs up */
    front_close();
    front_connect();
    front_expect(EVENT_BOX, 0, -1);
    front_expect(EVENT_SYNCED, 0, -1);
    box_end(0);
}

enum { WHOLE = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
static int sealed_file(const char *text, int seals)
{
    int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_return_code(fcntl(fd, F_ADD_SEALS, seals), errno);
    return fd;
}

static int create_trusting(int pem, int seals, size_t n)
{
    struct request_create q = create_frame(0);
    int fds[] = { pem, sealed_file("java", seals) };
    q.flags |= CREATE_TRUST;
    int r = create_result(&q, fds, n);
    return close(fds[0]) | close(fds[1]) ? -EBADF : r;
}

/* A file that the front could cut while the keeper reads it would kill the keeper. */
static void test_certificates_come_in_sealed_files(void **state)
{
    (void)state;
    front_connect();
    assert_int_equal(create_trusting(sealed_file("pem", WHOLE & ~F_SEAL_SHRINK), WHOLE, 2), -EINVAL);
    assert_int_equal(create_trusting(open("/etc/passwd", O_RDONLY | O_CLOEXEC), WHOLE, 2), -EINVAL);
    assert_int_equal(create_trusting(sealed_file("pem", WHOLE), WHOLE, 1), -EINVAL);
    assert_int_equal(create_trusting(sealed_file("pem", WHOLE), WHOLE, 2), 0);
    struct run look = { .script = "cd /run/carrel; test $(cat ca.pem ca.jks) = pemjava && ! >ca.pem" };
    assert_int_equal(box_run(0, 0, look).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.code, 0);
    box_end(0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_listening, teardown)
const struct CMUnitTest front_tests[] = {
    TEST(test_the_next_front_is_told_everything),
    TEST(test_time_goes_on_without_a_front),
    TEST(test_a_new_front_gets_no_answers_to_the_last_one),
    TEST(test_what_a_front_said_before_it_went_is_done),
    TEST(test_strangers_are_refused),
    TEST(test_a_second_front_is_refused),
    TEST(test_illegal_frames_cost_the_connection),
    TEST(test_fds_of_an_empty_frame_are_not_kept),
    TEST(test_wrong_requests_are_answered),
    TEST(test_a_mount_comes_in_its_caller_s_envelope),
    TEST(test_a_connected_socket_is_no_envelope),
    TEST(test_certificates_come_in_sealed_files),
    TEST(test_mount_targets_are_plain_paths_in_the_box),
    TEST(test_a_front_that_does_not_read_does_not_stop_time),
};
const size_t n_front_tests = sizeof front_tests / sizeof *front_tests;
