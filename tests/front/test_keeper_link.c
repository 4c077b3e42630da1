/* What the front takes from its keeper: each event in its own frame, of its exact size, in its time. The test is the
 * keeper. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "front/keeper_link.h"
#include "unit/unit.h"

struct scene {
    struct loop        *loop;
    struct keeper_link *link;
    int                 helper, keeper;     /* the other ends */
    unsigned            told, synced, lost, answers;
    union event         last, answer;
};

static void on_event(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct scene *s = arg;

    (void)fds;
    (void)n_fds;
    s->told++;
    s->last = *event;
}

static void on_synced(void *arg)
{
    ((struct scene *)arg)->synced++;
}

static void on_lost(void *arg)
{
    ((struct scene *)arg)->lost++;
}

static void on_answer(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct scene *s = arg;

    (void)fds;
    (void)n_fds;
    s->answers++;
    s->answer = *event;
}

static void connect_to(struct scene *s)
{
    const struct keeper_handlers handlers = {
        .on_event = on_event, .on_synced = on_synced, .on_lost = on_lost, .arg = s
    };
    int dial[2], pair[2], code = 0;
    struct err e;
    char byte;

    *s = (struct scene){ 0 };
    assert_int_equal(loop_new(&s->loop), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, dial), 0);
    assert_int_equal(keeper_link_new(s->loop, dial[1], "test", geteuid(), &handlers, &s->link, &e), 0);
    s->helper = dial[0];
    assert_int_equal(recv(s->helper, &byte, 1, 0), 1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(fdpass_send(s->helper, &code, sizeof code, &pair[1], 1, 0), sizeof code);
    fd_close(pair[1]);
    s->keeper = pair[0];
    assert_int_equal(loop_turn(s->loop, 0), 0);
}

static void leave(struct scene *s)
{
    keeper_link_free(s->link);
    loop_free(s->loop);
    fd_close(s->helper);
    fd_close(s->keeper);
}

static void say_with(struct scene *s, const void *event, size_t size, size_t n_fds)
{
    static const int fds[] = { 0, 0, 0, 0, 0 };

    assert_int_equal(fdpass_send(s->keeper, event, size, fds, n_fds, 0), size);
    assert_int_equal(loop_turn(s->loop, 0), 0);
}

#define say(s, event) say_with(s, &(event), sizeof(event), 0)

static void greet(struct scene *s)
{
    const struct event_hello hello = { .head.type = EVENT_HELLO, .version = KEEPER_VERSION };

    connect_to(s);
    say(s, hello);
    assert_int_equal(s->told, 1);
}

static void test_each_event_is_told_and_the_last_says_that_all_were(void **state)
{
    (void)state;
    const struct event_box box = { .head = { .type = EVENT_BOX, .box = KEEPER_BOXES - 1 }, .token = 7 };
    const struct event_payload payload = { .head = { .type = EVENT_PAYLOAD, .payload = KEEPER_PAYLOADS - 1 } };
    const struct event_ended ended = { .head.type = EVENT_ENDED, .token = 8, .end.code = 3 };
    const struct event_head synced = { .type = EVENT_SYNCED };
    struct scene s;

    greet(&s);
    say_with(&s, &box, sizeof box, 1);
    assert_int_equal(s.last.box.token, 7);
    say_with(&s, &payload, sizeof payload, KEEPER_HELD + 1);
    say(&s, ended);
    assert_int_equal(s.last.ended.end.code, 3);
    assert_int_equal(s.told, 4);
    assert_false(keeper_link_is_up(s.link));
    say(&s, synced);
    assert_int_equal(s.told, 4);
    assert_int_equal(s.synced, 1);
    assert_true(keeper_link_is_up(s.link));
    assert_int_equal(s.lost, 0);
    leave(&s);
}

static void test_what_does_not_fit_its_row_costs_the_connection(void **state)
{
    (void)state;
    static const struct {
        struct event_head head;
        size_t            size, n_fds;
    } bad[] = {
        { { .type = EVENT_READY }, sizeof(struct event_head) - 1, 0 },
        { { .type = EVENT_READY }, sizeof(struct event_head) + 1, 0 },
        { { .type = EVENT_DONE }, sizeof(struct event_head), 0 },
        { { .type = EVENT_ENDED }, sizeof(struct event_ended) + 8, 0 },
        { { .type = EVENT_HELLO }, sizeof(union event) + 1, 0 },
        { { .type = 0 }, sizeof(struct event_head), 0 },
        { { .type = EVENT_COUNT }, sizeof(struct event_head), 0 },
        { { .type = UINT16_MAX }, sizeof(struct event_head), 0 },
        { { .type = EVENT_READY, .box = KEEPER_BOXES }, sizeof(struct event_head), 0 },
        { { .type = EVENT_STARTED, .payload = KEEPER_PAYLOADS }, sizeof(struct event_started), 0 },
        { { .type = EVENT_READY, .serial = 1, .result = -EIO }, sizeof(struct event_head), 0 },
        { { .type = EVENT_DONE, .serial = 1, .result = 1 }, sizeof(struct event_done), 0 },
        { { .type = EVENT_GONE }, sizeof(struct event_gone), 1 },
        { { .type = EVENT_PAYLOAD }, sizeof(struct event_payload), KEEPER_HELD + 2 },
        { { .type = EVENT_HELLO }, sizeof(struct event_hello), 0 },     /* a second one */
    };
    struct scene s;

    for (size_t i = 0; i < COUNT(bad); i++) {
        char frame[sizeof(union event) + 1] = { 0 };
        greet(&s);
        memcpy(frame, &bad[i].head, sizeof bad[i].head);
        say_with(&s, frame, bad[i].size, bad[i].n_fds);
        if (s.told != 1 || s.lost != 1)
            fail_msg("frame %zu was told %u times, and the connection lost %u times", i, s.told - 1, s.lost);
        leave(&s);
    }
}

static void test_nothing_is_taken_before_a_greeting_of_the_same_version(void **state)
{
    (void)state;
    const struct event_head ready = { .type = EVENT_READY };
    const struct event_hello old = { .head.type = EVENT_HELLO, .version = KEEPER_VERSION - 1 };
    struct scene s;

    connect_to(&s);
    say(&s, ready);
    assert_int_equal(s.told, 0);
    assert_int_equal(s.lost, 1);
    leave(&s);
    connect_to(&s);
    say(&s, old);
    assert_int_equal(s.told, 0);
    assert_int_equal(s.lost, 1);
    leave(&s);
}

static void test_a_request_is_answered_once(void **state)
{
    (void)state;
    const struct event_head synced = { .type = EVENT_SYNCED };
    struct request_head q = { .type = REQUEST_USAGE };
    struct scene s;

    greet(&s);
    say(&s, synced);
    uint32_t serial = keeper_link_request(s.link, &q, sizeof q, NULL, 0, on_answer, &s);
    struct event_usage usage = { .head = { .type = EVENT_USAGE, .serial = serial }, .usage.pids = 5 };
    say(&s, usage);
    say(&s, usage);
    assert_int_equal(s.answers, 1);
    assert_null(event_failure(&s.answer));
    assert_int_equal(s.answer.usage.usage.pids, 5);

    struct event_done failed = { .head = { .type = EVENT_DONE, .result = -EBUSY } };
    failed.head.serial = keeper_link_request(s.link, &q, sizeof q, NULL, 0, on_answer, &s);
    failed.err.code = EBUSY;
    say(&s, failed);
    assert_int_equal(s.answers, 2);
    assert_int_equal(event_failure(&s.answer)->code, EBUSY);

    /* What is still open when the keeper goes has failed. */
    keeper_link_request(s.link, &q, sizeof q, NULL, 0, on_answer, &s);
    s.keeper = fd_close(s.keeper);
    assert_int_equal(loop_turn(s.loop, 0), 0);
    assert_int_equal(s.answers, 3);
    assert_int_equal(event_failure(&s.answer)->code, ECONNRESET);
    assert_int_equal(s.answer.head.type, EVENT_DONE);
    leave(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_event_is_told_and_the_last_says_that_all_were),
        cmocka_unit_test(test_what_does_not_fit_its_row_costs_the_connection),
        cmocka_unit_test(test_nothing_is_taken_before_a_greeting_of_the_same_version),
        cmocka_unit_test(test_a_request_is_answered_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
