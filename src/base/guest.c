/* Files are found relative to this program:
 *
 *   build/carrel-server                                  build/guest
 *   PREFIX/libexec/carrel-server                         PREFIX/lib/carrel/guest
 *   ENV/lib/python3.11/site-packages/carrel/bin/carrel   ENV/lib/python3.11/site-packages/carrel/_guest,
 * ENV/bin/python */
#define _GNU_SOURCE
#include "base/guest.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char debian[] = "/usr/bin/python3";
static const char machine_place[] = "/usr/local/lib/carrel/python";

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

void guest_cut(char *path, int n)
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

bool guest_follow(char *path, size_t size)
{
    char next[PATH_MAX];
    ssize_t n = readlink(path, next, sizeof next - 1);

    if (n <= 0)
        return false;
    next[n] = '\0';
    if (next[0] == '/')
        path[0] = '\0';
    else
        guest_cut(path, 1);
    size_t length = strlen(path);
    if (length + 1 + (size_t)n >= size)
        return false;
    if (next[0] != '/')
        path[length++] = '/';
    memcpy(path + length, next, (size_t)n + 1);
    return true;
}

/* The folder of this program; "" if /proc does not show it. */
static void own_folder(char path[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);

    path[n > 0 ? n : 0] = '\0';
    guest_cut(path, 1);
}

void guest_find_program(char *ret, size_t size)
{
    static const char *const places[] = { "/carrel", "/bin/carrel" };
    char folder[PATH_MAX];

    own_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (folder[0] && snprintf(ret, size, "%s%s", folder, places[i]) < (int)size && access(ret, X_OK) == 0)
            return;
        guest_cut(folder, 1);
    }
    snprintf(ret, size, "carrel");
}

static bool keep(const char *path, char *ret, size_t size)
{
    if (strlen(path) >= size)
        return false;
    memcpy(ret, path, strlen(path) + 1);
    return true;
}

void guest_find_files(char *ret, size_t size)
{
    static const char *const places[] = { "guest", "../lib/carrel/guest", "../_guest" };
    const char *own = secure_getenv("CARREL_GUEST");
    char self[PATH_MAX], path[PATH_MAX + 32];

    ret[0] = '\0';
    if (own) {
        if (own[0] == '/' && strlen(own) < size && is_directory(own))
            snprintf(ret, size, "%s", own);
        return;
    }
    own_folder(self);
    for (size_t i = 0; self[0] && i < sizeof places / sizeof *places; i++) {
        bool is_above = strncmp(places[i], "../", 3) == 0;
        char from[PATH_MAX];
        snprintf(from, sizeof from, "%s", self);
        guest_cut(from, is_above);
        snprintf(path, sizeof path, "%s/%s", from, places[i] + (is_above ? 3 : 0));
        if (is_directory(path) && keep(path, ret, size))
            return;
    }
    static const char *const usual[] = { "/usr/local/lib/carrel/guest", "/usr/lib/carrel/guest" };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (is_directory(usual[i]) && keep(usual[i], ret, size))
            return;
}

/* ---- interpreters ---- */

void guest_setup_place(char *ret, size_t size)
{
    const char *named = secure_getenv("CARREL_ENVIRONMENT"), *data = secure_getenv("XDG_DATA_HOME"),
               *home = secure_getenv("HOME");
    char path[PATH_MAX] = "";

    if (named && named[0] == '/')
        snprintf(path, sizeof path, "%s", named);
    else if (geteuid() == 0)
        snprintf(path, sizeof path, "%s", machine_place);
    else if (data && data[0] == '/')
        snprintf(path, sizeof path, "%s/carrel/python", data);
    else if (home && home[0] == '/')
        snprintf(path, sizeof path, "%s/.local/share/carrel/python", home);
    if (!keep(path, ret, size))
        ret[0] = '\0';
}

bool guest_is_set_up(const char *place)
{
    char mark[PATH_MAX];

    return place[0] && snprintf(mark, sizeof mark, "%s/carrel-setup", place) < (int)sizeof mark &&
           access(mark, F_OK) == 0;
}

bool guest_find_own_python(char *ret, size_t size)
{
    const char *named = secure_getenv("CARREL_PYTHON");
    char path[PATH_MAX], part[PATH_MAX];

    if (named && named[0] == '/')
        return access(named, X_OK) == 0 && keep(named, ret, size);
    own_folder(path);
    snprintf(part, sizeof part, "%s", path);
    guest_cut(part, 2);
    if (!part[0] || strcmp(path + strlen(part), "/carrel/bin") != 0)
        return false;
    guest_cut(path, 5);
    if (!path[0] || strncmp(part + strlen(path), "/lib/python3", 12) != 0)
        return false;
    size_t length = strlen(path);
    snprintf(path + length, sizeof path - length, "/bin/python");
    return access(path, X_OK) == 0 && keep(path, ret, size);
}

/* Whether a module is installed below a prefix (PREFIX/lib/python3.11/site-packages; Debian has names of its own).
 * version: "python3.11", or "" if unknown. */
static bool prefix_has(const char *prefix, const char *version, const char *module)
{
    static const char *const folders[] = { "lib", "lib64", "local/lib" }, *const names[] = { "site", "dist" };
    char path[PATH_MAX];
    bool found = false;

    for (size_t i = 0; i < sizeof folders / sizeof *folders && !found; i++) {
        if (snprintf(path, sizeof path, "%s/%s", prefix, folders[i]) >= (int)sizeof path)
            return false;
        DIR *dir = opendir(path);
        for (struct dirent *d; dir && !found && (d = readdir(dir));) {
            bool fits = strcmp(d->d_name, "python3") == 0 || strcmp(d->d_name, version) == 0 ||
                        (!version[0] && strncmp(d->d_name, "python3", 7) == 0);
            for (size_t k = 0; k < sizeof names / sizeof *names && fits && !found; k++)
                found = snprintf(path, sizeof path, "%s/%s/%s/%s-packages/%s", prefix, folders[i], d->d_name, names[k],
                                 module) < (int)sizeof path && is_directory(path);
        }
        if (dir)
            closedir(dir);
    }
    return found;
}

/* 1: an isolated environment; 0: one that also shows the packages of the interpreter below it; -1: no environment. */
static int is_environment(const char *prefix)
{
    char path[PATH_MAX], line[512];
    int closed = 1;

    if (snprintf(path, sizeof path, "%s/pyvenv.cfg", prefix) >= (int)sizeof path)
        return -1;
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file))
        if (strncmp(line, "include-system-site-packages", 28) == 0)
            closed = !strstr(line, "true");
    fclose(file);
    return closed;
}

bool guest_has_ipykernel(const char *python)
{
    enum { LINKS_MOST = 8 };
    char path[PATH_MAX], prefix[PATH_MAX], real[PATH_MAX];

    if (access(python, X_OK) < 0 || !realpath(python, real) || !keep(python, path, sizeof path))
        return false;
    const char *name = strrchr(real, '/') + 1, *version = strncmp(name, "python3.", 8) == 0 ? name : "";
    for (int i = 0; i <= LINKS_MOST; i++) {
        snprintf(prefix, sizeof prefix, "%s", path);
        guest_cut(prefix, 2);
        if (prefix[0] && prefix_has(prefix, version, "ipykernel"))
            return true;
        if (prefix[0] && is_environment(prefix) == 1)
            return false;
        if (!guest_follow(path, sizeof path))
            break;
    }
    guest_cut(real, 2);
    return real[0] && prefix_has(real, version, "ipykernel");
}

bool guest_find_python(char *ret, size_t size)
{
    char place[PATH_MAX], own[PATH_MAX];

    if (guest_find_own_python(own, sizeof own) && (getenv("CARREL_PYTHON") || guest_has_ipykernel(own)))
        return keep(own, ret, size) && guest_has_ipykernel(own);
    guest_setup_place(place, sizeof place - 16);
    const char *const places[] = { place, machine_place };
    for (size_t i = 0; i < (getenv("CARREL_ENVIRONMENT") ? 1 : 2); i++)     /* $CARREL_ENVIRONMENT replaces both
                                                                             * places */
        if (guest_is_set_up(places[i]) && snprintf(ret, size, "%s/bin/python", places[i]) < (int)size &&
            guest_has_ipykernel(ret))
            return true;
    if (guest_has_ipykernel(debian))
        return keep(debian, ret, size);
    if (!place[0] || snprintf(ret, size, "%s/bin/python", place) >= (int)size)
        (void)!keep(debian, ret, size);
    return false;
}
