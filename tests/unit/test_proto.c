/* What programs agree on: names, packed commands, plain strings, places. */
#include "unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/checks.h"
#include "proto/command.h"
#include "proto/defaults.h"
#include "proto/ending.h"
#include "proto/mounts.h"
#include "proto/names.h"
#include "proto/places.h"

static void test_every_outcome_has_a_name_that_leads_back(void **state)
{
    (void)state;
    assert_null(outcome_name(OUTCOME_NONE));
    assert_null(outcome_name(OUTCOME_COUNT));
    assert_int_equal(outcome_parse(NULL), OUTCOME_NONE);
    assert_int_equal(outcome_parse("o"), OUTCOME_NONE);
    assert_string_equal(outcome_name(OUTCOME_OUTPUT), "output_limit");
    for (enum outcome i = OUTCOME_OK; i < OUTCOME_COUNT; i++) {
        assert_non_null(outcome_name(i));
        assert_int_equal(outcome_parse(outcome_name(i)), i);
    }
}

static void test_every_profile_has_a_name_that_leads_back(void **state)
{
    (void)state;
    assert_null(profile_name(PROFILE_COUNT));
    assert_int_equal(profile_parse(NULL), PROFILE_COUNT);
    assert_int_equal(profile_parse("lax"), PROFILE_COUNT);
    for (enum profile i = 0; i < PROFILE_COUNT; i++)
        assert_int_equal(profile_parse(profile_name(i)), i);
}

/* What rows of a released server may have. */
static void test_the_words_of_the_database_stay(void **state)
{
    static const char *const of_boxes[] = { "asked",          "ttl",           "idle",          "died",
                                            "keeper_lost",    "create_failed", "start_failed",  "command_ended",
                                            "run_over",       "caller_gone",   "deleted",       "service_failed",
                                            "service_deleted" };
    static const char *const of_execs[] = { "stopped", "output_lost" }, *const ways[] = { "cold", "forked", "parked" };

    (void)state;
    for (size_t i = 0; i < sizeof of_boxes / sizeof *of_boxes; i++)
        assert_string_equal(box_reason_name(box_reason_parse(of_boxes[i])), of_boxes[i]);
    for (size_t i = 0; i < sizeof of_execs / sizeof *of_execs; i++)
        assert_string_equal(exec_reason_name(exec_reason_parse(of_execs[i])), of_execs[i]);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        assert_string_equal(kernel_way_name(kernel_way_parse(ways[i])), ways[i]);
}

static void test_every_reason_and_way_has_a_name_and_none_has_not(void **state)
{
    (void)state;
    for (enum box_reason i = BOX_REASON_NONE + 1; i < BOX_REASON_COUNT; i++)
        assert_int_equal(box_reason_parse(box_reason_name(i)), i);
    for (enum exec_reason i = EXEC_REASON_NONE + 1; i < EXEC_REASON_COUNT; i++)
        assert_int_equal(exec_reason_parse(exec_reason_name(i)), i);
    for (enum kernel_way i = KERNEL_WAY_NONE + 1; i < KERNEL_WAY_COUNT; i++)
        assert_int_equal(kernel_way_parse(kernel_way_name(i)), i);
    for (enum call_outcome i = 0; i < CALL_OUTCOME_COUNT; i++)
        assert_non_null(call_outcome_name(i));
    assert_null(box_reason_name(BOX_REASON_NONE));
    assert_null(exec_reason_name(EXEC_REASON_NONE));
    assert_null(kernel_way_name(KERNEL_WAY_NONE));
    assert_null(call_outcome_name(CALL_OUTCOME_COUNT));
    assert_int_equal(box_reason_parse(NULL), BOX_REASON_NONE);
    assert_int_equal(box_reason_parse("of a later server"), BOX_REASON_NONE);
    assert_int_equal(exec_reason_parse(""), EXEC_REASON_NONE);
}

static void test_a_packed_command_is_the_same_again(void **state)
{
    char *argv[] = { "printf", "", "a b", NULL }, *env[] = { "A=1", "B=", NULL };
    struct command_spec in = { .argv = argv, .env = env, .workdir = "/tmp", .terminal = true, .rows = 24,
                               .columns = 65535 };
    struct command_spec out = { 0 };
    struct err e = { 0 };
    FD fd = -1;

    (void)state;
    assert_int_equal(command_pack(&in, &fd, &e), 0);
    assert_int_equal(write(fd, "x", 1), -1);        /* sealed */
    assert_int_equal(command_unpack(fd, &out), 0);
    for (int i = 0; i < 3; i++)
        assert_string_equal(out.argv[i], argv[i]);
    assert_null(out.argv[3]);
    assert_string_equal(out.env[0], "A=1");
    assert_string_equal(out.env[1], "B=");
    assert_null(out.env[2]);
    assert_string_equal(out.workdir, "/tmp");
    assert_true(out.terminal);
    assert_int_equal(out.rows, 24);
    assert_int_equal(out.columns, 65535);
}

static void test_files_of_a_packed_command_are_the_same_again(void **state)
{
    static char large[COMMAND_FILE_BYTES];
    char *argv[] = { "true", NULL }, *env[] = { NULL };
    struct command_file files[] = { { "cert", "a\0b", 3 }, { "empty", "", 0 }, { "large", large, sizeof large } };
    struct command_spec in = { .argv = argv, .env = env, .files = files, .n_files = 3 }, out = { 0 };
    struct err e = { 0 };
    FD fd = -1;

    (void)state;
    memset(large, 'x', sizeof large);
    assert_int_equal(command_pack(&in, &fd, &e), 0);
    assert_int_equal(command_unpack(fd, &out), 0);
    assert_int_equal(out.n_files, 3);
    assert_null(out.workdir);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(out.files[i].name, files[i].name);
        assert_int_equal(out.files[i].size, files[i].size);
        assert_memory_equal(out.files[i].bytes, files[i].bytes, files[i].size);
    }
}

static void test_a_file_whose_name_could_be_a_path_is_refused(void **state)
{
    static const char *const names[] = { "", "..", ".", ".new-1", "a/b", "../a", "a b", "-a",
                                         "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn" };
    char *argv[] = { "true", NULL };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct command_file file = { names[i], "x", 1 };
        struct command_spec in = { .argv = argv, .files = &file, .n_files = 1 }, out = { 0 };
        struct err e = { 0 };
        FD fd = -1;
        assert_int_equal(command_pack(&in, &fd, &e), 0);
        assert_int_equal(command_unpack(fd, &out), -EPROTO);
    }
}

static void test_a_command_of_the_longest_length_is_taken_and_no_longer_one(void **state)
{
    struct command_spec out = { 0 };
    struct err e = { 0 };
    char *text = malloc(COMMAND_BYTES_MAX), *argv[] = { text, NULL };
    struct command_spec in = { .argv = argv };
    FD fd = -1;

    (void)state;
    memset(text, 'a', COMMAND_BYTES_MAX);
    text[COMMAND_BYTES_MAX - 2] = '\0';     /* with its own NUL and that of the working directory it just fits */
    assert_int_equal(command_pack(&in, &fd, &e), 0);
    assert_int_equal(command_unpack(fd, &out), 0);
    assert_int_equal(strlen(out.argv[0]), COMMAND_BYTES_MAX - 2);
    text[COMMAND_BYTES_MAX - 2] = 'a';
    text[COMMAND_BYTES_MAX - 1] = '\0';
    assert_int_equal(command_pack(&in, &fd, &e), -E2BIG);
    argv[0] = NULL;
    assert_int_equal(command_pack(&in, &fd, &e), -EINVAL);
    free(text);
}

static void test_a_hostname_has_letters_digits_dashes_and_dots(void **state)
{
    static const char *const good[] = { "box", "a", "0", "A-1.b", "a." };
    static const char *const bad[] = { "", "-a", ".a", "a_b", "a b" };
    char longest[BOX_HOSTNAME_MAX + 2];

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(hostname_is_plain(good[i], strlen(good[i]) + 1));
        assert_false(hostname_is_plain(good[i], strlen(good[i])));      /* its NUL is not there */
        assert_false(hostname_is_plain(bad[i], strlen(bad[i]) + 1));
    }
    memset(longest, 'a', sizeof longest);
    longest[BOX_HOSTNAME_MAX + 1] = '\0';
    assert_false(hostname_is_plain(longest, sizeof longest));
    assert_true(hostname_is_plain(longest + 1, sizeof longest - 1));
}

static void test_a_target_is_absolute_and_has_no_detours(void **state)
{
    static const char *const good[] = { "/a", "/a/b", "/a/..b", "/process", "/usr/dev" };
    static const char *const bad[] = { "",      "/",     "a",    "/a/",   "//a",    "/a//b",  "/a/./b",
                                       "/a/..", "/proc", "/dev", "/../a", "/dev/x", "/proc/1" };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(target_is_plain(good[i], strlen(good[i]) + 1));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(target_is_plain(bad[i], strlen(bad[i]) + 1));
    assert_false(target_is_plain("/a", 2));
}

static void test_everybody_has_a_place_for_sockets(void **state)
{
    char path[64], usual[64];

    (void)state;
    assert_true(places_run(true, "/run/user/7", path, sizeof path));
    assert_string_equal(path, "/run/carrel");
    assert_true(places_run(false, "/run/user/7", path, sizeof path));
    assert_string_equal(path, "/run/user/7/carrel");
    snprintf(usual, sizeof usual, "/tmp/carrel-%u", (unsigned)getuid());
    assert_true(places_run(false, NULL, path, sizeof path));
    assert_string_equal(path, usual);
    assert_true(places_run(false, "not/absolute", path, sizeof path));
    assert_string_equal(path, usual);
    assert_false(places_run(false, "/run/user/7", path, 8));
}

static void test_an_ending_is_told_in_the_words_of_the_interface(void **state)
{
    static const struct { enum outcome outcome; uint64_t limit; const char *options, *fields; } table[] = {
        { OUTCOME_TIMEOUT, 1500, "the command was ended after 1.5 s (--timeout)",
          "the command was ended after 1.5 s (timeout)" },
        { OUTCOME_OOM, 64 << 20, "the box ran out of memory (--memory 64M)",
          "the box ran out of memory (limits.memory 64M)" },
        { OUTCOME_OOM, 0, "the host ran out of memory", "the host ran out of memory" },
        { OUTCOME_DISK, 1 << 30, "the box filled its disk (--disk 1G)", "the box filled its disk (limits.disk 1G)" },
        { OUTCOME_PIDS, 16, "the box reached its limit of 16 processes (--pids)",
          "the box reached its limit of 16 processes (limits.pids)" },
        { OUTCOME_OUTPUT, 3, "the command was ended after 3 bytes of output (--output-limit)",
          "the command was ended after 3 bytes of output (output_limit)" },
        { OUTCOME_OK, 0, "", "" }, { OUTCOME_ERROR, 0, "", "" }, { OUTCOME_KILLED, 0, "", "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        assert_string_equal(ending_remark(table[i].outcome, table[i].limit, ENDING_OPTIONS).text, table[i].options);
        assert_string_equal(ending_remark(table[i].outcome, table[i].limit, ENDING_FIELDS).text, table[i].fields);
        assert_true(!ending_limit_name(table[i].outcome) == !table[i].options[0]);
    }
    assert_string_equal(ending_left_out(999).text, "999 bytes of output left out");
    assert_string_equal(ending_left_out(12345678).text, "12.3 MB of output left out");
    assert_string_equal(ending_left_out(999999).text, "1.0 MB of output left out");
}

static void test_an_ending_has_one_exit_status(void **state)
{
    static const struct { struct ending end; int caught, status; } table[] = {
        { { .outcome = OUTCOME_OK }, 0, 0 },
        { { .outcome = OUTCOME_ERROR, .code = 7 }, 15, 7 },
        { { .outcome = OUTCOME_TIMEOUT, .signal = 9 }, 0, 124 },
        { { .outcome = OUTCOME_OOM, .signal = 9 }, 0, 137 },
        { { .outcome = OUTCOME_OUTPUT, .code = 0 }, 0, 137 },
        { { .outcome = OUTCOME_KILLED, .signal = 9 }, 0, 137 },
        { { .outcome = OUTCOME_KILLED, .signal = 9 }, 15, 143 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(ending_status(&table[i].end, table[i].caught), table[i].status);
    assert_int_equal(ending_failure_status(STEP_EXEC, ENOENT), 127);
    assert_int_equal(ending_failure_status(STEP_EXEC, EACCES), 126);
    assert_int_equal(ending_failure_status(STEP_MOUNT, ENOENT), 125);
}

/* ---- lists of mounts ---- */

static void test_a_list_of_mounts_is_bounded_by_its_rows(void **state)
{
    (void)state;
    struct frame_mounts list = { 0 };

    assert_true(frame_mounts_are_sane(&list));
    for (int kind = 0; kind < MOUNT_KINDS; kind++) {
        list = (struct frame_mounts){ 0 };
        for (uint32_t i = 0; i < mount_table[kind].most; i++)
            frame_mount_add(&list, (enum mount_kind)kind, i + 1);
        assert_true(frame_mounts_are_sane(&list));
        assert_int_equal(frame_mount_count(&list, (enum mount_kind)kind), mount_table[kind].most);
        frame_mount_add(&list, (enum mount_kind)kind, 1);
        assert_false(frame_mounts_are_sane(&list));
    }
    list = (struct frame_mounts){ 0 };
    frame_mount_add(&list, MOUNT_TMPFS, 0);
    frame_mount_add(&list, MOUNT_STORE, 1);         /* two places to write to */
    assert_false(frame_mounts_are_sane(&list));
    list = (struct frame_mounts){ .n = 1, .at[0].kind = MOUNT_KINDS };
    assert_false(frame_mounts_are_sane(&list));
    list = (struct frame_mounts){ .n = UINT32_MAX };
    assert_false(frame_mounts_are_sane(&list));
}

static void test_a_family_is_known_by_what_its_boxes_share(void **state)
{
    (void)state;
    struct frame_mounts family = { 0 }, box = { 0 };

    assert_true(frame_mounts_equal(&family, &box, MOUNT_OF_FAMILY));
    frame_mount_add(&family, MOUNT_LAYER, 2);
    assert_false(frame_mounts_equal(&family, &box, MOUNT_OF_FAMILY));
    frame_mount_add(&box, MOUNT_HOST, 0);           /* not shared, and does not count */
    frame_mount_add(&box, MOUNT_LAYER, 2);
    assert_true(frame_mounts_equal(&family, &box, MOUNT_OF_FAMILY));
    assert_true(frame_mounts_equal(&box, &family, MOUNT_OF_FAMILY));
    box.at[1].number = 3;
    assert_false(frame_mounts_equal(&family, &box, MOUNT_OF_FAMILY));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_outcome_has_a_name_that_leads_back),
        cmocka_unit_test(test_every_profile_has_a_name_that_leads_back),
        cmocka_unit_test(test_the_words_of_the_database_stay),
        cmocka_unit_test(test_every_reason_and_way_has_a_name_and_none_has_not),
        cmocka_unit_test(test_a_packed_command_is_the_same_again),
        cmocka_unit_test(test_files_of_a_packed_command_are_the_same_again),
        cmocka_unit_test(test_a_file_whose_name_could_be_a_path_is_refused),
        cmocka_unit_test(test_a_hostname_has_letters_digits_dashes_and_dots),
        cmocka_unit_test(test_a_target_is_absolute_and_has_no_detours),
        cmocka_unit_test(test_everybody_has_a_place_for_sockets),
        cmocka_unit_test(test_an_ending_is_told_in_the_words_of_the_interface),
        cmocka_unit_test(test_an_ending_has_one_exit_status),
        cmocka_unit_test(test_a_command_of_the_longest_length_is_taken_and_no_longer_one),
        cmocka_unit_test(test_a_list_of_mounts_is_bounded_by_its_rows),
        cmocka_unit_test(test_a_family_is_known_by_what_its_boxes_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
