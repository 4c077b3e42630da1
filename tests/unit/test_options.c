#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/suggest.h"
#include "cli/options/options.h"
#include "proto/defaults.h"

enum { WORDS_MAX = 32 };

static struct run_options options;
static struct err e;
static char *caller_environment[] = { (char[]){ "TERM=vt100" }, (char[]){ "TOKEN=t0" }, (char[]){ "EMPTY=" },
                                      (char[]){ "KEY=0123456789abcdef" }, NULL };

static int stop(void **state)
{
    (void)state;
    options_done(&options);
    return 0;
}

/* Parses `carrel run WORDS`; the words end with NULL. */
static int run(const char *first, ...)
{
    static char *argv[WORDS_MAX + 2];
    int argc = 0;
    va_list words;

    options_done(&options);
    e = (struct err){ 0 };
    argv[argc++] = (char[]){ "run" };
    va_start(words, first);
    for (const char *word = first; word && argc <= WORDS_MAX; word = va_arg(words, const char *))
        argv[argc++] = (char *)(uintptr_t)word;
    va_end(words);
    argv[argc] = NULL;
    return options_parse(argc, argv, caller_environment, &options, &e);
}

#define GOOD(...) assert_int_equal(run(__VA_ARGS__, NULL), 0)
#define BAD(says, ...)                                                                                                 \
    do {                                                                                                               \
        assert_int_equal(run(__VA_ARGS__, NULL), -EINVAL);                                                             \
        assert_int_equal(e.step, STEP_USAGE);                                                                          \
        assert_says(&e, says);                                                                                         \
        assert_null(options.command.env); /* nothing is left to free */                                               \
    } while (0)

static const char *env_value(const char *name)
{
    for (char **entry = options.command.env; *entry; entry++)
        if (!strncmp(*entry, name, strlen(name)) && (*entry)[strlen(name)] == '=')
            return *entry + strlen(name) + 1;
    return NULL;
}

static void test_defaults(void **state)
{
    (void)state;
    GOOD("--", "true");
    assert_int_equal(options.box.limits.pids, 1024);
    assert_int_equal(options.box.limits.disk_bytes, 512 << 20);
    assert_int_equal(options.box.limits.memory_bytes, 0);
    assert_int_equal(options.box.limits.cpu_milli, 0);
    assert_int_equal(options.box.profile, PROFILE_STANDARD);
    assert_int_equal(options.box.uid, 1000);
    assert_int_equal(options.box.gid, 1000);
    assert_null(spec_root(&options.box));
    assert_null(options.box.hostname);
    assert_int_equal(options.box.n_mounts, 0);
    assert_false(options.box.terminal || options.interactive || options.json);
    assert_int_equal(options.command.timeout_ms, 0);
    assert_int_equal(options.command.output_bytes, 0);
    assert_string_equal(options.command.argv[0], "true");
    assert_null(options.command.argv[1]);
}

static void test_the_environment_has_only_what_a_box_needs(void **state)
{
    size_t n = 0;
    (void)state;

    GOOD("--", "true");
    while (options.command.env[n])
        n++;
    assert_int_equal(n, 4);
    assert_string_equal(env_value("PATH"), BOX_PATH);
    assert_string_equal(env_value("LANG"), "C.UTF-8");
    assert_string_equal(env_value("LC_ALL"), "C.UTF-8");
    assert_string_equal(env_value("HOME"), "/home/box");
    assert_null(env_value("TOKEN"));
    GOOD("-t", "sh");
    assert_string_equal(env_value("TERM"), "vt100");
    GOOD("-t", "--env", "TERM=dumb", "sh");
    assert_string_equal(env_value("TERM"), "dumb");
}

static void test_both_ways_to_write_a_value(void **state)
{
    (void)state;
    GOOD("--memory", "512M", "--cpus=1.5", "--pids=7", "--disk", "1G", "--timeout=2m", "--output-limit", "10M", "--",
         "x");
    assert_int_equal(options.box.limits.memory_bytes, 512 << 20);
    assert_int_equal(options.box.limits.cpu_milli, 1500);
    assert_int_equal(options.box.limits.pids, 7);
    assert_int_equal(options.box.limits.disk_bytes, 1 << 30);
    assert_int_equal(options.command.timeout_ms, 120000);
    assert_int_equal(options.command.output_bytes, 10 << 20);
    GOOD("--memory=1M", "--memory=2M", "x");
    assert_int_equal(options.box.limits.memory_bytes, 2 << 20);
}

static void test_the_command_begins_where_the_options_end(void **state)
{
    (void)state;
    GOOD("--json", "ls", "--memory", "x");
    assert_string_equal(options.command.argv[0], "ls");
    assert_string_equal(options.command.argv[1], "--memory");
    assert_string_equal(options.command.argv[2], "x");
    assert_true(options.json);
    GOOD("--", "--odd", "--");
    assert_string_equal(options.command.argv[0], "--odd");
    assert_string_equal(options.command.argv[1], "--");
    GOOD("-", "x"); /* a lone dash is not an option */
    assert_string_equal(options.command.argv[0], "-");
}

static void test_flags(void **state)
{
    (void)state;
    GOOD("-it", "--json", "--trace", "--writable-root", "--no-proc", "--report",
         "r.json", "--zygote", "py", "--net", "none", "sh");
    assert_true(options.interactive && options.box.terminal && options.command.terminal);
    assert_true(options.json && options.trace && spec_find(&options.box, MOUNT_ROOT)->writable);
    assert_string_equal(options.report_path, "r.json");
    assert_string_equal(options.zygote, "py");
    GOOD("-i", "sh");
    assert_true(options.interactive && !options.box.terminal && !options.command.terminal);
    GOOD("--memory=1M", "--help", "--nonsense");
    assert_true(options.help);
    GOOD("-h");
    assert_true(options.help);
}

static void test_networks_and_rules_in_any_order(void **state)
{
    (void)state;
    GOOD("--net", "public", "--allow", "a.org", "--net", "public", "x");
    assert_int_equal(options.net.mode, NET_PUBLIC);
    assert_int_equal(options.net.n_rules, 1);
    GOOD("--deny", "a.org", "--net", "public", "x");
    assert_int_equal(options.net.mode, NET_PUBLIC);
    assert_int_equal(options.net.n_rules, 1);
    GOOD("--net-limit", "connections=3", "--net", "public", "x");
    GOOD("--net", "none", "--net", "none", "x");
    assert_int_equal(options.net.mode, NET_NONE);
    /* A key allows its host by itself. */
    GOOD("--key", "KEY@api.example.org", "--net", "none", "x");
    assert_int_equal(options.net.mode, NET_LISTED);
}

static void test_user_and_profile(void **state)
{
    (void)state;
    GOOD("--profile", "system", "id");
    assert_int_equal(options.box.profile, PROFILE_SYSTEM);
    assert_int_equal(options.box.uid, 0);
    assert_int_equal(options.box.gid, 0);
    assert_string_equal(env_value("HOME"), "/home/box");
    GOOD("--user", "5:6", "--profile=system", "id");
    assert_int_equal(options.box.uid, 5);
    assert_int_equal(options.box.gid, 6);
    GOOD("--profile=strict", "--hostname", "desk-1.a", "--workdir", "/tmp", "--root", "/srv/root", "id");
    assert_int_equal(options.box.profile, PROFILE_STRICT);
    assert_string_equal(options.box.hostname, "desk-1.a");
    assert_string_equal(options.command.workdir, "/tmp");
    assert_string_equal(spec_root(&options.box), "/srv/root");
    GOOD("--root", "/srv/root", "--root=host", "id");
    assert_null(spec_root(&options.box));
}

static void test_environment_options(void **state)
{
    char path[] = "/tmp/carrel-unit-XXXXXX";
    (void)state;

    FD fd = mkostemp(path, O_CLOEXEC);
    assert_int_equal(fd_write_all(fd, "A=file\nB=file\n", 14), 0);
    GOOD("--env", "A=1", "--env-file", path, "--env=B=2=3", "--pass-env", "TOKEN,EMPTY,ABSENT", "--env", "PATH=/x",
         "x");
    assert_string_equal(env_value("A"), "file");
    assert_string_equal(env_value("B"), "2=3");
    assert_string_equal(env_value("TOKEN"), "t0");
    assert_string_equal(env_value("EMPTY"), "");
    assert_null(env_value("ABSENT"));
    assert_string_equal(env_value("PATH"), "/x");
    unlink(path);
    assert_int_equal(run("--env-file", path, "x", NULL), -ENOENT);
    assert_says(&e, "--env-file /tmp/carrel-unit-");
    BAD("--env needs NAME=VALUE; to hand on a variable of your own use --pass-env NAME", "--env", "s3cret", "x");
    BAD("--env: not a variable name before '='", "--env", "1A=x", "x");
    BAD("--env: not a variable name before '='", "--env", "=x", "x");
    BAD("--pass-env A,,B: use names of variables", "--pass-env", "A,,B", "x");
    BAD("--pass-env A=1: use names of variables", "--pass-env", "A=1", "x");
}

static void test_ten_thousand_variables_work(void **state)
{
    static char word[10000][40];
    static char *argv[20002];
    int argc = 0;
    (void)state;

    options_done(&options);
    argv[argc++] = (char[]){ "run" };
    for (int i = 0; i < 10000; i++) {
        snprintf(word[i], sizeof word[i], "--env=NAME_%d=%d", i, i);
        argv[argc++] = word[i];
    }
    argv[argc++] = (char[]){ "true" };
    argv[argc] = NULL;
    assert_int_equal(options_parse(argc, argv, caller_environment, &options, &e), 0);
    assert_string_equal(env_value("NAME_9999"), "9999");
    assert_string_equal(env_value("NAME_0"), "0");
}

static void test_a_huge_argument_is_refused_clearly(void **state)
{
    AUTO_FREE char *large = malloc((1 << 20) + 1);
    (void)state;

    memset(large, 'x', 1 << 20);
    large[1 << 20] = 0;
    BAD("argument 2 is 1048576 bytes; Linux allows 131071", "--", "echo", "a", large);
}

static void test_mounts(void **state)
{
    (void)state;
    GOOD("--mount", "/data:/data", "--mount", "here:/mnt//x/./y/:rw", "--mount=/a:/procs:ro", "x");
    assert_int_equal(options.box.n_mounts, 3);
    assert_string_equal(options.box.mount[0].source, "/data");
    assert_string_equal(options.box.mount[0].target, "/data");
    assert_false(options.box.mount[0].writable);
    assert_string_equal(options.box.mount[1].source, "here");
    assert_string_equal(options.box.mount[1].target, "/mnt/x/y");
    assert_true(options.box.mount[1].writable);
    assert_false(options.box.mount[2].writable);
    BAD("two mounts have the target /a/b", "--mount", "/x:/a/b", "--mount", "/y:/a//b/", "x");
    BAD("--mount /x: write SOURCE:TARGET", "--mount", "/x", "x");
    BAD("write SOURCE:TARGET", "--mount", ":/x", "x");
    BAD("write SOURCE:TARGET", "--mount", "/x:/y:rw:z", "x");
    BAD("the third part is ro or rw", "--mount", "/x:/y:rx", "x");
    BAD("the third part is ro or rw", "--mount", "/x:/y:", "x");
    BAD("the target must be an absolute path in the box, e.g. /data", "--mount", "/x:y", "x");
    BAD("the target must be an absolute path", "--mount", "/x:", "x");
    BAD("the target must not contain '..'", "--mount", "/x:/a/../b", "x");
    BAD("the target must not contain '..'", "--mount", "/x:/..", "x");
    BAD("the target must not be '/'", "--mount", "/x:/", "x");
    BAD("the target must not be '/'", "--mount", "/x://./", "x");
    BAD("must not be in /proc, /dev or /sys", "--mount", "/x:/proc", "x");
    BAD("must not be in /proc, /dev or /sys", "--mount", "/x://proc/sys", "x");
    BAD("must not be in /proc, /dev or /sys", "--mount", "/x:/dev/shm", "x");
}

static void test_too_many_and_too_long_mounts(void **state)
{
    static char words[SPEC_MOUNTS_MAX + 1][32];
    static char *argv[SPEC_MOUNTS_MAX + 4];
    char name[PATH_MAX + 100];
    int argc = 0;
    (void)state;

    options_done(&options);
    argv[argc++] = (char[]){ "run" };
    for (int i = 0; i <= SPEC_MOUNTS_MAX; i++) {
        snprintf(words[i], sizeof words[i], "--mount=/a:/m%d", i);
        argv[argc++] = words[i];
    }
    argv[argc++] = (char[]){ "x" };
    assert_int_equal(options_parse(argc, argv, caller_environment, &options, &e), -EINVAL);
    assert_says(&e, "more than 64 mounts");
    memset(name, 'x', sizeof name);
    memcpy(name, "/a:/", 4);
    name[4 + 256] = 0;
    BAD("longer than 255 bytes", "--mount", name, "x");
    name[4 + 256] = 'x';
    name[sizeof name - 1] = 0;
    BAD("longer than 4095 bytes", "--mount", name, "x");
}

static void test_a_wrong_option_is_told_with_the_right_one(void **state)
{
    (void)state;
    BAD("unknown option --memmory; did you mean --memory?", "--memmory", "1G", "x");
    BAD("unknown option --mem; did you mean --memory?", "--mem=1G", "x");
    BAD("unknown option --cpu; did you mean --cpus?", "--cpu", "1", "x");
    BAD("unknown option --time-out; did you mean --timeout?", "--time-out=1", "x");
    BAD("unknown option --quux; 'carrel run --help' lists them", "--quux", "x");
    BAD("unknown option -x", "-x", "x");
    BAD("unknown option -itz", "-itz", "x");
    BAD("unknown option --;", "--=", "x");
    BAD("--json takes no value", "--json=yes", "x");
    BAD("--memory needs a value, e.g. --memory 512M", "--memory");
    BAD("--memory needs a value, e.g. --memory 512M", "--memory=", "x");
    BAD("--workdir needs a value, e.g. --workdir /tmp", "--workdir", "--", "x");
}

static void test_a_missing_command_is_told(void **state)
{
    static char *empty[] = { NULL };
    (void)state;

    BAD("no command; use carrel run [OPTIONS] -- COMMAND [ARGUMENTS]", "--json");
    BAD("no command", "--");
    BAD("no command", "--json", "--");
    BAD("the command is an empty word", "--", "");
    assert_int_equal(options_parse(0, empty, caller_environment, &options, &e), -EINVAL);
    assert_says(&e, "no command");
}

static void test_impossible_values_are_told(void **state)
{
    (void)state;
    BAD("--memory must be more than 0", "--memory", "0", "x");
    BAD("--memory -1 is negative", "--memory", "-1", "x");
    BAD("--memory 9223372036854775808 is too large", "--memory", "9223372036854775808", "x");
    BAD("--memory abc is not understood", "--memory", "abc", "x");
    BAD("--memory 512 is too small", "--memory", "512", "x");
    BAD("--disk 1k is too small; the least is 64k", "--disk", "1k", "x");
    BAD("--pids 0 is not possible", "--pids", "0", "x");
    BAD("--pids 99999999999 is not possible", "--pids", "99999999999", "x");
    BAD("--cpus must be at least 0.01", "--cpus", "0", "x");
    BAD("--timeout must be at least 1ms", "--timeout", "0", "x");
    BAD("--output-limit must be more than 0", "--output-limit", "0", "x");
    BAD("--user root is not understood; use UID or UID:GID in numbers", "--user", "root", "x");
    BAD("--profile open: use strict, standard or system", "--profile", "open", "x");
    BAD("--net host: a run has the networks none and public", "--net", "host", "x");
    BAD("--allow 'exa mple.org', character 4: names have letters", "--allow", "exa mple.org", "x");
    BAD("--allow '*', character 1: this would be every name", "--allow", "*", "x");
    BAD("--deny '10.1.2.3/16', character 10: the address has bits beyond", "--deny", "10.1.2.3/16", "x");
    BAD("--allow '[::1', character 2: an IPv6 address", "--allow", "[::1", "x");
    BAD("--allow 'a.org:0', character 7: ports are numbers", "--allow", "a.org:0", "x");
    BAD("--net none excludes --allow", "--net", "none", "--allow", "a.org", "x");
    BAD("--net none excludes --allow", "--allow", "a.org", "--net", "none", "x");
    BAD("--net none excludes --deny", "--net", "none", "--deny", "a.org", "x");
    BAD("--net none excludes --deny", "--deny", "a.org", "--net", "none", "x");
    BAD("--net none excludes --net-limit", "--net-limit", "connections=3", "--net", "none", "x");
    BAD("--net public and --net none exclude each other", "--net", "public", "--net", "none", "x");
    BAD("--net none and --net public exclude each other", "--net", "none", "--net", "public", "x");
    BAD("--net public and --net none exclude each other", "--allow", "a.org", "--net", "public", "--net", "none", "x");
    BAD("--net-limit speed=3: use connections=100", "--allow", "a.org", "--net-limit", "speed=3", "x");
    BAD("--net-limit goes with --allow", "--net-limit", "connections=3", "x");
    BAD("--workdir tmp: use an absolute path in the box", "--workdir", "tmp", "x");
    BAD("--hostname a b: use up to 64 letters", "--hostname", "a b", "x");
    BAD("--hostname -a: use up to 64 letters", "--hostname", "-a", "x");
}

static void test_nearest_word(void **state)
{
    static const char *const words[] = { "run", "plan", "doctor", "version", "gc" };
    (void)state;

    assert_string_equal(suggest_nearest("rnu", words, COUNT(words)), "run");
    assert_string_equal(suggest_nearest("docter", words, COUNT(words)), "doctor");
    assert_string_equal(suggest_nearest("vers", words, COUNT(words)), "version");
    assert_string_equal(suggest_nearest("cg", words, COUNT(words)), "gc"); /* two neighbours swapped are one slip */
    assert_null(suggest_nearest("banana", words, COUNT(words)));
    assert_null(suggest_nearest("", words, COUNT(words)));
    assert_null(suggest_nearest("--", words, COUNT(words)));
    assert_null(suggest_nearest("runrunrunrunrunrunrunrunrunrunrunrunrunrunrun", words, COUNT(words)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_defaults, stop),
        cmocka_unit_test_teardown(test_the_environment_has_only_what_a_box_needs, stop),
        cmocka_unit_test_teardown(test_both_ways_to_write_a_value, stop),
        cmocka_unit_test_teardown(test_the_command_begins_where_the_options_end, stop),
        cmocka_unit_test_teardown(test_flags, stop),
        cmocka_unit_test_teardown(test_networks_and_rules_in_any_order, stop),
        cmocka_unit_test_teardown(test_user_and_profile, stop),
        cmocka_unit_test_teardown(test_environment_options, stop),
        cmocka_unit_test_teardown(test_ten_thousand_variables_work, stop),
        cmocka_unit_test_teardown(test_a_huge_argument_is_refused_clearly, stop),
        cmocka_unit_test_teardown(test_mounts, stop),
        cmocka_unit_test_teardown(test_too_many_and_too_long_mounts, stop),
        cmocka_unit_test_teardown(test_a_wrong_option_is_told_with_the_right_one, stop),
        cmocka_unit_test_teardown(test_a_missing_command_is_told, stop),
        cmocka_unit_test_teardown(test_impossible_values_are_told, stop),
        cmocka_unit_test_teardown(test_nearest_word, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
