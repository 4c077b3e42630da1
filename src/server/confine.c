/* A front that is taken over can talk to the keeper and to its clients, write its own state, and nothing else: Landlock
 * closes the file system but for its state, an empty network namespace leaves root's server only the listeners it was
 * given, seccomp takes what a server does not need. Connections are made by others: to the keeper by dial.c, into boxes
 * by the keeper. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "server/program.h"

enum {
    RIGHTS_ALL = (1 << 15) - 1,         /* what ABI 3 knows */
    RIGHTS_ABI_1 = (1 << 13) - 1,
    RIGHTS_ABI_2 = (1 << 14) - 1,
    RIGHTS_NET = 3,                     /* ABI 4: TCP, both ways */
    SCOPES = 3,                         /* ABI 6: abstract unix sockets and signals, to others than oneself */
    X32_SYSCALLS = 0x40000000,
    SOCKET_TYPES = 0xf,                 /* the rest are flags */
    UNKNOWN_SYSCALLS = 450,             /* what came later is of no use to a server, but may be to others */
};

struct ruleset_attr {
    uint64_t fs, net, scoped;           /* older headers know only the first */
};

static int allow(int rules, const char *path, uint64_t rights, struct err *e)
{
    FD fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, errno, STEP_LANDLOCK, "%s", path);
    struct landlock_path_beneath_attr rule = { .allowed_access = rights, .parent_fd = fd };
    return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
         ? err_set(e, errno, STEP_LANDLOCK, "%s", path) : 0;
}

static int close_files(const char *state, struct err *e)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 1)
        return 0;       /* this kernel has none; the user's own rights are what is left */
    uint64_t rights = abi >= 3 ? RIGHTS_ALL : abi == 2 ? RIGHTS_ABI_2 : RIGHTS_ABI_1;
    uint64_t no_programs =
        rights & ~(uint64_t)(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK);
    struct ruleset_attr attr = { .fs = rights, .net = RIGHTS_NET, .scoped = SCOPES };
    size_t known = abi >= 6 ? sizeof attr : abi >= 4 ? offsetof(struct ruleset_attr, scoped) : sizeof attr.fs;
    FD rules = (int)syscall(SYS_landlock_create_ruleset, &attr, known, 0);

    if (rules < 0)
        return err_at(e, errno, STEP_LANDLOCK, 0, "ruleset");
    int r = allow(rules, state, no_programs, e);
    if (r == 0)
        r = allow(rules, "/proc/self", LANDLOCK_ACCESS_FS_READ_FILE, e);     /* /proc/self/statm for the metrics */
    if (r == 0 && syscall(SYS_landlock_restrict_self, rules, 0) < 0)
        r = err_at(e, errno, STEP_LANDLOCK, 0, "entering");
    return r;
}

/* What no server needs and what attackers do. Everything else is left to Landlock, the namespaces and the user's
 * rights: an allow-list here would have to follow every change of libc and SQLite. */
static const int refused[] = {
    SYS_execve,
    SYS_execveat,
    SYS_socket,     /* the listeners are there; to send to an address takes a socket of its own, too */
    SYS_connect,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_clone,      /* no threads, no children, no namespaces */
    SYS_clone3,
    SYS_fork,
    SYS_vfork,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_userfaultfd,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_reboot,
    SYS_swapon,
    SYS_swapoff,
    SYS_open_by_handle_at,
    SYS_name_to_handle_at,
    SYS_personality,
    SYS_modify_ldt,
    SYS_iopl,
    SYS_ioperm,
    SYS_acct,
    SYS_quotactl,
    SYS_quotactl_fd,
    SYS_syslog,
    SYS_vhangup,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_adjtimex,
    SYS_clock_adjtime,
    SYS_lookup_dcookie,
    SYS_memfd_secret,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_pidfd_getfd,
    SYS_kcmp,
};

static int close_calls(struct err *e)
{
    enum { N = sizeof refused / sizeof *refused };
    struct sock_filter code[N + 16];
    struct sock_fprog program = { .filter = code };
    unsigned n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    /* The x32 ABI has the same architecture and other numbers for the same calls. */
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_SYSCALLS, N + 9, 0);
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, UNKNOWN_SYSCALLS, N + 9, 0);
    for (unsigned i = 0; i < N; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refused[i],
                                                 (unsigned char)(N - i + 7), 0);
    /* Pairs, of the kinds that have no other peer than each other: one for datagrams could send to any address. */
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 6);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 5);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
    code[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPES);
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0);
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_SEQPACKET, 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    program.len = (unsigned short)n;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_at(e, errno, STEP_SECCOMP, 0, "front");
    return 0;
}

int front_leave_network(struct err *e)
{
    /* An ordinary user would need a user namespace for it, from which the peers of a socket all look like nobody; there
     * the filter alone must do. */
    if (geteuid() == 0 && unshare(CLONE_NEWNET) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "front");
    return 0;
}

int front_confine(const char *state, struct err *e)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "front");
    int r = close_files(state, e);
    return r < 0 ? r : close_calls(e);
}
