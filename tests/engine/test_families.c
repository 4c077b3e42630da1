/* Families: a zygote's life in the keeper, boxes in it, and the ways to start a payload there. */
#define _GNU_SOURCE
#include "proto/command.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOT = 5 };

static char layer[64], option[128];

static void make_file(const char *name, const char *from, mode_t mode)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", layer, name);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_return_code(out, errno);
    int in = from ? open(from, O_RDONLY | O_CLOEXEC) : -1;
    struct stat status = { 0 };
    if (in < 0)
        assert_int_equal(write(out, "layer\n", 6), 6);
    else
        assert_return_code(fstat(in, &status), errno);
    for (off_t at = 0; at < status.st_size;)
        assert_return_code(sendfile(out, in, &at, (size_t)(status.st_size - at)), errno);
    close(in);
    close(out);
}

static void remove_layer(void)
{
    char command[128];

    snprintf(command, sizeof command, "%s", layer);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", command, (char *)NULL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
    keeper_template = NULL;
}

/* A template with the stand-in for an interpreter, also under the names of its bad habits. */
static int make_layer(void)
{
    static const char *const names[] = { "zygote",      "zygote-inside", "zygote-strangers", "zygote-unsealed",
                                         "zygote-hang", "zygote-die",    "zygote-mute",      "zygote-refuse",
                                         "zygote-born", "zygote-twice",  "zygote-terminals", "zygote-squat",
                                         "zygote-prowl" };
    const char *program = getenv("CARREL_ZYGOTE");

    assert_non_null(program);
    snprintf(layer, sizeof layer, "/run/carrel-engine-%d", (int)getpid());
    assert_true(mkdir(layer, 0755) == 0 || errno == EEXIST);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        make_file(names[i], program, 0755);
    make_file("file", NULL, 0666);
    make_file("private", NULL, 0600);
    snprintf(option, sizeof option, "test=%s", layer);
    keeper_template = option;
    return 0;
}

int setup_family(void **state)
{
    make_layer();
    return setup_private(state);
}

int setup_family_listening(void **state)
{
    make_layer();
    return setup_listening(state);
}

int teardown_family(void **state)
{
    int r = teardown(state);
    remove_layer();
    return r;
}

static uint32_t family_ask(uint32_t slot, const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", layer, name);
    char *argv[] = { path, NULL }, *env[] = { "PATH=/usr/bin", NULL };
    struct command_spec command = { .argv = argv, .env = env };
    struct request_family frame = { .head.type = REQUEST_FAMILY, .token = TOKEN, .slot = slot,
                                    .profile = PROFILE_STANDARD, .has_stderr = 1,
                                    .limits = { .pids = 128, .memory_bytes = 128 << 20, .disk_bytes = 1 << 20 } };
    int fds[2] = { -1, 2 };
    struct err e;

    frame_mount_add(&frame.mounts, MOUNT_LAYER, 1);
    assert_int_equal(command_pack(&command, &fds[0], &e), 0);
    uint32_t serial = front_send(&frame, sizeof frame, fds, 2);
    close(fds[0]);
    return serial;
}

void family_make(uint32_t slot, const char *name)
{
    union event event = front_answer(family_ask(slot, name)).event;
    char text[300];

    err_text(&event.done.err, text, sizeof text);
    if (event.head.type != EVENT_FAMILY)
        fail_msg("family: %d %s", event.head.result, text);
    assert_int_equal(event.family.slot, slot);
    assert_int_equal(event.family.token, TOKEN);
}

static uint32_t order_end(uint32_t slot)
{
    struct request_family_end frame = { .head.type = REQUEST_FAMILY_END, .slot = slot };
    return front_send(&frame, sizeof frame, NULL, 0);
}

void family_end(uint32_t slot)
{
    assert_int_equal(front_answer(order_end(slot)).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_FAMILY_GONE, slot, -1).event.family_gone.cause.code, 0);
}

uint32_t family_order_box(uint32_t box, uint32_t slot)
{
    struct request_create frame = create_frame(box);

    frame_mount_add(&frame.mounts, MOUNT_LAYER, 1);
    frame.family = slot + 1;
    return front_send(&frame, sizeof frame, NULL, 0);
}

static union event make_in_family(uint32_t box, uint32_t slot)
{
    return front_answer(family_order_box(box, slot)).event;
}

void must_make(uint32_t box, uint32_t slot)
{
    union event event = make_in_family(box, slot);
    char text[300];

    err_text(&event.done.err, text, sizeof text);
    if (event.head.type != EVENT_READY)
        fail_msg("box in a family: %d %s", event.head.result, text);
}

static char *echo_here[] = { "@echo", "here", NULL };
static const struct run forked = { .argv = echo_here, .way = START_FORK };

static void test_the_ways_to_start_in_a_family(void **state)
{
    (void)state;
    char out[64];
    int way = -1;

    family_make(SLOT, "zygote");
    must_make(3, SLOT);
    /* A command that is exec'd does not take what waits. */
    box_do(3, 0, (struct run){ .script = "echo $0" }, out, sizeof out, &way);
    assert_int_equal(way, 0);
    assert_string_equal(out, "/bin/sh\n");
    box_do(3, 0, forked, out, sizeof out, &way);
    assert_int_equal(way, 2);
    assert_string_equal(out, "here\n");
    for (int i = 0; i < 3; i++) {
        struct frame_end end = box_do(3, 0, forked, out, sizeof out, &way);
        assert_int_equal(way, 1);
        assert_string_equal(out, "here\n");
        assert_int_equal(end.outcome, OUTCOME_OK);
    }
    box_do(3, 0, (struct run){ .script = "echo $0" }, out, sizeof out, &way);
    assert_int_equal(way, 0);
    box_end(3);
    family_end(SLOT);
    assert_int_equal(front_answer(order_end(SLOT)).event.head.result, -ENOENT);
}

static void test_forked_payloads_at_once(void **state)
{
    (void)state;
    enum { N = 8 };
    char *cat[] = { "@cat", NULL };
    int in[N][2], out[N][2];

    family_make(SLOT, "zygote");
    must_make(0, SLOT);
    for (unsigned i = 0; i < N; i++) {
        assert_return_code(pipe2(in[i], O_CLOEXEC) | pipe2(out[i], O_CLOEXEC), errno);
        struct run run = { .argv = cat, .in = in[i][0], .out = out[i][1], .way = START_FORK };
        assert_int_equal(box_run(0, i, run).event.head.result, 0);
        close(in[i][0]);
        close(out[i][1]);
    }
    for (unsigned i = 0; i < N; i++)
        assert_int_equal(front_expect(EVENT_STARTED, 0, (int)i).event.started.way, i ? 1 : 2);
    for (unsigned i = 0; i < N; i++) {
        char text[16] = "";
        assert_int_equal(write(in[i][1], "word", 4), 4);
        close(in[i][1]);
        assert_int_equal(front_expect(EVENT_ENDED, 0, (int)i).event.ended.end.code, 0);
        read_some(out[i][0], text, sizeof text - 1, 1000);
        assert_string_equal(text, "word");
        close(out[i][0]);
    }
    box_end(0);
}

static void test_many_boxes_of_a_family_at_once(void **state)
{
    (void)state;
    enum { N = 40 };
    uint32_t serial[N];
    char out[32];
    int way;

    family_make(SLOT, "zygote");
    int fds = keeper_fds();
    for (uint32_t i = 0; i < N; i++)
        serial[i] = family_order_box(i, SLOT);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(front_answer(serial[i]).event.head.type, EVENT_READY);
    for (uint32_t i = 0; i < N; i++) {
        box_do(i, 0, forked, out, sizeof out, &way);
        assert_int_equal(way, 2);
    }
    for (uint32_t i = 0; i < N; i++)
        box_end(i);
    wait_for(keeper_fds() <= fds);
    /* Init and zygote of the family, and the janitor. */
    pid_t left[16];
    wait_for(keeper_children(left, 16) <= 3);
}

static void test_layers_are_there_and_read_only(void **state)
{
    (void)state;
    struct request_create frame = create_frame(1);
    char script[512], out[128];

    snprintf(script, sizeof script,
             "exec 2>/dev/null; cd %s; cat file; cat private; echo x >file; touch new; chmod 600 file; "
             "test -x zygote && echo end", layer);
    family_make(SLOT, "zygote");
    must_make(0, SLOT);
    frame_mount_add(&frame.mounts, MOUNT_LAYER, 1);
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.type, EVENT_READY);
    for (uint32_t i = 0; i < 2; i++) {
        box_sh(i, 0, script, out, sizeof out);
        assert_string_equal(out, "layer\nend\n");
    }
    box_make(2, NULL);
    snprintf(script, sizeof script, "ls %s 2>/dev/null; echo end", layer);
    box_sh(2, 0, script, out, sizeof out);
    assert_string_equal(out, "end\n");
    frame = create_frame(9);
    frame_mount_add(&frame.mounts, MOUNT_LAYER, 2);
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.result, -EINVAL);
}

static void test_payloads_of_another_user(void **state)
{
    (void)state;
    char out[128];
    int way;
    const char *id = "id -u; id -g; id -G; grep CapEff /proc/self/status; echo x >/dev/stdout";

    family_make(SLOT, "zygote");
    must_make(0, SLOT);
    box_make(1, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        box_do(i, 0, (struct run){ .script = id, .user = 1, .group = 1 }, out, sizeof out, &way);
        assert_string_equal(out, "0\n0\n0\nCapEff:\t0000000000000000\nx\n");
        box_do(i, 0, (struct run){ .script = id, .user = 1235 }, out, sizeof out, &way);
        assert_string_equal(out, "1234\n1000\n1000\nCapEff:\t0000000000000000\nx\n");
        assert_int_equal(box_run(i, 0, (struct run){ .script = id, .user = 65537 }).event.head.result, -EINVAL);
        assert_int_equal(box_run(i, 0, (struct run){ .script = id, .group = UINT32_MAX }).event.head.result, -EINVAL);
    }
    assert_int_equal(box_run(0, 0, (struct run){ .script = id, .user = 1, .way = START_FORK }).event.head.result,
                     -EINVAL);
    /* What waited still waits. */
    box_do(0, 0, (struct run){ .argv = echo_here, .way = START_FORK, .user = 1001 }, out, sizeof out, &way);
    assert_int_equal(way, 2);
}

pid_t find_zygote(void)
{
    pid_t pids[64];
    char path[64], name[64];
    pid_t found = -1;
    size_t n = keeper_children(pids, 64);

    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/proc/%d/comm", (int)pids[i]);
        if (fd_read_file(AT_FDCWD, path, name, sizeof name) >= 0 && strncmp(name, "zygote", 6) == 0
            && (found < 0 || pids[i] < found))
            found = pids[i];
    }
    return found;
}

static void test_a_killed_zygote_leaves_its_boxes_alive(void **state)
{
    (void)state;
    char out[64], *nap[] = { "@sleep", "100", NULL };
    int way;

    family_make(SLOT, "zygote");
    pid_t zygote = find_zygote();
    must_make(0, SLOT);
    must_make(1, SLOT);
    assert_int_equal(box_run(0, 0, (struct run){ .argv = nap, .way = START_FORK }).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_STARTED, 0, 0).event.started.way, 2);
    assert_return_code(kill(zygote, SIGKILL), errno);
    struct event_family_gone gone = front_expect(EVENT_FAMILY_GONE, SLOT, -1).event.family_gone;
    assert_int_equal(gone.signal, SIGKILL);
    assert_int_equal(gone.token, TOKEN);
    assert_int_equal(gone.cause.code, ECHILD);
    /* No new one, but the one that waited is there, and so is what runs. */
    assert_int_equal(box_run(0, 1, forked).event.head.result, -ECHILD);
    assert_int_equal(make_in_family(2, SLOT).head.result, -ECHILD);
    box_do(1, 0, forked, out, sizeof out, &way);
    assert_int_equal(way, 2);
    box_sh(0, 1, "echo alive", out, sizeof out);
    assert_string_equal(out, "alive\n");
    /* The slot is free at once. */
    family_make(SLOT, "zygote");
    must_make(2, SLOT);
    box_end(0);
    box_end(1);
    box_end(2);
    family_end(SLOT);
    pid_t left[16];
    wait_for(keeper_children(left, 16) <= 1);
}

static void test_a_family_ends_with_boxes_alive(void **state)
{
    (void)state;
    char out[64];

    family_make(SLOT, "zygote");
    must_make(0, SLOT);
    family_end(SLOT);
    box_sh(0, 0, "echo alive", out, sizeof out);
    assert_string_equal(out, "alive\n");
    box_end(0);
    pid_t left[16];
    wait_for(keeper_children(left, 16) <= 1);
    wait_for(cgroups_of(front.keeper) == 0);
}

static void test_a_parked_child_that_dies_costs_no_box(void **state)
{
    (void)state;
    char out[64];
    int way;

    family_make(SLOT, "zygote");
    must_make(0, SLOT);
    /* Its user is the box's own: other processes of that user are killed, except init and the script itself. */
    box_sh(0, 0, "for p in /proc/[0-9]*; do p=${p#/proc/}; test $p = 1 -o $p = $$ || kill -9 $p; done; exit 0", out,
           sizeof out);
    wait_for(box_do(0, 1, forked, out, sizeof out, &way).code == 0);
    assert_int_equal(way, 1);
    assert_string_equal(out, "here\n");
    box_end(0);
}

static void test_zygotes_that_never_become_ready(void **state)
{
    (void)state;
    size_t queued = front.n_queued;
    union event event = front_answer(family_ask(SLOT, "zygote-mute")).event;

    assert_int_equal(event.head.type, EVENT_DONE);
    assert_true(event.head.result < 0);
    /* How its zygote ended was told before. */
    assert_int_equal(front.n_queued, queued + 1);
    assert_int_equal(front_expect(EVENT_FAMILY_GONE, SLOT, -1).event.family_gone.code, 2);
    for (int i = 0; i < 20; i++) {
        /* Its last word and its end come at once. */
        event = front_answer(family_ask(SLOT, "no-such-program")).event;
        assert_int_equal(event.head.result, -ENOENT);
        front_expect(EVENT_FAMILY_GONE, SLOT, -1);
    }
    event = front_answer(family_ask(KEEPER_FAMILIES, "zygote")).event;
    assert_int_equal(event.head.result, -EINVAL);
    family_make(SLOT, "zygote");
    assert_int_equal(front_answer(family_ask(SLOT, "zygote")).event.head.result, -EBUSY);
}

static void test_hostile_zygotes_harm_nobody_else(void **state)
{
    (void)state;
    static const char *const fail[] = { "zygote-unsealed", "zygote-die", "zygote-refuse" };
    char out[64];
    pid_t left[16];
    int way;

    family_make(0, "zygote");
    must_make(0, 0);
    for (size_t i = 0; i < sizeof fail / sizeof *fail; i++) {
        family_make(1, fail[i]);
        union event event = make_in_family(1, 1);
        assert_int_equal(event.head.type, EVENT_DONE);
        assert_true(event.head.result < 0);
        front_expect(EVENT_FAMILY_GONE, 1, -1);
    }
    /* Unrequested children, dead and alive, are gone with the box. */
    for (int i = 0; i < 2; i++) {
        family_make(1, i ? "zygote-inside" : "zygote-strangers");
        must_make(1, 1);
        char *echo[] = { "/bin/echo", "hi", NULL };
        /* Unknown processes hold its link open, so its start is not reported; its end is. */
        box_do(1, 0, (struct run){ .argv = echo, .way = START_FORK }, out, sizeof out, NULL);
        assert_string_equal(out, "hi\n");
        box_end(1);
        family_end(1);
    }
    /* The janitor, init and zygote of the good family, init of its box and who waits there. */
    wait_for(keeper_children(left, 16) <= 5);
    box_do(0, 0, forked, out, sizeof out, &way);
    assert_string_equal(out, "here\n");
}

static void test_a_zygote_that_hangs_does_not_hold_the_keeper_up(void **state)
{
    (void)state;
    char out[64];

    family_make(SLOT, "zygote-hang");
    uint32_t serial = family_order_box(1, SLOT);
    box_make(2, NULL);
    box_sh(2, 0, "echo served", out, sizeof out);
    assert_string_equal(out, "served\n");
    struct told told = box_ask(REQUEST_DESTROY, 1, 0);
    assert_int_equal(told.event.head.type, EVENT_GONE);
    assert_true(front_answer(serial).event.head.result < 0);
    family_end(SLOT);
}

void assert_keeper_serves(uint32_t box)
{
    char out[64];

    box_make(box, NULL);
    box_sh(box, 0, "echo served", out, sizeof out);
    assert_string_equal(out, "served\n");
    box_end(box);
}

/* It is refused at once, whether or not the keeper has to answer such words on this host. */
static void test_a_zygote_that_floods_and_never_reads_does_not_hold_the_keeper_up(void **state)
{
    (void)state;
    family_make(SLOT, "zygote-born");
    union event event = make_in_family(1, SLOT);
    assert_true(event.head.result == -EPROTO || event.head.result == -EPERM);
    front_expect(EVENT_FAMILY_GONE, SLOT, -1);
    assert_keeper_serves(2);
}

static void test_one_child_for_two_forks_is_refused(void **state)
{
    (void)state;
    pid_t left[16];

    family_make(SLOT, "zygote-twice");
    must_make(1, SLOT);
    assert_int_equal(box_run(1, 0, forked).event.head.result, 0);
    assert_int_equal(box_run(1, 1, forked).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_FAILED, 1, 1).event.failed.err.code, EPERM);
    front_expect(EVENT_ENDED, 1, 0);
    front_expect(EVENT_GONE, 1, -1);
    front_expect(EVENT_FAMILY_GONE, SLOT, -1);
    wait_for(keeper_children(left, 16) <= 1);
    assert_keeper_serves(2);
}

static void test_descriptors_that_a_child_sends_do_not_stay(void **state)
{
    (void)state;
    int out[2];

    family_make(SLOT, "zygote-terminals");
    must_make(1, SLOT);
    assert_return_code(pipe2(out, O_CLOEXEC), errno);
    int fds = keeper_fds();
    struct run run = { .argv = echo_here, .way = START_FORK, .out = out[1] };
    assert_int_equal(box_run(1, 0, run).event.head.result, 0);
    close(out[1]);
    read_until(out[0], "gave\n");
    close(out[0]);
    assert_keeper_serves(2);
    assert_true(keeper_fds() < fds + 16);
    box_end(1);
    family_end(SLOT);
}

/* Before it has a session of its own, it is in the keeper's process group. */
static void test_a_zygote_that_ends_at_its_birth_is_reaped(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        uint32_t make = family_ask(SLOT, "zygote"), end = order_end(SLOT);
        (void)front_answer(make);
        assert_int_equal(front_answer(end).event.head.result, 0);
        front_expect(EVENT_FAMILY_GONE, SLOT, -1);
    }
    assert_keeper_serves(2);
}

static void test_a_zygote_in_a_boxs_cgroup_does_not_keep_it(void **state)
{
    (void)state;
    family_make(SLOT, "zygote-squat");
    int leaves = cgroups_of(front.keeper);
    must_make(1, SLOT);
    box_end(1);
    wait_for(cgroups_of(front.keeper) <= leaves);
    assert_keeper_serves(2);
}

static void test_the_next_front_hears_of_families(void **state)
{
    (void)state;
    char out[64];
    int way;

    front_connect();
    family_make(SLOT, "zygote");
    must_make(3, SLOT);
    box_make(4, NULL);
    front_close();
    front_connect();
    assert_int_equal(front_expect(EVENT_FAMILY, SLOT, -1).event.family.token, TOKEN);
    assert_int_equal(front_expect(EVENT_BOX, 3, -1).event.box.family, SLOT + 1);
    assert_int_equal(front_expect(EVENT_BOX, 4, -1).event.box.family, 0);
    front_expect(EVENT_SYNCED, 0, -1);
    box_do(3, 0, forked, out, sizeof out, &way);
    assert_int_equal(way, 2);
}

static void test_a_killed_keeper_leaves_no_family(void **state)
{
    (void)state;
    pid_t pids[64];
    char *nap[] = { "@sleep", "100", NULL };

    family_make(SLOT, "zygote");
    must_make(0, SLOT);
    must_make(1, SLOT);
    assert_int_equal(box_run(0, 0, (struct run){ .argv = nap, .way = START_FORK }).event.head.result, 0);
    front_expect(EVENT_STARTED, 0, 0);
    size_t n = keeper_children(pids, 64);
    pid_t keeper = front.keeper;
    assert_true(n >= 6);
    kill(keeper, SIGKILL);
    keeper_wait();
    for (size_t i = 0; i < n; i++)
        wait_for(!is_running(pids[i]));
    wait_for(cgroups_of(keeper) == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_family, teardown_family)
const struct CMUnitTest family_tests[] = {
    TEST(test_the_ways_to_start_in_a_family),
    TEST(test_forked_payloads_at_once),
    TEST(test_many_boxes_of_a_family_at_once),
    TEST(test_layers_are_there_and_read_only),
    TEST(test_payloads_of_another_user),
    TEST(test_a_killed_zygote_leaves_its_boxes_alive),
    TEST(test_a_family_ends_with_boxes_alive),
    TEST(test_a_parked_child_that_dies_costs_no_box),
    TEST(test_zygotes_that_never_become_ready),
    TEST(test_hostile_zygotes_harm_nobody_else),
    TEST(test_a_zygote_that_hangs_does_not_hold_the_keeper_up),
    TEST(test_a_zygote_that_floods_and_never_reads_does_not_hold_the_keeper_up),
    TEST(test_one_child_for_two_forks_is_refused),
    TEST(test_descriptors_that_a_child_sends_do_not_stay),
    TEST(test_a_zygote_that_ends_at_its_birth_is_reaped),
    TEST(test_a_zygote_in_a_boxs_cgroup_does_not_keep_it),
    cmocka_unit_test_setup_teardown(test_the_next_front_hears_of_families, setup_family_listening, teardown_family),
    TEST(test_a_killed_keeper_leaves_no_family),
};
const size_t n_family_tests = sizeof family_tests / sizeof *family_tests;
