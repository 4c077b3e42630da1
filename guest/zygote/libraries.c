/* Makes fewer mappings of the libraries: a fork copies each, an exit takes each down, and a program with pandas has six
 * hundred. A library has about five: headers, code, constants, what is read-only after relocation, data with what is
 * zero at first. They become three:
 *
 *     headers, code, constants     from the file, read and execute
 *     read-only after relocation   memory of the process, read
 *     data                         memory of the process, read and write
 *
 * No mapping is both writable and executable, and nothing that was read-only becomes writable. Each step is only tried:
 * where the kernel refuses it, the mapping stays. Needs a process with one thread. */
#define _GNU_SOURCE
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "zygote.h"

struct span {
    uintptr_t start, end;           /* whole pages; empty if they are equal */
};

static uintptr_t page;

static struct span pages_of(const struct dl_phdr_info *library, const ElfW(Phdr) *part)
{
    uintptr_t start = library->dlpi_addr + part->p_vaddr;

    return (struct span){ start & ~(page - 1), (start + part->p_memsz + page - 1) & ~(page - 1) };
}

/* Consecutive read-only parts, of which one is code, get the rights of code. */
static void join_code(const struct dl_phdr_info *library)
{
    struct span all = { 0, 0 };
    bool has_code = false;

    for (size_t i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type != PT_LOAD)
            continue;
        struct span s = pages_of(library, part);
        if (part->p_flags & PF_W)
            break;
        if (all.end != s.start) {
            if (all.end)
                return;
            all.start = s.start;
        }
        all.end = s.end;
        has_code |= (part->p_flags & PF_X) != 0;
    }
    if (has_code)
        (void)mprotect((void *)all.start, all.end - all.start, PROT_READ | PROT_EXEC);
}

static struct span read_only_of(const struct dl_phdr_info *library)
{
    for (size_t i = 0; i < library->dlpi_phnum; i++)
        if (library->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
            uintptr_t start = library->dlpi_addr + library->dlpi_phdr[i].p_vaddr;
            return (struct span){ start & ~(page - 1), (start + library->dlpi_phdr[i].p_memsz) & ~(page - 1) };
        }
    return (struct span){ 0, 0 };
}

static bool is_empty(const uint64_t *words)
{
    for (size_t i = 0; i < page / sizeof *words; i++)
        if (words[i])
            return false;
    return true;
}

/* Its own memory in place of the file's. Pages that are zero, as many are that were never used, stay unused. Between
 * the copy and mremap() nothing may write to the part, which can be this library's or libc's own: so nothing is called
 * there that does. */
static void copy_data(struct span part, struct span read_only)
{
    size_t size = part.end - part.start;
    char *copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (copy == MAP_FAILED)
        return;
    for (size_t at = 0; at < size; at += page)
        if (!is_empty((const void *)(part.start + at)))
            memcpy(copy + at, (const void *)(part.start + at), page);
    if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)part.start) == MAP_FAILED) {
        (void)munmap(copy, size);
        return;
    }
    if (read_only.start >= part.start && read_only.end <= part.end && read_only.end > read_only.start)
        (void)mprotect((void *)read_only.start, read_only.end - read_only.start, PROT_READ);
}

static int join(struct dl_phdr_info *library, size_t size, void *unused)
{
    struct span read_only = read_only_of(library);
    (void)size, (void)unused;

    join_code(library);
    for (size_t i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & (PF_W | PF_X)) == PF_W)
            copy_data(pages_of(library, part), read_only);
    }
    return 0;
}

void zygote_join_libraries(void)
{
    page = (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)dl_iterate_phdr(join, NULL);
}
