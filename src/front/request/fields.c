/* From JSON to checked values. Nothing is repaired or guessed: an unknown member, a number of the wrong kind, a
 * repeated name are errors that name the member. */
#define _GNU_SOURCE
#include "front/request/fields.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "proto/defaults.h"

enum { LABELS_MAX = 64 };

/* ---- members ---- */

int body_fields(json_t *object, const char *where, const struct body_field *fields, size_t n, void *into, struct err *e)
{
    const char *key;
    json_t *value;

    if (!json_is_object(object))
        return err_set(e, EINVAL, STEP_USAGE, "%.*s must be an object", where[0] ? (int)strlen(where) - 1 : 8,
                       where[0] ? where : "the body");
    json_object_foreach(object, key, value) {
        char name[96];
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, key) != 0)
            i++;
        if (i == n)
            return err_set(e, EINVAL, STEP_USAGE, "unknown field '%s%s'", where, parse_quote(key).text);
        snprintf(name, sizeof name, "%s%s", where, key);
        int r = fields[i].take(name, value, into, e);
        if (r < 0)
            return r;
    }
    return 0;
}

int body_text(const char *name, json_t *value, size_t most, const char **ret, struct err *e)
{
    if (!json_is_string(value))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a string", name);
    if (json_string_length(value) > most)
        return err_set(e, EINVAL, STEP_USAGE, "%s may have %zu bytes, not %zu", name, most, json_string_length(value));
    *ret = json_string_value(value);
    return 0;
}

int body_bool(const char *name, json_t *value, bool *ret, struct err *e)
{
    if (!json_is_boolean(value))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be true or false", name);
    *ret = json_is_true(value);
    return 0;
}

int body_size(const char *name, json_t *value, uint64_t *ret, struct err *e)
{
    if (json_is_string(value))
        return parse_size(name, json_string_value(value), 1, ret, e);
    if (!json_is_integer(value) || json_integer_value(value) < 1)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a number of bytes or a text like \"512M\"", name);
    *ret = (uint64_t)json_integer_value(value);
    return 0;
}

int body_cpus(const char *name, json_t *value, uint32_t *ret, struct err *e)
{
    if (json_is_string(value))
        return parse_cpus(name, json_string_value(value), ret, e);
    double cpus = json_number_value(value);
    if (!json_is_number(value) || !(cpus * 1000 >= PARSE_CPU_MILLI_MIN) || cpus * 1000 > PARSE_CPU_MILLI_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a number of processors from 0.01 to %d, like 0.5", name,
                       PARSE_CPU_MILLI_MAX / 1000);
    *ret = (uint32_t)(cpus * 1000 + 0.5);
    return 0;
}

int body_count(const char *name, json_t *value, uint32_t least, uint32_t most, uint32_t *ret, struct err *e)
{
    if (json_is_string(value))
        return parse_count(name, json_string_value(value), least, most, ret, e);
    if (!json_is_integer(value) || json_integer_value(value) < least || json_integer_value(value) > most)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a whole number from %u to %u", name, least, most);
    *ret = (uint32_t)json_integer_value(value);
    return 0;
}

int body_duration(const char *name, json_t *value, uint64_t *ret_ms, struct err *e)
{
    if (json_is_string(value))
        return parse_duration(name, json_string_value(value), ret_ms, e);
    double seconds = json_number_value(value);
    if (!json_is_number(value) || !(seconds >= 0) || seconds > (double)PARSE_DURATION_MAX_MS / 1000)
        return err_set(e, EINVAL, STEP_USAGE,
                       "%s must be seconds (0: none) or a text like \"30s\" or \"2h\", at most a year", name);
    *ret_ms = (uint64_t)(seconds * 1000 + 0.999);
    return 0;
}

int body_user(const char *name, json_t *v, uint32_t *ret_uid, uint32_t *ret_gid, struct err *e)
{
    uid_t uid;
    gid_t gid;

    if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < PARSE_ID_MAX) {
        *ret_uid = *ret_gid = (uint32_t)json_integer_value(v);
        return 0;
    }
    if (json_is_object(v)) {
        int r = body_count("user.uid", json_object_get(v, "uid"), 0, PARSE_ID_MAX - 1, ret_uid, e);
        if (r == 0)
            r = body_count("user.gid", json_object_get(v, "gid"), 0, PARSE_ID_MAX - 1, ret_gid, e);
        if (r == 0 && json_object_size(v) != 2)
            r = err_set(e, EINVAL, STEP_USAGE, "%s has unknown fields: only uid and gid are known", name);
        return r;
    }
    if (!json_is_string(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a number or a text like \"1000:1000\"", name);
    int r = parse_user(name, json_string_value(v), &uid, &gid, e);
    if (r < 0)
        return r;
    if (uid >= PARSE_ID_MAX || gid >= PARSE_ID_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be below %d", name, PARSE_ID_MAX);
    *ret_uid = uid;
    *ret_gid = gid;
    return 0;
}

int body_mode_text(const char *name, const char *text, uint32_t *ret, struct err *e)
{
    uint32_t mode = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '7' && mode <= 07777; at++)
        mode = mode * 8 + (uint32_t)(*at - '0');
    if (at == text || *at || mode > 07777)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be octal permissions like \"0644\", not '%s'", name,
                       parse_quote(text).text);
    *ret = mode;
    return 0;
}

int body_mode(const char *name, json_t *value, uint32_t *ret, struct err *e)
{
    if (json_is_string(value))
        return body_mode_text(name, json_string_value(value), ret, e);
    return err_set(e, EINVAL, STEP_USAGE, "%s must be a text with octal permissions, like \"0644\"", name);
}

/* ---- names ---- */

static bool is_lower(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool body_name_is_valid(const char *name)
{
    size_t n = strlen(name);

    if (n < 1 || n > 63 || !is_lower(name[0]) || !is_lower(name[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_lower(name[i]) && name[i] != '-')
            return false;
    return true;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_env_name(const char *name)
{
    if (!is_letter(name[0]) && name[0] != '_')
        return false;
    size_t n = 0;
    for (; name[n]; n++)
        if (!is_letter(name[n]) && !(name[n] >= '0' && name[n] <= '9') && !strchr("_.-", name[n]))
            return false;
    return n <= ENV_NAME_MAX;
}

int body_env_name(const char *where, const char *variable, struct err *e)
{
    if (is_env_name(variable))
        return 0;
    return err_set(e, EINVAL, STEP_USAGE, "%s: '%s' cannot be the name of a variable", where,
                   parse_quote(variable).text);
}

int body_env(const char *name, json_t *value, struct err *e)
{
    const char *key;
    json_t *one;
    size_t bytes = 0;

    if (!json_is_object(value))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an object of strings", name);
    json_object_foreach(value, key, one) {
        int r = body_env_name(name, key, e);
        if (r < 0)
            return r;
        if (!json_is_string(one))
            return err_set(e, EINVAL, STEP_USAGE, "%s.%s must be a string", name, parse_quote(key).text);
        if (json_string_length(one) > ENV_VALUE_MAX)
            return err_set(e, EINVAL, STEP_USAGE, "%s.%s may have %d bytes", name, parse_quote(key).text,
                           ENV_VALUE_MAX);
        bytes += strlen(key) + json_string_length(one) + 2;
    }
    if (json_object_size(value) > ENV_VARIABLES_MAX || bytes > ENV_BYTES_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s may have %d variables of %d bytes in all", name, ENV_VARIABLES_MAX,
                       ENV_BYTES_MAX);
    return 0;
}

static bool is_label_name(const char *name)
{
    size_t n = 0;

    for (; name[n]; n++)
        if (!is_letter(name[n]) && !(name[n] >= '0' && name[n] <= '9') && !strchr("._/-", name[n]))
            return false;
    return n >= 1 && n <= 63;
}

int body_labels(const char *name, json_t *value, struct err *e)
{
    const char *key;
    json_t *one;

    if (!json_is_object(value))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an object of strings", name);
    if (json_object_size(value) > LABELS_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "a box may have %d labels", LABELS_MAX);
    json_object_foreach(value, key, one) {
        if (!is_label_name(key))
            return err_set(e, EINVAL, STEP_USAGE,
                           "%s: '%s' cannot be a label's name: letters, digits, . _ / - and at most 63", name,
                           parse_quote(key).text);
        if (!json_is_string(one) || json_string_length(one) > 255)
            return err_set(e, EINVAL, STEP_USAGE, "%s.%s must be a string of at most 255 bytes", name, key);
    }
    return 0;
}
