/* Bytes between two sockets: with pipes and without, ends, readers that do not read, rates. */
#include "unit/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "egress/pump.h"

struct stage {
    struct loop       *loop;
    struct pump_pipes  pipes;
    struct pump_bucket bucket;
    struct pump        pump;
    int                ends[2];         /* of the test: they talk to the pump's */
    bool               has_ended;
    int                code;
    char               held[64];
    size_t             n_held;
};

static void on_end(struct pump *p, int code)
{
    struct stage *s = container_of(p, struct stage, pump);

    s->has_ended = true;
    s->code = code;
}

/* A connected pair of TCP sockets, both non-blocking. */
static void connect_pair(int ret[2])
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    ret[0] = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(ret[0], (struct sockaddr *)&address, size), 0);
    ret[1] = accept(listener, NULL, NULL);
    assert_true(ret[1] >= 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(fcntl(ret[i], F_SETFL, O_NONBLOCK), 0);
    close(listener);
}

static void open_stage(struct stage *s, unsigned pipes, uint64_t rate, bool held)
{
    int first[2], second[2];

    memset(s, 0, sizeof *s);
    assert_int_equal(loop_new(&s->loop), 0);
    s->pipes.most_out = pipes;
    pump_bucket_set(&s->bucket, s->loop, rate);
    connect_pair(first);
    connect_pair(second);
    s->ends[0] = first[0];
    s->ends[1] = second[0];
    s->pump = (struct pump){ .loop = s->loop, .pipes = &s->pipes, .bucket = &s->bucket, .on_end = on_end };
    assert_int_equal(pump_start(&s->pump, first[1], second[1], held), 0);
}

static void close_stage(struct stage *s)
{
    pump_stop(&s->pump, true);
    pump_bucket_done(&s->bucket);
    assert_int_equal(s->pipes.n_out, 0);
    pump_pipes_done(&s->pipes);
    loop_free(s->loop);
    close(s->ends[0]);
    close(s->ends[1]);
}

static void turn(struct stage *s)
{
    assert_int_equal(loop_turn(s->loop, 5), 0);
}

/* Sends from one end and reads at the other until all has come. */
static void carry_bytes(struct stage *s, int from, size_t total)
{
    static uint8_t out[1 << 16], in[1 << 16];
    size_t sent = 0, got = 0;

    while (got < total) {
        for (size_t i = 0; i < sizeof out; i++)
            out[i] = (uint8_t)((sent + i) * 2654435761u >> 13);
        size_t want = total - sent < sizeof out ? total - sent : sizeof out;
        ssize_t n = want > 0 ? send(s->ends[from], out, want, MSG_NOSIGNAL) : 0;
        sent += n > 0 ? (size_t)n : 0;
        turn(s);
        while ((n = recv(s->ends[!from], in, sizeof in, 0)) > 0)
            for (ssize_t i = 0; i < n; i++, got++)
                if (in[i] != (uint8_t)(got * 2654435761u >> 13))
                    fail_msg("byte %zu is another one", got);
    }
}

static void test_bytes_pass_both_ways_with_pipes_and_without(void **state)
{
    (void)state;
    for (unsigned pipes = 0; pipes < 3; pipes++) {
        struct stage s;
        open_stage(&s, pipes, 0, false);
        carry_bytes(&s, 0, 3 << 20);
        carry_bytes(&s, 1, 3 << 20);
        assert_int_equal(s.pump.side[0].bytes, 3 << 20);
        assert_int_equal(s.pump.side[1].bytes, 3 << 20);
        assert_int_equal(s.pipes.n_out, 0);      /* idle: no pipe is borrowed */
        close_stage(&s);
    }
}

static void test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on(void **state)
{
    struct stage s;
    char byte;

    (void)state;
    open_stage(&s, 4, 0, false);
    assert_int_equal(send(s.ends[0], "x", 1, 0), 1);
    assert_int_equal(shutdown(s.ends[0], SHUT_WR), 0);
    ssize_t n = -1;
    while ((n = recv(s.ends[1], &byte, 1, 0)) < 0)
        turn(&s);
    assert_int_equal(n, 1);
    while ((n = recv(s.ends[1], &byte, 1, 0)) < 0)
        turn(&s);
    assert_int_equal(n, 0);
    assert_false(s.has_ended);
    carry_bytes(&s, 1, 100000);
    assert_int_equal(shutdown(s.ends[1], SHUT_WR), 0);
    while (!s.has_ended)
        turn(&s);
    assert_int_equal(s.code, 0);
    close_stage(&s);
}

/* The kernel closes the sockets of a process that is killed. */
static void test_a_process_that_dies_ends_both_sides_with_an_error(void **state)
{
    struct stage s;
    char byte;

    (void)state;
    open_stage(&s, 4, 0, false);
    carry_bytes(&s, 1, 1000);
    for (int i = 0; i < 2; i++) {
        struct loop_fd *w = &s.pump.side[i].watch;
        loop_fd_remove(s.loop, w);
        w->fd = fd_close(w->fd);
        assert_int_equal(recv(s.ends[i], &byte, 1, 0), -1);
        assert_int_equal(errno, ECONNRESET);
    }
    close_stage(&s);
}

/* Most of it is still in our socket's queue when both directions have ended. */
static void test_a_slow_reader_gets_all_bytes_after_the_end(void **state)
{
    enum { TOTAL = 400000, SMALL = 4096 };
    static char bytes[TOTAL];
    const int small = SMALL, large = 4 * TOTAL;
    struct stage s;
    size_t got = 0;
    ssize_t n;

    (void)state;
    open_stage(&s, 4, 0, false);
    assert_int_equal(setsockopt(s.ends[0], SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    assert_int_equal(setsockopt(s.pump.side[0].watch.fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large), 0);
    for (size_t sent = 0; sent < TOTAL; turn(&s))
        sent += (n = send(s.ends[1], bytes, TOTAL - sent, MSG_NOSIGNAL)) > 0 ? (size_t)n : 0;
    assert_int_equal(shutdown(s.ends[1], SHUT_WR), 0);
    assert_int_equal(shutdown(s.ends[0], SHUT_WR), 0);
    while (!s.has_ended)
        turn(&s);
    assert_int_equal(s.code, 0);
    assert_int_equal(fcntl(s.ends[0], F_SETFL, 0), 0);
    while ((n = recv(s.ends[0], bytes, sizeof bytes, 0)) > 0)
        got += (size_t)n;
    assert_int_equal(n, 0);
    assert_int_equal(got, TOTAL);
    close_stage(&s);
}

static void test_a_reset_is_passed_on(void **state)
{
    static const struct linger at_once = { .l_onoff = 1 };
    struct stage s;
    char byte;

    (void)state;
    open_stage(&s, 4, 0, false);
    assert_int_equal(setsockopt(s.ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(s.ends[0]);
    s.ends[0] = -1;
    while (!s.has_ended)
        turn(&s);
    assert_int_equal(s.code, -ECONNRESET);
    assert_int_equal(recv(s.ends[1], &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close_stage(&s);
}

/* A server may answer early, without reading all of the request, and close: its bytes and the reset come together. */
static void test_what_came_before_a_reset_arrives(void **state)
{
    static uint8_t out[40000], in[40000];

    (void)state;
    for (unsigned pipes = 0; pipes < 2; pipes++) {
        struct stage s;
        open_stage(&s, pipes * 4, 0, false);
        assert_int_equal(send(s.ends[0], "unread", 6, 0), 6);
        turn(&s);
        assert_int_equal(send(s.ends[1], out, sizeof out, 0), sizeof out);
        close(s.ends[1]);       /* with the six bytes unread, so this is a reset */
        s.ends[1] = -1;
        while (!s.has_ended)
            turn(&s);
        assert_int_equal(recv(s.ends[0], in, sizeof in, MSG_WAITALL), sizeof in);
        assert_int_equal(recv(s.ends[0], in, 1, 0), -1);
        assert_int_equal(errno, ECONNRESET);
        close_stage(&s);
    }
}

/* A reader that does not read, whose peer has closed both ways: the loop must sleep and not turn for nothing. */
static void test_a_stuck_reader_costs_no_turns(void **state)
{
    static uint8_t out[1 << 16];
    struct stage s;

    (void)state;
    open_stage(&s, 4, 0, false);
    assert_int_equal(shutdown(s.ends[1], SHUT_WR), 0);
    while (s.pump.side[0].stuck == 0) {
        (void)!send(s.ends[0], out, sizeof out, MSG_NOSIGNAL);
        turn(&s);
    }
    assert_int_equal(s.pipes.n_out, 1);
    /* What is stuck is little enough that the end behind it reaches the pump's socket. */
    assert_int_equal(shutdown(s.ends[0], SHUT_WR), 0);
    while (!s.pump.side[0].has_hung_up)
        turn(&s);
    uint64_t before = loop_now_ms();
    for (int i = 0; i < 5; i++)
        assert_int_equal(loop_turn(s.loop, 40), 0);
    assert_true(loop_now_ms() - before >= 150);
    /* It reads at last: everything comes, then the end. */
    ssize_t n;
    size_t total = 0;
    while ((n = recv(s.ends[1], out, sizeof out, 0)) != 0) {
        total += n > 0 ? (size_t)n : 0;
        if (n < 0)
            turn(&s);
    }
    while (!s.has_ended)
        turn(&s);
    assert_int_equal(total, s.pump.side[0].bytes);
    close_stage(&s);
}

static void on_held(struct pump *p)
{
    struct stage *s = container_of(p, struct stage, pump);
    ssize_t n = recv(p->side[0].watch.fd, s->held + s->n_held, sizeof s->held - s->n_held, MSG_DONTWAIT);

    s->n_held += n > 0 ? (size_t)n : 0;
    if (s->n_held < 6)
        return;
    assert_int_equal(pump_pass(p, s->held, s->n_held), 0);
    pump_release(p);
}

static void test_held_bytes_wait_for_their_release_and_the_other_way_does_not(void **state)
{
    (void)state;
    for (unsigned pipes = 0; pipes < 2; pipes++) {      /* others may have borrowed all of them */
        struct stage s;
        char bytes[16];
        open_stage(&s, pipes * 4, 0, true);
        s.pump.on_held = on_held;
        assert_int_equal(send(s.ends[0], "abc", 3, 0), 3);
        assert_int_equal(send(s.ends[1], "220", 3, 0), 3);
        while (recv(s.ends[0], bytes, sizeof bytes, 0) != 3)
            turn(&s);
        assert_int_equal(recv(s.ends[1], bytes, sizeof bytes, 0), -1);
        assert_int_equal(send(s.ends[0], "def", 3, 0), 3);
        while (recv(s.ends[1], bytes, sizeof bytes, 0) != 6)
            turn(&s);
        assert_memory_equal(bytes, "abcdef", 6);
        assert_int_equal(s.pump.side[0].bytes, 6);
        carry_bytes(&s, 0, 200000);
        close_stage(&s);
    }
}

static void test_a_bucket_fills_with_time_and_holds_a_tenth_of_a_second(void **state)
{
    struct pump_bucket b = { .rate = 1000000, .filled_us = 1000000 };

    (void)state;
    assert_int_equal(pump_bucket_fill(&b, 1000000), 0);
    assert_int_equal(pump_bucket_fill(&b, 1050000), 50000);
    assert_int_equal(pump_bucket_fill(&b, 1050000), 50000);
    assert_int_equal(pump_bucket_fill(&b, 9000000), 100000);
    b = (struct pump_bucket){ .rate = 3, .filled_us = 1000000 };
    for (uint64_t us = 1000000; us <= 5000000; us += 1000)      /* small steps lose nothing much */
        pump_bucket_fill(&b, us);
    assert_in_range(b.left, 11, 12);
    pump_bucket_set(&b, NULL, UINT64_MAX);
    assert_int_equal(pump_bucket_fill(&b, UINT64_MAX), UINT64_MAX);
}

/* Each alone moves a quarter of a MiB for an event. */
static void test_many_connections_of_a_box_pass_one_mib_in_a_turn(void **state)
{
    static uint8_t bytes[512 << 10];
    enum { PUMPS = 16 };
    struct stage s;
    struct pump pumps[PUMPS] = { 0 };
    int near[PUMPS], far[PUMPS];
    uint64_t moved = 0, before;
    const int room = 1 << 20;

    (void)state;
    open_stage(&s, 64, 0, false);
    for (int i = 0; i < PUMPS; i++) {
        int first[2], second[2];
        connect_pair(first);
        connect_pair(second);
        near[i] = first[0];
        far[i] = second[0];
        assert_int_equal(setsockopt(far[i], SOL_SOCKET, SO_RCVBUF, &room, sizeof room), 0);
        assert_true(send(near[i], bytes, sizeof bytes, MSG_NOSIGNAL) > 400 << 10);
        pumps[i] = (struct pump){ .loop = s.loop, .pipes = &s.pipes, .bucket = &s.bucket, .on_end = on_end };
        assert_int_equal(pump_start(&pumps[i], first[1], second[1], false), 0);
    }
    for (unsigned turns = 0, quiet = 0; quiet < 20; turns++) {
        before = moved;
        assert_int_equal(loop_turn(s.loop, 1), 0);
        moved = 0;
        for (int i = 0; i < PUMPS; i++) {
            while (recv(far[i], bytes, sizeof bytes, MSG_DONTWAIT) > 0)
                ;
            moved += pumps[i].side[0].bytes;
        }
        assert_true(moved - before <= (1 << 20) + (256 << 10));
        quiet = moved == before ? quiet + 1 : 0;
    }
    assert_true(moved > PUMPS * (uint64_t)(400 << 10));
    for (int i = 0; i < PUMPS; i++) {
        pump_stop(&pumps[i], true);
        close(near[i]);
        close(far[i]);
    }
    close_stage(&s);
}

static void test_a_rate_is_kept(void **state)
{
    struct stage s;

    (void)state;
    open_stage(&s, 4, 4 << 20, false);
    uint64_t before = loop_now_ms();
    carry_bytes(&s, 0, 2 << 20);
    assert_true(loop_now_ms() - before >= 350);
    close_stage(&s);
}

/* The kernel splices nothing that is behind an urgent byte, and goes on to say that there is something to read. */
static void test_urgent_bytes_pass_with_the_others_and_cost_no_turns(void **state)
{
    (void)state;
    for (unsigned pipes = 0; pipes < 2; pipes++) {
        struct stage s;
        char bytes[16] = "";
        size_t n = 0;
        open_stage(&s, pipes * 4, 0, false);
        assert_int_equal(send(s.ends[0], "ab", 2, 0), 2);
        assert_int_equal(send(s.ends[0], "!", 1, MSG_OOB), 1);
        assert_int_equal(send(s.ends[0], "cd", 2, 0), 2);
        uint64_t before = loop_now_ms();
        while (n < 5 && loop_now_ms() - before < 2000) {
            turn(&s);
            ssize_t got = recv(s.ends[1], bytes + n, sizeof bytes - n, 0);
            n += got > 0 ? (size_t)got : 0;
        }
        assert_string_equal(bytes, "ab!cd");
        before = loop_now_ms();
        for (int i = 0; i < 5; i++)
            assert_int_equal(loop_turn(s.loop, 40), 0);
        assert_true(loop_now_ms() - before >= 150);
        carry_bytes(&s, 0, 200000);
        close_stage(&s);
    }
}

static void on_long_held(struct pump *p)
{
    static char bytes[16384];
    ssize_t n = recv(p->side[0].watch.fd, bytes, sizeof bytes, MSG_DONTWAIT);

    assert_int_equal(n, sizeof bytes);
    assert_int_equal(pump_pass(p, bytes, sizeof bytes), 0);
    pump_release(p);
}

/* The kernel makes such pipes for a user who has many; in a server a crowd of slow readers makes it one. */
static void test_held_bytes_pass_where_pipes_are_small(void **state)
{
    static char out[16384], in[16384];
    struct stage s;
    ssize_t n;
    size_t total = 0;

    (void)state;
    open_stage(&s, 4, 0, true);
    s.pump.on_held = on_long_held;
    assert_int_equal(pipe2(s.pipes.spare[0], O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(fcntl(s.pipes.spare[0][1], F_SETPIPE_SZ, 4096), 4096);
    s.pipes.n_spare = 1;
    assert_int_equal(send(s.ends[0], out, sizeof out, 0), sizeof out);
    while (total < sizeof in && !s.has_ended) {
        turn(&s);
        while ((n = recv(s.ends[1], in, sizeof in, 0)) > 0)
            total += (size_t)n;
    }
    assert_int_equal(total, sizeof in);
    carry_bytes(&s, 0, 200000);
    close_stage(&s);
}

/* So that many readers that do not read cannot hold a full wide pipe each. */
static void test_with_many_full_pipes_each_holds_64_KiB(void **state)
{
    static const uint8_t data[1 << 16];
    static uint8_t in[1 << 16];
    const unsigned others = 40;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        struct stage s;
        open_stage(&s, 100, 0, false);
        s.pipes.n_out = i * others;
        unsigned most = 0;
        for (size_t n = 1; n < 64; n++) {
            do {                                /* much is waiting whenever the pump reads */
                while (send(s.ends[0], data, sizeof data, MSG_NOSIGNAL) > 0)
                    ;
                turn(&s);
            } while (s.pump.side[0].stuck == 0);
            most = s.pump.side[0].stuck > most ? s.pump.side[0].stuck : most;
            for (size_t left = n * 10007; left > 0;) {
                ssize_t got = recv(s.ends[1], in, left < sizeof in ? left : sizeof in, 0);
                if (got <= 0)
                    break;
                left -= (size_t)got;
            }
        }
        assert_in_range(most, i ? 1 : (64 << 10) + 1, (i ? 64 : 256) << 10);
        s.pipes.n_out -= i * others;
        close_stage(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_pass_both_ways_with_pipes_and_without),
        cmocka_unit_test(test_the_end_of_one_direction_is_passed_on_and_the_other_goes_on),
        cmocka_unit_test(test_a_process_that_dies_ends_both_sides_with_an_error),
        cmocka_unit_test(test_a_slow_reader_gets_all_bytes_after_the_end),
        cmocka_unit_test(test_a_reset_is_passed_on),
        cmocka_unit_test(test_what_came_before_a_reset_arrives),
        cmocka_unit_test(test_a_stuck_reader_costs_no_turns),
        cmocka_unit_test(test_held_bytes_wait_for_their_release_and_the_other_way_does_not),
        cmocka_unit_test(test_urgent_bytes_pass_with_the_others_and_cost_no_turns),
        cmocka_unit_test(test_held_bytes_pass_where_pipes_are_small),
        cmocka_unit_test(test_a_bucket_fills_with_time_and_holds_a_tenth_of_a_second),
        cmocka_unit_test(test_many_connections_of_a_box_pass_one_mib_in_a_turn),
        cmocka_unit_test(test_a_rate_is_kept),
        cmocka_unit_test(test_with_many_full_pipes_each_holds_64_KiB),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
