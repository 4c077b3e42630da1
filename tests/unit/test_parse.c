#include "unit/unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/parse.h"

#define MIB (UINT64_C(1) << 20)

struct good {
    const char *text;
    uint64_t    value;
};

struct bad {
    const char *text;
    const char *says;
};

static void test_sizes(void **state)
{
    static const struct good good[] = {
        { "1", 1 },
        { "4096", 4096 },
        { "64k", 64 << 10 },
        { "64K", 64 << 10 },
        { "512M", 512 * MIB },
        { "1.5G", 1536 * MIB },
        { "1Gi", 1024 * MIB },
        { "2MiB", 2 * MIB },
        { "2mb", 2 * MIB },
        { "3T", 3 * MIB * MIB },
        { "0.5k", 512 },
        { "10b", 10 },
        { "9223372036854775807", INT64_MAX },
        { "00001", 1 },
        { "1.00000000000000000000000000000000000000000k", 1024 },
        { "8388607T", (uint64_t)8388607 << 40 },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        struct err e = { 0 };
        uint64_t bytes = 77;
        assert_int_equal(parse_size("--memory", good[i].text, 1, &bytes, &e), 0);
        assert_int_equal(bytes, good[i].value);
    }
}

static void test_impossible_sizes_are_explained(void **state)
{
    static const struct bad bad[] = {
        { "0", "--memory must be more than 0" },
        { "0M", "--memory must be more than 0" },
        { "-1", "--memory -1 is negative" },
        { "-512M", "is negative" },
        { "abc", "--memory abc is not understood; use a size such as 64k, 512M or 1.5G" },
        { "", "--memory needs a value" },
        { "9223372036854775808", "is too large" },
        { "18446744073709551616", "is too large" },
        { "340282366920938463463374607431768211456", "is too large" },
        { "99999999999999999999999999999999999999999999999999999999T", "is too large" },
        { "8388608T", "is too large" },
        { "1.5", "is not understood" },
        { "1.", "is not understood" },
        { ".5M", "is not understood" },
        { "1 M", "is not understood" },
        { " 1M", "is not understood" },
        { "1M ", "is not understood" },
        { "1MM", "is not understood" },
        { "0x10", "is not understood" },
        { "1e6", "is not understood" },
        { "+1", "is not understood" },
        { "512", "too small; the least is 1M (a number without k, M or G is bytes)" },
        { "1023k", "too small; the least is 1M" },
        { "\033[31m\n", "?[31m?" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct err e = { 0 };
        uint64_t bytes = 77;
        assert_int_equal(parse_size("--memory", bad[i].text, MIB, &bytes, &e), -EINVAL);
        assert_int_equal(e.code, EINVAL);
        assert_int_equal(e.step, STEP_USAGE);
        assert_says(&e, bad[i].says);
        assert_int_equal(bytes, 77);
    }
}

static void test_durations(void **state)
{
    static const struct good good[] = {
        { "30s", 30000 }, { "500ms", 500 }, { "2m", 120000 }, { "1h", 3600000 }, { "5", 5000 }, { "1.5", 1500 },
        { "0.001", 1 }, { "1d", 86400000 }, { "365d", PARSE_DURATION_MAX_MS },
    };
    static const struct bad bad[] = {
        { "0", "--timeout must be at least 1ms; leave it out for no limit" },
        { "0s", "at least 1ms" },
        { "0.5ms", "at least 1ms" },
        { "-3s", "is negative" },
        { "soon", "--timeout soon is not understood; use a time such as 500ms, 30s, 2m or 1h" },
        { "366d", "is too long; the most is 365d" },
        { "9223372036854775808", "is too long" },
        { "5 s", "is not understood" },
        { "1h30m", "is not understood" },
        { "", "needs a value" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        struct err e = { 0 };
        uint64_t ms = 0;
        assert_int_equal(parse_duration("--timeout", good[i].text, &ms, &e), 0);
        assert_int_equal(ms, good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct err e = { 0 };
        uint64_t ms = 77;
        assert_int_equal(parse_duration("--timeout", bad[i].text, &ms, &e), -EINVAL);
        assert_says(&e, bad[i].says);
        assert_int_equal(ms, 77);
    }
}

static void test_cpus(void **state)
{
    static const struct good good[] = {
        { "1", 1000 }, { "1.5", 1500 }, { "0.01", 10 }, { "0.1", 100 }, { "2.0009", 2000 }, { "10000", 10000000 },
    };
    static const struct bad bad[] = {
        { "0", "--cpus must be at least 0.01" }, { "0.009", "at least 0.01" }, { "-1", "is negative" },
        { "10001", "too large; the most is 10000" }, { "two", "is not understood" }, { "1c", "is not understood" },
        { "", "needs a value" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        struct err e = { 0 };
        uint32_t milli = 0;
        assert_int_equal(parse_cpus("--cpus", good[i].text, &milli, &e), 0);
        assert_int_equal(milli, good[i].value);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct err e = { 0 };
        uint32_t milli = 77;
        assert_int_equal(parse_cpus("--cpus", bad[i].text, &milli, &e), -EINVAL);
        assert_says(&e, bad[i].says);
        assert_int_equal(milli, 77);
    }
}

static void test_counts(void **state)
{
    static const struct bad bad[] = {
        { "0", "--pids 0 is not possible; use a whole number from 1 to 100" }, { "101", "is not possible" },
        { "4294967297", "is not possible" }, { "99999999999999999999999999999999999", "is not possible" },
        { "-5", "is negative" }, { "1.5", "is not understood" }, { "x", "is not understood" }, { "", "needs a value" },
    };
    struct err e = { 0 };
    uint32_t n = 0;
    (void)state;

    assert_int_equal(parse_count("--pids", "1", 1, 100, &n, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(parse_count("--pids", "100", 1, 100, &n, &e), 0);
    assert_int_equal(n, 100);
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(parse_count("--pids", bad[i].text, 1, 100, &n, &e), -EINVAL);
        assert_says(&e, bad[i].says);
        assert_int_equal(n, 100);
    }
}

static void test_users(void **state)
{
    static const char *const bad[] = { "root", "1000:", ":1000", "65536", "0:65536",
                                       "-1",   "1:2:3", "1.0",   "",      "4294967296" };
    struct err e = { 0 };
    uid_t uid = 7;
    gid_t gid = 7;
    (void)state;

    assert_int_equal(parse_user("--user", "1000", &uid, &gid, &e), 0);
    assert_int_equal(uid, 1000);
    assert_int_equal(gid, 1000);
    assert_int_equal(parse_user("--user", "0:65535", &uid, &gid, &e), 0);
    assert_int_equal(uid, 0);
    assert_int_equal(gid, 65535);
    for (size_t i = 0; i < COUNT(bad); i++) {
        e = (struct err){ 0 };
        assert_int_equal(parse_user("--user", bad[i], &uid, &gid, &e), -EINVAL);
        assert_says(&e, "UID");
        assert_int_equal(gid, 65535);
    }
}

static void test_quotes_are_short_and_printable(void **state)
{
    char text[200];
    (void)state;

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(strlen(parse_quote(text).text), 43);
    assert_string_equal(parse_quote(text).text + 40, "...");
    assert_string_equal(parse_quote("a\tb\x7f").text, "a?b?");

    memcpy(text + sizeof text - 6, "/name", 5);
    assert_int_equal(strlen(parse_quote_path(text).text), 43);
    assert_memory_equal(parse_quote_path(text).text, "...", 3);
    assert_string_equal(parse_quote_path(text).text + 38, "/name");
    assert_string_equal(parse_quote_path("/short\n").text, "/short?");
}

static void test_clock_goes_forward(void **state)
{
    uint64_t first = clock_monotonic_us();
    (void)state;

    assert_true(first > 0);
    assert_true(clock_monotonic_us() >= first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_impossible_sizes_are_explained),
        cmocka_unit_test(test_durations),
        cmocka_unit_test(test_cpus),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_quotes_are_short_and_printable),
        cmocka_unit_test(test_clock_goes_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
