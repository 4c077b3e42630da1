/* A command's memfd, as the sealed payload reads it. Mappings stay until exec; here they must go after every input. */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

static struct {
    void  *start;
    size_t size;
} mapped[4];
static unsigned n_mapped;

static void *fuzz_map(void *start, size_t size, int rights, int flags, int fd, off_t offset)
{
    void *map = mmap(start, size, rights, flags, fd, offset);

    HOLDS(n_mapped < 4);
    if (map != MAP_FAILED) {
        mapped[n_mapped].start = map;
        mapped[n_mapped++].size = size;
    }
    return map;
}

#define mmap fuzz_map
#include "proto/command.c"
#undef mmap

/* All of the string lies in what was mapped of the file. */
static void check_string(const char *text)
{
    const char *start = mapped[0].start;

    HOLDS(text >= start && text < start + mapped[0].size);
    HOLDS(memchr(text, 0, (size_t)(start + mapped[0].size - text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct command_spec command = { 0 };
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    HOLDS(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    /* Mostly with a header that fits, so that the strings are reached. */
    if (size >= 24 && data[0] & 1) {
        uint32_t head[6] = { data[1] % 8, data[2] % 8, (uint32_t)size - 24, data[3], data[4] % 4, 0 };
        HOLDS(pwrite(fd, head, sizeof head, 0) == sizeof head);
    }
    n_mapped = 0;
    if (command_unpack(fd, &command) == 0) {
        HOLDS(command.argv[0]);
        for (char **s = command.argv; *s; s++)
            check_string(*s);
        for (char **s = command.env; *s; s++)
            check_string(*s);
        if (command.workdir)
            check_string(command.workdir);
        for (size_t i = 0; i < command.n_files; i++) {
            const struct command_file *f = &command.files[i];
            check_string(f->name);
            HOLDS(strlen(f->name) <= COMMAND_FILE_NAME && !strchr(f->name, '/') && f->name[0] != '.');
            HOLDS(f->bytes >= (const char *)mapped[0].start && f->size <= COMMAND_FILE_BYTES
                  && f->bytes + f->size < (const char *)mapped[0].start + mapped[0].size);
        }
    }
    for (unsigned i = 0; i < n_mapped; i++)
        munmap(mapped[i].start, mapped[i].size);
    close(fd);
    return 0;
}
