/* Payloads: how they run and how they end. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void test_a_box_runs_payloads_one_after_the_other(void **state)
{
    (void)state;
    char out[64];
    box_make(7, NULL);
    for (unsigned i = 0; i < 5; i++) {
        char script[64], expected[16];
        snprintf(script, sizeof script, "echo %u; exit %u", i, i);
        snprintf(expected, sizeof expected, "%u\n", i);
        uint64_t begin = clock_monotonic_us();
        struct frame_end end = box_sh(7, i % 2, script, out, sizeof out);
        assert_string_equal(out, expected);
        assert_int_equal(end.code, i);
        assert_int_equal(end.outcome, i ? OUTCOME_ERROR : OUTCOME_OK);
        assert_in_range(end.wall_us, 1, clock_monotonic_us() - begin);
        assert_true(end.cpu_us > 0 && end.peak_bytes > 0);
    }
    box_end(7);
}

static void test_payloads_at_once_have_their_own_stdio(void **state)
{
    (void)state;
    enum { N = 8 };
    int in[N][2], out[N][2];
    box_make(0, NULL);
    for (unsigned i = 0; i < N; i++) {
        assert_return_code(pipe2(in[i], O_CLOEXEC) | pipe2(out[i], O_CLOEXEC), errno);
        struct told told =
            box_run(0, i, (struct run){ .script = "read x; echo got $x", .in = in[i][0], .out = out[i][1] });
        assert_int_equal(told.event.head.result, 0);
        close(in[i][0]);
        close(out[i][1]);
    }
    for (unsigned i = 0; i < N; i++)
        front_expect(EVENT_STARTED, 0, (int)i);
    for (unsigned i = N; i-- > 0;) {
        char text[32], expected[32] = { 0 };
        int n = snprintf(text, sizeof text, "word%u\n", i);
        assert_int_equal(write(in[i][1], text, (size_t)n), n);
        assert_int_equal(front_expect(EVENT_ENDED, 0, (int)i).event.ended.end.code, 0);
        snprintf(expected, sizeof expected, "got word%u\n", i);
        memset(text, 0, sizeof text);
        read_some(out[i][0], text, sizeof text - 1, 1000);
        assert_string_equal(text, expected);
        close(in[i][1]);
        close(out[i][0]);
    }
    /* A slot is taken until its end was noted. */
    assert_int_equal(box_run(0, 0, (struct run){ .script = "true" }).event.head.result, -EBUSY);
    assert_int_equal(box_ask(REQUEST_FORGET, 0, 0).event.head.result, 0);
    assert_int_equal(box_ask(REQUEST_FORGET, 0, 0).event.head.result, -ENOENT);
    box_sh(0, 0, "true", NULL, 0);
    box_end(0);
}

static void test_without_stdio_there_is_dev_null(void **state)
{
    (void)state;
    box_make(0, NULL);
    struct told told = box_run(0, 0, (struct run){ .script = "read x && exit 9; echo lost;"
        "for i in 0 1 2; do test \"$(readlink /proc/$$/fd/$i)\" = /dev/null || exit 8; done" });
    assert_int_equal(told.event.head.result, 0);
    struct frame_end end = front_expect(EVENT_ENDED, 0, 0).event.ended.end;
    assert_int_equal(end.code, 0);
    box_end(0);
}

static void test_a_fifo_of_the_host_stays_its_owner_s(void **state)
{
    (void)state;
    char path[64];
    struct stat status;

    snprintf(path, sizeof path, "/tmp/carrel-engine-fifo-%d", (int)getpid());
    assert_int_equal(mkfifo(path, 0600), 0);
    int fifo = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fifo >= 0);
    assert_int_equal(unlink(path), 0);
    box_make(0, NULL);
    assert_int_equal(box_run(0, 0, (struct run){ .script = "true", .in = fifo, .out = fifo }).event.head.result, 0);
    front_expect(EVENT_ENDED, 0, 0);
    assert_int_equal(fstat(fifo, &status), 0);
    assert_int_equal(status.st_uid, geteuid());
    close(fifo);
    box_end(0);
}

static void test_a_terminal_arrives_works_and_resizes(void **state)
{
    (void)state;
    box_make(0, NULL);
    struct told told =
        box_run(0, 0,
                (struct run){ .terminal = true,
                              /* A shell that is about to read would hear of the signal only when it has read. */
                              .script = "tty | grep -q ^/dev/pts/ || exit 3; trap 'stty size; seen=1' WINCH; echo "
                                        "ready; until test $seen; do sleep 0.1; done; read line; echo read $line; "
                                        "exit 5" });
    assert_int_equal(told.event.head.result, 0);
    told = front_expect(EVENT_STARTED, 0, 0);
    assert_int_equal(told.n_fds, 1);
    int master = told.fds[0];
    read_until(master, "ready");
    assert_return_code(ioctl(master, TIOCSWINSZ, &(struct winsize){ .ws_row = 33, .ws_col = 77 }), errno);
    read_until(master, "33 77");
    assert_int_equal(write(master, "hello\n", 6), 6);
    read_until(master, "read hello");
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.code, 5);
    close(master);
    box_end(0);
}

static void test_a_command_that_cannot_run_says_why(void **state)
{
    (void)state;
    char *missing[] = { "/no/such/program", NULL }, *folder[] = { "/usr", NULL };
    box_make(0, NULL);
    for (unsigned i = 0; i < 20; i++) {
        struct told told = box_run(0, i, (struct run){ .argv = i % 2 ? folder : missing, .terminal = i % 3 == 0 });
        assert_int_equal(told.event.head.result, 0);
        told = front_expect(EVENT_FAILED, 0, (int)i);
        told_close(&told);
        assert_int_equal(told.event.failed.err.code, i % 2 ? EACCES : ENOENT);
        assert_int_equal(told.event.failed.err.step, STEP_EXEC);
        assert_int_equal(box_ask(REQUEST_FORGET, 0, i).event.head.result, 0);
    }
    box_sh(0, 0, "true", NULL, 0);
    box_end(0);
}

static void test_outcomes_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char  *script;
        enum outcome outcome;
        int          code, signal;
    } cases[] = {
        { "exit 0", OUTCOME_OK, 0, 0 },
        { "exit 3", OUTCOME_ERROR, 3, 0 },
        { "kill -9 $$", OUTCOME_KILLED, -1, 9 },
        { "kill -TERM $$", OUTCOME_KILLED, -1, 15 },
        { "head -c 300m /dev/zero | tail >/dev/null; exit 1", OUTCOME_OOM, 0, 0 },
        { "for i in $(seq 200); do sleep 60 & done 2>/dev/null; exit 1", OUTCOME_PIDS, 2, 0 },
        { "head -c 100m /dev/zero >/tmp/x 2>/dev/null", OUTCOME_DISK, 1, 0 },
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        box_make(i, NULL);
        struct frame_end end = box_sh(i, 0, cases[i].script, NULL, 0);
        /* Who of the box the kernel ends when memory runs out is its choice. */
        bool as_said = end.outcome == OUTCOME_OOM || (end.code == cases[i].code && end.signal == cases[i].signal);
        if (end.outcome != cases[i].outcome || !as_said)
            fail_msg("%s: outcome %s, code %d, signal %d", cases[i].script, outcome_name(end.outcome), end.code,
                     end.signal);
        box_end(i);
    }
}

static void test_what_happened_before_is_not_blamed_on_a_payload(void **state)
{
    (void)state;
    box_make(0, NULL);
    assert_int_equal(box_sh(0, 0, "head -c 300m /dev/zero | tail >/dev/null; exit 1", NULL, 0).outcome, OUTCOME_OOM);
    assert_int_equal(box_sh(0, 0, "exit 0", NULL, 0).outcome, OUTCOME_OK);
    assert_int_equal(box_sh(0, 0, "exit 1", NULL, 0).outcome, OUTCOME_ERROR);
    assert_int_equal(
        box_sh(0, 0, "(for i in $(seq 200); do sleep 60 & done; wait) 2>/dev/null; exit 1", NULL, 0).outcome,
        OUTCOME_PIDS);
    assert_int_equal(box_sh(0, 0, "exit 1", NULL, 0).outcome, OUTCOME_ERROR);
    box_end(0);
}

static void test_a_timeout_is_kept_by_the_keeper(void **state)
{
    (void)state;
    box_make(0, NULL);
    uint64_t start = clock_monotonic_us();
    box_run(0, 0, (struct run){ .script = "sleep 60 & sleep 60", .timeout_ms = 150 });
    box_run(0, 1, (struct run){ .script = "sleep 60", .timeout_ms = UINT64_MAX });     /* no overflow */
    box_run(0, 2, (struct run){ .script = "sleep 60", .timeout_ms = UINT64_C(1) << 40 });
    struct frame_end end = front_expect(EVENT_ENDED, 0, 0).event.ended.end;
    assert_int_equal(end.outcome, OUTCOME_TIMEOUT);
    assert_int_equal(end.signal, 9);
    assert_true(clock_monotonic_us() - start >= 150000);
    /* The others still run. */
    assert_int_equal(box_ask(REQUEST_FORGET, 0, 1).event.head.result, -EBUSY);
    assert_int_equal(box_ask(REQUEST_FORGET, 0, 2).event.head.result, -EBUSY);
    box_end(0);
}

static void test_signals_reach_the_payload_or_its_group(void **state)
{
    (void)state;
    int out[2];
    box_make(0, NULL);
    assert_return_code(pipe2(out, O_CLOEXEC), errno);
    box_run(
        0, 0,
        (struct run){ .script = "trap 'echo usr1' USR1; echo ready; while :; do sleep 1 & wait; done", .out = out[1] });
    read_until(out[0], "ready");
    struct request_signal q = { .head = { .type = REQUEST_SIGNAL, .box = 0, .payload = 0 }, .signal = 10 };
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, 0);
    read_until(out[0], "usr1");
    q.signal = 65;
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, -EINVAL);
    q.signal = 9;
    q.group = 1;
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.outcome, OUTCOME_KILLED);
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, -ESRCH);
    close(out[0]);
    close(out[1]);
    box_end(0);
}

static void test_the_meter_counts_and_cannot_be_written(void **state)
{
    (void)state;
    char text[512];
    box_make(0, NULL);
    struct told meter = box_ask(REQUEST_METER, 0, 0);
    assert_int_equal(meter.event.head.result, 0);
    assert_int_equal(meter.event.meter.files & METER_MEMORY_PEAK, METER_MEMORY_PEAK);
    assert_int_equal(meter.n_fds, __builtin_popcount((unsigned)meter.event.meter.files));
    int peak = meter.fds[meter.n_fds - 1];
    for (size_t i = 0; i < meter.n_fds; i++)
        assert_int_equal(fcntl(meter.fds[i], F_GETFL) & O_ACCMODE, O_RDONLY);
    ssize_t n = pread(peak, text, sizeof text - 1, 0);
    assert_in_range(n, 1, sizeof text - 1);
    text[n] = '\0';
    unsigned long long before = strtoull(text, NULL, 10);
    assert_int_equal(box_sh(0, 1, "head -c 20m /dev/zero | tail >/dev/null", NULL, 0).outcome, OUTCOME_OK);
    n = pread(peak, text, sizeof text - 1, 0);
    assert_in_range(n, 1, sizeof text - 1);
    text[n] = '\0';
    assert_true(strtoull(text, NULL, 10) > before + (10 << 20));
    if (meter.event.meter.files & METER_CPU_US) {
        n = pread(meter.fds[0], text, sizeof text - 1, 0);
        assert_in_range(n, 12, sizeof text - 1);
        assert_memory_equal(text, "usage_usec ", 11);
    }
    box_end(0);
    /* It ends with the box, even if it is open elsewhere. */
    assert_int_equal(pread(peak, text, sizeof text - 1, 0), -1);
    told_close(&meter);
}

static void test_usage_and_limits_of_a_live_box(void **state)
{
    (void)state;
    int out[2];
    box_make(0, NULL);
    assert_return_code(pipe2(out, O_CLOEXEC), errno);
    box_run(0, 0, (struct run){ .out = out[1],
        .script = "head -c 4m /dev/zero >/tmp/x; sleep 60 & sleep 60 & echo ready; sleep 60" });
    read_until(out[0], "ready");
    struct frame_usage usage;
    wait_for((usage = box_ask(REQUEST_USAGE, 0, 0).event.usage.usage).pids == 4);
    assert_in_range(usage.memory_bytes, 4 << 20, 90 << 20);
    assert_in_range(usage.disk_bytes, 4 << 20, 5 << 20);
    /* v1 alone has it in a controller of its own, which a leaf does not join. */
    if (access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 || access("/sys/fs/cgroup/cgroup.procs", F_OK) == 0)
        assert_true(usage.cpu_us > 0);
    struct request_limits q = { .head = { .type = REQUEST_LIMITS }, .limits = { .pids = 5 } };
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, 0);
    assert_int_equal(box_sh(0, 1, "sleep 0.01 & exit 1", NULL, 0).outcome, OUTCOME_PIDS);
    q.limits = (struct limits){ .pids = 50, .memory_bytes = 200 << 20 };
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, 0);
    assert_int_equal(box_sh(0, 1, "head -c 120m /dev/zero | tail >/dev/null", NULL, 0).outcome, OUTCOME_OK);
    q.limits = (struct limits){ .disk_bytes = 1 << 20 };
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, -ENOTSUP);
    close(out[0]);
    close(out[1]);
    box_end(0);
}

static struct told connect_to(uint32_t box, uint32_t port)
{
    struct request_socket q = { .head = { .type = REQUEST_SOCKET, .box = box }, .port = port };
    return front_answer(front_send(&q, sizeof q, NULL, 0));
}

/* The connection is made while we wait; how it ended is in the socket. */
static int connect_error(uint32_t box, uint32_t port)
{
    struct told told = connect_to(box, port);
    int error = -1;
    socklen_t size = sizeof error;

    assert_int_equal(told.event.head.result, 0);
    struct pollfd writable = { .fd = told.fds[0], .events = POLLOUT };
    assert_int_equal(poll(&writable, 1, DEADLINE_MS), 1);
    assert_return_code(getsockopt(told.fds[0], SOL_SOCKET, SO_ERROR, &error, &size), errno);
    told_close(&told);
    return error;
}

/* A connection to it has the box's grants. */
static void assert_the_inlet_is_for_the_box_alone(void)
{
    struct request_socket q = { .head.type = REQUEST_SOCKET, .use = SOCKET_CONNECT, .port = KEEPER_INLET_PORT };

    for (q.ipv6 = 0; q.ipv6 < 2; q.ipv6++) {
        struct told told = front_answer(front_send(&q, sizeof q, NULL, 0));
        assert_int_equal(told.event.head.result, -EPERM);
        assert_int_equal(told.n_fds, 0);
        assert_non_null(strstr(told.event.done.err.what, "port 807"));
    }
}

static void test_sockets_are_made_only_for_what_the_protocol_names(void **state)
{
    (void)state;
    struct request_socket q = { .head.type = REQUEST_SOCKET, .use = SOCKET_LISTEN, .port = KEEPER_INLET_PORT + 1 };

    box_make(0, NULL);
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, -EINVAL);
    assert_the_inlet_is_for_the_box_alone();        /* also before there is one */
    q.port = KEEPER_INLET_PORT;
    for (int i = 0; i < 2; i++) {       /* the second time it is the same listener */
        struct told told = front_answer(front_send(&q, sizeof q, NULL, 0));
        assert_int_equal(told.event.head.result, 0);
        assert_int_equal(told.n_fds, 1);
        told_close(&told);
    }
    assert_the_inlet_is_for_the_box_alone();
    q.use = SOCKET_LISTEN + 1;
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, -EINVAL);
    q = (struct request_socket){ .head = { .type = REQUEST_SOCKET }, .use = SOCKET_CONNECT, .port = 65536 };
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, -EINVAL);
    box_end(0);
}

static void test_a_port_of_the_box_is_reached_and_no_other(void **state)
{
    (void)state;
    int out[2];
    char *server[] = { "python3", "-c",
        "import socket; s=socket.socket(); s.bind(('127.0.0.1', 8888)); s.listen(); print('ready', flush=True)\n"
        "while True:\n c,_=s.accept(); c.sendall(b'echo '+c.recv(100)); c.close()", NULL };
    box_make(0, NULL);
    box_make(1, NULL);
    assert_return_code(pipe2(out, O_CLOEXEC), errno);
    box_run(0, 0, (struct run){ .argv = server, .out = out[1] });
    read_until(out[0], "ready");
    struct told told = connect_to(0, 8888);
    assert_int_equal(told.event.head.result, 0);
    assert_int_equal(told.n_fds, 1);
    struct pollfd writable = { .fd = told.fds[0], .events = POLLOUT };
    assert_int_equal(poll(&writable, 1, DEADLINE_MS), 1);
    assert_int_equal(send(told.fds[0], "hello", 5, MSG_NOSIGNAL), 5);
    read_until(told.fds[0], "echo hello");
    told_close(&told);
    assert_int_equal(connect_error(0, 8889), ECONNREFUSED);
    assert_int_equal(connect_error(1, 8888), ECONNREFUSED);     /* another box */
    assert_int_equal(connect_to(0, 0).event.head.result, -EINVAL);
    assert_int_equal(connect_to(0, 65536).event.head.result, -EINVAL);
    assert_int_equal(connect_to(2, 8888).event.head.result, -ENOENT);
    /* And the keeper came back: its next box has a network of its own, too. */
    box_sh(1, 0, "true", NULL, 0);
    close(out[0]);
    close(out[1]);
    box_end(0);
    box_end(1);
}

static void test_boxes_do_not_see_each_other(void **state)
{
    (void)state;
    char out[200];
    box_make(0, NULL);
    box_make(1, NULL);
    box_sh(0, 0, "echo secret >/tmp/x; echo secret >~/x; echo secret >/dev/shm/x", NULL, 0);
    box_sh(1, 0, "cat /tmp/x ~/x /dev/shm/x 2>/dev/null; ls -d /tmp/x ~/x /dev/shm/x 2>/dev/null; echo end", out,
           sizeof out);
    assert_string_equal(out, "end\n");
    box_sh(0, 0, "cat /tmp/x; id -u; hostname", out, sizeof out);
    assert_string_equal(out, "secret\n1000\nbox\n");
    box_end(0);
    box_end(1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_private, teardown)
const struct CMUnitTest box_tests[] = {
    TEST(test_a_box_runs_payloads_one_after_the_other),
    TEST(test_payloads_at_once_have_their_own_stdio),
    TEST(test_without_stdio_there_is_dev_null),
    TEST(test_a_fifo_of_the_host_stays_its_owner_s),
    TEST(test_a_terminal_arrives_works_and_resizes),
    TEST(test_a_command_that_cannot_run_says_why),
    TEST(test_outcomes_are_told_apart),
    TEST(test_what_happened_before_is_not_blamed_on_a_payload),
    TEST(test_a_timeout_is_kept_by_the_keeper),
    TEST(test_signals_reach_the_payload_or_its_group),
    TEST(test_usage_and_limits_of_a_live_box),
        TEST(test_the_meter_counts_and_cannot_be_written),
    TEST(test_sockets_are_made_only_for_what_the_protocol_names),
    TEST(test_a_port_of_the_box_is_reached_and_no_other),
    TEST(test_boxes_do_not_see_each_other),
};
const size_t n_box_tests = sizeof box_tests / sizeof *box_tests;
