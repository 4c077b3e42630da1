/* In the layers a variable's value is a string, or for a secret the object that names it (secret_uses.h): so a later
 * layer replaces an earlier one whatever they are, and only the values that are used are read. */
#define _GNU_SOURCE
#include "front/execs/exec_env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/keys/keys.h"
#include "front/net/net.h"
#include "front/secrets/secret_uses.h"
#include "proto/certificates.h"
#include "proto/defaults.h"
#include "proto/packages.h"

void exec_env_free(char **env)
{
    for (char **v = env; v && *v; v++) {
        explicit_bzero(*v, strlen(*v));
        free(*v);
    }
    free(env);
}

static int read_secret(const struct box *box, json_t *use, struct secret_value *ret, struct err *e)
{
    struct secret *secret;
    int r = secret_use_find(box->front, box->owner, use, &secret, e);

    return r < 0 ? r : secret_read(secret, ret, e);
}

/* "NAME=VALUE"; NULL: no memory. */
static char *join(const char *name, const char *value, size_t size)
{
    size_t length = strlen(name);
    char *text = malloc(length + size + 2);

    if (text) {
        memcpy(text, name, length);
        text[length] = '=';
        memcpy(text + length + 1, value, size);
        text[length + 1 + size] = '\0';
    }
    return text;
}

static int join_secret(const struct box *box, const char *name, json_t *use, char **ret, struct err *e)
{
    struct secret_value value = { 0 };
    int r = read_secret(box, use, &value, e);

    if (r == 0)
        r = secret_value_check_text(secret_use_name(use), &value, e);
    if (r == 0)
        *ret = join(name, value.bytes, value.size);
    secret_value_done(&value);
    return r;
}

static int list_all(const struct box *box, json_t *variables, char ***ret, struct err *e)
{
    char **env = calloc(json_object_size(variables) + 1, sizeof *env);
    const char *key;
    json_t *value;
    size_t n = 0;
    int r = env ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "environment");

    json_object_foreach(variables, key, value) {
        if (r == 0 && json_is_string(value))
            env[n] = join(key, json_string_value(value), strlen(json_string_value(value)));
        else if (r == 0)
            r = join_secret(box, key, value, &env[n], e);
        if (r == 0 && !env[n++])
            r = err_at(e, ENOMEM, STEP_MEMORY, 0, "environment");
    }
    if (r == 0)
        *ret = env;
    else
        exec_env_free(env);
    return r;
}

/* The uses themselves become the variables' values. */
static int add_secrets(json_t *all, json_t *uses)
{
    size_t i;
    json_t *use;
    int r = 0;

    json_array_foreach(uses, i, use)
        if (r == 0 && secret_use_variable(use))
            r = json_object_set(all, secret_use_variable(use), use);
    return r;
}

int exec_env_make(const struct box *box, uint32_t template, json_t *const *more, size_t n_more, json_t *secrets,
                  char ***ret, struct err *e)
{
    char path[CONFIG_PATH_SIZE];
    static const char *const certificates[] = CERTIFICATES_VARIABLES;
    const struct box_mounts *mounts = &box->settings.mounts;
    bool is_on_host = !box_mounts_number(mounts, MOUNT_ROOT);
    const char *file = net_allows(box->settings.net) && is_on_host ? box->front->config.certificates : NULL;
    json_t *all = json_pack("{s:s,s:s,s:s,s:s}", "PATH", box_mounts_path(box->front, mounts, template, path), "LANG",
                            BOX_LANG, "LC_ALL", BOX_LANG, "HOME", BOX_HOME);

    for (size_t i = 0; all && file && i < sizeof certificates / sizeof *certificates; i++)
        (void)!json_object_set_new(all, certificates[i], json_string(file));
    if (all && net_allows(box->settings.net))
        json_object_set_new(all, "PYTHONPATH", json_string(BOX_SITE));
    if (all && box_mounts_find(mounts, MOUNT_PACKAGES))
        json_object_set_new(all, "VIRTUAL_ENV", json_string(PACKAGES_PLACE));
    int r = all ? keys_add_variables(box, all) : -1;
    if (r == 0)
        r = json_object_update(all, box->settings.env);

    if (r == 0)
        r = add_secrets(all, box->settings.secrets);
    for (size_t i = 0; i < n_more && r == 0; i++)
        r = more[i] ? json_object_update(all, more[i]) : 0;
    if (r == 0)
        r = add_secrets(all, secrets);
    r = r == 0 ? list_all(box, all, ret, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "environment");
    json_decref(all);
    return r;
}

/* ---- files ---- */

void exec_files_done(struct exec_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        secret_value_done(&files->value[i]);
    files->n = 0;
}

static int add_file(const struct box *box, json_t *use, struct exec_files *files, struct err *e)
{
    const char *name = secret_use_file(use);
    size_t at = 0;

    if (!name)
        return 0;
    while (at < files->n && strcmp(files->file[at].name, name) != 0)
        at++;
    if (at == COMMAND_FILES_MAX)
        return err_set(e, E2BIG, STEP_USAGE, "a command may have %d files of secrets", COMMAND_FILES_MAX);
    struct secret_value value;
    int r = read_secret(box, use, &value, e);
    if (r < 0)
        return r;
    if (at == files->n)
        files->n++;
    else
        secret_value_done(&files->value[at]);
    files->value[at] = value;
    files->file[at] = (struct command_file){ .name = name, .bytes = value.bytes, .size = value.size };
    return 0;
}

int exec_files_read(const struct box *box, json_t *secrets, bool is_boxes_user, struct exec_files *ret, struct err *e)
{
    json_t *const lists[] = { is_boxes_user ? box->settings.secrets : NULL, secrets };
    size_t k;
    json_t *use;
    int r = 0;

    ret->n = 0;
    for (size_t i = 0; i < 2; i++)
        json_array_foreach(lists[i], k, use)
            if (r == 0)
                r = add_file(box, use, ret, e);
    if (r == 0 && ret->n && box_mounts_cover(&box->settings.mounts, BOX_SECRETS))
        r = err_set(e, EINVAL, STEP_USAGE, "files of secrets are in " BOX_SECRETS ", and a mount of the box covers it");
    if (r < 0)
        exec_files_done(ret);
    return r;
}
