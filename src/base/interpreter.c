#define _GNU_SOURCE
#include "base/interpreter.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"

static bool keep(const char *path, char ret[PYTHON_MAX])
{
    char real[PATH_MAX];

    return access(path, X_OK) == 0 && realpath(path, real) && snprintf(ret, PYTHON_MAX, "%s", path) < PYTHON_MAX;
}

/* A script (pyenv's shims) is no interpreter. */
static bool is_script(const char *path)
{
    char head[2] = "";
    FILE *file = fopen(path, "re");
    bool is = file && fread(head, 1, 2, file) == 2 && head[0] == '#' && head[1] == '!';

    if (file)
        fclose(file);
    return is;
}

static bool find_on_path(const char *name, char ret[PYTHON_MAX])
{
    const char *path = getenv("PATH");
    char one[PATH_MAX];

    for (const char *at = path ? path : "/usr/local/bin:/usr/bin"; *at; at += strcspn(at, ":"), at += *at == ':')
        if (snprintf(one, sizeof one, "%.*s/%s", (int)strcspn(at, ":"), at, name) < (int)sizeof one && one[0] == '/'
            && !is_script(one) && keep(one, ret))
            return true;
    return false;
}

static void find_pyenvs(char *ret, size_t size)
{
    const char *root = getenv("PYENV_ROOT"), *home = getenv("HOME");

    if (root)
        snprintf(ret, size, "%s/versions", root);
    else
        snprintf(ret, size, "%s/.pyenv/versions", home ? home : "");
}

/* The newest one in ~/.pyenv/versions that matches this version. */
static bool find_pyenv(const char *version, char ret[PYTHON_MAX])
{
    char folder[PATH_MAX / 2], path[PATH_MAX], best[NAME_MAX + 1] = "";
    size_t length = strlen(version);

    find_pyenvs(folder, sizeof folder);
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strncmp(d->d_name, version, length) == 0 && (d->d_name[length] == '.' || !d->d_name[length])
            && strverscmp(d->d_name, best) > 0)
            snprintf(best, sizeof best, "%s", d->d_name);
    if (dir)
        closedir(dir);
    return best[0] && snprintf(path, sizeof path, "%s/%s/bin/python3", folder, best) < (int)sizeof path
           && keep(path, ret);
}

int interpreter_find(const char *wanted, char ret[PYTHON_MAX], struct err *e)
{
    char name[64];

    if (!wanted) {
        if (keep("/usr/bin/python3", ret) || find_on_path("python3", ret))
            return 0;
        return err_set(e, ENOENT, STEP_USAGE, "there is no python3 on this machine; name an interpreter with --python");
    }
    if (strchr(wanted, '/')) {
        if (wanted[0] == '/' && keep(wanted, ret))
            return 0;
        return err_set(e, ENOENT, STEP_USAGE,
                       "--python %s: there is no such program; use an absolute path or a version "
                       "like 3.12",
                       parse_quote_path(wanted).text);
    }
    if (strspn(wanted, "0123456789.") != strlen(wanted) || strlen(wanted) > 16 || !isdigit((unsigned char)wanted[0]))
        return err_set(e, EINVAL, STEP_USAGE, "--python %s: use an absolute path or a version like 3.12",
                       parse_quote(wanted).text);
    snprintf(name, sizeof name, "python%s", wanted);
    if (find_on_path(name, ret) || find_pyenv(wanted, ret))
        return 0;
    return err_set(e, ENOENT, STEP_USAGE, "--python %s: there is no %s on PATH, and none below ~/.pyenv/versions",
                   wanted, name);
}

static bool is_version(const char *text)
{
    return strncmp(text, "3.", 2) == 0 && isdigit((unsigned char)text[2]) && strspn(text, "0123456789.") == strlen(text)
           && strlen(text) < PYTHON_VERSION;
}

void interpreters_each(void (*call)(const char *version, const char *path, void *arg), void *arg)
{
    const char *path = getenv("PATH");
    char folder[PATH_MAX / 2], one[PATH_MAX], found[PYTHON_MAX];

    for (const char *at = path ? path : "/usr/local/bin:/usr/bin"; *at; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(folder, sizeof folder, "%.*s", (int)strcspn(at, ":"), at);
        DIR *dir = folder[0] == '/' ? opendir(folder) : NULL;
        for (struct dirent *d; dir && (d = readdir(dir));)
            if (strncmp(d->d_name, "python", 6) == 0 && is_version(d->d_name + 6)
                && snprintf(one, sizeof one, "%s/%s", folder, d->d_name) < (int)sizeof one && !is_script(one)
                && keep(one, found))
                call(d->d_name + 6, found, arg);
        if (dir)
            closedir(dir);
    }
    find_pyenvs(folder, sizeof folder);
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && (d = readdir(dir));)
        if (is_version(d->d_name)
            && snprintf(one, sizeof one, "%s/%s/bin/python3", folder, d->d_name) < (int)sizeof one && keep(one, found))
            call(d->d_name, found, arg);
    if (dir)
        closedir(dir);
}

bool interpreter_version(const char *path, char ret[PYTHON_VERSION])
{
    char real[PATH_MAX];
    const char *name = realpath(path, real) ? strrchr(real, '/') + 1 : "";

    if (strncmp(name, "python", 6) != 0 || !is_version(name + 6))
        return false;
    snprintf(ret, PYTHON_VERSION, "%s", name + 6);
    return true;
}
