#define _GNU_SOURCE
#include "front/secrets/secret_uses.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "front/request/fields.h"
#include "front/secrets/secrets.h"
#include "proto/defaults.h"

const char *secret_use_name(json_t *use)
{
    return json_string_value(json_object_get(use, "name"));
}

const char *secret_use_variable(json_t *use)
{
    return json_string_value(json_object_get(use, "env"));
}

const char *secret_use_file(json_t *use)
{
    const char *path = json_string_value(json_object_get(use, "file"));

    return path ? path + strlen(BOX_SECRETS "/") : NULL;
}

static int check_file(const char *where, const char *path, struct err *e)
{
    static const char place[] = BOX_SECRETS "/";
    const char *name = strncmp(path, place, sizeof place - 1) == 0 ? path + sizeof place - 1 : "";

    if (!secret_name_is_valid(name))
        return err_set(e, EINVAL, STEP_USAGE, "%s.file must be %sNAME, with a NAME of at most %d letters, digits, '.', "
                       "'_' and '-', not '%s'", where, place, SECRET_NAME_MAX, parse_quote(path).text);
    return 0;
}

static int check_one(const char *where, json_t *use, struct err *e)
{
    json_t *env = json_object_get(use, "env"), *file = json_object_get(use, "file");
    const char *name = secret_use_name(use);
    size_t known = (env != NULL) + (file != NULL) + 1;

    if (!json_is_object(use) || !name || json_object_size(use) != known || !env == !file)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be {\"name\": NAME, \"env\": VARIABLE} or {\"name\": NAME, "
                       "\"file\": \"" BOX_SECRETS "/FILE\"}", where);
    if (!secret_name_is_valid(name))
        return err_set(e, EINVAL, STEP_USAGE, "%s.name: '%s' cannot be the name of a secret", where,
                       parse_quote(name).text);
    if (!json_is_string(env ? env : file))
        return err_set(e, EINVAL, STEP_USAGE, "%s.%s must be a string", where, env ? "env" : "file");
    return file ? check_file(where, json_string_value(file), e)
                : body_env_name(where, json_string_value(env), e);
}

static bool is_same_place(json_t *a, json_t *b)
{
    const char *const keys[] = { "env", "file" };

    for (size_t i = 0; i < 2; i++) {
        const char *one = json_string_value(json_object_get(a, keys[i]));
        const char *other = json_string_value(json_object_get(b, keys[i]));
        if (one && other && strcmp(one, other) == 0)
            return true;
    }
    return false;
}

int secret_uses_check(const char *field, json_t *list, struct err *e)
{
    size_t i, k;
    json_t *use, *other;

    if (!json_is_array(list) || json_array_size(list) > SECRET_USES_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of at most %d objects", field, SECRET_USES_MAX);
    json_array_foreach(list, i, use) {
        char where[96];
        snprintf(where, sizeof where, "%s[%zu]", field, i);
        int r = check_one(where, use, e);
        if (r < 0)
            return r;
        json_array_foreach(list, k, other)
            if (k < i && is_same_place(use, other))
                return err_set(e, EINVAL, STEP_USAGE, "%s: %s[%zu] has the same place", where, field, k);
    }
    return 0;
}

int secret_uses_check_env(json_t *list, json_t *env, struct err *e)
{
    size_t i;
    json_t *use;

    json_array_foreach(list, i, use) {
        const char *variable = secret_use_variable(use);
        if (variable && json_object_get(env, variable))
            return err_set(e, EINVAL, STEP_USAGE, "%s is in env and in secrets; a variable has one value",
                           parse_quote(variable).text);
    }
    return 0;
}

int secret_use_find(struct front *front, const char *identity, json_t *use, struct secret **ret, struct err *e)
{
    int r = secrets_find(front, identity, secret_use_name(use), ret, e);

    if (r == -ENOENT)
        e->code = EINVAL;
    return r == -ENOENT ? -EINVAL : r;
}

int secret_uses_admit(struct front *front, const char *identity, json_t *list, struct err *e)
{
    size_t i;
    json_t *use;

    json_array_foreach(list, i, use) {
        struct secret_value value = { 0 };
        struct secret *secret;
        int r = secret_use_find(front, identity, use, &secret, e);
        if (r == 0)
            r = secret_read(secret, &value, e);
        if (r == 0 && secret_use_variable(use))
            r = secret_value_check_text(secret_use_name(use), &value, e);
        secret_value_done(&value);
        if (r < 0)
            return r;
    }
    return 0;
}

int secret_uses_parse(const char *field, const char *words, json_t **ret, struct err *e)
{
    json_t *list = json_array();
    int r = 0;

    for (const char *at = words + strspn(words, " "); *at && r == 0;) {
        size_t length = strcspn(at, " ");
        const char *equals = memchr(at, '=', length);
        size_t name = equals ? (size_t)(equals - at) : 0, place = equals ? length - name - 1 : 0;
        if (!name || !place)
            r = err_set(e, EINVAL, STEP_USAGE, "%s is not a list of secrets; write for example hf=HF_TOKEN "
                        "cert=" BOX_SECRETS "/cert", field);
        else
            json_array_append_new(list, json_pack("{s:s%,s:s%}", "name", at, name,
                                                  equals[1] == '/' ? "file" : "env", equals + 1, place));
        at += length;
        at += strspn(at, " ");
    }
    if (r == 0)
        r = secret_uses_check(field, list, e);
    if (r == 0)
        *ret = list;
    else
        json_decref(list);
    return r;
}
