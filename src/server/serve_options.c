/* What `carrel serve` was told: the file of settings first, then the flags, which are stronger. The front reads the
 * same file and is handed the same flags. */
#define _GNU_SOURCE
#include "server/serve_options.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/places.h"
#include "server/doors.h"

enum { FRONT_UID_DEFAULT = 64998 };

/* Where the file of settings is if nobody says so. */
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

/* What the front is told as well. */
static int add_setting(struct serve_options *o, const char *key, const char *value, struct err *e)
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

/* --private DIR: what the server has is in DIR, and it serves nobody but its user. */
static int set_private(struct serve_options *o, const char *dir, struct err *e)
{
    static const struct {
        const char *key, *name;
    } places[] = { { "socket", PLACES_SOCKET_NAME }, { "state", "state" }, { "run", "run" } };
    char path[300];
    int r = add_setting(o, "owner_only", "true", e);

    for (size_t i = 0; i < sizeof places / sizeof *places && r == 0; i++) {
        if (snprintf(path, sizeof path, "%s/%s", dir, places[i].name) >= (int)sizeof path)
            return err_set(e, ENAMETOOLONG, STEP_USAGE, "--private: the path is too long");
        r = add_setting(o, places[i].key, path, e);
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
            r = add_setting(o, "allow_anonymous", "true", e);
            continue;
        }
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strcmp(argv[i], keys[k].option) == 0)
                key = keys[k].key;
        if (!value)
            return err_set(e, EINVAL, STEP_USAGE, "%s wants a value; 'carrel serve --help' shows how", argv[i]);
        if (key || strcmp(argv[i], "--set") == 0)
            r = add_setting(o, key, value, e);
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

int serve_options_user(const struct config *config, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    const char *name = config->user;

    *ret_uid = geteuid() != 0 ? geteuid() : FRONT_UID_DEFAULT;
    *ret_gid = geteuid() != 0 ? getegid() : FRONT_UID_DEFAULT;
    if (geteuid() != 0 || !name[0])
        return 0;
    struct passwd *user = getpwnam(name);
    if (!user)
        return err_set(e, EINVAL, STEP_USAGE, "user '%s': there is no such user here", name);
    if (user->pw_uid == 0 || user->pw_gid == 0)
        return err_set(e, EINVAL, STEP_USAGE, "user '%s' has root's rights, which the front must not have", name);
    *ret_uid = user->pw_uid;
    *ret_gid = user->pw_gid;
    return 0;
}
