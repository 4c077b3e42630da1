/* The file of settings, flags, and what is refused. */
#include <errno.h>
#include <sys/stat.h>

#include "doors/jupyter/config.h"
#include "front/config/config.h"
#include "front/scratch.h"

static struct config config;
static struct err e;

static int load_bytes(void **state, const char *text, size_t size)
{
    memset(&e, 0, sizeof e);
    config_defaults(&config, true);
    assert_int_equal(config_add_section(&config, &jupyter_settings, &e), 0);
    return config_load(&config, scratch_write(state, "c.yaml", text, size), true, &e);
}

static int load(void **state, const char *text)
{
    return load_bytes(state, text, strlen(text));
}

static int set(const char *key, const char *value)
{
    memset(&e, 0, sizeof e);
    return config_set(&config, key, value, &e);
}

static void test_defaults_of_root(void **state)
{
    (void)state;
    config_defaults(&config, true);
    assert_string_equal(config.socket, "/run/carrel/carrel.sock");
    assert_string_equal(config.state, "/var/lib/carrel");
    assert_string_equal(config.run, "/run/carrel");
    assert_string_equal(config.listen, "");
    assert_false(config.allow_anonymous);
    assert_int_equal(config_check(&config, &e), 0);
}

static void test_defaults_of_a_user(void **state)
{
    char own[64];
    (void)state;

    setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
    setenv("XDG_STATE_HOME", "/home/u/st", 1);
    setenv("HOME", "/home/u", 1);
    config_defaults(&config, false);
    assert_string_equal(config.socket, "/run/user/7/carrel/carrel.sock");
    assert_string_equal(config.state, "/home/u/st/carrel");
    unsetenv("XDG_STATE_HOME");
    setenv("XDG_RUNTIME_DIR", "relative", 1);   /* to be ignored, as the specification wants */
    config_defaults(&config, false);
    snprintf(own, sizeof own, "/tmp/carrel-%u/carrel.sock", (unsigned)getuid());
    assert_string_equal(config.socket, own);
    assert_string_equal(config.state, "/home/u/.local/state/carrel");
    assert_int_equal(config_check(&config, &e), 0);
    unsetenv("HOME");
    config_defaults(&config, false);
    assert_int_equal(config_check(&config, &e), -EINVAL);
    assert_says(&e, "state is not known");
}

static void test_whole_file(void **state)
{
    assert_int_equal(
        load(state,
             "# settings\n"
             "listen: 127.0.0.1:7070\nsocket: /run/c.sock\nstate: /srv/c\nrun: /run/c\nuser: carrel\n"
             "allow_anonymous: true\nlog_level: debug\n"
             "origins:\n  - https://Example.org\n  - http://localhost:3000\n"
             "roots: { debian: /srv/debian, alpine-3.19: \"/srv/al pine\" }\n"
             "defaults:\n  memory: 256M\n  disk: 2G\n  pids: 99\n  cpus: 1.5\n  output: 5M\n  ttl: 1h\n  idle: none\n"
             "limits: { memory: 4Gi, disk: 20G }\n"
             "host:\n  memory: auto\n  cpus: 3\n"
             "quota:\n  boxes: 12\n  memory: 2G\n  cpus: 2\n  buffers: 8M\n"
             "jupyter:\n  cull_idle: 1h\n  cull_interval: 30s\n  cull_busy: true\n  max_kernels: 9\n"
             "  client_envs: [HTTP_PROXY, MODEL]\n"),
        0);
    assert_string_equal(config.listen, "127.0.0.1:7070");
    assert_string_equal(config.user, "carrel");
    assert_true(config.allow_anonymous);
    assert_string_equal(config.log_level, "debug");
    assert_int_equal(config.n_origins, 2);
    assert_string_equal(config.origin[0], "https://example.org");
    assert_string_equal(config.origin[1], "http://localhost:3000");
    assert_int_equal(config.n_roots, 2);
    assert_string_equal(config.root_name[1], "alpine-3.19");
    assert_string_equal(config.root_path[1], "/srv/al pine");
    assert_int_equal(config.defaults.memory_bytes, 256 << 20);
    assert_int_equal(config.defaults.pids, 99);
    assert_int_equal(config.defaults.cpu_milli, 1500);
    assert_int_equal(config.output_kept_bytes, 5 << 20);
    assert_int_equal(config.ttl_s, 3600);
    assert_int_equal(config.idle_s, 0);
    assert_true(config.most.memory_bytes == UINT64_C(4) << 30);
    assert_int_equal(config.host_memory_bytes, 0);
    assert_int_equal(config.host_cpu_milli, 3000);
    assert_int_equal(config.quota.boxes, 12);
    assert_int_equal(config.quota.cpu_milli, 2000);
    assert_int_equal(config.quota.buffer_bytes, 8 << 20);
    const struct jupyter_config *jupyter = config_section_values(&config, &jupyter_settings);
    assert_int_equal(jupyter->cull_idle_s, 3600);
    assert_int_equal(jupyter->cull_interval_s, 30);
    assert_true(jupyter->cull_busy);
    assert_false(jupyter->cull_connected);
    assert_int_equal(jupyter->max_kernels, 9);
    assert_string_equal(jupyter->client_envs, "HTTP_PROXY,MODEL");
    assert_int_equal(config_check(&config, &e), 0);
}

static void test_a_door_brings_a_section_of_its_own(void **state)
{
    static const struct { uint32_t level; char path[16]; } usual = { 3, "/one" };
    static const struct config_key keys[] = {
        { "lift.level", KIND_COUNT, 0, sizeof usual.level, 1, 9, NULL },
        { "lift.path", KIND_PATH, sizeof usual.level, sizeof usual.path, 0, 0, NULL },
    };
    static const struct config_section lift = { "lift", keys, 2, &usual, sizeof usual };
    const char *values;

    (void)state;
    config_defaults(&config, true);
    assert_int_equal(config_set(&config, "lift.level", "4", &e), -EINVAL);
    assert_null(config_section_values(&config, &lift));
    assert_int_equal(config_add_section(&config, &jupyter_settings, &e), 0);
    assert_int_equal(config_add_section(&config, &lift, &e), 0);
    values = config_section_values(&config, &lift);
    assert_memory_equal(values, &usual, sizeof usual);
    assert_int_equal(config_set(&config, "lift.level", "4", &e), 0);
    assert_int_equal(config_set(&config, "lift.path", "/two", &e), 0);
    assert_int_equal(*(const uint32_t *)(const void *)values, 4);
    assert_string_equal(values + sizeof usual.level, "/two");
    assert_int_equal(config_set(&config, "lift.level", "10", &e), -EINVAL);
    assert_int_equal(config_set(&config, "lift.levle", "1", &e), -EINVAL);
    assert_says(&e, "did you mean 'lift.level'");
    /* Names are for one only, the front's own too. */
    assert_int_equal(config_add_section(&config, &lift, &e), -EEXIST);
    static const struct config_section taken = { "quota", keys, 2, &usual, sizeof usual };
    assert_int_equal(config_add_section(&config, &taken, &e), -EEXIST);
}

static void test_empty_files_are_good(void **state)
{
    static const char *const texts[] = { "",           "\n", "# only a comment\n",   "---\n",
                                         "---\n...\n", "{}", "\xef\xbb\xbfuser: a\n" };

    for (size_t i = 0; i < COUNT(texts); i++)
        if (load(state, texts[i]) < 0)
            fail_msg("\"%s\": %s", texts[i], e.what);
}

static void test_mistakes_are_named_with_their_place(void **state)
{
    static const struct { const char *text, *says;
    } cases[] = {
        { "lisen: 127.0.0.1:1\n", "c.yaml:1:1: unknown setting 'lisen'; did you mean 'listen'?" },
        { "\n\ndefaults:\n  memroy: 1G\n",
          "c.yaml:4:3: unknown setting 'defaults.memroy'; did you mean 'defaults.memory'?" },
        { "memory: 1G\n", "did you mean 'defaults.memory'?" },
        { "default:\n  memory: 1G\n", "did you mean 'defaults'?" },
        { "Listen: 127.0.0.1:1\n", "did you mean 'listen'?" },
        { "qqqqqqqqqq: 1\n", "unknown setting 'qqqqqqqqqq'" },
        { "defaults.memory: 1G\n", "unknown setting 'defaults.memory'" },
        { "user: a\nuser: b\n", "c.yaml:2:1: 'user' stands here a second time; the first is in line 1" },
        { "defaults: {pids: 1, pids: 2}\n", "c.yaml:1:21: 'defaults.pids' stands here a second time" },
        { "roots: {a: /x, a: /y}\n", "'roots.a' stands here a second time" },
        { "user: [a]\n", "c.yaml:1:7: user needs a single value, not a list" },
        { "user: {a: b}\n", "not a mapping" },
        { "origins: https://a\n", "origins needs a list, not a value" },
        { "origins: [[https://a]]\n", "origins needs a single value, not a list" },
        { "roots: [a]\n", "roots needs keys with values, not a list" },
        { "defaults: 3\n", "defaults needs keys with values, not a value" },
        { "- a\n", "the file needs keys with values, not a list" },
        { "hello\n", "the file needs keys" },
        { "? [a]\n: b\n", "a key needs a single value" },
        { "user:\n", "user has no value" },
        { "user: ~\n", "user has no value" },
        { "user: null\n", "user has no value" },
        { "user: !mine a\n", "user has a tag (!mine)" },
        { "defaults: {pids: !!int 3}\n", "has a tag" },
        { "user: \"a\\0b\"\n", "has a NUL" },
        { "allow_anonymous: yes\n", "c.yaml:1:18: allow_anonymous 'yes' must be true or false" },
        { "allow_anonymous: \"true\"\n", "without quotes" },
        { "defaults: {memory: 12Q}\n", "c.yaml:1:20: defaults.memory 12Q is not understood; use a size" },
        { "defaults: {memory: 0}\n", "must be more than 0" },
        { "defaults: {memory: -1}\n", "negative" },
        { "defaults: {memory: 1k}\n", "too small" },
        { "defaults: {memory: none}\n", "not understood" },
        { "defaults: {pids: 0}\n", "not possible" },
        { "defaults: {pids: 1.5}\n", "a whole number" },
        { "defaults: {cpus: two}\n", "not understood" },
        { "defaults: {ttl: 2y}\n", "a time such as" },
        { "listen: 7070\n", "is not ADDRESS:PORT" },
        { "listen: example.org:7070\n", "is not ADDRESS:PORT" },
        { "listen: 127.0.0.1\n", "is not ADDRESS:PORT" },
        { "listen: 127.0.0.1:0\n", "is not ADDRESS:PORT" },
        { "listen: 127.0.0.1:65536\n", "is not ADDRESS:PORT" },
        { "listen: ::1:7070\n", "is not ADDRESS:PORT" },
        { "socket: c.sock\n", "not an absolute path" },
        { "state: /a/../b\n", "must not contain '..'" },
        { "user: a b\n", "not a user's name" },
        { "log_level: loud\n", "error, warning, info or debug" },
        { "origins: ['*']\n", "not an origin" },
        { "origins: [example.org]\n", "not an origin" },
        { "origins: [https://example.org/]\n", "not an origin" },
        { "roots: {Debian: /x}\n", "is not a name" },
        { "roots: {..: /x}\n", "is not a name" },
        { "roots: {a: x}\n", "roots.a 'x' is not an absolute path" },
        { "a: b: c\n", "c.yaml:1:" },
        { "user: 'a\n", "c.yaml:" },
        { "user: a\n\tlisten: b\n", "c.yaml:" },
        { "user: a\n--- \nuser: b\n", "c.yaml:2:1: a second document" },
        { "user: *nobody\n", "c.yaml:1:7: found undefined alias" },
        { "&a defaults: *a\n", "needs keys with values" },
        { "&a {defaults: *a}\n", "unknown setting 'defaults.defaults'" },
        { "%YAML 9.9\n---\nuser: a\n", "incompatible YAML" },
    };

    for (size_t i = 0; i < COUNT(cases); i++) {
        if (load(state, cases[i].text) != -EINVAL)
            fail_msg("\"%s\" was accepted", cases[i].text);
        if (!strstr(e.what, cases[i].says))
            fail_msg("\"%s\" gives \"%s\"; expected \"%s\" in it", cases[i].text, e.what, cases[i].says);
    }
}

static void test_a_bad_file_changes_nothing(void **state)
{
    struct config before;

    config_defaults(&before, true);
    assert_int_equal(config_add_section(&before, &jupyter_settings, &e), 0);
    assert_int_equal(load(state, "user: somebody\njupyter: { max_kernels: 2 }\nnonsense: 1\n"), -EINVAL);
    assert_memory_equal(&before, &config, sizeof before);
}

static void test_files_that_cannot_be_read(void **state)
{
    char big[300000];
    const char *path;

    config_defaults(&config, true);
    assert_int_equal(config_load(&config, "/nonexistent/c.yaml", false, &e), 0);
    assert_int_equal(config_load(&config, "/nonexistent/c.yaml", true, &e), -ENOENT);
    assert_says(&e, "/nonexistent/c.yaml");
    assert_int_equal(config_load(&config, "/tmp", true, &e), -EISDIR);
    memset(big, '#', sizeof big);
    assert_int_equal(load_bytes(state, big, sizeof big), -EFBIG);
    path = scratch_write(state, "w.yaml", "user: a\n", 8);
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(config_load(&config, path, true, &e), -EPERM);
    assert_says(&e, "chmod o-w");
    assert_int_equal(mkfifo(scratch_file(state, "fifo"), 0600), 0);
    assert_int_equal(config_load(&config, scratch_file(state, "fifo"), true, &e), -EINVAL);
    assert_int_equal(load_bytes(state, "user: \xff\xfe\n", 9), -EINVAL);
    assert_int_equal(load_bytes(state, "user: a\0b\n", 10), -EINVAL);
}

static void test_flags_win_over_the_file(void **state)
{
    assert_int_equal(load(state, "listen: 127.0.0.1:1\nroots: {a: /x}\norigins: [https://a]\nquota: {boxes: 5}\n"), 0);
    assert_int_equal(set("listen", "[::1]:8080"), 0);
    assert_int_equal(set("roots.a", "/y"), 0);
    assert_int_equal(set("roots.b.c", "/z"), 0);
    assert_int_equal(set("origins", "https://a:443"), 0);   /* the same one */
    assert_int_equal(set("origins", "https://b"), 0);
    assert_int_equal(set("quota.boxes", "none"), 0);
    assert_int_equal(set("defaults.ttl", "1500ms"), 0);
    assert_string_equal(config.listen, "[::1]:8080");
    assert_int_equal(config.n_roots, 2);
    assert_string_equal(config.root_path[0], "/y");
    assert_string_equal(config.root_name[1], "b.c");
    assert_int_equal(config.n_origins, 2);
    assert_int_equal(config.quota.boxes, 0);
    assert_int_equal(config.ttl_s, 2);      /* never shorter than asked */
    assert_int_equal(set("listen", ""), 0);
    assert_string_equal(config.listen, "");
    assert_int_equal(set("roots", "/x"), -EINVAL);
    assert_int_equal(set("defaults", "1"), -EINVAL);
    assert_int_equal(set("listn", ""), -EINVAL);
    assert_says(&e, "did you mean 'listen'?");
}

static void test_tables_do_not_overflow(void **state)
{
    char key[300], value[400] = "/";
    (void)state;

    config_defaults(&config, true);
    for (int i = 0; i < CONFIG_ROOTS; i++) {
        snprintf(key, sizeof key, "roots.r%d", i);
        assert_int_equal(set(key, "/x"), 0);
    }
    assert_int_equal(set("roots.more", "/x"), -EINVAL);
    assert_int_equal(set("roots.r63", "/last"), 0);
    for (int i = 0; i < CONFIG_ORIGINS; i++) {
        snprintf(value, sizeof value, "https://h%d", i);
        assert_int_equal(set("origins", value), 0);
    }
    assert_int_equal(set("origins", "https://more"), -EINVAL);
    memset(value, 'a', sizeof value - 1);
    value[0] = '/';
    assert_int_equal(set("roots.r1", value), -EINVAL);
    assert_int_equal(set("socket", value), -EINVAL);
    value[107] = 0;
    assert_int_equal(set("socket", value), 0);
    value[107] = 'a', value[108] = 0;
    assert_int_equal(set("socket", value), -EINVAL);
    snprintf(key, sizeof key, "roots.%064d", 1);
    assert_int_equal(set(key, "/x"), -EINVAL);
}

static void test_check_sees_the_whole(void **state)
{
    static const struct { const char *key[2], *value[2], *says;
    } cases[] = {
        { { "listen", "allow_anonymous" }, { "0.0.0.0:7070", "true" }, "other machines can reach" },
        { { "listen", "allow_anonymous" }, { "[::]:7070", "true" }, "other machines can reach" },
        { { "listen", "allow_anonymous" }, { "192.0.2.1:7070", "true" }, "other machines can reach" },
        { { "owner_only", "allow_anonymous" }, { "true", "true" }, "contradict each other" },
        { { "defaults.memory", "limits.memory" }, { "2G", "1G" }, "defaults.memory is more than limits.memory" },
        { { "defaults.pids", "limits.pids" }, { "200", "100" }, "defaults.pids is more than limits.pids" },
        { { "defaults.disk", "limits.disk" }, { "2G", "1G" }, "defaults.disk is more than limits.disk" },
        { { "defaults.output", "limits.output" }, { "2G", "1G" }, "defaults.output is more than limits.output" },
        { { "defaults.memory", "quota.memory" }, { "2G", "1G" }, "quota.memory" },
        { { "defaults.cpus", "quota.cpus" }, { "2", "1" }, "quota.cpus" },
        { { "defaults.memory", "host.memory" }, { "2G", "1G" }, "host.memory" },
        { { "defaults.cpus", "host.cpus" }, { "2", "1" }, "host.cpus" },
        { { "socket", "user" }, { "/run/carrel/", "a" }, "is a directory" },
        { { "run", "user" },
          { "/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
            "a" },
          "run is too long" },
    };
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        config_defaults(&config, true);
        for (int k = 0; k < 2; k++)
            assert_int_equal(set(cases[i].key[k], cases[i].value[k]), 0);
        assert_int_equal(config_check(&config, &e), -EINVAL);
        assert_says(&e, cases[i].says);
    }
    config_defaults(&config, true);
    assert_int_equal(set("listen", "0.0.0.0:7070"), 0);
    assert_int_equal(config_check(&config, &e), 0);
    assert_int_equal(set("listen", "localhost:7070"), 0);
    assert_int_equal(set("allow_anonymous", "true"), 0);
    assert_int_equal(config_check(&config, &e), 0);
    assert_string_equal(config.listen, "127.0.0.1:7070"); /* no resolver is needed */
    assert_int_equal(set("listen", "[0::1]:07"), 0);
    assert_string_equal(config.listen, "[::1]:7");
}

static void test_templates(void **state)
{
    assert_int_equal(load(state, "templates:\n  science:\n    python: /srv/science/bin/python\n"
                                 "    imports: numpy,scipy.stats\n"
                                 "    layers: /srv/data:/srv/models\n    pool: off\n  python:\n    pool: 5\n"), 0);
    assert_int_equal(config.n_templates, 2);
    assert_int_equal(config_template_find(&config, "python"), 1);
    assert_int_equal(config_template_find(&config, "science"), 2);
    assert_int_equal(config_template_find(&config, "nothing"), 0);
    assert_string_equal(config_template(&config, 1)->python, "");
    assert_int_equal(config_template_fill(&config, "/usr/bin/python3", &e), 0);
    assert_string_equal(config_template(&config, 1)->python, "/usr/bin/python3");
    assert_true(config_template(&config, 1)->python_is_default);
    assert_int_equal(config_template(&config, 1)->pool, 5);
    assert_string_equal(config_template(&config, 2)->python, "/srv/science/bin/python");
    assert_string_equal(config_template(&config, 2)->imports, "numpy,scipy.stats");
    assert_string_equal(config_template(&config, 2)->layers, "/srv/data:/srv/models");
    assert_int_equal(config_template(&config, 2)->pool, 0);
    assert_null(config_template(&config, 0));
    assert_null(config_template(&config, 3));
    assert_int_equal(set("templates.science.startup", "/srv/startup"), 0);
    assert_string_equal(config_template(&config, 2)->startup, "/srv/startup");
    assert_false(config_template(&config, 2)->zygote_late);
    assert_int_equal(set("templates.science.zygote", "late"), 0);
    assert_true(config_template(&config, 2)->zygote_late && !config_template(&config, 1)->zygote_late);
    assert_int_equal(set("templates.science.zygote", "early"), 0);
    assert_false(config_template(&config, 2)->zygote_late);
}

static void test_bad_templates(void **state)
{
    static const char *const bad[][2] = {
        { "templates", "x" },
        { "templates.python", "x" },
        { "templates.python.pythn", "/x" },
        { "templates.python.python", "bin/python" },
        { "templates.python.python", "" },
        { "templates.python.imports", "numpy;rm" },
        { "templates.python.layers", "/a:b" },
        { "templates.python.layers", "/a/../b" },
        { "templates.python.pool", "129" },
        { "templates.python.zygote", "soon" },
        { "templates.UP.python", "/x" },
        { "templates.a.b.python", "/x" },
    };

    config_defaults(&config, true);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(set(bad[i][0], bad[i][1]), -EINVAL);
    assert_int_equal(config.n_templates, 1);
    assert_int_equal(load(state, "templates:\n  a:\n    pyton: /x\n"), -EINVAL);
    assert_int_equal(load(state, "templates:\n  a: /x\n"), -EINVAL);
    assert_int_equal(load(state, "templates:\n  a:\n    python:\n      deeper: /x\n"), -EINVAL);
}

static void test_pythons_are_found_by_name_and_by_version(void **state)
{
    char path[CONFIG_PYTHON_PATH];

    assert_int_equal(load(state, "pythons: {3.10: /opt/a/bin/python3, 3.12.4: /opt/b/bin/python, 3.12.11: /opt/c, "
                                 "conda: /usr}\ntemplates: {old: {python: 3.12}}\n"), 0);
    assert_int_equal(config.n_pythons, 4);
    assert_int_equal(config_python_find(&config, "3.10"), 1);
    assert_int_equal(config_python_find(&config, "3.12"), 3);       /* 11 is newer than 4 */
    assert_int_equal(config_python_find(&config, "3.12.4"), 2);
    assert_int_equal(config_python_find(&config, "conda"), 4);
    assert_int_equal(config_python_find(&config, "3.1"), 0);
    assert_int_equal(config_python_find(&config, "con"), 0);
    assert_int_equal(config_python_find(&config, ""), 0);
    assert_string_equal(config_python_path(&config, 2, path), "/opt/b/bin/python");
    assert_string_equal(config_python_path(&config, 4, path), "/usr/bin/python3");      /* a prefix */
    assert_int_equal(config_template_fill(&config, "/usr/bin/python3", &e), 0);
    assert_string_equal(config_template(&config, 2)->python, "/opt/c");
    assert_int_equal(set("templates.old.python", "3.9"), 0);
    assert_int_equal(config_template_fill(&config, "/usr/bin/python3", &e), -EINVAL);
    assert_says(&e, "there is: 3.10, 3.12.4, 3.12.11, conda");
    assert_int_equal(set("pythons.3.10", "/other"), 0);
    assert_int_equal(config.n_pythons, 4);
    assert_int_equal(set("pythons", "/x"), -EINVAL);
    assert_int_equal(set("pythons.a", "python3"), -EINVAL);
    assert_int_equal(set("pythons.../x", "/x"), -EINVAL);
    assert_int_equal(load(state, "pythons: [a]\n"), -EINVAL);
}

static void test_packages_of_a_template_are_a_text_or_a_list(void **state)
{
    assert_int_equal(load(state, "templates:\n  a:\n    packages: [\"pandas==2.2.*\", \"numpy<2\", "
                                 "\"x==1; python_version < '3.13'\"]\n  b:\n    packages: numpy<2 pandas\n"), 0);
    assert_string_equal(config_template(&config, 2)->packages,
                        "numpy<2\npandas==2.2.*\nx==1; python_version < '3.13'\n");
    assert_string_equal(config_template(&config, 3)->packages, "numpy<2\npandas\n");
    assert_int_equal(set("templates.b.packages", ""), 0);
    assert_string_equal(config_template(&config, 3)->packages, "");
    assert_int_equal(set("templates.b.packages", "-r x"), -EINVAL);
    assert_int_equal(set("templates.b.packages", "x @ http://example.org"), -EINVAL);
    assert_int_equal(load(state, "templates: {a: {packages: {b: c}}}\n"), -EINVAL);
    assert_int_equal(load(state, "templates: {a: {packages: [[x]]}}\n"), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_of_root),
        cmocka_unit_test(test_defaults_of_a_user),
        cmocka_unit_test(test_whole_file),
        cmocka_unit_test(test_a_door_brings_a_section_of_its_own),
        cmocka_unit_test(test_empty_files_are_good),
        cmocka_unit_test(test_mistakes_are_named_with_their_place),
        cmocka_unit_test(test_a_bad_file_changes_nothing),
        cmocka_unit_test(test_files_that_cannot_be_read),
        cmocka_unit_test(test_flags_win_over_the_file),
        cmocka_unit_test(test_tables_do_not_overflow),
        cmocka_unit_test(test_check_sees_the_whole),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_bad_templates),
        cmocka_unit_test(test_pythons_are_found_by_name_and_by_version),
        cmocka_unit_test(test_packages_of_a_template_are_a_text_or_a_list),
    };

    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
