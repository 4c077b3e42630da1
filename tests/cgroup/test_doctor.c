/* doctor and gc: what they conclude from made-up hosts, and what they print and return on this one. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/trial.h"

void cli_complain(const struct err *e)
{
    char text[512];

    err_text(e, text, sizeof text);
    fprintf(stderr, "carrel: %s\n", text);
}

/* Its own tests make boxes; here none is needed. */
void trial_run(char *ret_why, size_t size)
{
    snprintf(ret_why, size, "%s", "");
}

void net_look(struct doctor_network *ret)
{
    *ret = (struct doctor_network){ .way = "hold: all of it" };
}

int net_main(bool json)
{
    return json;
}

int net_probe(int n, char **targets)
{
    (void)targets;
    return n;
}

bool cli_has_program(const char *name)
{
    (void)name;
    return true;
}

/* A host on which everything is right. */
static struct doctor *good_host(void)
{
    static struct doctor doctor;

    doctor = (struct doctor){
        .features = { .release = "6.12.1",
                      .major = 6,
                      .minor = 12,
                      .is_keeper_root = true,
                      .is_first_user_namespace = true,
                      .landlock_abi = 6,
                      .has_dev_shm = true,
                      .core_pattern = "core" },
        .cgroups = { .mode = CGROUP_V2, .v2 = 0, .v1 = CG_NONE, .can = { true, true, true, true } },
        .kernels = { .has_server = true, .has_files = true, .has_python = true },
        .network = { .way = "hold: all of it" },
    };
    for (int s = 0; s < SETTING_COUNT; s++)
        doctor.features.setting[s] = SETTING_ABSENT;
    return &doctor;
}

static const struct doctor_row *row_of(struct doctor *doctor, const char *name)
{
    doctor_judge(doctor);
    assert_true(doctor->n_rows < DOCTOR_ROWS);
    for (size_t i = 0; i < doctor->n_rows; i++)
        if (strcmp(doctor->row[i].name, name) == 0)
            return &doctor->row[i];
    fail_msg("no row '%s'", name);
    return NULL;
}

static void test_good_host_has_nothing_to_mend(void **state)
{
    struct doctor *d = good_host();

    doctor_judge(d);
    for (size_t i = 0; i < d->n_rows; i++) {
        assert_int_equal(d->row[i].state, DOCTOR_OK);
        assert_string_equal(d->row[i].fix, "");
    }
    assert_true(doctor_can_make_boxes(d));
    (void)state;
}

static void test_every_missing_need_forbids_boxes_and_says_how_to_mend_it(void **state)
{
    static const int optional[] = { FEATURE_ID_MAPPED, FEATURE_DEVPTS, FEATURE_OVERLAY };

    for (int f = 0; f < FEATURE_COUNT; f++) {
        struct doctor *d = good_host();
        bool is_optional = false;
        for (size_t i = 0; i < 3; i++)
            is_optional |= optional[i] == f;
        d->features.error[f] = EPERM;
        const struct doctor_row *row =
            row_of(d, f == FEATURE_TMPFS_SIZE ? "disk limit" : feature_name((enum feature)f));
        assert_int_equal(row->state, is_optional ? DOCTOR_LIMITED : DOCTOR_MISSING);
        assert_int_equal(doctor_can_make_boxes(d), is_optional);
        assert_true(strlen(row->cost) > 10 && strlen(row->fix) > 10);
    }
    (void)state;
}

static void test_the_fix_fits_the_cause(void **state)
{
    struct doctor *d = good_host();

    d->features.error[FEATURE_USER_NAMESPACE] = ENOSPC;
    d->features.setting[SETTING_MAX_USER_NAMESPACES] = 0;
    assert_non_null(strstr(row_of(d, "user namespace")->fix, "user.max_user_namespaces="));

    d = good_host();
    d->features.is_keeper_root = false;
    d->features.error[FEATURE_USER_NAMESPACE] = d->features.error[FEATURE_NO_NESTING] = EPERM;
    assert_null(strstr(row_of(d, "user namespace")->fix, "AppArmor"));
    snprintf(d->apparmor, sizeof d->apparmor, "%0*d doctor --apparmor | sudo sh", APPARMOR_COMMAND - 29, 0);
    assert_non_null(strstr(row_of(d, "user namespace")->fix, d->apparmor));
    assert_non_null(strstr(row_of(d, "no nested namespaces")->fix, d->apparmor));       /* not a second remedy */
    d->features.is_keeper_root = true;
    assert_null(strstr(row_of(d, "user namespace")->fix, "AppArmor"));

    d = good_host();
    d->features.error[FEATURE_USER_NAMESPACE] = EPERM;
    d->features.setting[SETTING_USERNS_CLONE] = 0;
    assert_null(strstr(row_of(d, "user namespace")->fix, "unprivileged_userns_clone"));
    d->features.is_keeper_root = false;
    assert_non_null(strstr(row_of(d, "user namespace")->fix, "kernel.unprivileged_userns_clone=1"));

    d = good_host();
    d->features.error[FEATURE_PROC] = EPERM;
    assert_non_null(strstr(row_of(d, "fresh /proc")->fix, "systempaths=unconfined"));

    d = good_host();
    snprintf(d->features.core_pattern, sizeof d->features.core_pattern, "|/usr/lib/helper %%p");
    assert_int_equal(row_of(d, "kernel.core_pattern")->state, DOCTOR_LIMITED);

    d = good_host();
    d->cgroups.can[CG_MEMORY] = false;
    snprintf(d->cgroups.why[CG_MEMORY], sizeof d->cgroups.why[0], "no memory controller, therefore");
    assert_int_equal(row_of(d, "memory limit")->state, DOCTOR_LIMITED);
    assert_string_equal(row_of(d, "memory limit")->fix, "no memory controller, therefore");
    assert_true(doctor_can_make_boxes(d));

    d = good_host();
    d->features.setting[SETTING_KPTR_RESTRICT] = 0;
    assert_string_equal(row_of(d, "kernel.kptr_restrict")->fix, "sysctl -w kernel.kptr_restrict=1");
    (void)state;
}

/* A folder with what AppArmor says in /proc; NULL: that file is not there. */
static void make_proc(const char *folder, const char *value, const char *label, const char *plain_label)
{
    const struct {
        const char *path, *text;
    } files[] = { { "sys/kernel/apparmor_restrict_unprivileged_userns", value },
                  { "self/attr/apparmor/current", label },
                  { "self/attr/current", plain_label } };
    static const char *const folders[] = { "sys", "sys/kernel", "self", "self/attr", "self/attr/apparmor" };
    char path[256];

    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, folders[i]);
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    }
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].path);
        (void)unlink(path);
        FD fd = files[i].text ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
        if (files[i].text)
            assert_int_equal(write(fd, files[i].text, strlen(files[i].text)), strlen(files[i].text));
    }
}

static void remove_proc(const char *folder)
{
    static const char *const names[] = { "self/attr/apparmor", "self/attr", "self", "sys/kernel", "sys", "." };
    char path[256];

    make_proc(folder, NULL, NULL, NULL);
    for (size_t i = 0; i < 6; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, strcmp(names[i], ".") == 0 ? "" : names[i]);
        assert_return_code(rmdir(path), errno);
    }
}

static void test_apparmor_is_to_blame_only_where_it_wants_a_profile(void **state)
{
    static const struct {
        const char *value, *label, *plain_label;
        bool        restricts;
    } hosts[] = {
        { NULL, NULL, NULL, false },                                    /* no AppArmor */
        { NULL, "unconfined\n", NULL, false },                          /* Debian 12 */
        { "0\n", "unconfined\n", NULL, false },                         /* switched off */
        { "1\n", "unconfined\n", NULL, true },                          /* before the namespace is made */
        { "1\n", "unprivileged_userns (enforce)\n", NULL, true },       /* after it */
        { "1\n", "/usr/local/bin/carrel (unconfined)\n", NULL, false }, /* the profile is loaded */
        { "1\n", "code (unconfined)\n", NULL, false },                  /* an editor's profile was inherited */
        { "1\n", "docker-default (enforce)\n", NULL, false },           /* a container */
        { "1\n", NULL, "unconfined\n", true },                          /* an older kernel */
        { "1\n", NULL, "carrel (unconfined)\n", false },
        { "1\n", NULL, NULL, true },                                    /* nothing tells that it is not */
    };
    char folder[] = "/tmp/carrel-proc-XXXXXX";

    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        make_proc(folder, hosts[i].value, hosts[i].label, hosts[i].plain_label);
        if (apparmor_restricts(folder) != hosts[i].restricts)
            fail_msg("host %zu is taken for another", i);
    }
    remove_proc(folder);
    (void)state;
}

static void test_the_script_writes_the_profile_of_the_package(void **state)
{
    char text[8192], packaged[2048], place[2048], *mark;

    assert_true(fd_read_file(AT_FDCWD, "packaging/apparmor/carrel", packaged, sizeof packaged) > 0);
    assert_non_null(mark = strstr(packaged, "@PROGRAM@"));
    snprintf(place, sizeof place,
             "cat >'/etc/apparmor.d/home.a b.bin.carrel' <<'END'\n%.*s/home/a b/bin/carrel%sEND\n",
             (int)(mark - packaged), packaged, mark + strlen("@PROGRAM@"));
    assert_int_equal(apparmor_script("/home/a b/bin/carrel", text, sizeof text), 0);
    assert_non_null(strstr(text, place));

    /* What a shell or AppArmor would read as something else; what would not be loaded at the next boot; too long. */
    static const char *const refused[] = { "/a'b/carrel", "/a\nb/carrel", "/a*/carrel", "/a\"b/carrel", "/a{b}/carrel",
                                           "/a[b]/carrel", "/a$b/carrel", "/a\\b/carrel", "/.venv/carrel", "carrel",
                                           "" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(apparmor_script(refused[i], text, sizeof text), -EINVAL);
    char longest[258];
    memset(longest, 'a', sizeof longest);
    longest[0] = '/';
    longest[257] = '\0';
    assert_int_equal(apparmor_script(longest, text, sizeof text), -ENAMETOOLONG);
    longest[256] = '\0';        /* its file's name has the 255 letters that a name may have */
    assert_int_equal(apparmor_script(longest, text, sizeof text), 0);
    assert_int_equal(apparmor_script("/usr/bin/carrel", text, 300), -ENAMETOOLONG);
    (void)state;
}

static void test_the_command_names_this_program(void **state)
{
    char command[APPARMOR_COMMAND], program[4096], wanted[4200];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);

    assert_true(n > 0);
    program[n] = '\0';
    apparmor_command(command);
    snprintf(wanted, sizeof wanted, "%s doctor --apparmor | sudo sh", program);
    if (strlen(wanted) >= sizeof command)
        snprintf(wanted, sizeof wanted, "carrel doctor --apparmor | sudo sh");
    assert_string_equal(command, wanted);
    (void)state;
}

/* Runs a command in a child and gives its exit status and what it printed. */
static int run_command(int (*command)(int, char **), char **argv, int (*before)(void), char *text, size_t size)
{
    int pipes[2], argc = 0, status;
    size_t length = 0;
    ssize_t n;

    while (argv[argc])
        argc++;
    assert_return_code(pipe2(pipes, O_CLOEXEC), errno);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (before && before() < 0)
            _exit(99);
        dup2(pipes[1], 1);
        int r = command(argc, argv);
        fflush(stdout);
        _exit(r);
    }
    close(pipes[1]);
    while (length < size - 1 && (n = read(pipes[0], text + length, size - 1 - length)) > 0)
        length += (size_t)n;
    text[length] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static char text[65536];

static void test_doctor_agrees_with_this_host(void **state)
{
    static char *table[] = { "doctor", NULL }, *json[] = { "doctor", "--json", NULL };

    int r = run_command(doctor_main, table, NULL, text, sizeof text);
    assert_non_null(strstr(text, r == 0 ? "Boxes can be made here" : "No box can be made here"));
    assert_null(strchr(text, '\033')); /* not a terminal */
    assert_int_equal(run_command(doctor_main, json, NULL, text, sizeof text), r);
    assert_non_null(strstr(text, r == 0 ? "\"boxes\":true" : "\"boxes\":false"));
    (void)state;
}

/* As root of a user namespace in which no further ones can be made. */
static int forbid_namespaces(void)
{
    if (unshare(CLONE_NEWUSER) < 0)
        return -1;
    (void)fd_write_file(AT_FDCWD, "/proc/self/setgroups", "deny");
    if (fd_write_file(AT_FDCWD, "/proc/self/uid_map", "0 0 1") < 0 ||
        fd_write_file(AT_FDCWD, "/proc/self/gid_map", "0 0 1") < 0)
        return -1;
    return fd_write_file(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0");
}

static void test_doctor_finds_that_namespaces_are_forbidden(void **state)
{
    static char *table[] = { "doctor", NULL };

    assert_int_equal(run_command(doctor_main, table, forbid_namespaces, text, sizeof text), 1);
    assert_non_null(strstr(text, "missing  user namespace"));
    assert_non_null(strstr(text, "sysctl -w user.max_user_namespaces="));
    assert_non_null(strstr(text, "No box can be made here"));
    (void)state;
}

/* As in a container: a part of /proc is covered, so the kernel allows no fresh one to a user namespace. */
static int cover_proc(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    return mount("tmpfs", "/proc/sys/fs", "tmpfs", MS_RDONLY, NULL);
}

static void test_doctor_finds_that_proc_is_covered(void **state)
{
    static char *table[] = { "doctor", NULL };

    assert_int_equal(run_command(doctor_main, table, cover_proc, text, sizeof text), 1);
    assert_non_null(strstr(text, "missing  fresh /proc"));
    assert_non_null(strstr(text, "systempaths=unconfined"));
    (void)state;
}

static void test_wrong_arguments_are_refused(void **state)
{
    static char *doctor[] = { "doctor", "--jsno", NULL }, *gc[] = { "gc", "all", NULL };

    assert_int_equal(run_command(doctor_main, doctor, NULL, text, sizeof text), EXIT_CARREL);
    assert_int_equal(run_command(gc_main, gc, NULL, text, sizeof text), EXIT_CARREL);
    (void)state;
}

/* The layers of this host are not for these tests. */
int cli_collect_layers(uint64_t unused_ms, void (*call)(const char *layer, uint64_t bytes, void *arg), void *arg,
                       struct err *e)
{
    (void)e;
    call("", 0, arg);
    if (unused_ms == 0)
        call("3fcf03b4d2fd7e00", 188 << 20, arg);
    return 0;
}

static void test_gc_says_which_layers_it_removed(void **state)
{
    static char *plain[] = { "gc", "--unused", "0", NULL }, *json[] = { "gc", "--json", "--unused", "0", NULL },
                *usual[] = { "gc", NULL };

    assert_int_equal(run_command(gc_main, plain, NULL, text, sizeof text), 0);
    assert_non_null(strstr(text, "removed an unfinished layer\n"));
    assert_non_null(strstr(text, "removed unused layer 3fcf03b4d2fd, 188M\n"));
    assert_int_equal(run_command(gc_main, json, NULL, text, sizeof text), 0);
    assert_non_null(strstr(text, "{\"layer\":\"3fcf03b4d2fd7e00\",\"bytes\":197132288}"));
    assert_int_equal(run_command(gc_main, usual, NULL, text, sizeof text), 0);
    assert_null(strstr(text, "unused layer"));
    (void)state;
}

static void test_gc_removes_what_the_dead_left_and_says_so(void **state)
{
    static char *plain[] = { "gc", NULL }, *json[] = { "gc", "--json", NULL };
    char name[80];
    pid_t dead = fork();

    if (dead == 0)
        _exit(0);
    assert_int_equal(waitpid(dead, NULL, 0), dead);
    for (int is_json = 0; is_json < 2; is_json++) {
        snprintf(name, sizeof name, "carrel-%" PRIu64 "-%d-7-%d", host.owner.pid_namespace, (int)dead, is_json);
        make_places(name);
        assert_int_equal(run_command(gc_main, is_json ? json : plain, NULL, text, sizeof text), 0);
        assert_non_null(strstr(text, name));
        assert_non_null(strstr(text, is_json ? "\"removed\":true" : "removed cgroup"));
        assert_int_equal(places(name), 0);
    }
    (void)state;
}

static void test_the_network_row_says_what_is_lost_and_how_to_get_it(void **state)
{
    struct doctor *d = good_host();
    (void)state;

    assert_int_equal(row_of(d, "network by rules")->state, DOCTOR_OK);
    d->network = (struct doctor_network){ .way = "tproxy: without hold" };
    assert_int_equal(row_of(d, "network by rules")->state, DOCTOR_LIMITED);
    assert_non_null(strstr(row_of(d, "network by rules")->cost, "connect()"));
    d->network = (struct doctor_network){ .why = "this kernel cannot direct a box's connections" };
    assert_non_null(strstr(row_of(d, "network by rules")->cost, "no network"));
    assert_non_null(strstr(row_of(d, "network by rules")->fix, "nf_tables"));
    assert_true(doctor_can_make_boxes(d));
}

int main(void)
{
    static const struct CMUnitTest pure[] = {
        cmocka_unit_test(test_the_network_row_says_what_is_lost_and_how_to_get_it),
        cmocka_unit_test(test_good_host_has_nothing_to_mend),
        cmocka_unit_test(test_every_missing_need_forbids_boxes_and_says_how_to_mend_it),
        cmocka_unit_test(test_the_fix_fits_the_cause),
        cmocka_unit_test(test_apparmor_is_to_blame_only_where_it_wants_a_profile),
        cmocka_unit_test(test_the_script_writes_the_profile_of_the_package),
        cmocka_unit_test(test_the_command_names_this_program),
        cmocka_unit_test(test_doctor_agrees_with_this_host),
        cmocka_unit_test(test_wrong_arguments_are_refused),
        cmocka_unit_test(test_gc_says_which_layers_it_removed),
    };
    static const struct CMUnitTest as_root[] = {
        cmocka_unit_test(test_doctor_finds_that_namespaces_are_forbidden),
        cmocka_unit_test(test_doctor_finds_that_proc_is_covered),
        cmocka_unit_test(test_gc_removes_what_the_dead_left_and_says_so),
    };
    struct err e;

    alarm(560);
    int failed = cmocka_run_group_tests_name("doctor", pure, NULL, NULL);
    if (geteuid() == 0 && cgroup_host_open(&host, &e) == 0 && host.mode != CGROUP_NONE) {
        failed += cmocka_run_group_tests_name("doctor as root", as_root, NULL, NULL);
        cgroup_host_close(&host);
    }
    return failed != 0;
}
