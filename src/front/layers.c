/* An interpreter is found by its path, and finds its library relative to that path or to where a symbolic link leads:
 *
 *   /srv/env/bin/python -> /opt/python/bin/python3.12       pyvenv.cfg beside bin: /srv/env is an environment
 *                                                           /opt/python is the prefix of the real one
 *
 * So both directories are in the box, at the paths that they have on the host. */
#define _GNU_SOURCE
#include "front/layers.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parse.h"

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Without the last n components; "" if there are not so many. */
static void cut(char *path, int n)
{
    for (; n > 0; n--) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) {
            path[0] = '\0';
            return;
        }
        *slash = '\0';
    }
}

void layers_find_guest(char *ret, size_t size)
{
    const char *own = secure_getenv("CARREL_GUEST");
    char path[PATH_MAX];

    ret[0] = '\0';
    if (own) {
        if (own[0] == '/' && strlen(own) < size && is_directory(own))
            snprintf(ret, size, "%s", own);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    cut(path, 1);
    size_t length = strlen(path);
    if (length + sizeof "/guest" <= sizeof path)
        snprintf(path + length, sizeof path - length, "/guest");
    const char *const places[] = { path, "/usr/local/lib/carrel/guest", "/usr/lib/carrel/guest" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strlen(places[i]) < size && is_directory(places[i])) {
            snprintf(ret, size, "%s", places[i]);
            return;
        }
}

static bool is_below(const char *path, const char *top)
{
    size_t length = strlen(top);
    return strncmp(path, top, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Adds a directory unless one that is there already holds it. */
static int add(const char *dir, char *list, size_t size, struct err *e)
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

/* The prefix that holds bin/python; only if something of an interpreter is there, so that a stray link does not bring
 * half of the host. */
static int add_prefix(const char *python, char *list, size_t size, struct err *e)
{
    char prefix[PATH_MAX], mark[PATH_MAX + 16];

    snprintf(prefix, sizeof prefix, "%s", python);
    cut(prefix, 2);
    if (!prefix[0])
        return 0;
    snprintf(mark, sizeof mark, "%s/pyvenv.cfg", prefix);
    bool known = access(mark, F_OK) == 0;
    snprintf(mark, sizeof mark, "%s/lib", prefix);
    return known || is_directory(mark) ? add(prefix, list, size, e) : 0;
}

/* Replaces a path by where it points. False: it is no link, or leads too far. */
static bool follow(char *path, size_t size)
{
    char next[PATH_MAX];
    ssize_t n = readlink(path, next, sizeof next - 1);

    if (n <= 0)
        return false;
    next[n] = '\0';
    if (next[0] == '/')
        path[0] = '\0';
    else
        cut(path, 1);
    size_t length = strlen(path);
    if (length + 1 + (size_t)n >= size)
        return false;
    if (next[0] != '/')
        path[length++] = '/';
    memcpy(path + length, next, (size_t)n + 1);
    return true;
}

/* An interpreter may be a link to a link, each in an environment of its own. */
static int add_python(const char *python, char *list, size_t size, struct err *e)
{
    enum { LINKS_MOST = 8 };
    char path[PATH_MAX], real[PATH_MAX];

    snprintf(path, sizeof path, "%s", python);
    int r = add_prefix(path, list, size, e);
    for (int i = 0; i < LINKS_MOST && r == 0 && follow(path, sizeof path); i++)
        r = add_prefix(path, list, size, e);
    return r == 0 && realpath(python, real) ? add_prefix(real, list, size, e) : r;
}

int layers_of(const struct config_template *t, const char *guest, char *ret, size_t size, struct err *e)
{
    char one[PATH_MAX];

    ret[0] = '\0';
    int r = add_python(t->python, ret, size, e);
    if (r == 0)
        r = add(guest, ret, size, e);
    if (r == 0)
        r = add(t->startup, ret, size, e);
    for (const char *at = t->layers; *at && r == 0; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ":"), at);
        r = add(one, ret, size, e);
    }
    return r;
}
