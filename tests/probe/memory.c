/* Tricks with mappings, futexes and kernel objects that belong to memory. Each must stay inside its process. */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void page_zero(void)
{
    MUST_FAIL(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EPERM, EACCES);
    /* Growing down to page zero passed the check once (CVE-2019-9213). */
    void *low = mmap((void *)0x10000, 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    if (low == MAP_FAILED)
        held("%s", errno_name(errno));
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    for (long address = 0x10000; address >= 0; address -= 0x1000)
        if (mem >= 0 && address < 0x10000 && pwrite(mem, "x", 1, address) == 1)
            broken("page %lx was made", address);
}

static void kernel_addresses(void)
{
    MUST_FAIL(mmap((void *)0xffffffff80000000, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EPERM,
              EINVAL, ENOMEM, EACCES);
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    char text[8];
    if (mem >= 0)
        MUST_FAIL(syscall(SYS_pread64, mem, text, 8, 0xffffffff80000000), EIO, EINVAL, EFAULT);
    struct iovec kernel = { (void *)0xffffffff80000000, 8 }, here = { text, 8 };
    MUST_FAIL(syscall(SYS_process_vm_readv, getpid(), &here, 1, &kernel, 1, 0), EPERM, ENOSYS, EFAULT);
    int pipes[2];
    if (pipe(pipes) == 0) {
        MUST_FAIL(write(pipes[1], (void *)0xffffffff80000000, 8), EFAULT);
        MUST_FAIL(syscall(SYS_vmsplice, pipes[1], &kernel, 1, 0), EFAULT, EPERM, ENOSYS, EINVAL);
    }
}

static void mremap_tricks(void)
{
    char *p = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST_FAIL(mremap(p, 4096, (size_t)-4096, MREMAP_MAYMOVE), EINVAL, ENOMEM, EFAULT);
    MUST_FAIL(mremap(p, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0xffffffffff600000), EINVAL, ENOMEM, EFAULT,
              EPERM);
    MUST_FAIL(mremap((void *)0xffffffffff600000, 4096, 4096, MREMAP_MAYMOVE), EINVAL, EFAULT, EPERM);
    MUST_FAIL(mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, NULL), EPERM, EINVAL, EACCES);
    /* A read-only shared file stays read-only after it moved. */
    int file = open("/probe/victim", O_RDONLY | O_CLOEXEC);
    char *m = file >= 0 ? mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
    if (m != MAP_FAILED) {
        m = mremap(m, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p);
        MUST_FAIL(mprotect(m, 4096, PROT_WRITE), EACCES, EPERM);
    }
    MUST_FAIL(syscall(SYS_remap_file_pages, p, 4096, 0, 3, 0), EINVAL, EPERM, ENOSYS);
}

static void seals(void)
{
    int fd = (int)syscall(SYS_memfd_create, "sealed", 2 /* ALLOW_SEALING */);
    if (fd < 0)
        held("%s", errno_name(errno));
    if (ftruncate(fd, 4096) < 0 || fcntl(fd, 1033 /* F_ADD_SEALS */, 8 | 2 | 4) < 0)
        broken("seal: %s", errno_name(errno));
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int again = open(path, O_RDWR | O_CLOEXEC);
    MUST_FAIL(write(fd, "x", 1), EPERM);
    if (again >= 0)
        MUST_FAIL(write(again, "x", 1), EPERM);
    MUST_FAIL(ftruncate(fd, 8192), EPERM);
}

static void futexes(void)
{
    uint32_t word = 0;
    MUST_FAIL(syscall(SYS_futex, 0xffffffff80000000, FUTEX_WAKE, 1, 0, 0, 0), EFAULT, EINVAL);
    MUST_FAIL(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE_PI, 1, 1, &word, 7), EINVAL, EAGAIN, EPERM, ENOSYS);
    word = 1; /* claims that init owns the lock */
    MUST_FAIL(syscall(SYS_futex, &word, FUTEX_LOCK_PI, 0, &(struct timespec){ 0, 1000 }, 0, 0), ETIMEDOUT, EPERM, ESRCH,
              ENOSYS, EINVAL);
}

static void own_text(void)
{
    /* Writing the own text through /proc/self/mem changes a private copy: the file and other processes keep theirs. */
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    if (mem < 0)
        held("%s", errno_name(errno));
    unsigned char byte, *code = (unsigned char *)(uintptr_t)errno_name;
    byte = code[0];
    if (pwrite(mem, "\xcc", 1, (off_t)(uintptr_t)code) < 0)
        held("write: %s", errno_name(EPERM));
    pid_t pid = fork();
    if (pid == 0) {
        char *args[] = { (char *)"probe", (char *)"bomb", (char *)"nothing", NULL };
        execv("/proc/self/exe", args);
        _exit(1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (pwrite(mem, &byte, 1, (off_t)(uintptr_t)code) != 1 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        broken("a new process saw the change: %x", status);
}

static void wild_exec(void)
{
    /* Arguments beyond the limit, unmapped vectors, a script that is its own interpreter. */
    static char big[3 << 20];
    memset(big, 'a', sizeof(big) - 1);
    char *args[] = { (char *)"probe", big, NULL };
    MUST_FAIL(execve("/probe/probe", args, NULL), E2BIG, ENOMEM);
    MUST_FAIL(syscall(SYS_execve, "/probe/probe", (void *)0xdead0000, NULL), EFAULT);
    int fd = open("/tmp/loop", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0755);
    if (fd < 0 || write(fd, "#!/tmp/loop\n", 12) != 12)
        broken("cannot write a script");
    close(fd);
    char *loop[] = { (char *)"loop", NULL };
    MUST_FAIL(execve("/tmp/loop", loop, NULL), ELOOP, ENOEXEC, EACCES);
    unlink("/tmp/loop");
}

static void hostile_elf(void)
{
    /* Headers whose sizes overflow; the kernel must answer, or kill only the child that asked. */
    uint64_t header[15] = { 0x00010102464c457f,
                            0,
                            0x00000001003e0002,
                            0x400000,
                            64,
                            0,
                            0x0038004000000000,
                            0xffff,
                            0x0000000700000001,
                            0,
                            0x400000,
                            0x400000,
                            ~0ull,
                            ~0ull,
                            0x1000 };
    int fd = open("/tmp/elf", O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0755);
    if (fd < 0 || write(fd, header, sizeof(header)) < 0)
        broken("cannot write");
    close(fd);
    for (int variant = 0; variant < 4; variant++) {
        pid_t pid = fork();
        if (pid == 0) {
            char *args[] = { (char *)"elf", NULL };
            execve("/tmp/elf", args, NULL);
            _exit(9);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        header[7 + variant] ^= 0x0101010101010101;
        if (write_text("/tmp/elf", (char *)header) < 0 && errno != ETXTBSY)
            break;
    }
    unlink("/tmp/elf");
}

static void kept_after_vfork(void *data)
{
    (void)data;
    pid_t pid = (pid_t)syscall(SYS_clone, 0x4100 /* VM|VFORK */ | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        syscall(SYS_exit, 0);
    _exit(pid > 0 ? 0 : 1);
}

static void vfork_games(void)
{
    int status = in_child(kept_after_vfork, NULL);
    note("status %x", status);
    /* The command's own siblings would be children of the keeper. */
    long pid = syscall(SYS_clone, 0x8000 /* CLONE_PARENT */ | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    expect_failure("CLONE_PARENT", pid < 0 ? errno : 0, (const int[]){ EPERM, 0 });
}

/* They come from a pool of the host's, and no limit on memory counts them. Without a reservation any process gets them,
 * also while the pool is empty. */
static void huge_pages(void)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_HUGETLB;
    MUST_FAIL(mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, flags, -1, 0), ENOMEM);
    MUST_FAIL(syscall(SYS_memfd_create, "huge", 4 /* MFD_HUGETLB */), EINVAL, EPERM);
    MUST_FAIL(shmget(IPC_PRIVATE, 2 << 20, IPC_CREAT | SHM_HUGETLB | SHM_NORESERVE | 0600), ENOMEM, EPERM);
}

static const struct attack attacks[] = {
    { "huge_pages_are_refused", huge_pages },
    { "page_zero_cannot_be_mapped", page_zero },
    { "kernel_addresses_cannot_be_read", kernel_addresses },
    { "mremap_does_not_lift_limits", mremap_tricks },
    { "seals_hold_after_reopening", seals },
    { "wild_futexes_are_refused", futexes },
    { "writing_own_text_stays_in_the_process", own_text },
    { "wild_exec_arguments_are_refused", wild_exec },
    { "a_hostile_program_header_hurts_nothing", hostile_elf },
    { "vfork_hurts_nothing_and_siblings_are_refused", vfork_games },
};
const struct topic topic_memory = { "memory", attacks, COUNT(attacks) };
