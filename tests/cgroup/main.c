/* Runs the suite on one of three layouts. "host": what this machine has. "v1": the same without its v2 tree. "v2": the
 * v2 tree alone, in /sys/fs/cgroup. The last two are made in a mount namespace of their own, and only where the host is
 * hybrid. */
#include "support.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
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
    if (strcmp(layout, "v1") == 0)
        return umount2("/sys/fs/cgroup/unified", 0);
    return mount("/sys/fs/cgroup/unified", "/sys/fs/cgroup", NULL, MS_BIND, NULL);
}

static int run(const char *layout)
{
    int failed = 0;

    if (strcmp(layout, "v2") == 0)
        return _cmocka_run_group_tests("v2", v2_tests, n_v2_tests, NULL, NULL);
    for (int c = 0; c < CG_CPUACCT; c++) {      /* that one only counts: it cannot limit */
        if (!host.can[c]) {
            printf("cgroup: skipped: %s\n", host.why[c]);
            return 0;
        }
    }
    failed += _cmocka_run_group_tests("leaf", leaf_tests, n_leaf_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("cpu", cpu_tests, n_cpu_tests, NULL, NULL);
    failed += _cmocka_run_group_tests("sweep", sweep_tests, n_sweep_tests, NULL, NULL);
    return failed;
}

int main(int argc, char **argv)
{
    static const char *const modes[] = { "none", "v1", "hybrid", "v2" };
    const char *layout = argc > 1 ? argv[1] : "host";
    struct err e;

    alarm(560); /* nothing here may hang */
    if (geteuid() != 0) {
        printf("cgroup: skipped, needs root\n");
        return 0;
    }
    int r = arrange(layout);
    if (r != 0) {
        printf("cgroup: layout %s %s\n", layout, r < 0 ? "could not be made" : "skipped, this host is not hybrid");
        return r < 0;
    }
    if (cgroup_host_open(&host, &e) < 0)
        return 1;
    printf("cgroup: layout %s, mode %s\n", layout, modes[host.mode]);
    if (strcmp(layout, "host") != 0 && strcmp(layout, modes[host.mode]) != 0)
        return 1;
    int failed = run(layout);

    /* Whatever a failed test left; the good case leaves nothing. */
    int left = cgroup_sweep(&host, getpid());
    if (left)
        printf("cgroup: %d leaves of this run were left\n", left);
    cgroup_host_close(&host);
    return failed || left;
}
