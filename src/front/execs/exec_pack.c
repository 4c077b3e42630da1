/* A command on its way to the keeper: the layout is that of struct packed_command in proto/keeper.h, then argv, env and
 * cwd, each with its NUL. Only the sealed payload reads it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/execs/exec_private.h"

enum { COMMAND_BYTES_MAX = 6 << 20 };        /* Linux never takes more */

static size_t count(char *const *list, size_t *bytes)
{
    size_t n = 0;
    for (; list && list[n]; n++)
        *bytes += strlen(list[n]) + 1;
    return n;
}

int exec_pack(const struct exec_options *o, int *ret, struct err *e)
{
    const char *cwd = o->cwd ? o->cwd : "";
    size_t bytes = strlen(cwd) + 1;
    size_t argc = count(o->argv, &bytes), envc = count(o->env, &bytes);
    struct packed_command header = {
        .argc = (uint32_t)argc,
        .envc = (uint32_t)envc,
        .bytes = (uint32_t)bytes,
        .terminal = o->terminal ? 1u | (uint32_t)o->columns << 1 | ((uint32_t)o->rows & 0x7fff) << 17 : 0
    };

    if (argc == 0 || bytes > COMMAND_BYTES_MAX)
        return err_set(e, argc ? E2BIG : EINVAL, STEP_USAGE,
                       argc ? "the command and its environment are too long" : "the command is empty");
    FD fd = memfd_create("command", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_at(e, errno, STEP_MEMORY, 0, "command");
    char *data = malloc(bytes), *at = data;
    if (!data)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "command");
    for (size_t i = 0; i < argc; i++)
        at = stpcpy(at, o->argv[i]) + 1;
    for (size_t i = 0; i < envc; i++)
        at = stpcpy(at, o->env[i]) + 1;
    stpcpy(at, cwd);
    int r = fd_write_all(fd, &header, sizeof header);
    if (r == 0)
        r = fd_write_all(fd, data, bytes);
    free(data);
    if (r == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        r = -errno;
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "command");
    *ret = TAKE_FD(fd);
    return 0;
}
