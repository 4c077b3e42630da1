/* System calls that change or read the whole machine. Arguments are such that an allowed call would do the least
 * possible harm. */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void keyrings(void)
{
    /* The name is looked for outside. */
    const char *name = arg_get("secret") ? arg_get("secret") : "probe";
    MUST_BE_REFUSED(syscall(SYS_add_key, "user", name, "x", 1, -3));
    MUST_BE_REFUSED(syscall(SYS_request_key, "user", "carrel", NULL, -3));
    MUST_BE_REFUSED(syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -3, 1));
    MUST_BE_REFUSED(syscall(SYS_keyctl, 1 /* JOIN_SESSION */, "x"));
}

static void bpf_and_tracing(void)
{
    char attr[120] = { 0 };
    MUST_BE_REFUSED(syscall(SYS_bpf, 0 /* MAP_CREATE */, attr, sizeof(attr)));
    MUST_BE_REFUSED(syscall(SYS_bpf, 5 /* PROG_LOAD */, attr, sizeof(attr)));
    uint32_t perf[28] = { 1, 112 };
    MUST_BE_REFUSED(syscall(SYS_perf_event_open, perf, 0, -1, -1, 0));
    MUST_BE_REFUSED(syscall(SYS_userfaultfd, 0));
    MUST_BE_REFUSED(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */));
    MUST_BE_REFUSED(syscall(447 /* memfd_secret */, 0));
}

static void personalities(void)
{
    MUST_FAIL(syscall(SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */), EPERM, ENOSYS);
    MUST_FAIL(syscall(SYS_personality, 0x0100000 /* MMAP_PAGE_ZERO */), EPERM, ENOSYS);
    MUST_FAIL(syscall(SYS_personality, 0x0400000L | 1L << 32), EPERM, ENOSYS);
}

static void modules_and_kexec(void)
{
    MUST_BE_REFUSED(syscall(SYS_init_module, "", 0, ""));
    MUST_BE_REFUSED(syscall(SYS_finit_module, 0, "", 0));
    MUST_BE_REFUSED(syscall(SYS_delete_module, "no-such-module", 0));
    MUST_BE_REFUSED(syscall(SYS_kexec_load, 0, 0, NULL, 0));
    MUST_BE_REFUSED(syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0));
}

static void ports(void)
{
    MUST_BE_REFUSED(syscall(SYS_iopl, 3));
    MUST_BE_REFUSED(syscall(SYS_ioperm, 0x80, 1, 1));
}

static void reboot_calls(void)
{
    MUST_BE_REFUSED(syscall(SYS_reboot, 0xfee1dead, 672274793, 0x89abcdef /* CAD_ON */, NULL));
    MUST_BE_REFUSED(syscall(SYS_vhangup));
}

static void kernel_log(void)
{
    char text[64];
    MUST_BE_REFUSED(syscall(SYS_syslog, 3, text, sizeof(text)));
    MUST_BE_REFUSED(syscall(SYS_syslog, 10, NULL, 0));
    MUST_FAIL(open("/dev/kmsg", O_RDONLY | O_NONBLOCK), ENOENT, EPERM, EACCES);
}

static void clocks(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct timeval same = { now.tv_sec, now.tv_nsec / 1000 };
    MUST_BE_REFUSED(syscall(SYS_clock_settime, CLOCK_REALTIME, &now));
    MUST_BE_REFUSED(syscall(SYS_settimeofday, &same, NULL));
    struct timex change = { .modes = ADJ_SETOFFSET, .time = { 0, 0 } };
    MUST_BE_REFUSED(syscall(SYS_adjtimex, &change));
    MUST_BE_REFUSED(syscall(SYS_clock_adjtime, CLOCK_REALTIME, &change));
    struct sigevent event = { .sigev_notify = SIGEV_NONE };
    timer_t timer;
    MUST_FAIL(timer_create(CLOCK_REALTIME_ALARM, &event, &timer), EPERM, ENOSYS, EINVAL, EOPNOTSUPP);
    MUST_FAIL(syscall(SYS_timerfd_create, CLOCK_BOOTTIME_ALARM, 0), EPERM, ENOSYS, EINVAL);
}

static void names(void)
{
    MUST_FAIL(sethostname("owned", 5), EPERM, ENOSYS);
    MUST_FAIL(setdomainname("owned", 5), EPERM, ENOSYS);
}

static void numa_of_others(void)
{
    unsigned long all = ~0ul;
    void *page = &all;
    int node = 0, status = 0;
    MUST_FAIL(syscall(SYS_migrate_pages, 1, 64, &all, &all), EPERM, ENOSYS, EACCES, ESRCH, EINVAL);
    MUST_FAIL(syscall(SYS_move_pages, 1, 1, &page, &node, &status, 0), EPERM, ENOSYS, EACCES, ESRCH, EINVAL);
    if (syscall(SYS_set_mempolicy, 2, &all, 2) < 0)
        note("set_mempolicy: %s", errno_name(errno));
    if (syscall(SYS_mbind, page, 4096, 2, &all, 2, 0) < 0)
        note("mbind: %s", errno_name(errno));
}

static void message_queues(void)
{
    /* Queues live in the box's own ipc namespace; the harness looks for them from a second box. */
    struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 64 };
    mqd_t queue = mq_open("/carrel-queue", O_CREAT | O_RDWR, 0666, &attr);
    if (queue == (mqd_t)-1) {
        note("mq_open: %s", errno_name(errno));
    } else {
        mq_close(queue);
    }
    struct mq_attr huge = { .mq_maxmsg = 1 << 20, .mq_msgsize = 1 << 24 };
    MUST_FAIL(mq_open("/carrel-huge", O_CREAT | O_RDWR, 0666, &huge), EINVAL, EMFILE, ENOMEM, EPERM, ENOSYS);
}

static void shared_memory(void)
{
    int id = shmget(0x0ca22e1, 4096, IPC_CREAT | 0666);
    if (id < 0)
        held("shmget: %s", errno_name(errno));
    MUST_FAIL(shmget(0x0ca22e2, (size_t)1 << 62, IPC_CREAT | 0666), EINVAL, ENOMEM, ENOSPC, EPERM);
    MUST_FAIL(shmctl(id, 11 /* SHM_LOCK on more than the limit */ + 100, NULL), EINVAL, EPERM);
    int huge = shmget(0x0ca22e3, 4 << 20, IPC_CREAT | 04000 /* SHM_HUGETLB */ | 0666);
    if (huge >= 0)
        broken("huge pages by shmget");
}

static void huge_pages(void)
{
    void *p = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (p != MAP_FAILED)
        broken("MAP_HUGETLB gave memory");
    int fd = (int)syscall(SYS_memfd_create, "huge", 4 /* MFD_HUGETLB */);
    if (fd >= 0 && ftruncate(fd, 2 << 20) == 0) {
        p = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED)
            broken("a huge memfd gave memory");
    }
}

static void locked_memory(void)
{
    size_t size = (size_t)256 << 20;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        held("mmap: %s", errno_name(errno));
    MUST_FAIL(mlock(p, size), EPERM, ENOMEM, EAGAIN);
    MUST_FAIL(mlockall(MCL_CURRENT | MCL_FUTURE), EPERM, ENOMEM, EAGAIN);
    MUST_FAIL(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0), EPERM, EAGAIN,
              ENOMEM);
}

static void process_flags(void)
{
    MUST_FAIL(prctl(57 /* PR_SET_IO_FLUSHER */, 1, 0, 0, 0), EPERM, EINVAL, ENOSYS);
    MUST_FAIL(prctl(PR_CAPBSET_DROP, 0, 0, 0, 0), EPERM, EINVAL, ENOSYS);
    static const int harmless[] = {
        PR_SET_TSC,   PR_SET_THP_DISABLE,          PR_MCE_KILL,           PR_SET_TIMERSLACK, 62 /* PR_SCHED_CORE */,
        67 /* KSM */, PR_TASK_PERF_EVENTS_DISABLE, PR_SET_CHILD_SUBREAPER
    };
    for (size_t i = 0; i < COUNT(harmless); i++)
        if (harmless[i] != PR_SET_TSC && prctl(harmless[i], 1, 0, 0, 0) < 0)
            note("prctl %d: %s;", harmless[i], errno_name(errno));
}

static void descriptor_tables(void)
{
    char ldt[16] = { 0 };
    MUST_FAIL(syscall(SYS_modify_ldt, 1, ldt, sizeof(ldt)), EPERM, ENOSYS, EINVAL);
    MUST_FAIL(syscall(SYS_set_thread_area, ldt), EPERM, ENOSYS);
}

/* Odd requests on everything that can be opened. None may crash anything or be privileged; success is noted by the
 * harness's invariants. */
static void ioctl_storm(void)
{
    int targets[8], n = 0, pair[2];
    targets[n++] = 0;
    targets[n++] = 1;
    targets[n++] = 2;
    targets[n++] = open("/dev/null", O_RDWR | O_CLOEXEC);
    targets[n++] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    targets[n++] = open("/tmp", O_RDONLY | O_CLOEXEC);
    targets[n++] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    targets[n++] = pipe2(pair, O_CLOEXEC) == 0 ? pair[0] : -1;
    static char scratch[65536];
    static const unsigned types[] = { 'T',  'f',  'F',  'v', 0x89, 0x8b, 0x94, 'X',  0xAE,
                                      0xAF, 0x12, 0x4c, 'K', 'V',  'I',  'S',  0xB7, 0xFF };
    unsigned long tried = 0;
    for (int t = 0; t < n; t++)
        for (size_t type = 0; type < COUNT(types); type++)
            for (unsigned number = 0; number < 256; number += type == 0 ? 1 : 3) {
                unsigned request = types[type] << 8 | number;
                if (targets[t] < 0 || request == 0x540e /* TIOCSCTTY */)
                    continue;
                ioctl(targets[t], request, scratch);
                ioctl(targets[t], 0xC0000000 | 64u << 16 | request, scratch);
                tried += 2;
            }
    held("%lu requests", tried);
}

static void terminal_injection(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        MUST_FAIL(ioctl(fd, 0x5412 /* TIOCSTI */, "x"), EPERM, ENOTTY, EIO, EACCES);
        MUST_FAIL(syscall(SYS_ioctl, fd, 0x5412 | 0xdeadbeefL << 32, "x"), EPERM, ENOTTY, EIO, EACCES);
        MUST_FAIL(ioctl(fd, 0x541C /* TIOCLINUX */, "\x03"), EPERM, ENOTTY, EINVAL, EACCES);
        MUST_FAIL(ioctl(fd, 0x541D /* TIOCCONS */, 0), EPERM, ENOTTY, EACCES, EBUSY);
    }
}

static const struct attack attacks[] = {
    { "keyrings_are_refused", keyrings },
    { "bpf_perf_userfaultfd_and_secret_memory_are_refused", bpf_and_tracing },
    { "dangerous_personalities_are_refused", personalities },
    { "modules_and_kexec_are_refused", modules_and_kexec },
    { "port_access_is_refused", ports },
    { "reboot_and_hangup_are_refused", reboot_calls },
    { "the_kernel_log_is_refused", kernel_log },
    { "clocks_cannot_be_set", clocks },
    { "host_and_domain_name_cannot_be_set", names },
    { "pages_of_others_cannot_be_moved", numa_of_others },
    { "posix_queues_are_bounded", message_queues },
    { "system_v_memory_is_bounded", shared_memory },
    { "huge_pages_are_refused", huge_pages },
    { "memory_cannot_be_locked_beyond_the_limit", locked_memory },
    { "privileged_process_flags_are_refused", process_flags },
    { "descriptor_tables_cannot_be_changed", descriptor_tables },
    { "a_storm_of_ioctls_hurts_nothing", ioctl_storm },
    { "characters_cannot_be_pushed_into_a_terminal", terminal_injection },
};
const struct topic topic_kernel = { "kernel", attacks, COUNT(attacks) };
