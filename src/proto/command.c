#define _GNU_SOURCE
#include "proto/command.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

/* Of a packed file, beside its name and its contents. */
enum { FILE_EXTRA = sizeof(uint32_t) + 1 };

static size_t count(char *const *list, size_t *bytes)
{
    size_t n = 0;
    for (; list && list[n]; n++)
        *bytes += strlen(list[n]) + 1;
    return n;
}

static char *put(char *at, const char *text)
{
    size_t size = strlen(text) + 1;
    memcpy(at, text, size);
    return at + size;
}

int command_pack(const struct command_spec *command, int *ret, struct err *e)
{
    const char *workdir = command->workdir ? command->workdir : "";
    size_t bytes = strlen(workdir) + 1;
    size_t argc = count(command->argv, &bytes), envc = count(command->env, &bytes);

    for (size_t i = 0; i < command->n_files; i++)
        bytes += FILE_EXTRA + strlen(command->files[i].name) + command->files[i].size;
    bytes += command->n_files > 0;
    if (argc == 0)
        return err_set(e, EINVAL, STEP_USAGE, "the command is empty");
    if (bytes > COMMAND_BYTES_MAX || argc + envc > COMMAND_STRINGS_MAX)
        return err_set(e, E2BIG, STEP_USAGE,
                       "the command has %zu strings of %zu bytes in all; at most %d and %d are taken", argc + envc,
                       bytes, COMMAND_STRINGS_MAX, COMMAND_BYTES_MAX);

    FD fd = memfd_create("command", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t size = sizeof(struct packed_command) + bytes;
    if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
        return err_at(e, errno, STEP_MEMORY, 0, "command memfd");
    char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_at(e, errno, STEP_MEMORY, 0, "command memfd");
    struct packed_command header = { .argc = (uint32_t)argc, .envc = (uint32_t)envc, .bytes = (uint32_t)bytes,
                                     .n_files = (uint32_t)command->n_files };
    if (command->terminal)
        header.terminal = 1u | (uint32_t)command->columns << 1 | ((uint32_t)command->rows & 0x7fff) << 17;
    memcpy(map, &header, sizeof header);
    char *at = map + sizeof header;
    for (size_t i = 0; i < argc; i++)
        at = put(at, command->argv[i]);
    for (size_t i = 0; i < envc; i++)
        at = put(at, command->env[i]);
    at = put(at, workdir);
    for (size_t i = 0; i < command->n_files; i++) {
        const struct command_file *f = &command->files[i];
        uint32_t length = (uint32_t)f->size;
        memcpy(at, &length, sizeof length);
        at = put(at + sizeof length, f->name);
        memcpy(at, f->bytes, f->size);
        at += f->size;
    }
    munmap(map, size);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_at(e, errno, STEP_MEMORY, 0, "sealing the command");
    *ret = TAKE_FD(fd);
    return 0;
}

static bool is_file_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(name, letters);

    return n > 0 && n <= COMMAND_FILE_NAME && !name[n] && !strchr("._-", name[0]);
}

/* at: the first byte after the strings; end: after the last byte, which is a NUL. */
static int unpack_files(char *at, const char *end, uint32_t n, struct command_file *files)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t size;
        if (end - at < FILE_EXTRA)
            return -EPROTO;
        memcpy(&size, at, sizeof size);
        files[i].name = at + sizeof size;
        at += sizeof size + strlen(files[i].name) + 1;
        if (at >= end || size > COMMAND_FILE_BYTES || size >= (size_t)(end - at) || !is_file_name(files[i].name))
            return -EPROTO;
        files[i].bytes = at;
        files[i].size = size;
        at += size;
    }
    return at + (n > 0) == end ? 0 : -EPROTO;
}

int command_unpack(int memfd, struct command_spec *ret)
{
    struct stat status;
    struct packed_command header;

    if (fstat(memfd, &status) < 0)
        return -errno;
    if (status.st_size < (off_t)sizeof header || status.st_size > (off_t)(sizeof header + COMMAND_BYTES_MAX))
        return -EPROTO;
    size_t size = (size_t)status.st_size;
    char *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, memfd, 0);
    if (map == MAP_FAILED)
        return -errno;
    memcpy(&header, map, sizeof header);
    if (header.bytes != size - sizeof header || header.bytes == 0 || map[size - 1] != '\0' || header.argc == 0
        || header.argc > COMMAND_STRINGS_MAX || header.envc > COMMAND_STRINGS_MAX
        || header.n_files > COMMAND_FILES_MAX)
        return -EPROTO;

    size_t pointers = (size_t)header.argc + header.envc + 2;
    size_t room = pointers * sizeof(char *) + header.n_files * sizeof(struct command_file);
    char **list = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (list == MAP_FAILED)
        return -errno;
    char *at = map + sizeof header, *end = map + size;
    char **slot = list;
    for (uint32_t i = 0; i < header.argc + header.envc; i++) {
        if (i == header.argc)
            *slot++ = NULL;
        if (at >= end)
            return -EPROTO;
        *slot++ = at;
        at += strlen(at) + 1;
    }
    if (at >= end)
        return -EPROTO;
    struct command_file *files = (void *)(list + pointers);
    int r = unpack_files(at + strlen(at) + 1, end, header.n_files, files);
    if (r < 0)
        return r;
    ret->files = files;
    ret->n_files = header.n_files;
    ret->argv = list;
    ret->env = list + header.argc + 1;
    ret->workdir = *at ? at : NULL;
    ret->terminal = header.terminal & 1;
    ret->columns = (uint16_t)(header.terminal >> 1);
    ret->rows = (uint16_t)(header.terminal >> 17);
    return 0;
}
