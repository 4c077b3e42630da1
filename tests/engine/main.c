/* Runs the suite on one of two layouts: "host", what this machine has; "v1", the same without its v2 tree, in a mount
 * namespace of its own. ENGINE_TEST: only the tests of this name; * and ? stand for others. */
#define _GNU_SOURCE
#include "support.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* 0, 1: not possible here, -1: failed. */
static int arrange(const char *layout)
{
    if (strcmp(layout, "host") == 0)
        return 0;
    if (access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) < 0)
        return 1;
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -1;
    return umount2("/sys/fs/cgroup/unified", 0);
}

int main(int argc, char **argv)
{
    const char *layout = argc > 1 ? argv[1] : "host";
    int failed = 0;

    alarm(560);     /* nothing here may hang */
    signal(SIGPIPE, SIG_IGN);
    umask(022);     /* a template's files are for everybody */
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (geteuid() != 0) {
        printf("engine: skipped, needs root\n");
        return 0;
    }
    if (getenv("ENGINE_TEST"))
        cmocka_set_test_filter(getenv("ENGINE_TEST"));
    int r = arrange(layout);
    if (r != 0) {
        printf("engine: layout %s %s\n", layout, r < 0 ? "could not be made" : "skipped, this host is not hybrid");
        return r < 0;
    }
    failed += _cmocka_run_group_tests("boxes", box_tests, n_box_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("families", family_tests, n_family_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("births", birth_tests, n_birth_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("ahead", ahead_tests, n_ahead_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("life", life_tests, n_life_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("memory", memory_tests, n_memory_tests, NULL, NULL);
    if (strcmp(layout, "host") == 0) {
        failed += _cmocka_run_group_tests("front", front_tests, n_front_tests, NULL, NULL);
        failed += _cmocka_run_group_tests("files", files_tests, n_files_tests, NULL, NULL);
    }
    return failed != 0;
}
