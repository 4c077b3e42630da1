/* A directory of a test's own, gone at its end. */
#ifndef CARREL_TESTS_FRONT_SCRATCH_H
#define CARREL_TESTS_FRONT_SCRATCH_H

#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>

#include "base/fd.h"
#include "unit/unit.h"

struct scratch {
    char path[64];
};

static int scratch_remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline int scratch_make(void **state)
{
    struct scratch *s = calloc(1, sizeof *s);

    if (!s)
        return -1;
    snprintf(s->path, sizeof s->path, "/tmp/carrel-test-XXXXXX");
    *state = s;
    return mkdtemp(s->path) ? 0 : -1;
}

static inline int scratch_remove(void **state)
{
    struct scratch *s = *state;
    int r = nftw(s->path, scratch_remove_entry, 16, FTW_DEPTH | FTW_PHYS);

    free(s);
    return r;
}

static inline const char *scratch_file(void **state, const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", ((struct scratch *)*state)->path, name);
    return path;
}

/* Writes a file and returns its path, which the next call overwrites. */
static inline const char *scratch_write(void **state, const char *name, const char *text, size_t size)
{
    const char *path = scratch_file(state, name);
    FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, size), 0);
    return path;
}

#endif
