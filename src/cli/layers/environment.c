/* A folder becomes the environment of an interpreter. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rmtree.h"
#include "cli/layers/layers.h"

static bool is_interpreter(const char *name)
{
    return strncmp(name, "python", 6) == 0 && strspn(name + 6, "0123456789.") == strlen(name + 6);
}

static int link_interpreters(int bin, const char *real)
{
    const char *name = strrchr(real, '/') + 1;
    FD copy = openat(bin, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    int r = 0;

    if (!list)
        return -errno;
    copy = -1;
    for (struct dirent *d; (d = readdir(list)) && r == 0;)
        if (is_interpreter(d->d_name))
            r = rmtree(bin, d->d_name);
    closedir(list);
    if (r == 0 && (symlinkat(real, bin, "python") < 0 || symlinkat("python", bin, "python3") < 0))
        r = -errno;
    if (r == 0 && is_interpreter(name) && symlinkat("python", bin, name) < 0 && errno != EEXIST)
        r = -errno;
    return r;
}

int interpreter_place(int dir, const char *python, struct err *e)
{
    static const char settings[] = "pyvenv.cfg";
    char real[PATH_MAX], text[PATH_MAX + 64];

    FD bin = openat(dir, "bin", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (bin < 0 || !realpath(python, real))
        return err_set(e, errno, STEP_HOST, "the environment of %s", python);
    int r = link_interpreters(bin, real);
    if (r == 0)
        r = rmtree(dir, settings);
    FD file = r < 0 ? -1 : openat(dir, settings, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    snprintf(text, sizeof text, "home = %.*s\ninclude-system-site-packages = false\n",
             (int)(strrchr(real, '/') - real), real);
    if (r == 0)
        r = file < 0 ? -errno : fd_write_all(file, text, strlen(text));
    return r < 0 ? err_set(e, -r, STEP_HOST, "the environment of %s", python) : 0;
}
