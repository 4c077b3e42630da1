/* Runs in a box and tells, one line each, how it is confined: what it is, what it sees, and how the kernel answers to
 * what it must not do. The same box gives the same lines every time. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

extern char **environ;

static const char *answer(long r)
{
    return r >= 0 ? "ok" : strerrorname_np(errno);
}

static void tell_identity(void)
{
    uid_t u[3];
    gid_t g[3], groups[64];
    struct utsname uts;
    char cwd[256];

    getresuid(u, u + 1, u + 2);
    getresgid(g, g + 1, g + 2);
    printf("uid %u %u %u\ngid %u %u %u\ngroups %d\n", u[0], u[1], u[2], g[0], g[1], g[2], getgroups(64, groups));
    printf("pid %d parent %d session %d\n", getpid(), getppid(), getsid(0));
    uname(&uts);
    printf("host %s\ncwd %s\numask %03o\n", uts.nodename, getcwd(cwd, sizeof cwd), umask(022));
    printf("securebits %#x\ndumpable %d\n", prctl(PR_GET_SECUREBITS), prctl(PR_GET_DUMPABLE));
    int death = 0;
    prctl(PR_GET_PDEATHSIG, &death);
    printf("dies with its parent: %d\n", death);
    for (char **v = environ; *v; v++)
        printf("env %s\n", *v);
}

static void tell_status(void)
{
    static const char *const wanted[] = { "Cap",    "NoNewPrivs", "Seccomp:", "Seccomp_filters", "SigBlk",
                                          "SigIgn", "SigCgt",     "NSpid",    "Groups" };
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");

    while (f && fgets(line, sizeof line, f))
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (strncmp(line, wanted[i], strlen(wanted[i])) == 0)
                fputs(line, stdout);
    if (f)
        fclose(f);
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        struct rlimit limit = { 0 };
        getrlimit((__rlimit_resource_t)i, &limit);
        printf("rlimit %d %lu %lu\n", i, (unsigned long)limit.rlim_cur, (unsigned long)limit.rlim_max);
    }
}

static void tell_file(const char *path)
{
    char text[512];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (n < 0) {
        printf("file %s %s\n", path, answer(-1));
    } else {
        text[n] = '\0';
        text[strcspn(text, "\n")] = '\0';
        printf("file %s '%s'%s\n", path, text, n == 0 ? " (empty)" : "");
    }
    if (fd >= 0)
        close(fd);
}

static void tell_files(void)
{
    static const char *const files[] = { "/etc/shadow",
                                         "/etc/passwd",
                                         "/etc/hostname",
                                         "/root",
                                         "/var/lib",
                                         "/proc/kallsyms",
                                         "/proc/cmdline",
                                         "/proc/keys",
                                         "/proc/modules",
                                         "/proc/timer_list",
                                         "/proc/meminfo",
                                         "/proc/cpuinfo",
                                         "/proc/sys/user/max_user_namespaces",
                                         "/proc/sys/net/ipv4/tcp_rmem",
                                         "/proc/self/uid_map",
                                         "/proc/self/gid_map",
                                         "/proc/self/setgroups",
                                         "/proc/1/environ",
                                         "/proc/1/cmdline",
                                         "/.empty" };
    static const char *const places[] = { "/x",   "/usr/x", "/etc/x",      "/dev/x",    "/run/x",
                                          "/w/x", "/tmp/x", "/home/box/x", "/dev/shm/x" };
    static const char *const devices[] = { "/dev/null",   "/dev/zero",    "/dev/full",
                                           "/dev/random", "/dev/urandom", "/dev/tty" };
    struct stat status;
    struct statvfs fs;

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strstr(files[i], "id_map"))
            printf("file %s is %s\n", files[i], access(files[i], R_OK) == 0 ? "there" : "away");
        else
            tell_file(files[i]);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int fd = open(places[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        printf("write %s %s\n", places[i], answer(fd));
        if (fd >= 0 && (close(fd) < 0 || unlink(places[i]) < 0))
            puts("cannot remove it");
    }
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (stat(devices[i], &status) == 0)
            printf("device %s %#o %lx\n", devices[i], status.st_mode, (unsigned long)status.st_rdev);
    for (size_t i = 6; i < sizeof places / sizeof *places; i++) {
        char folder[32];
        snprintf(folder, sizeof folder, "%.*s", (int)strlen(places[i]) - 2, places[i]);
        if (statvfs(folder, &fs) == 0 && stat(folder, &status) == 0)
            printf("scratch %s %lu bytes, flags %#lx, mode %#o, owner %u\n", folder,
                   (unsigned long)(fs.f_blocks * fs.f_frsize), fs.f_flag, status.st_mode, status.st_uid);
    }
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *d = dir ? readdir(dir) : NULL; d; d = readdir(dir))
        if (d->d_name[0] != '.' && strtol(d->d_name, NULL, 10) != dirfd(dir))
            printf("descriptor %s\n", d->d_name);
    if (dir)
        closedir(dir);
}

static void tell_refusals(void)
{
    struct sockaddr_in away = { .sin_family = AF_INET,
                                .sin_port = htons(9),
                                .sin_addr.s_addr = inet_addr("192.0.2.1") };
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);

    for (int i = 1; i < 64; i++) {
        struct ifreq request = { .ifr_ifindex = i };
        if (ioctl(listener, SIOCGIFNAME, &request) == 0)
            printf("interface %s\n", request.ifr_name);
    }
    printf("reach away: %s\n", answer(connect(client, (struct sockaddr *)&away, sizeof away)));
    printf("loopback bind: %s\n", answer(bind(listener, (struct sockaddr *)&here, sizeof here)));
    listen(listener, 1);
    getsockname(listener, (struct sockaddr *)&here, &size);
    printf("loopback connect: %s\n", answer(connect(client, (struct sockaddr *)&here, sizeof here)));
    printf("unshare user: %s\n", answer(unshare(CLONE_NEWUSER)));
    printf("unshare mount: %s\n", answer(unshare(CLONE_NEWNS)));
    printf("mount: %s\n", answer(mount("none", "/tmp", "tmpfs", 0, NULL)));
    printf("remount: %s\n", answer(mount(NULL, "/usr", NULL, MS_REMOUNT | MS_BIND, NULL)));
    printf("keyctl: %s\n", answer(syscall(SYS_keyctl, 0, 0, 0, 0, 0)));
    printf("bpf: %s\n", answer(syscall(SYS_bpf, 0, NULL, 0)));
    printf("setuid 0: %s\n", answer(setresuid(0, 0, 0)));
    printf("sethostname: %s\n", answer(sethostname("x", 1)));
}

/* The kernel takes at most 16 layers of rules; how many are left tells how many there are. */
static void tell_landlock(void)
{
    int layers = 0;
    struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_SOCK };
    long set = syscall(SYS_landlock_create_ruleset, &attr, sizeof attr.handled_access_fs, 0);

    while (set >= 0 && layers < 64 && syscall(SYS_landlock_restrict_self, set, 0) == 0)
        layers++;
    printf("landlock layers left %d: %s\n", layers, answer(-1));
}

int main(void)
{
    tell_identity();
    tell_status();
    tell_files();
    tell_refusals();
    tell_landlock();
    puts("end of witness");
    return fflush(stdout) == 0 ? 0 : 1;
}
