/* Attempts to become another user: ids, capabilities, setuid files, filters, securebits. And the gains of an exec. */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static void no_capabilities(void)
{
    static const char *const keys[] = { "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:" };
    char text[64];
    for (size_t i = 0; i < COUNT(keys); i++) {
        read_status(keys[i], text, sizeof(text));
        if (strtoull(text, NULL, 16) != 0)
            broken("%s %s", keys[i], text);
    }
}

static void sealed_state(void)
{
    char text[64];
    read_status("NoNewPrivs:", text, sizeof(text));
    if (strcmp(text, "1") != 0)
        broken("NoNewPrivs %s", text);
    read_status("Seccomp:", text, sizeof(text));
    if (strcmp(text, "2") != 0)
        broken("Seccomp %s", text);
    MUST_FAIL(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL, EPERM, ENOSYS);
}

static void gain_capabilities(void)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { ~0u, ~0u, ~0u }, { ~0u, ~0u, ~0u } };
    MUST_FAIL(syscall(SYS_capset, &header, data), EPERM, ENOSYS);
    for (int cap = 0; cap < 41; cap++)
        MUST_FAIL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0), EPERM, ENOSYS, EINVAL);
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
        note("keepcaps: %s", errno_name(errno));
    no_capabilities();
}

static void become_others(void)
{
    MUST_FAIL(setuid(0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(setgid(0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(setresuid(0, 0, 0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(setresgid(0, 0, 0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(setreuid(1, 1), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(setresuid(65534, 65534, 65534), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(setresuid(4000000000u, 4000000000u, 4000000000u), EPERM, EINVAL, ENOSYS);
    gid_t group = 0;
    MUST_FAIL(setgroups(1, &group), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(setgroups(0, NULL), EPERM, EINVAL, ENOSYS);
    syscall(SYS_setfsuid, 0);
    if ((uid_t)syscall(SYS_setfsuid, -1) == 0 && getuid() != 0)
        broken("setfsuid(0) worked");
}

static void no_groups(void)
{
    gid_t groups[64];
    int n = getgroups(COUNT(groups), groups);
    for (int i = 0; i < n; i++)
        if (groups[i] != getgid())
            broken("supplementary group %u", groups[i]);
}

static void chown_others(void)
{
    int fd = open("/tmp/chown-me", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        broken("no file in /tmp: %s", errno_name(errno));
    MUST_FAIL(fchown(fd, 0, 0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(fchown(fd, 65534, (gid_t)-1), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(fchown(fd, (uid_t)-1, 0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(chown("/usr/bin/env", getuid(), getgid()), EPERM, EROFS, EINVAL, EACCES, ENOENT, ENOSYS);
    unlink("/tmp/chown-me");
}

static void rewrite_maps(void)
{
    MUST_FAIL(write_text("/proc/self/uid_map", "0 0 4294967295\n"), EPERM, EACCES, ENOENT, EROFS, EINVAL);
    MUST_FAIL(write_text("/proc/self/gid_map", "0 0 4294967295\n"), EPERM, EACCES, ENOENT, EROFS, EINVAL);
    MUST_FAIL(write_text("/proc/self/projid_map", "0 0 4294967295\n"), EPERM, EACCES, ENOENT, EROFS, EINVAL);
    MUST_FAIL(write_text("/proc/1/uid_map", "0 0 4294967295\n"), EPERM, EACCES, ENOENT, EROFS, EINVAL);
    /* Writing what is already there may succeed; turning it round may not. */
    char text[16];
    read_text("/proc/self/setgroups", text, sizeof(text));
    if (strncmp(text, "deny", 4) == 0)
        MUST_FAIL(write_text("/proc/self/setgroups", "allow"), EPERM, EACCES, EROFS, EINVAL);
}

static void maps_are_unprivileged(void)
{
    char text[512];
    if (read_text("/proc/self/uid_map", text, sizeof(text)) <= 0)
        skipped("no uid_map");
    if (arg_get("nested"))
        skipped("the map is relative to the caller's own user namespace");
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        unsigned long inside, outside, length;
        if (sscanf(line, "%lu %lu %lu", &inside, &outside, &length) != 3)
            break;
        if (outside == 0)
            broken("the host's root is mapped: %s", text);
        if (length > 65536)
            broken("the map is too wide: %s", text);
    }
}

/* Runs PATH as "probe bomb whoami"; returns what it printed. */
static void run_whoami(const char *path, char *text, size_t size)
{
    int pipes[2];
    if (pipe(pipes) < 0)
        broken("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], 1);
        close(pipes[0]);
        close(pipes[1]);
        execl(path, "probe", "bomb", "whoami", (char *)NULL);
        dprintf(1, "exec %s", errno_name(errno));
        _exit(1);
    }
    close(pipes[1]);
    size_t have = 0;
    ssize_t n;
    while (have + 1 < size && (n = read(pipes[0], text + have, size - 1 - have)) > 0)
        have += (size_t)n;
    text[have] = 0;
    close(pipes[0]);
    waitpid(pid, NULL, 0);
}

/* PATH must run as no other user, without capabilities, with the same descriptors; or not at all. */
static void expect_plain_exec(const char *path)
{
    char want[200], text[400];
    snprintf(want, sizeof(want), "uid %d %d gid %d %d caps 0 nnp 1 seccomp 2 fds 3", getuid(), getuid(), getgid(),
             getgid());
    run_whoami(path, text, sizeof(text));
    text[strcspn(text, "\n")] = 0;
    if (strncmp(text, "exec ", 5) == 0)
        held("%s", text);
    if (strcmp(text, want) != 0)
        broken("%s: got '%s', want '%s'", path, text, want);
}

static void setuid_in_mount(void)
{
    expect_plain_exec("/probe/probe-setuid");
}

static void setgid_in_mount(void)
{
    expect_plain_exec("/probe/probe-setgid");
}

static void filecap_in_mount(void)
{
    expect_plain_exec("/probe/probe-filecap");
}

static int copy_self(const char *path, mode_t mode)
{
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
        out = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0700);
    if (in < 0 || out < 0)
        return -1;
    char buffer[65536];
    ssize_t n;
    while ((n = read(in, buffer, sizeof(buffer))) > 0)
        if (write(out, buffer, (size_t)n) != n)
            return -1;
    close(in);
    int r = fchmod(out, mode);
    close(out);
    return r;
}

static void setuid_of_own(void)
{
    if (copy_self("/tmp/own-setuid", 06755) < 0)
        held("%s", errno_name(errno));
    expect_plain_exec("/tmp/own-setuid");
    unlink("/tmp/own-setuid");
}

static void give_filecap(void)
{
    if (copy_self("/tmp/own-cap", 0755) < 0)
        held("%s", errno_name(errno));
    uint32_t v2[5] = { 0x02000001, ~0u, ~0u, ~0u, ~0u }, v3[6] = { 0x03000001, ~0u, ~0u, ~0u, ~0u, 0 };
    MUST_FAIL(setxattr("/tmp/own-cap", "security.capability", v2, sizeof(v2), 0), EPERM, EOPNOTSUPP, ENOSYS, EINVAL);
    MUST_FAIL(setxattr("/tmp/own-cap", "security.capability", v3, sizeof(v3), 0), EPERM, EOPNOTSUPP, ENOSYS, EINVAL);
    MUST_FAIL(setxattr("/tmp/own-cap", "trusted.overlay.opaque", "y", 1, 0), EPERM, EOPNOTSUPP, ENOSYS);
    unlink("/tmp/own-cap");
}

static void setuid_of_image(void)
{
    static const char *const programs[] = { "/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp" };
    struct stat info;
    for (size_t i = 0; i < COUNT(programs); i++)
        if (stat(programs[i], &info) == 0 && info.st_mode & S_ISUID) {
            /* su as root would not ask; as any other user it must fail, for its setuid bit does not count. */
            pid_t pid = fork();
            if (pid == 0) {
                int null = open("/dev/null", O_RDWR);
                dup2(null, 0), dup2(null, 1), dup2(null, 2);
                execl(programs[i], "su", "-c", "id", (char *)NULL);
                _exit(99);
            }
            int status = 0;
            waitpid(pid, &status, 0);
            if (strstr(programs[i], "/su") && WIFEXITED(status) && WEXITSTATUS(status) == 0)
                broken("su succeeded");
        }
}

static void memfd_exec(void)
{
    int fd = (int)syscall(SYS_memfd_create, "payload", 1);
    if (fd < 0)
        held("memfd_create %s", errno_name(errno));
    int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    char buffer[65536];
    ssize_t n;
    while ((n = read(in, buffer, sizeof(buffer))) > 0)
        if (write(fd, buffer, (size_t)n) != n)
            broken("write");
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    close(in);
    expect_plain_exec(path);
}

static void deleted_exec(void)
{
    if (copy_self("/tmp/soon-gone", 0755) < 0)
        broken("copy: %s", errno_name(errno));
    int fd = open("/tmp/soon-gone", O_RDONLY | O_CLOEXEC);
    unlink("/tmp/soon-gone");
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    expect_plain_exec(path);
}

static void loader_exec(void)
{
    /* The dynamic loader runs a program that has no execute bit: the same privileges, so it gains nothing. */
    if (access("/lib64/ld-linux-x86-64.so.2", X_OK) < 0)
        skipped("no loader");
    pid_t pid = fork();
    if (pid == 0) {
        execl("/lib64/ld-linux-x86-64.so.2", "ld", "/usr/bin/grep", "-q", "^CapEff:.0000000000000000$",
              "/proc/self/status", (char *)NULL);
        _exit(99);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        broken("status %x", status);
}

static void own_filter(void)
{
    struct sock_filter allow[] = { { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW } };
    struct sock_fprog program = { 1, allow };
    /* What all of the host's filters may take together is one number. */
    MUST_FAIL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program), EPERM, EINVAL);
    MUST_FAIL(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), EPERM, EINVAL);
    MUST_FAIL(syscall(SYS_unshare, 0x10000000), EPERM, ENOSYS);
    MUST_FAIL(syscall(SYS_bpf, 0, NULL, 0), EPERM, ENOSYS);
}

static void listener_filter(void)
{
    struct sock_filter ask[] = { { BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF } };
    struct sock_fprog program = { 1, ask };
    MUST_FAIL(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program), EPERM, ENOSYS,
              EBUSY, EINVAL);
}

static void dump_filter(void)
{
    struct sock_filter out[64];
    MUST_FAIL(syscall(SYS_ptrace, 0x420c /* PTRACE_SECCOMP_GET_FILTER */, 1, 0, out), EPERM, ENOSYS, EACCES, ESRCH);
}

static void widen_landlock(void)
{
    struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_EXECUTE };
    int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr.handled_access_fs), 0);
    if (fd >= 0) {
        struct landlock_path_beneath_attr all = { .allowed_access = LANDLOCK_ACCESS_FS_EXECUTE,
                                                  .parent_fd = open("/", O_PATH) };
        syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &all, 0);
        if (syscall(SYS_landlock_restrict_self, fd, 0) < 0)
            note("restrict: %s", errno_name(errno));
    } else {
        note("create: %s", errno_name(errno));
    }
    MUST_FAIL(open("/usr/bin/carrel-was-here", O_CREAT | O_WRONLY, 0600), EROFS, EACCES, EPERM);
    MUST_FAIL(open("/carrel-was-here", O_CREAT | O_WRONLY, 0600), EROFS, EACCES, EPERM);
}

static void dumpable_games(void)
{
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    MUST_FAIL(prctl(PR_SET_DUMPABLE, 2, 0, 0, 0), EINVAL, EPERM);
    prctl(0x59616d61 /* PR_SET_PTRACER */, -1, 0, 0, 0);
    MUST_FAIL(open("/proc/1/mem", O_RDONLY), EACCES, EPERM, ENOENT);
    for (int option = 1; option <= 15; option++)
        MUST_FAIL(prctl(PR_SET_MM, option, 0x10000, 0, 0), EPERM, ENOSYS, EINVAL);
}

static void security_attributes(void)
{
    static const char *const files[] = { "/proc/self/attr/current", "/proc/self/attr/exec", "/proc/self/attr/fscreate",
                                         "/proc/self/attr/keycreate", "/proc/self/attr/sockcreate" };
    for (size_t i = 0; i < COUNT(files); i++)
        MUST_FAIL_AS(files[i], write_text(files[i], "unconfined"), EPERM, EACCES, EINVAL, ENOENT, EROFS);
    /* Any user may set an unset login uid once, to an id of the own map: never to the host's root. */
    if (write_text("/proc/self/loginuid", "4294967294") == 0)
        broken("loginuid was set to an id outside the map");
    uint32_t size = 0;
    if (syscall(459 /* lsm_get_self_attr */, 100, NULL, &size, 0) < 0)
        note("lsm_get_self_attr: %s", errno_name(errno));
    MUST_FAIL(syscall(460 /* lsm_set_self_attr */, 100, "x", 1, 0), EPERM, ENOSYS, EINVAL, EOPNOTSUPP);
}

static void empty_argv(void)
{
    /* A program started without argv[0] read its environment as arguments (CVE-2021-4034). */
    char *none[] = { NULL }, *env[] = { (char *)"bomb", (char *)"whoami", NULL };
    pid_t pid = fork();
    if (pid == 0) {
        execve("/probe/probe-setuid", none, env);
        _exit(7);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        note("signal %d", WTERMSIG(status));
    no_capabilities();
}

static const struct attack attacks[] = {
    { "all_capability_sets_are_empty", no_capabilities },
    { "no_new_privileges_and_a_filter_are_on_for_good", sealed_state },
    { "capabilities_cannot_be_raised", gain_capabilities },
    { "ids_cannot_be_changed", become_others },
    { "there_are_no_foreign_supplementary_groups", no_groups },
    { "files_cannot_be_given_to_others", chown_others },
    { "id_maps_cannot_be_rewritten", rewrite_maps },
    { "the_hosts_root_is_not_mapped", maps_are_unprivileged },
    { "a_setuid_root_file_on_a_mount_gains_nothing", setuid_in_mount },
    { "a_setgid_file_on_a_mount_gains_nothing", setgid_in_mount },
    { "a_file_with_capabilities_on_a_mount_gains_nothing", filecap_in_mount },
    { "own_setuid_files_gain_nothing", setuid_of_own },
    { "file_capabilities_cannot_be_given", give_filecap },
    { "setuid_programs_of_the_image_gain_nothing", setuid_of_image },
    { "a_program_in_a_memfd_gains_nothing", memfd_exec },
    { "a_deleted_program_gains_nothing", deleted_exec },
    { "the_loader_gains_nothing", loader_exec },
    { "own_filters_are_refused", own_filter },
    { "a_seccomp_listener_is_refused", listener_filter },
    { "the_filter_cannot_be_read_out", dump_filter },
    { "an_own_landlock_ruleset_widens_nothing", widen_landlock },
    { "dumpable_ptracer_and_mm_options_open_nothing", dumpable_games },
    { "security_attributes_cannot_be_written", security_attributes },
    { "a_setuid_file_started_without_arguments_gains_nothing", empty_argv },
};
const struct topic topic_identity = { "identity", attacks, COUNT(attacks) };
