/* An interpreter is found by its path, and finds its library relative to that path or to where a symbolic link leads:
 *
 *   /srv/env/bin/python -> /opt/python/bin/python3.12       pyvenv.cfg beside bin: /srv/env is an environment
 *                                                           /opt/python is the prefix of the real one
 *
 * So both directories are in the box, at the paths that they have on the host. */
#define _GNU_SOURCE
#include "base/prefix.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guest.h"

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool is_below(const char *path, const char *top)
{
    size_t length = strlen(top);
    return strncmp(path, top, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

int prefix_add(const char *dir, char *list, size_t size, struct err *e)
{
    char one[PATH_MAX];
    size_t length = strlen(list);

    if (!dir[0] || strstr(dir, "/..") || is_below(dir, "/usr") || !is_directory(dir))
        return 0;
    if (strchr(dir, ':'))
        return err_set(e, EINVAL, STEP_USAGE, "the directory %s of a template has a colon in its path", dir);
    for (const char *at = list; *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ":"), at);
        if (is_below(dir, one))
            return 0;
    }
    if (snprintf(list + length, size - length, "%s%s", length ? ":" : "", dir) >= (int)(size - length))
        return err_set(e, E2BIG, STEP_USAGE, "the directories of a template have too long paths");
    return 0;
}

/* Adds the prefix that holds bin/python, if parts of an interpreter are in it: a stray link must not bring half of the
 * host into the box. */
static int add_prefix(const char *python, char *list, size_t size, struct err *e)
{
    char prefix[PATH_MAX], mark[PATH_MAX + 16];

    snprintf(prefix, sizeof prefix, "%s", python);
    guest_cut(prefix, 2);
    if (!prefix[0])
        return 0;
    snprintf(mark, sizeof mark, "%s/pyvenv.cfg", prefix);
    bool known = access(mark, F_OK) == 0;
    snprintf(mark, sizeof mark, "%s/lib", prefix);
    return known || is_directory(mark) ? prefix_add(prefix, list, size, e) : 0;
}

/* A path may be a link to another link, each in its own environment. */
int prefix_add_python(const char *python, char *list, size_t size, struct err *e)
{
    enum { LINKS_MOST = 8 };
    char path[PATH_MAX], real[PATH_MAX];

    snprintf(path, sizeof path, "%s", python);
    int r = add_prefix(path, list, size, e);
    for (int i = 0; i < LINKS_MOST && r == 0 && guest_follow(path, sizeof path); i++)
        r = add_prefix(path, list, size, e);
    return r == 0 && realpath(python, real) ? add_prefix(real, list, size, e) : r;
}
