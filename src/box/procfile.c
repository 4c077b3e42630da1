#define _GNU_SOURCE
#include "box/procfile.h"

#include <cpuid.h>
#include <stdio.h>
#include <string.h>

void procfile_meminfo(uint64_t memory_bytes, char *text, size_t size)
{
    unsigned long kib = (unsigned long)(memory_bytes / 1024);

    snprintf(text, size,
             "MemTotal:       %lu kB\nMemFree:        %lu kB\nMemAvailable:   %lu kB\nBuffers:        0 kB\nCached:         0 kB\n"
             "SwapCached:     0 kB\nActive:         0 kB\nInactive:       0 kB\nSwapTotal:      0 kB\nSwapFree:       0 kB\n"
             "Dirty:          0 kB\nWriteback:      0 kB\nMapped:         0 kB\nShmem:          0 kB\nSlab:           0 kB\n"
             "SReclaimable:   0 kB\n", kib, kib, kib);
}

/* Asked from the processor itself: reading the host's /proc/cpuinfo takes the kernel longer than making the box. */
static void processor_name(char vendor[13], char model[49])
{
    unsigned a, b, c, d;

    memset(vendor, 0, 13);
    memset(model, 0, 49);
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        memcpy(vendor, &b, 4);
        memcpy(vendor + 4, &d, 4);
        memcpy(vendor + 8, &c, 4);
    }
    for (unsigned i = 0; i < 3; i++)
        if (__get_cpuid(0x80000002 + i, &a, &b, &c, &d)) {
            memcpy(model + i * 16, &a, 4);
            memcpy(model + i * 16 + 4, &b, 4);
            memcpy(model + i * 16 + 8, &c, 4);
            memcpy(model + i * 16 + 12, &d, 4);
        }
}

static void processor_flags(char *text, size_t size)
{
    static const struct {
        unsigned    leaf, reg, bit;     /* reg: 0 = ebx, 1 = ecx, 2 = edx */
        const char *name;
    } flags[] = {
        { 1, 2, 0, "fpu" },    { 1, 2, 4, "tsc" },   { 1, 2, 8, "cx8" },    { 1, 2, 15, "cmov" },   { 1, 2, 23, "mmx" },
        { 1, 2, 24, "fxsr" },  { 1, 2, 25, "sse" },  { 1, 2, 26, "sse2" },  { 1, 1, 0, "pni" },     { 1, 1, 9, "ssse3" },
        { 1, 1, 12, "fma" },   { 1, 1, 13, "cx16" }, { 1, 1, 19, "sse4_1" }, { 1, 1, 20, "sse4_2" }, { 1, 1, 22, "movbe" },
        { 1, 1, 23, "popcnt" }, { 1, 1, 25, "aes" }, { 1, 1, 28, "avx" },   { 1, 1, 29, "f16c" },   { 1, 1, 30, "rdrand" },
        { 7, 0, 3, "bmi1" },   { 7, 0, 5, "avx2" },  { 7, 0, 8, "bmi2" },   { 7, 0, 16, "avx512f" }, { 7, 0, 17, "avx512dq" },
        { 7, 0, 30, "avx512bw" }, { 7, 0, 31, "avx512vl" },
    };
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        unsigned a, reg[3];
        if (!__get_cpuid_count(flags[i].leaf, 0, &a, &reg[0], &reg[1], &reg[2]) || !(reg[flags[i].reg] >> flags[i].bit & 1))
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
                         "processor\t: %u\nvendor_id\t: %s\nmodel name\t: %s\nsiblings\t: %u\ncore id\t\t: %u\ncpu cores\t: %u\nflags\t\t:%s\n\n",
                         i, vendor, model, processors, i, processors, flags);
        if (n < 0 || (size_t)n >= size - used) {
            text[used] = '\0';      /* whole processors only */
            break;
        }
        used += (size_t)n;
    }
}
