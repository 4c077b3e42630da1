/* What /proc, /sys and the environment tell about the host, and what can be written there. */
#define _GNU_SOURCE
#include "probe.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char **environ;

/* A string that is in host paths and in the caller's environment, and must not be seen inside. */
static const char *secret(void)
{
    const char *text = arg_get("secret");
    if (!text)
        skipped("no secret given");
    return text;
}

/* Calls look(path) for every /proc/PID/NAME of other processes. */
static void for_each_process(const char *name, void (*look)(const char *path))
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return;
    struct dirent *entry;
    char path[300];
    while ((entry = readdir(proc)))
        if (isdigit((unsigned char)entry->d_name[0]) && strtol(entry->d_name, NULL, 10) != getpid() &&
            strtol(entry->d_name, NULL, 10) != getppid()) {
            snprintf(path, sizeof(path), "/proc/%s/%s", entry->d_name, name);
            look(path);
        }
    closedir(proc);
}

static void must_not_tell(const char *path)
{
    static char text[65536];
    ssize_t n = read_text(path, text, sizeof(text));
    if (n > 0 && memmem(text, (size_t)n, secret(), strlen(secret())))
        broken("%s has the secret", path);
}

static void foreign_environments(void)
{
    for_each_process("environ", must_not_tell);
    must_not_tell("/proc/1/environ");
}

static void must_be_empty(const char *path)
{
    char text[256];
    ssize_t n = read_text(path, text, sizeof(text));
    if (n > 0)
        broken("%s has %zd bytes: %s", path, n, text);
}

static void init_environment(void)
{
    must_be_empty("/proc/1/environ");
}

static void foreign_cmdlines(void)
{
    for_each_process("cmdline", must_not_tell);
    char text[4096];
    ssize_t n = read_text("/proc/1/cmdline", text, sizeof(text));
    if (n > 0 && (memmem(text, (size_t)n, "--mount", 7) || memmem(text, (size_t)n, "--memory", 8)))
        broken("/proc/1/cmdline shows the keeper's: %s", text);
}

static void own_environment(void)
{
    static const char *const known[] = { "PATH=",     "LANG=", "LC_ALL=", "HOME=",   "TERM=",   "USER=",  "LOGNAME=",
                                         "HOSTNAME=", "PWD=",  "SHELL=",  "TMPDIR=", "OLDPWD=", "SHLVL=", "_=" };
    for (char **e = environ; *e; e++) {
        if (strstr(*e, secret()))
            broken("the caller's environment is inside: %s", *e);
        size_t i = 0;
        while (i < COUNT(known) && strncmp(*e, known[i], strlen(known[i])) != 0)
            i++;
        if (i == COUNT(known))
            broken("unexpected variable: %s", *e);
    }
}

static void files_of_init(void)
{
    static const char *const files[] = { "mem",
                                         "maps",
                                         "smaps",
                                         "pagemap",
                                         "auxv",
                                         "environ",
                                         "stack",
                                         "syscall",
                                         "personality",
                                         "io",
                                         "exe",
                                         "cwd",
                                         "root",
                                         "fd/0",
                                         "fdinfo/0",
                                         "map_files",
                                         "root/etc/passwd",
                                         "cwd/etc",
                                         "ns/user",
                                         "ns/mnt",
                                         "clear_refs",
                                         "patch_state",
                                         "task/1/mem",
                                         "task/1/environ" };
    char path[64], text[64];
    for (size_t i = 0; i < COUNT(files); i++) {
        snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (read(fd, text, sizeof(text)) > 0)
            broken("%s can be read", path);
        struct stat info;
        if (strcmp(files[i], "exe") == 0 || strcmp(files[i], "root") == 0 || strcmp(files[i], "cwd") == 0)
            if (fstat(fd, &info) == 0)
                broken("%s can be opened", path);
        close(fd);
    }
    char target[256];
    MUST_FAIL(readlink("/proc/1/exe", target, sizeof(target)), EACCES, EPERM, ENOENT);
    MUST_FAIL(readlink("/proc/1/root", target, sizeof(target)), EACCES, EPERM, ENOENT);
}

static void exec_init(void)
{
    /* The program that init runs could be overwritten through this link while it runs (CVE-2019-5736). */
    char *args[] = { (char *)"carrel", (char *)"version", NULL };
    MUST_FAIL(execv("/proc/1/exe", args), EACCES, EPERM, ENOENT);
    MUST_FAIL(open("/proc/1/exe", O_WRONLY), EACCES, EPERM, ENOENT, ETXTBSY, EROFS);
    MUST_FAIL(open("/proc/1/exe", O_PATH), EACCES, EPERM, ENOENT);
}

static void overwrite_self(void)
{
    MUST_FAIL(open("/proc/self/exe", O_WRONLY), ETXTBSY, EROFS, EACCES, EPERM);
    MUST_FAIL(open("/proc/self/exe", O_RDWR | O_TRUNC), ETXTBSY, EROFS, EACCES, EPERM);
    MUST_FAIL(truncate("/proc/self/exe", 0), ETXTBSY, EROFS, EACCES, EPERM);
    MUST_FAIL(chmod("/proc/self/exe", 0777), EROFS, EACCES, EPERM);
}

static void only_own_processes(void)
{
    char text[64];
    const char *host = arg_get("host_pid");
    if (!host)
        skipped("no host_pid");
    char path[64];
    snprintf(path, sizeof(path), "/proc/%s", host);
    MUST_FAIL(access(path, F_OK), ENOENT);
    DIR *proc = opendir("/proc");
    if (!proc)
        held("no /proc");
    struct dirent *entry;
    int count = 0;
    while ((entry = readdir(proc)))
        if (isdigit((unsigned char)entry->d_name[0]))
            count++;
    closedir(proc);
    if (count > 10)
        broken("%d processes", count);
    if (read_text("/proc/loadavg", text, sizeof(text)) > 0)
        note("loadavg %s", text);
}

/* Nothing may come out of these. */
static void secret_files(void)
{
    static const char *const files[] = { "/proc/kcore",
                                         "/proc/keys",
                                         "/proc/key-users",
                                         "/proc/timer_list",
                                         "/proc/sched_debug",
                                         "/proc/kmsg",
                                         "/proc/vmallocinfo",
                                         "/proc/slabinfo",
                                         "/proc/kpagecount",
                                         "/proc/kpageflags",
                                         "/proc/kpagecgroup",
                                         "/proc/latency_stats",
                                         "/dev/kmsg",
                                         "/sys/kernel/debug/sched/debug",
                                         "/proc/vmcore",
                                         "/sys/kernel/tracing/trace",
                                         "/sys/kernel/notes",
                                         "/sys/firmware/dmi/tables/DMI",
                                         "/sys/class/dmi/id/product_uuid",
                                         "/proc/bus/pci/devices",
                                         "/proc/scsi/scsi",
                                         "/proc/mtrr",
                                         "/proc/driver/rtc",
                                         "/proc/kallsyms",
                                         "/proc/modules",
                                         "/proc/sysrq-trigger" };
    char text[4096];
    for (size_t i = 0; i < COUNT(files); i++) {
        ssize_t n = read_text(files[i], text, sizeof(text));
        if (n > 0 && strstr(files[i], "kallsyms") && strncmp(text, "0000000000000000 ", 17) == 0)
            continue;
        if (n > 0)
            broken("%s gives %zd bytes", files[i], n);
    }
}

static void no_write_anywhere(const char *path, const char *text)
{
    MUST_FAIL_AS(path, write_text(path, text), EACCES, EPERM, ENOENT, EROFS, EINVAL, EIO, ENOTDIR);
}

static void kernel_controls(void)
{
    static const struct {
        const char *path, *text;
    } files[] = {
        { "/proc/sysrq-trigger", "h" },
        { "/proc/pressure/cpu", "some 500000 2000000" },
        { "/proc/pressure/io", "some 500000 2000000" },
        { "/proc/pressure/memory", "some 500000 2000000" },
        { "/proc/sys/kernel/core_pattern", "|/tmp/x" },
        { "/proc/sys/kernel/modprobe", "/tmp/x" },
        { "/proc/sys/kernel/hostname", "owned" },
        { "/proc/sys/kernel/domainname", "owned" },
        { "/proc/sys/kernel/hotplug", "/tmp/x" },
        { "/proc/sys/kernel/poweroff_cmd", "/tmp/x" },
        { "/proc/sys/vm/overcommit_memory", "1" },
        { "/proc/sys/vm/drop_caches", "3" },
        { "/proc/sys/vm/panic_on_oom", "1" },
        { "/proc/sys/fs/binfmt_misc/register", ":x:M::x::/tmp/x:" },
        { "/proc/sys/fs/suid_dumpable", "2" },
        { "/proc/sys/kernel/pid_max", "400" },
        { "/proc/sys/kernel/ns_last_pid", "300" },
        { "/proc/sys/kernel/shmmax", "1" },
        { "/proc/sys/kernel/shm_rmid_forced", "1" },
        { "/proc/sys/kernel/msgmax", "1" },
        { "/proc/sys/kernel/sem", "1 1 1 1" },
        { "/proc/sys/fs/mqueue/msg_max", "1000" },
        { "/proc/sys/net/ipv4/ip_forward", "1" },
        { "/proc/sys/net/core/somaxconn", "1" },
        { "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0" },
        { "/proc/sys/net/ipv4/ping_group_range", "0 2147483647" },
        { "/proc/sys/kernel/sched_rt_runtime_us", "-1" },
        { "/proc/sys/kernel/unprivileged_bpf_disabled", "0" },
        { "/proc/sys/kernel/dmesg_restrict", "0" },
        { "/proc/sys/kernel/kptr_restrict", "0" },
        { "/proc/sys/kernel/randomize_va_space", "0" },
        { "/proc/sys/kernel/panic", "1" },
        { "/proc/sys/kernel/sysrq", "1" },
        { "/proc/sys/dev/tty/legacy_tiocsti", "1" },
        { "/proc/sys/user/max_pid_namespaces", "9" },
        { "/proc/irq/default_smp_affinity", "1" },
        { "/proc/irq/0/smp_affinity", "1" },
        { "/proc/bus/pci/00/00.0", "x" },
        { "/proc/acpi/wakeup", "x" },
        { "/proc/asound/card0/id", "x" },
        { "/proc/mtrr", "x" },
        { "/proc/scsi/scsi", "scsi remove-single-device 0 0 0 0" },
        { "/proc/self/timens_offsets", "1 100 0" },
        { "/proc/fs/nfsd/threads", "1" },
        { "/proc/dynamic_debug/control", "x" },
        { "/proc/pressure/cpu", "some 1 2" },
        { "/proc/1/coredump_filter", "0x7f" },
        { "/proc/1/sched", "0" },
        { "/proc/1/comm", "owned" },
        { "/proc/1/clear_refs", "1" },
    };
    for (size_t i = 0; i < COUNT(files); i++)
        if (strcmp(files[i].path, "/proc/pressure/cpu") != 0)
            no_write_anywhere(files[i].path, files[i].text);
}

static void sysfs_controls(void)
{
    static const struct {
        const char *path, *text;
    } files[] = {
        { "/sys/kernel/uevent_helper", "/tmp/x" },
        { "/sys/power/state", "mem" },
        { "/sys/kernel/mm/ksm/run", "1" },
        { "/sys/kernel/mm/transparent_hugepage/enabled", "never" },
        { "/sys/devices/system/cpu/cpu1/online", "0" },
        { "/sys/module/printk/parameters/time", "0" },
        { "/sys/block/vda/queue/scheduler", "none" },
        { "/sys/class/net/lo/mtu", "100" },
        { "/sys/kernel/debug/clear_warn_once", "1" },
        { "/sys/fs/cgroup/cgroup.procs", "0" },
        { "/sys/kernel/security/lockdown", "none" },
        { "/sys/kernel/tracing/tracing_on", "1" },
        { "/sys/kernel/profiling", "1" },
        { "/sys/kernel/kexec_crash_size", "0" },
    };
    for (size_t i = 0; i < COUNT(files); i++)
        no_write_anywhere(files[i].path, files[i].text);
}

static void no_cgroups(void)
{
    static const char *const files[] = { "/sys/fs/cgroup/cgroup.procs",
                                         "/sys/fs/cgroup/memory/tasks",
                                         "/sys/fs/cgroup/pids/tasks",
                                         "/sys/fs/cgroup/unified/cgroup.procs",
                                         "/sys/fs/cgroup/memory/release_agent",
                                         "/sys/fs/cgroup/memory/notify_on_release",
                                         "/sys/fs/cgroup/release_agent",
                                         "/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/pids.max",
                                         "/sys/fs/cgroup/cgroup.subtree_control",
                                         "/sys/fs/cgroup/cgroup.kill" };
    for (size_t i = 0; i < COUNT(files); i++)
        no_write_anywhere(files[i], "0");
    MUST_FAIL(mkdir("/sys/fs/cgroup/sub", 0700), ENOENT, EROFS, EACCES, EPERM);
    MUST_FAIL(mkdir("/sys/fs/cgroup/memory/sub", 0700), ENOENT, EROFS, EACCES, EPERM);
}

static void cgroup_path(void)
{
    char text[4096];
    if (read_text("/proc/self/cgroup", text, sizeof(text)) > 0 && strstr(text, "carrel-"))
        note("the path of the cgroup can be read");
}

static void boot_parameters(void)
{
    char text[4096];
    if (read_text("/proc/cmdline", text, sizeof(text)) > 0 && text[0] != '\n')
        note("%.60s", text);
    must_not_tell("/proc/cmdline");
}

static void mount_paths(void)
{
    /* Of host paths only the roots of what the caller mounted may be seen. */
    static char text[65536];
    if (read_text("/proc/self/mountinfo", text, sizeof(text)) <= 0)
        held("no mountinfo");
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char root[1024], point[1024], type[64], source[1024], *dash = strstr(line, " - ");
        if (sscanf(line, "%*s %*s %*s %1023s %1023s", root, point) != 2 || !dash ||
            sscanf(dash, " - %63s %1023s", type, source) != 2)
            broken("cannot read: %s", line);
        if (strcmp(root, "/") == 0 || strncmp(point, "/probe", 6) == 0 || strncmp(point, "/host", 5) == 0)
            continue;
        if (strncmp(root, "/etc/", 5) == 0 &&
            strcmp(root, point) == 0) /* a file of the system, where it is on the host too */
            continue;
        if (strncmp(root, "/usr", 4) == 0 || strcmp(type, "devtmpfs") == 0 || strcmp(type, "tmpfs") == 0 ||
            strcmp(type, "proc") == 0)
            continue;
        broken("%s", line);
    }
}

static void mount_flags(void)
{
    static char text[65536];
    if (read_text("/proc/self/mountinfo", text, sizeof(text)) <= 0)
        held("no mountinfo");
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char point[1024], flags[1024];
        if (sscanf(line, "%*s %*s %*s %*s %1023s %1023s", point, flags) != 2)
            broken("cannot read: %s", line);
        if (!strstr(flags, "nosuid"))
            broken("%s is not nosuid (%s)", point, flags);
        if (!strstr(flags, "nodev") && strncmp(point, "/dev", 4) != 0)
            broken("%s is not nodev (%s)", point, flags);
        int scratch = strncmp(point, "/tmp", 4) == 0 || strncmp(point, "/home", 5) == 0 ||
                      strncmp(point, "/dev/shm", 8) == 0 || strncmp(point, "/host", 5) == 0;
        if (!scratch && strncmp(flags, "ro", 2) != 0 && strncmp(point, "/dev/", 5) != 0 &&
            strncmp(point, "/proc", 5) != 0)
            broken("%s is writable (%s)", point, flags);
    }
}

static void host_name(void)
{
    struct utsname name;
    uname(&name);
    const char *host = arg_get("hostname");
    if (host && strcmp(host, name.nodename) == 0)
        broken("the host's name is inside: %s", name.nodename);
}

static void network_tables(void)
{
    must_not_tell("/proc/net/unix");
    must_not_tell("/proc/self/net/unix");
    char text[4096];
    if (read_text("/proc/net/tcp", text, sizeof(text)) > 0 && strchr(text, '\n') && strchr(text, '\n')[1])
        broken("/proc/net/tcp is not empty: %s", text);
    if (read_text("/proc/net/dev", text, sizeof(text)) > 0 && (strstr(text, "eth") || strstr(text, "ens")))
        broken("/proc/net/dev shows the host's devices");
}

static void other_tables(void)
{
    static const char *const files[] = { "/proc/locks", "/proc/sysvipc/shm", "/proc/swaps", "/proc/diskstats",
                                         "/proc/self/mountstats" };
    for (size_t i = 0; i < COUNT(files); i++)
        must_not_tell(files[i]);
    char text[4096];
    if (read_text("/proc/locks", text, sizeof(text)) > 0)
        note("locks: %zu bytes", strlen(text));
}

static void told_limits(void)
{
    /* These tell the box's own limits; they are files of the keeper's. */
    static const char *const files[] = { "/proc/meminfo", "/proc/cpuinfo",   "/proc/stat",      "/proc/uptime",
                                         "/proc/loadavg", "/proc/swaps",     "/proc/diskstats", "/etc/passwd",
                                         "/etc/hostname", "/etc/resolv.conf" };
    for (size_t i = 0; i < COUNT(files); i++) {
        no_write_anywhere(files[i], "owned");
        if (access(files[i], F_OK) == 0)
            MUST_FAIL_AS(files[i], chmod(files[i], 0666), EPERM, EROFS, EACCES);
    }
}

static const struct attack attacks[] = {
    { "environments_of_others_do_not_hold_the_callers", foreign_environments },
    { "the_environment_of_init_is_empty_or_closed", init_environment },
    { "the_command_line_of_init_does_not_show_the_keepers", foreign_cmdlines },
    { "the_callers_environment_stays_outside", own_environment },
    { "files_of_init_in_proc_are_closed", files_of_init },
    { "the_program_of_init_can_be_neither_run_nor_written", exec_init },
    { "the_own_program_file_cannot_be_overwritten", overwrite_self },
    { "only_processes_of_the_box_are_visible", only_own_processes },
    { "kernel_secrets_in_proc_and_sys_are_masked", secret_files },
    { "kernel_controls_in_proc_cannot_be_written", kernel_controls },
    { "kernel_controls_in_sys_cannot_be_written", sysfs_controls },
    { "files_that_tell_the_boxs_limits_cannot_be_written", told_limits },
    { "there_is_no_cgroup_file_to_write", no_cgroups },
    { "the_cgroup_path_is_of_no_use", cgroup_path },
    { "boot_parameters_tell_no_secret", boot_parameters },
    { "mountinfo_shows_no_host_path_that_was_not_asked_for", mount_paths },
    { "every_mount_is_nosuid_and_nodev_and_read_only_unless_scratch", mount_flags },
    { "the_hosts_name_is_not_inside", host_name },
    { "network_tables_show_nothing_of_the_host", network_tables },
    { "lock_and_ipc_tables_show_nothing_of_the_host", other_tables },
};
const struct topic topic_procfs = { "procfs", attacks, COUNT(attacks) };
