/* The settings of `carrel serve`: the file first, then the flags, which override it. The front reads the same file and
 * gets the same flags. */
#define _GNU_SOURCE
#include "server/serve_options.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/places.h"
#include "server/doors.h"

/* Of root's fronts: the last is that of the server with the usual state. */
enum { FRONT_UID_FIRST = 64400, FRONT_UID_DEFAULT = 64998 };

/* The default place of the settings file. */
static void find_config(char *path, size_t size)
{
    const char *home = getenv("XDG_CONFIG_HOME");

    if (geteuid() == 0)
        snprintf(path, size, "/etc/carrel/carrel.yaml");
    else if (home)
        snprintf(path, size, "%s/carrel/carrel.yaml", home);
    else
        snprintf(path, size, "%s/.config/carrel/carrel.yaml", getenv("HOME") ? getenv("HOME") : "");
}

int serve_options_load(int argc, char **argv, struct serve_options *o, struct err *e)
{
    bool without = false;

    config_defaults(&o->config, geteuid() == 0);
    int r = doors_configure(server_doors, &o->config, e);
    if (r < 0)
        return r;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--no-config") == 0)
            without = true;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            o->config_path = argv[i + 1];
    }
    if (o->config_path)
        return without ? err_set(e, EINVAL, STEP_USAGE, "give either --config or --no-config")
                       : config_load(&o->config, o->config_path, true, e);
    find_config(o->own_config, sizeof o->own_config);
    if (without || (access(o->own_config, F_OK) < 0 && errno == ENOENT))
        return 0;
    o->config_path = o->own_config;
    return config_load(&o->config, o->config_path, true, e);
}

int serve_options_add(struct serve_options *o, const char *key, const char *value, struct err *e)
{
    char *text = NULL;

    if (o->n_set == (int)(sizeof o->set / sizeof *o->set))
        return err_set(e, E2BIG, STEP_USAGE, "there are more than %d settings here; use a file",
                       o->n_set);
    if (asprintf(&text, "%s%s%s", key ? key : "", key ? "=" : "", value) < 0)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "settings");
    o->set[o->n_set++] = text;
    return config_set_line(&o->config, text, e);
}

/* --private DIR: all files of the server are in DIR, and only its user may use it. */
static int set_private(struct serve_options *o, const char *dir, struct err *e)
{
    static const struct {
        const char *key, *name;
    } places[] = { { "socket", PLACES_SOCKET_NAME }, { "state", "state" }, { "run", "run" } };
    char path[300];
    int r = serve_options_add(o, "owner_only", "true", e);

    for (size_t i = 0; i < sizeof places / sizeof *places && r == 0; i++) {
        if (snprintf(path, sizeof path, "%s/%s", dir, places[i].name) >= (int)sizeof path)
            return err_set(e, ENAMETOOLONG, STEP_USAGE, "--private: the path is too long");
        r = serve_options_add(o, places[i].key, path, e);
    }
    o->private_dir = dir;
    return r;
}

int serve_options_read(int argc, char **argv, struct serve_options *o, struct err *e)
{
    static const struct {
        const char *option, *key;
    } keys[] = { { "--listen", "listen" }, { "--socket", "socket" }, { "--state", "state" }, { "--run", "run" } };
    int r = serve_options_load(argc, argv, o, e);

    for (int i = 1; i < argc && r == 0; i++) {
        const char *key = NULL, *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--no-config") == 0)
            continue;
        if (strcmp(argv[i], "--allow-anonymous") == 0) {
            r = serve_options_add(o, "allow_anonymous", "true", e);
            continue;
        }
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strcmp(argv[i], keys[k].option) == 0)
                key = keys[k].key;
        if (!value)
            return err_set(e, EINVAL, STEP_USAGE, "%s wants a value; 'carrel serve --help' shows how", argv[i]);
        if (key || strcmp(argv[i], "--set") == 0)
            r = serve_options_add(o, key, value, e);
        else if (strcmp(argv[i], "--private") == 0)
            r = set_private(o, value, e);
        else if (strcmp(argv[i], "--keeper") == 0)
            o->keeper_path = value;
        else if (strcmp(argv[i], "--config") != 0)
            return err_set(e, EINVAL, STEP_USAGE, "unknown option %s; 'carrel serve --help' lists them", argv[i]);
        i++;
    }
    if (r == 0)
        r = config_check(&o->config, e);
    return r < 0 ? r : doors_check(server_doors, &o->config, e);
}

/* Whether a process has it; /proc/PID itself belongs to root if the process has closed its memory to others. */
static bool is_in_use(uid_t uid)
{
    DIR *proc = opendir("/proc");
    char path[64], text[1024];
    unsigned found;
    bool is = false;

    for (struct dirent *d; proc && !is && (d = readdir(proc));) {
        if (d->d_name[0] < '1' || d->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%.20s/status", d->d_name);
        FD file = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
        if (n <= 0)
            continue;       /* it has ended */
        text[n] = '\0';
        const char *line = strstr(text, "\nUid:\t");
        is = line && sscanf(line + 6, "%u", &found) == 1 && found == uid;
    }
    if (proc)
        closedir(proc);
    return is;
}

/* Each of root's servers has a front with an id of its own, because the kernel gives processes of one user rights over
 * each other. An existing state keeps its owner; a new one's id follows from its path, if it is free. */
static uid_t own_uid(const char *state)
{
    enum { IDS = FRONT_UID_DEFAULT - FRONT_UID_FIRST };
    struct stat status;
    uint64_t hash = 14695981039346656037u;

    if (stat(state, &status) == 0 && status.st_uid >= FRONT_UID_FIRST && status.st_uid <= FRONT_UID_DEFAULT)
        return status.st_uid;
    if (strcmp(state, PLACES_MACHINE_STATE) == 0)
        return FRONT_UID_DEFAULT;
    for (const char *c = state; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (unsigned i = 0; i < IDS; i++) {
        uid_t uid = FRONT_UID_FIRST + (uid_t)((hash + i) % IDS);
        if (!getpwuid(uid) && !getgrgid(uid) && !is_in_use(uid))
            return uid;
    }
    return FRONT_UID_DEFAULT;
}

/* Its socket belongs to the user who may connect. */
static uid_t uid_for_keeper(const char *socket)
{
    struct stat status;

    return stat(socket, &status) == 0 && status.st_uid != 0 ? status.st_uid : FRONT_UID_DEFAULT;
}

int serve_options_user(const struct serve_options *o, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    const char *name = o->config.user;

    *ret_uid = geteuid() != 0 ? geteuid() : o->keeper_path ? uid_for_keeper(o->keeper_path)
                                                               : own_uid(o->config.state);
    *ret_gid = geteuid() != 0 ? getegid() : *ret_uid;
    if (geteuid() != 0 || !name[0])
        return 0;
    struct passwd *user = getpwnam(name);
    if (!user)
        return err_set(e, EINVAL, STEP_USAGE, "user '%s': there is no such user here", name);
    if (user->pw_uid == 0 || user->pw_gid == 0)
        return err_set(e, EINVAL, STEP_USAGE, "user '%s' has root's rights, which a server's open side must not have",
                       name);
    *ret_uid = user->pw_uid;
    *ret_gid = user->pw_gid;
    return 0;
}
