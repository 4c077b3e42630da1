/* Services of a real front, over a keeper and workers that are tables (fake_keeper.h, fake_guest.h). How scenes are
 * played, and what must be true afterwards, is in play.h and in check_services() (calls.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>

#include "front/calls.h"
#include "front/play.h"
#include "front/services/service_private.h"
#include "unit/unit.h"

static const struct service_wish plain = { 0 }, own = { .own_box = true };

/* The first trouble. Both have been tried by then: a scene goes on with what it has. */
static int first_of(int a, int b)
{
    return a ? a : b;
}

static int open_tools(char id[16], const struct service_wish *w)
{
    int r = create(id, false, 0);

    return first_of(r, make_tools(id, w));
}

/* Nothing is left of it, whichever box it had in the end. */
static int close_tools(const char *id, int r)
{
    delete_tools();
    if (find(id) && box_is_alive(find(id)) && find(id)->phase != PHASE_DELETING)
        (void)doing(act_delete, id);
    settle();
    assert_int_equal(fake_count_boxes(&keeper), 0);
    return r;
}

/* ---- the scenes ---- */

static int scene_calls(void)
{
    char id[16];
    int r = open_tools(id, &own);

    r = first_of(r, make_call("echo", "[7]", CALL_OK, "7"));
    r = first_of(r, make_call("swift", "[8]", CALL_OK, "8"));
    r = first_of(r, make_call("fail", NULL, CALL_ERROR, NULL));
    r = first_of(r, make_call("echo", "[1,2]", CALL_INVALID, NULL));
    const struct call *c = begin_call(NULL, "missing", NULL, 0);
    if (keeper.fault == FAULT_NONE) {
        assert_int_equal(c->refused, ENOENT);
        assert_int_equal(tools()->restarts, 0);
    }
    return close_tools(id, r);
}

/* One call runs, two are queued; a wrong one is refused before its turn. The first one's caller goes away, and the next
 * one runs. */
static int scene_queue(void)
{
    char id[16];
    int r = open_tools(id, &plain);

    struct call *one = begin_call(NULL, "wait", NULL, 0), *two = begin_call(NULL, "echo", "[2]", 0),
                *wrong = begin_call(NULL, "echo", "[1,2]", 0);
    r = first_of(r, end_call(wrong, CALL_INVALID, NULL));
    (void)until_it_works(one);
    struct call *beside = begin_call(NULL, "swift", "[3]", 0);
    r = first_of(r, end_call(beside, CALL_OK, "3"));
    if (keeper.fault == FAULT_NONE)
        assert_false(one->wish->answers || two->wish->answers);
    abandon_call(one);
    r = first_of(r, end_call(two, CALL_OK, "2"));
    return close_tools(id, r);
}

/* One that waits goes before its turn, and the worker never hears of it. */
static int scene_goes(void)
{
    char id[16];
    int r = open_tools(id, &plain);

    struct call *one = begin_call(NULL, "wait", NULL, 500), *two = begin_call(NULL, "die", NULL, 0),
                *three = begin_call(NULL, "echo", "[3]", 0);
    abandon_call(two);
    r = first_of(r, end_call(one, CALL_TIMEOUT, NULL));
    r = first_of(r, end_call(three, CALL_OK, "3"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(tools()->restarts, 0);
    return close_tools(id, r);
}

/* Each climbs one step further; what waits meanwhile is for the next worker. */
static int scene_ladder(void)
{
    static const char *const functions[] = { "later", "wait", "long", "iron" };
    char id[16];
    int r = open_tools(id, &plain);

    for (size_t i = 0; i < COUNT(functions); i++) {
        struct call *one = begin_call(NULL, functions[i], NULL, 500), *two = begin_call(NULL, "echo", "[2]", 60000);
        r = first_of(r, end_call(one, CALL_TIMEOUT, NULL));
        r = first_of(r, end_call(two, CALL_OK, "2"));
        if (keeper.fault == FAULT_NONE)
            assert_int_equal(tools()->restarts, i == 3);
    }
    return close_tools(id, r);
}

/* What the worker was at is lost with it, what waits is not. Not for ever, and then it says why. */
static int scene_deaths(void)
{
    char id[16];
    int r = open_tools(id, &plain);

    for (int i = 1; i < SERVICE_RESTARTS_MOST; i++)
        r = first_of(r, make_call("die", NULL, CALL_DIED, NULL));
    for (int i = 0; i < 2; i++) {
        struct call *one = begin_call(NULL, "die", NULL, 0), *two = begin_call(NULL, "echo", "[2]", 0);
        r = first_of(r, end_call(one, CALL_DIED, NULL));
        r = first_of(r, end_call(two, i == 0 ? CALL_OK : CALL_GONE, i == 0 ? "2" : NULL));
    }
    const struct call *c = begin_call(NULL, "echo", NULL, 0);
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(c->refused, EPIPE);
    (void)await_tools();
    int s = restart_tools();
    s = first_of(s, make_call("echo", "[3]", CALL_OK, "3"));
    return close_tools(id, first_of(r, s));
}

static int scene_loading(void)
{
    static const struct service_wish bad = { .code = "bad" }, slow = { .code = "slow" };
    char id[16];
    int r = open_tools(id, &bad);

    if (keeper.fault == FAULT_NONE)
        assert_string_equal(json_string_value(json_object_get(tools()->error, "type")), "SyntaxError");
    delete_tools();
    int s = make_tools(id, &slow);
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(tools()->outcome, OUTCOME_TIMEOUT);
    r = r == EPIPE && s == EPIPE ? 0 : first_of(r, s);
    return close_tools(id, r);
}

/* Asked for while calls work and wait, of a dead one, and twice at once. */
static int scene_restart(void)
{
    struct err e;
    char id[16];
    int r = open_tools(id, &own), s = 0;

    struct call *one = begin_call(NULL, "iron", NULL, 0), *two = begin_call(NULL, "echo", "[2]", 0);
    if (until_it_works(one) && tools())
        s = -service_restart(tools(), &e);
    s = first_of(s, restart_tools());
    r = first_of(r, end_call(one, CALL_DIED, NULL));
    r = first_of(r, end_call(two, CALL_OK, "2"));
    return close_tools(id, first_of(s, r));
}

/* Its own box ends by itself, and it gets another. */
static int scene_box(void)
{
    char id[16];
    int r = open_tools(id, &own);

    struct call *one = begin_call(NULL, "wait", NULL, 0), *two = begin_call(NULL, "echo", "[2]", 0);
    struct fake_box *b = until_it_works(one) && tools() ? fake_box_by_token(&keeper, box_token(tools()->box)) : NULL;
    if (b)
        fake_box_dies(&keeper, b);
    r = first_of(r, end_call(one, CALL_DIED, NULL));
    r = first_of(r, end_call(two, CALL_OK, "2"));
    if (keeper.fault == FAULT_NONE)
        assert_string_not_equal(tools()->box->id, id);
    r = first_of(r, make_call("echo", "[3]", CALL_OK, "3"));
    return close_tools(id, r);
}

/* In a box with other users it dies with the box; and it ends with a box that a caller deletes. */
static int scene_shared(void)
{
    char id[16], other[16];
    int r = open_tools(id, &plain);

    struct call *one = begin_call(NULL, "wait", NULL, 0);
    struct fake_box *b = until_it_works(one) && tools() ? fake_box_by_token(&keeper, box_token(tools()->box)) : NULL;
    if (b)
        fake_box_dies(&keeper, b);
    r = first_of(r, end_call(one, CALL_DIED, NULL));
    settle();
    if (keeper.fault == FAULT_NONE)
        assert_true(service_is_lost(tools()));
    int s = open_tools(other, &plain);          /* the name is free again */
    one = begin_call(NULL, "wait", NULL, 0);
    struct call *two = begin_call(NULL, "echo", NULL, 0);
    (void)until_it_works(one);
    int gone = doing(act_delete, other);
    (void)end_call(one, CALL_DIED, NULL);
    (void)end_call(two, CALL_GONE, NULL);
    if (keeper.fault == FAULT_NONE)
        assert_null(tools());
    if (find(id) && box_is_alive(find(id)))
        (void)doing(act_delete, id);
    return close_tools(other, first_of(r, first_of(s, gone)));
}

/* A grant is good for so many calls, whichever front counts them. */
static int scene_grant(void)
{
    enum { CALLS = 3 };
    char id[16], agent[16], secret[128];
    unsigned n = 0;
    struct grant *g;
    struct err e;
    int r = open_tools(id, &plain), s = create(agent, false, 0);

    if (tools() && find(agent) && box_is_alive(find(agent))) {
        json_t *names = json_pack("[s,s]", "echo", "wait");
        const struct grant_options o = { .owner = "uid:0", .functions = names, .box = find(agent), .max_calls = CALLS };
        s = first_of(s, -grant_create(tools(), &o, secret, &g, &e));
        json_decref(names);
    }
    const struct call *no = begin_call(agent, "swift", NULL, 0);
    assert_true(no->refused);
    for (int i = 0; i < CALLS; i++) {
        struct call *c = begin_call(agent, i == 1 ? "wait" : "echo", "[1]", i == 1 ? 500 : 0);
        n += !c->refused;
        r = first_of(r, end_call(c, i == 1 ? CALL_TIMEOUT : CALL_OK, i == 1 ? NULL : "1"));
        (void)await_tools();
    }
    for (int i = 0; i < CALLS; i++) {
        struct call *c = begin_call(agent, "echo", NULL, 0);
        n += !c->refused;
        if (keeper.fault == FAULT_NONE)
            assert_int_equal(c->refused, EPERM);
        else
            (void)end_call(c, CALL_OK, NULL);
    }
    assert_true(n <= CALLS);
    delete_tools();
    assert_null(front.grants);
    int gone = doing(act_delete, agent);
    return close_tools(id, first_of(r, first_of(s, gone)));
}

static int grant_all(const char *box)
{
    struct grant *g;
    struct err e;
    char secret[128];
    const struct grant_options o = { .owner = "uid:0", .box = find(box) };

    return tools() && o.box && box_is_alive(o.box) ? -grant_create(tools(), &o, secret, &g, &e) : ENOENT;
}

/* A box asks for more than it may have, and its owner still has the next turn. */
static int scene_turns(void)
{
    char id[16], agent[16];
    int r = open_tools(id, &plain), s = create(agent, false, 0), g = grant_all(agent);

    struct call *one = begin_call(agent, "wait", NULL, 0), *asked[4];
    (void)until_it_works(one);
    for (size_t i = 0; i < COUNT(asked); i++)
        asked[i] = begin_call(agent, "echo", "[1]", 60000);
    struct call *mine = begin_call(NULL, "echo", "[2]", 60000);
    abandon_call(one);
    r = first_of(r, end_call(mine, CALL_OK, "2"));
    if (keeper.fault == FAULT_NONE)
        assert_false(asked[0]->wish->answers);
    for (size_t i = 0; i < COUNT(asked); i++)
        r = first_of(r, end_call(asked[i], CALL_OK, "1"));
    int gone = doing(act_delete, agent);
    return close_tools(id, first_of(first_of(r, g), first_of(s, gone)));
}

/* The next front goes on with the worker; what was called is lost with its callers. Secrets it does not know, so it
 * can have no other worker. */
static int scene_fronts(void)
{
    static const struct service_wish secretive = { .has_secrets = true };
    char id[16];
    int r = open_tools(id, &secretive);

    struct call *one = begin_call(NULL, "wait", NULL, 0);
    (void)until_it_works(one);
    close_front();
    open_front();
    settle();
    r = first_of(r, make_call("echo", "[2]", CALL_OK, "2"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(tools()->restarts, 0);
    r = first_of(r, make_call("die", NULL, CALL_DIED, NULL));
    settle();
    if (tools() && keeper.fault == FAULT_NONE)
        assert_int_equal(tools()->state, SERVICE_DEAD);
    return close_tools(id, r);
}

/* The next front finds the service. */
static int scene_left(void)
{
    char id[16];
    int r = open_tools(id, &own);

    return first_of(r, make_call("echo", "[1]", CALL_OK, "1"));
}

/* ---- all of it ---- */

static const struct scene scenes[] = {
    { "calls", scene_calls },     { "queue", scene_queue },     { "goes", scene_goes }, { "ladder", scene_ladder },
    { "deaths", scene_deaths },   { "loading", scene_loading }, { "restart", scene_restart },
    { "box", scene_box },         { "shared", scene_shared },   { "grant", scene_grant },
    { "turns", scene_turns },     { "fronts", scene_fronts },   { "left", scene_left },
};

static void all_goes_well(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(scenes); i++)
        assert_true(play(&scenes[i], FAULT_NONE, 0) > 2);
}

FAULT_TEST(the_keeper_dies_at_every_frame, FAULT_KEEPER_DIES)
FAULT_TEST(the_connection_breaks_at_every_frame, FAULT_LINK_BREAKS)
FAULT_TEST(the_client_goes_at_every_frame, FAULT_CLIENT_GOES)
FAULT_TEST(the_front_dies_at_every_frame, FAULT_FRONT_DIES)
FAULT_TEST(the_worker_dies_at_every_frame, FAULT_GUESTS_DIE)
FAULT_TEST(the_worker_hangs_at_every_message, FAULT_GUEST_HANGS)
FAULT_TEST(the_worker_closes_its_link_at_every_message, FAULT_GUEST_CLOSES)
FAULT_TEST(the_worker_lies_instead_of_every_message, FAULT_GUEST_LIES)
FAULT_TEST(every_message_is_lost, FAULT_MESSAGE_LOST)
FAULT_TEST(every_message_comes_twice, FAULT_MESSAGE_DOUBLED)

HURRY_TEST(the_worker_dies_and_what_it_said_overtakes_the_keeper, FAULT_GUESTS_DIE)
HURRY_TEST(the_connection_breaks_and_the_worker_overtakes_it, FAULT_LINK_BREAKS)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_goes_well),
        cmocka_unit_test(the_keeper_dies_at_every_frame),
        cmocka_unit_test(the_connection_breaks_at_every_frame),
        cmocka_unit_test(the_client_goes_at_every_frame),
        cmocka_unit_test(the_front_dies_at_every_frame),
        cmocka_unit_test(the_worker_dies_at_every_frame),
        cmocka_unit_test(the_worker_hangs_at_every_message),
        cmocka_unit_test(the_worker_closes_its_link_at_every_message),
        cmocka_unit_test(the_worker_lies_instead_of_every_message),
        cmocka_unit_test(every_message_is_lost),
        cmocka_unit_test(every_message_comes_twice),
        cmocka_unit_test(the_worker_dies_and_what_it_said_overtakes_the_keeper),
        cmocka_unit_test(the_connection_breaks_and_the_worker_overtakes_it),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    signal(SIGPIPE, SIG_IGN);
    is_quiet = services_are_quiet;
    check_more = check_services;
    return cmocka_run_group_tests_name("services", tests, NULL, NULL);
}
