/* Other doors into the kernel than the 64-bit system call, and instructions that user code should not have. */
#define _GNU_SOURCE
#include "probe.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long int80(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(a), "c"(b), "d"(c)
                     : "r8", "r9", "r10", "r11", "memory");
    return result;
}

static void die_by_int80(void *data)
{
    int80(*(long *)data, -1, -1, -1);
    _exit(42);
}

static void expect_killed(const char *what, int status)
{
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGSYS || WTERMSIG(status) == SIGSEGV))
        return;
    broken("%s: status %x", what, status);
}

static void old_calls(void)
{
    /* getpid, socketcall, clone, unshare, mount, ptrace, keyctl, bpf in the 32-bit numbering. */
    static long numbers[] = { 20, 102, 120, 310, 21, 26, 288, 357, 1, 4, 11, 355 };
    char what[32];
    for (size_t i = 0; i < COUNT(numbers); i++) {
        snprintf(what, sizeof(what), "int 0x80 %ld", numbers[i]);
        expect_killed(what, in_child(die_by_int80, &numbers[i]));
    }
}

static void die_by_x32(void *data)
{
    errno = 0;
    long result = syscall(*(long *)data | 0x40000000, -1, -1, -1);
    _exit(result == -1 && (errno == ENOSYS || errno == EPERM) ? 41 : 42);
}

static void x32_calls(void)
{
    static long numbers[] = { 39, 41, 56, 272, 165, 101, 321, 0, 1, 59, 512, 520, 521, 545 };
    char what[32];
    for (size_t i = 0; i < COUNT(numbers); i++) {
        int status = in_child(die_by_x32, &numbers[i]);
        snprintf(what, sizeof(what), "x32 %ld", numbers[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 41)
            expect_killed(what, status);
    }
}

/* Jumps into the 32-bit code segment; there a system call goes through the compatibility entry. */
static void die_in_compat_mode(void *data)
{
    (void)data;
    unsigned char *code = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (code == MAP_FAILED)
        _exit(41);
    static const unsigned char text[] = { 0xb8, 20, 0,    0,  0, 0xcd, 0x80, 0xb8, 1,    0,
                                          0,    0,  0xbb, 42, 0, 0,    0,    0xcd, 0x80, 0xf4 };
    memcpy(code, text, sizeof(text));
    struct {
        uint32_t offset;
        uint16_t selector;
    } __attribute__((packed)) target = { 0x10000000, 0x23 };
    __asm__ volatile("ljmpl *%0" : : "m"(target) : "memory");
    _exit(43);
}

static void compat_mode(void)
{
    int status = in_child(die_in_compat_mode, NULL);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 41)
        held("no executable memory there");
    expect_killed("32-bit code", status);
}

static void do_hlt(void *d)
{
    (void)d;
    __asm__ volatile("hlt");
}
static void do_cli(void *d)
{
    (void)d;
    __asm__ volatile("cli");
}
static void do_out(void *d)
{
    (void)d;
    __asm__ volatile("outb %%al, $0x80" : : "a"(0));
}
static void do_in(void *d)
{
    (void)d;
    unsigned char v;
    __asm__ volatile("inb $0x71, %0" : "=a"(v));
}
static void do_rdmsr(void *d)
{
    (void)d;
    unsigned a, b;
    __asm__ volatile("rdmsr" : "=a"(a), "=d"(b) : "c"(0x10));
}
static void do_wrmsr(void *d)
{
    (void)d;
    __asm__ volatile("wrmsr" : : "a"(0), "d"(0), "c"(0x10));
}
static void do_rdpmc(void *d)
{
    (void)d;
    unsigned a, b;
    __asm__ volatile("rdpmc" : "=a"(a), "=d"(b) : "c"(0));
}
static void do_cr0(void *d)
{
    (void)d;
    long v;
    __asm__ volatile("mov %%cr0, %0" : "=r"(v));
}
static void do_invlpg(void *d)
{
    (void)d;
    __asm__ volatile("invlpg (%0)" : : "r"(d) : "memory");
}
static void do_lidt(void *d)
{
    (void)d;
    char v[10] = { 0 };
    __asm__ volatile("lidt %0" : : "m"(v));
}
static void do_vmcall(void *d)
{
    (void)d;
    __asm__ volatile("vmcall" : : "a"(~0u) : "memory");
}

static void privileged_instructions(void)
{
    static const struct {
        const char *name;
        void (*run)(void *);
    } all[] = { { "hlt", do_hlt },       { "cli", do_cli },     { "out", do_out },     { "in", do_in },
                { "rdmsr", do_rdmsr },   { "wrmsr", do_wrmsr }, { "rdpmc", do_rdpmc }, { "mov cr0", do_cr0 },
                { "invlpg", do_invlpg }, { "lidt", do_lidt } };
    for (size_t i = 0; i < COUNT(all); i++) {
        int status = in_child(all[i].run, NULL);
        if (!WIFSIGNALED(status))
            broken("%s did not fault: %x", all[i].name, status);
    }
    in_child(do_vmcall, NULL); /* the hypervisor's affair: it must only not hurt */
}

static void die_by_vsyscall(void *data)
{
    (void)data;
    struct timeval now = { 0, 0 };
    long (*gettimeofday_page)(struct timeval *, void *) = (void *)0xffffffffff600000;
    gettimeofday_page(&now, NULL);
    _exit(now.tv_sec ? 40 : 41);
}

static void read_vsyscall(void *data)
{
    (void)data;
    volatile char c = *(volatile char *)0xffffffffff600000;
    (void)c;
    _exit(42);
}

static void vsyscall_page(void)
{
    int status = in_child(die_by_vsyscall, NULL);
    note(WIFSIGNALED(status) ? "faults" : "emulated");
    if (WIFEXITED(in_child(read_vsyscall, NULL)))
        note("readable");
}

static void stop_the_clock(void *data)
{
    (void)data;
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    _exit(0);
}

static void time_stamp_counter(void)
{
    /* Not hidden by default. What one process asks for must not spread to others. */
    in_child(stop_the_clock, NULL);
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
}

static void die_by_null_selector(void *data)
{
    (void)data;
    __asm__ volatile("mov %0, %%ds; mov %0, %%es; mov %0, %%fs; mov %0, %%gs" : : "r"(0x2b));
    __asm__ volatile("pushf; orl $0x40000, (%rsp); popf");
    __asm__ volatile("std; ud2");
}

static void odd_state(void)
{
    if (!WIFSIGNALED(in_child(die_by_null_selector, NULL)))
        broken("it lived");
}

static void noncanonical_return(void *data)
{
    (void)data;
    /* A signal frame with a non-canonical address (CVE-2012-0217's shape). */
    __asm__ volatile("mov $15, %%eax; mov %0, %%rsp; syscall" : : "r"(0x800000000000 - 4096) : "memory", "rax");
    _exit(42);
}

static void wild_sigreturn(void)
{
    if (!WIFSIGNALED(in_child(noncanonical_return, NULL)))
        broken("it lived");
}

static const struct attack attacks[] = {
    { "the_32_bit_system_call_kills", old_calls },
    { "x32_system_calls_are_refused", x32_calls },
    { "32_bit_code_cannot_make_system_calls", compat_mode },
    { "privileged_instructions_fault", privileged_instructions },
    { "the_vsyscall_page_is_harmless", vsyscall_page },
    { "time_stamp_settings_stay_in_their_process", time_stamp_counter },
    { "odd_segments_and_flags_kill_only_their_owner", odd_state },
    { "a_wild_signal_return_kills_only_its_owner", wild_sigreturn },
};
const struct topic topic_cpu = { "cpu", attacks, COUNT(attacks) };
