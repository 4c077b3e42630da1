/* Kernels of a real front, over a keeper and kernels that are tables (fake_keeper.h, fake_guest.h). How scenes are
 * played, and what must be true afterwards, is in play.h and in check_kernels() (cells.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>

#include "front/boxes/families.h"
#include "front/cells.h"
#include "front/kernels/kernel_private.h"
#include "front/play.h"
#include "unit/unit.h"

static const struct cell_options short_time = { .timeout_ms = 500 }, anew = { .restart = true };

/* The first trouble. Both have been tried by then: a scene goes on with what it has. */
static int first_of(int a, int b)
{
    return a ? a : b;
}

/* A box with a kernel in it. */
static int open_box(char id[16], bool on_disk)
{
    int r = create(id, on_disk, 0);

    return first_of(r, raise_kernel(id));
}

static int close_box(const char *id, int r)
{
    return first_of(r, doing(act_delete, id));
}

/* ---- the scenes ---- */

static int scene_cells(void)
{
    char id[16];
    int r = open_box(id, false);

    r = first_of(r, run_cell(id, "say one", OUTCOME_OK, "one"));
    r = first_of(r, run_cell(id, "print two", OUTCOME_OK, "two"));
    r = first_of(r, run_cell(id, "flood 5", OUTCOME_OK, "0,1,2,3,4,"));
    if (kernel_of(id))
        kernel_end(kernel_of(id), "asked");
    settle();
    assert_null(kernel_of(id));
    return close_box(id, r);
}

static int scene_input(void)
{
    char id[16];
    struct err e;
    int r = open_box(id, false), s = 0;

    struct cell *c = begin_cell(id, "ask", NULL);
    if (until_it_asks(c))
        s = -kernel_answer_input(kernel_of(id), "me", &e);
    r = first_of(r, end_cell(c, OUTCOME_OK, "me"));
    return close_box(id, first_of(s, r));
}

/* The interpreter survives. */
static int scene_interrupt(void)
{
    char id[16];
    struct err e;
    int r = open_box(id, false);

    struct cell *c = begin_cell(id, "hang", NULL);
    if (until_it_runs(c))
        assert_int_equal(kernel_interrupt(kernel_of(id), &e), 0);
    r = first_of(r, end_cell(c, OUTCOME_INTERRUPTED, "..."));
    r = first_of(r, run_cell(id, "say on", OUTCOME_OK, "on"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(kernel_of(id)->restarts, 0);
    return close_box(id, r);
}

/* One interrupt is asked for while the interpreter starts: it is for the first cell, and not before it runs. */
static int scene_early_interrupt(void)
{
    char id[16];
    struct err e;
    int r = open_box(id, false);

    struct cell *c = begin_cell(id, "hang", NULL);
    if (!c->was_refused)
        assert_int_equal(kernel_interrupt(kernel_of(id), &e), 0);
    return close_box(id, first_of(r, end_cell(c, OUTCOME_INTERRUPTED, "...")));
}

/* Each climbs one step further. */
static int scene_ladder(void)
{
    static const char *const codes[] = { "hang", "stubborn", "deaf", "iron" };
    static const char *const ends[] = { "interrupted", "interrupted", "SIGTERM", "SIGKILL" };
    char id[16];
    int r = open_box(id, false);

    for (size_t i = 0; i < COUNT(codes); i++) {
        const struct cell_options o = { .timeout_ms = 500, .restart = true };
        struct cell *c = begin_cell(id, codes[i], &o);
        r = first_of(r, end_cell(c, OUTCOME_TIMEOUT, "..."));
        if (keeper.fault == FAULT_NONE) {
            assert_int_equal(kernel_of(id)->exec != NULL, i < 2);
            assert_true(strstr(c->reason, ends[i]) && !strstr(c->reason, "went on"));
        }
    }
    r = first_of(r, end_cell(begin_cell(id, "say anew", &anew), OUTCOME_OK, "anew"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(kernel_of(id)->restarts, 2);
    return close_box(id, r);
}

static int scene_deaths(void)
{
    char id[16];
    int r = open_box(id, false);

    r = first_of(r, run_cell(id, "die", OUTCOME_DIED, ""));
    r = first_of(r, run_cell(id, "say no", OUTCOME_DEAD, ""));
    r = first_of(r, end_cell(begin_cell(id, "close", &anew), OUTCOME_DIED, ""));
    r = first_of(r, end_cell(begin_cell(id, "say anew", &anew), OUTCOME_OK, "anew"));
    return close_box(id, r);
}

/* What runs is lost, what waits is for the next interpreter. */
static int scene_restart(void)
{
    char id[16];
    struct err e;
    int r = open_box(id, false), s = 0;

    struct cell *one = begin_cell(id, "hang", NULL), *two = begin_cell(id, "say two", NULL);
    if (until_it_runs(one) && kernel_of(id))
        s = -kernel_restart(kernel_of(id), &e);
    r = first_of(r, end_cell(one, OUTCOME_KILLED, "..."));
    r = first_of(r, end_cell(two, OUTCOME_OK, "two"));
    if (kernel_of(id) && front.ready)
        s = first_of(s, -kernel_restart(kernel_of(id), &e));
    r = first_of(r, run_cell(id, "say three", OUTCOME_OK, "three"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(kernel_of(id)->restarts, 2);
    return close_box(id, first_of(s, r));
}

/* One of those who wait goes before its turn. */
static int scene_turns(void)
{
    char id[16];
    int r = open_box(id, false);

    struct cell *c[] = { begin_cell(id, "say 1", NULL), begin_cell(id, "hang", &short_time),
                         begin_cell(id, "say 2", NULL), begin_cell(id, "say 3", NULL) };
    if (!c[2]->was_refused && c[2]->wish->generation == generation && !c[2]->wish->answers) {
        c[2]->wish->is_gone = true;
        c[2]->wish->leave(c[2]->wish);
    }
    r = first_of(r, end_cell(c[0], OUTCOME_OK, "1"));
    r = first_of(r, end_cell(c[1], OUTCOME_TIMEOUT, "..."));
    r = first_of(r, end_cell(c[3], OUTCOME_OK, "3"));
    return close_box(id, r);
}

/* To the last byte that is allowed. */
static int scene_output(void)
{
    const struct cell_options little = { .output_bytes = 7 };
    char id[16];
    int r = open_box(id, false);

    r = first_of(r, end_cell(begin_cell(id, "flood 9", &little), OUTCOME_OUTPUT, "0,1,2,3"));
    r = first_of(r, run_cell(id, "say on", OUTCOME_OK, "on"));
    return close_box(id, r);
}

/* A client goes and comes back: what it missed is in the ring, and nothing comes twice. */
static int scene_ring(void)
{
    char id[16];
    struct listener l = { 0 };
    unsigned n = 0, born = 0;
    int r = open_box(id, false);

    if (kernel_of(id))
        listen_to(kernel_of(id), &l);
    born = generation;
    r = first_of(r, run_cell(id, "say one", OUTCOME_OK, "one"));
    n = l.n;
    kernel_detach(&l.client);
    r = first_of(r, run_cell(id, "flood 6", OUTCOME_OK, "0,1,2,3,4,5,"));
    assert_int_equal(l.n, n);
    if (kernel_of(id) && generation == born) {
        listen_again(kernel_of(id), &l);
        assert_int_equal(l.last, kernel_last_number(kernel_of(id)));
    }
    r = first_of(r, run_cell(id, "say two", OUTCOME_OK, "two"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(l.n, 4 + 9 + 4);
    kernel_detach(&l.client);
    return close_box(id, r);
}

static bool is_held(void *arg)
{
    const struct kernel *k = arg;

    return k->n_clients == 0 || kernel_private(k)->n_paused > 0;
}

/* While one client takes nothing the kernel is not read, even if others listen; it gets everything, and so do the
 * others. */
static int scene_slow(void)
{
    char id[16];
    struct listener slow = { .is_slow = true };
    int r = open_box(id, false);

    if (kernel_of(id))
        listen_to(kernel_of(id), &slow);
    struct cell *c = begin_cell(id, "flood 8", NULL);
    while (slow.client.kernel && until(c->wish, is_held, slow.client.kernel, "a slow client") &&
           slow.client.kernel && slow.n < 6) {
        unsigned n = slow.n;
        for (int i = 0; i < 5; i++)
            (void)turn();
        struct kernel *k = slow.client.kernel;
        if (k && k->exec && slow.client.paused) {       /* a dead kernel's last messages are delivered at once */
            assert_int_equal(slow.n, n);
            assert_true(kernel_private(k)->link.held);
        }
        if (k)
            kernel_resume(k, &slow.client);
    }
    kernel_detach(&slow.client);            /* it goes while it is waited for */
    return close_box(id, first_of(r, end_cell(c, OUTCOME_OK, "0,1,2,3,4,5,6,7,")));
}

/* Messages from before a kernel's death are delivered, also those that no client could take then. */
static int scene_last_words(void)
{
    char id[16];
    struct listener slow = { .is_slow = true };
    int r = open_box(id, false);

    if (kernel_of(id))
        listen_to(kernel_of(id), &slow);
    r = first_of(r, run_cell(id, "last 3", OUTCOME_DIED, "0,1,2,"));
    kernel_detach(&slow.client);
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(slow.n, 1 + 3);
    return close_box(id, r);
}

/* A slow client holds the next interpreter back, too. */
static int scene_slow_restart(void)
{
    char id[16];
    struct listener slow = { .is_slow = true };
    struct err e;
    int r = open_box(id, false), s = 0;

    if (kernel_of(id))
        listen_to(kernel_of(id), &slow);
    struct cell *one = begin_cell(id, "flood 3", NULL);
    if (slow.client.kernel && until(one->wish, is_held, slow.client.kernel, "a slow client") && slow.client.kernel)
        s = -kernel_restart(slow.client.kernel, &e);
    struct cell *two = begin_cell(id, "say on", NULL);
    for (int i = 0; i < 20; i++)
        (void)turn();
    struct kernel *k = slow.client.kernel;
    if (k && k->exec && k->state != KERNEL_RESTARTING && slow.client.paused)
        assert_true(kernel_private(k)->link.held);
    slow.is_slow = false;
    if (k)
        kernel_resume(k, &slow.client);
    (void)end_cell(one, OUTCOME_KILLED, "");
    r = first_of(r, end_cell(two, OUTCOME_OK, "on"));
    kernel_detach(&slow.client);
    return close_box(id, first_of(s, r));
}

/* A kernel that does not read gets only so much, and what waits for it is given back with it. */
static int scene_much(void)
{
    enum { SIZE = 200 << 10 };
    char id[16];
    struct err e = { 0 };
    struct iovec none = { (char *)(uintptr_t)"{}", 2 };
    int r = open_box(id, false), s = 0;
    char *content = malloc(SIZE);

    assert_non_null(content);
    memset(content, ' ', SIZE);
    content[0] = '{';
    content[SIZE - 1] = '}';
    struct cell *c = begin_cell(id, "hang", &short_time);
    front.memory.most = 256 << 10;
    if (until_it_runs(c) && kernel_of(id)) {
        const struct iovec part[KERNEL_PARTS] = {
            { (char *)(uintptr_t)"{\"msg_id\":\"m\",\"msg_type\":\"comm_msg\"}", 36 }, none, none, { content, SIZE }
        };
        for (int i = 0; i < 64 && s == 0; i++)
            s = -kernel_send(kernel_of(id), KERNEL_SHELL, part, NULL, 0, &e);
        assert_true(s == EDQUOT || keeper.fault);
    }
    free(content);
    r = first_of(r, end_cell(c, OUTCOME_TIMEOUT, "..."));
    return close_box(id, r);
}

/* The second box's kernel is forked, and the third's cannot be. What was sent before is heard once. */
static int scene_forked(void)
{
    char one[16], two[16];
    int r = create(one, false, 1);

    settle();
    int s = create(two, false, 1);
    s = first_of(s, raise_kernel(two));
    s = first_of(s, run_cell(two, "say forked", OUTCOME_OK, "forked"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(kernel_of(two)->way, KERNEL_FORKED);
    if (kernel_of(two))
        kernel_end(kernel_of(two), "asked");
    keeper.cannot_fork = true;
    s = first_of(s, raise_kernel(two));
    s = first_of(s, run_cell(two, "say executed", OUTCOME_OK, "executed"));
    if (keeper.fault == FAULT_NONE)
        assert_int_equal(kernel_of(two)->way, KERNEL_COLD);
    return close_box(two, close_box(one, first_of(r, s)));
}

/* The next front finds the kernel. */
static int scene_left(void)
{
    char id[16];
    int r = open_box(id, false);

    return first_of(r, run_cell(id, "say one", OUTCOME_OK, "one"));
}

/* Boxes are deleted, and stopped, while cells run and wait in them. */
static int scene_boxes(void)
{
    char one[16], two[16];
    int r = open_box(one, false);

    struct cell *c = begin_cell(one, "hang", NULL), *d = begin_cell(one, "say no", NULL);
    bool runs = until_it_runs(c);
    int gone = doing(act_delete, one);
    if (!gone && runs && keeper.fault == FAULT_NONE)
        assert_true(c->wish->answers && d->wish->answers);
    (void)end_cell(c, OUTCOME_KILLED, "...");
    (void)end_cell(d, OUTCOME_DEAD, "");
    int s = open_box(two, true);
    c = begin_cell(two, "hang", NULL);
    if (until_it_runs(c))
        s = first_of(s, doing(act_stop, two));
    (void)end_cell(c, OUTCOME_KILLED, "...");
    s = first_of(s, doing(act_start, two));
    s = first_of(s, raise_kernel(two));
    s = first_of(s, run_cell(two, "say back", OUTCOME_OK, "back"));
    return close_box(two, first_of(r, first_of(gone, s)));
}

/* ---- all of it ---- */

static const struct scene scenes[] = {
    { "cells", scene_cells },
    { "input", scene_input },
    { "interrupt", scene_interrupt },
    { "early interrupt", scene_early_interrupt },
    { "ladder", scene_ladder },
    { "deaths", scene_deaths },
    { "restart", scene_restart },
    { "turns", scene_turns },
    { "output", scene_output },
    { "ring", scene_ring },
    { "slow", scene_slow },
    { "slow restart", scene_slow_restart },
    { "last words", scene_last_words },
    { "much", scene_much },
    { "forked", scene_forked },
    { "boxes", scene_boxes },
    { "left", scene_left },
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
FAULT_TEST(the_kernel_dies_at_every_frame, FAULT_GUESTS_DIE)
FAULT_TEST(the_kernel_hangs_at_every_message, FAULT_GUEST_HANGS)
FAULT_TEST(the_kernel_closes_its_link_at_every_message, FAULT_GUEST_CLOSES)
FAULT_TEST(the_kernel_lies_instead_of_every_message, FAULT_GUEST_LIES)
FAULT_TEST(every_message_is_lost, FAULT_MESSAGE_LOST)
FAULT_TEST(every_message_comes_twice, FAULT_MESSAGE_DOUBLED)

HURRY_TEST(the_kernel_dies_and_what_it_said_overtakes_the_keeper, FAULT_GUESTS_DIE)
HURRY_TEST(the_connection_breaks_and_the_kernel_overtakes_it, FAULT_LINK_BREAKS)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_goes_well),
        cmocka_unit_test(the_keeper_dies_at_every_frame),
        cmocka_unit_test(the_connection_breaks_at_every_frame),
        cmocka_unit_test(the_client_goes_at_every_frame),
        cmocka_unit_test(the_front_dies_at_every_frame),
        cmocka_unit_test(the_kernel_dies_at_every_frame),
        cmocka_unit_test(the_kernel_hangs_at_every_message),
        cmocka_unit_test(the_kernel_closes_its_link_at_every_message),
        cmocka_unit_test(the_kernel_lies_instead_of_every_message),
        cmocka_unit_test(every_message_is_lost),
        cmocka_unit_test(every_message_comes_twice),
        cmocka_unit_test(the_kernel_dies_and_what_it_said_overtakes_the_keeper),
        cmocka_unit_test(the_connection_breaks_and_the_kernel_overtakes_it),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    signal(SIGPIPE, SIG_IGN);
    is_quiet = kernels_are_quiet;
    check_more = check_kernels;
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
