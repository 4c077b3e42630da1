#define _GNU_SOURCE
#include "sys/rights.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1 << 5)
#endif

enum { FILTER_MOST = 1024 };

const char *rights_lacking(void)
{
    static const struct {
        int         number;
        const char *name;
    } needed[] = {
        { CAP_SYS_ADMIN, "CAP_SYS_ADMIN" },       { CAP_SETUID, "CAP_SETUID" },   { CAP_SETGID, "CAP_SETGID" },
        { CAP_SETPCAP, "CAP_SETPCAP" },           { CAP_KILL, "CAP_KILL" },       { CAP_CHOWN, "CAP_CHOWN" },
        { CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE" }, { CAP_MKNOD, "CAP_MKNOD" },     { CAP_SYS_PTRACE, "CAP_SYS_PTRACE" },
    };
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { 0 };

    if (syscall(SYS_capget, &header, data) < 0)
        return "any";
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!(data[0].effective >> needed[i].number & 1))
            return needed[i].name;
    return NULL;
}

int rights_become(uid_t uid, gid_t gid, int can_setgroups)
{
    /* Leaving uid 0 must not drop the capabilities that the next steps need; one step later they are dropped all at
     * once. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
        return -errno;
    /* Raw calls: a libc's wrappers would first look for other threads. */
    if (can_setgroups && syscall(SYS_setgroups, 0, NULL) < 0)
        return -errno;
    if (syscall(SYS_setresgid, gid, gid, gid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0)
        return -errno;
    return 0;
}

int rights_keep_capabilities(uint64_t keep)
{
    /* NOROOT: exec as uid 0 grants nothing. A profile that keeps capabilities needs exec as root to pass them on. */
    unsigned long bits = (keep ? 0 : SECBIT_NO_SETUID_FIXUP) | SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
                         SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED | SECBIT_NOROOT_LOCKED |
                         (keep ? 0 : SECBIT_NOROOT);

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -errno;
    for (int cap = 0; cap < 64; cap++)
        if (!(keep >> cap & 1) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL && cap > CAP_AUDIT_READ)
                break;      /* past the last capability of this kernel; all supported kernels know that one */
            return -errno;
        }
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        return -errno;

    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = {
        { .effective = (uint32_t)keep, .permitted = (uint32_t)keep },
        { .effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32) },
    };
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int lower(int resource, rlim_t usual, rlim_t most)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) < 0)
        return -errno;
    if (limit.rlim_max > most)
        limit.rlim_max = most;
    if (limit.rlim_cur > usual)
        limit.rlim_cur = usual;
    return setrlimit(resource, &limit) < 0 ? -errno : 0;
}

int rights_limit_resources(struct file_limit files)
{
    static const struct {
        int    resource;
        rlim_t most;
    } limits[] = {
        { RLIMIT_CORE, 0 },   { RLIMIT_MEMLOCK, 64 << 10 },  { RLIMIT_RTPRIO, 0 },
        { RLIMIT_NICE, 0 },   { RLIMIT_SIGPENDING, 4096 },   { RLIMIT_MSGQUEUE, 800 << 10 },
    };
    int r = lower(RLIMIT_NOFILE, files.usual, files.most);

    for (size_t i = 0; r == 0 && i < sizeof limits / sizeof *limits; i++)
        r = lower(limits[i].resource, limits[i].most, limits[i].most);
    return r;
}

int rights_new_keyring(void)
{
    /* A kernel without keyrings has none to inherit. */
    return syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS ? -errno : 0;
}

int rights_no_new_privileges(void)
{
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int load(const struct sock_filter *code, unsigned short length, unsigned flags)
{
    struct sock_fprog program = { .len = length, .filter = (struct sock_filter *)(uintptr_t)code };
    long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    return r < 0 ? -errno : (int)r;
}

int rights_filter_calls(const struct sock_filter *code, unsigned short length)
{
    return load(code, length, 0);
}

int rights_filter_listening(const struct sock_filter *code, unsigned short length, int *ret_listener)
{
    /* With the second flag (Linux 5.19) signals do not interrupt a call that the listener has received. */
    int r = load(code, length, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
    if (r == -EINVAL)
        r = load(code, length, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    *ret_listener = r < 0 ? -1 : r;
    if (r != -EBUSY)
        return r < 0 ? r : 0;

    struct sock_filter deaf[FILTER_MOST];
    if (length > FILTER_MOST)
        return -E2BIG;
    for (unsigned short i = 0; i < length; i++) {
        deaf[i] = code[i];
        if (deaf[i].code == (BPF_RET | BPF_K) && deaf[i].k == SECCOMP_RET_USER_NOTIF)
            deaf[i].k = SECCOMP_RET_ERRNO | EINVAL;
    }
    return load(deaf, length, 0);
}

int rights_hide(void)
{
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

int rights_die_with(int parent)
{
    struct pollfd ended = { .fd = parent, .events = POLLIN };

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    /* getppid() does not help: inside a pid namespace it is 0 for any parent outside. */
    int n = poll(&ended, 1, 0);
    return n < 0 ? -errno : n > 0 ? -ESRCH : 0;
}
