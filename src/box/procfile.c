#define _GNU_SOURCE
#include "box/procfile.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

void procfile_meminfo(uint64_t memory_bytes, char *text, size_t size)
{
    unsigned long kib = (unsigned long)(memory_bytes / 1024);

    snprintf(
        text, size,
        "MemTotal:       %lu kB\nMemFree:        %lu kB\nMemAvailable:   %lu kB\nBuffers:        0 kB\nCached:         "
        "0 kB\n"
        "SwapCached:     0 kB\nActive:         0 kB\nInactive:       0 kB\nSwapTotal:      0 kB\nSwapFree:       0 kB\n"
        "Dirty:          0 kB\nWriteback:      0 kB\nMapped:         0 kB\nShmem:          0 kB\nSlab:           0 kB\n"
        "SReclaimable:   0 kB\n",
        kib, kib, kib);
}

/* Read from the processor itself: reading the host's /proc/cpuinfo takes the kernel longer than making the box. Each
 * leaf is read once: in a virtual machine it takes microseconds, because the hypervisor answers. */
static void processor_name(char vendor[13], char model[49])
{
    unsigned a, b, c, d;

    memset(vendor, 0, 13);
    memset(model, 0, 49);
    __cpuid(0, a, b, c, d);
    memcpy(vendor, &b, 4);
    memcpy(vendor + 4, &d, 4);
    memcpy(vendor + 8, &c, 4);
    for (unsigned i = 0; i < 3; i++) {
        __cpuid(0x80000002 + i, a, b, c, d);
        memcpy(model + i * 16, &a, 4);
        memcpy(model + i * 16 + 4, &b, 4);
        memcpy(model + i * 16 + 8, &c, 4);
        memcpy(model + i * 16 + 12, &d, 4);
    }
}

static void processor_flags(char *text, size_t size)
{
    enum { LEAF_1_ECX, LEAF_1_EDX, LEAF_7_EBX };
    static const struct {
        unsigned    word, bit;
        const char *name;
    } flags[] = {
        { LEAF_1_EDX, 0, "fpu" },       { LEAF_1_EDX, 4, "tsc" },       { LEAF_1_EDX, 8, "cx8" },
        { LEAF_1_EDX, 15, "cmov" },     { LEAF_1_EDX, 23, "mmx" },      { LEAF_1_EDX, 24, "fxsr" },
        { LEAF_1_EDX, 25, "sse" },      { LEAF_1_EDX, 26, "sse2" },     { LEAF_1_ECX, 0, "pni" },
        { LEAF_1_ECX, 9, "ssse3" },     { LEAF_1_ECX, 12, "fma" },      { LEAF_1_ECX, 13, "cx16" },
        { LEAF_1_ECX, 19, "sse4_1" },   { LEAF_1_ECX, 20, "sse4_2" },   { LEAF_1_ECX, 22, "movbe" },
        { LEAF_1_ECX, 23, "popcnt" },   { LEAF_1_ECX, 25, "aes" },      { LEAF_1_ECX, 28, "avx" },
        { LEAF_1_ECX, 29, "f16c" },     { LEAF_1_ECX, 30, "rdrand" },   { LEAF_7_EBX, 3, "bmi1" },
        { LEAF_7_EBX, 5, "avx2" },      { LEAF_7_EBX, 8, "bmi2" },      { LEAF_7_EBX, 16, "avx512f" },
        { LEAF_7_EBX, 17, "avx512dq" }, { LEAF_7_EBX, 30, "avx512bw" }, { LEAF_7_EBX, 31, "avx512vl" },
    };
    unsigned a, b, c, d, words[3];
    size_t used = 0;

    __cpuid(1, a, b, words[LEAF_1_ECX], words[LEAF_1_EDX]);
    __cpuid_count(7, 0, a, words[LEAF_7_EBX], c, d);
    text[0] = '\0';
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!(words[flags[i].word] >> flags[i].bit & 1))
            continue;
        int n = snprintf(text + used, size - used, " %s", flags[i].name);
        if (n < 0 || (size_t)n >= size - used)
            break;
        used += (size_t)n;
    }
}

void procfile_cpuinfo(unsigned processors, char *text, size_t size)
{
    char vendor[13], model[49], flags[256];
    size_t used = 0;

    processor_name(vendor, model);
    processor_flags(flags, sizeof flags);
    text[0] = '\0';
    for (unsigned i = 0; i < processors; i++) {
        int n = snprintf(text + used, size - used,
                         "processor\t: %u\nvendor_id\t: %s\nmodel name\t: %s\nsiblings\t: %u\ncore id\t\t: %u\ncpu "
                         "cores\t: %u\nflags\t\t:%s\n\n",
                         i, vendor, model, processors, i, processors, flags);
        if (n < 0 || (size_t)n >= size - used) {
            text[used] = '\0';      /* whole processors only */
            break;
        }
        used += (size_t)n;
    }
}
