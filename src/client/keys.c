/* --key of commands that make a box of a server. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "proto/keys.h"

int take_key(const char *option, const char *value, json_t *body, struct err *e)
{
    static struct broker_key checked;
    struct key_text parts;
    json_t *list = json_object_get(body, "keys");

    if (!key_split(value, &parts))
        return err_set(e, EINVAL, STEP_USAGE, "%s %s: use NAME@HOST or NAME=SECRET@HOST, as in "
                       "OPENAI_API_KEY=openai@api.openai.com, or with a header behind it, :'x-api-key: {}'", option,
                       parse_quote(value).text);
    int r = key_take_host(option, parts.host, &checked, e);
    if (r == 0)
        r = key_take_header(option, parts.header, &checked, e);
    if (r < 0)
        return r;
    if (parts.source && parts.source_size == 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s: the name of the secret is missing; 'carrel secret ls' lists them",
                       option, parse_quote(value).text);
    if (!list && json_object_set_new(body, "keys", list = json_array()) < 0)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, option);
    json_t *one = json_pack("{s:s%,s:s,s:s,s:s}", "secret", parts.source ? parts.source : parts.name,
                            parts.source ? parts.source_size : strlen(parts.name), "name", parts.name, "host",
                            checked.host, "header", parts.header);
    return json_array_append_new(list, one) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "%s %s is not UTF-8", option, parse_quote(value).text) : 0;
}

int own_keys_take(json_t *body, struct own_keys *ret, struct err *e)
{
    size_t i;
    json_t *key;

    json_array_foreach(json_object_get(body, "keys"), i, key) {
        const char *name = text_of(key, "name"), *secret = text_of(key, "secret");
        bool is_there = ret->n == BROKER_KEYS;
        for (size_t k = 0; k < ret->n; k++)
            is_there |= strcmp(ret->secret[k], secret) == 0;
        const char *value = is_there ? NULL : getenv(name);
        if (is_there)
            continue;
        if (!value || !value[0])
            return err_set(e, ENOENT, STEP_USAGE, "--key %s: no server is running that has secrets, and your "
                           "environment has no %s; set it, or start a server with 'carrel serve'", name, name);
        ret->secret[ret->n] = secret;
        ret->value[ret->n] = strdup(value);
        if (!ret->value[ret->n])
            return err_at(e, ENOMEM, STEP_MEMORY, 0, "--key");
        ret->n++;
    }
    json_array_foreach(json_object_get(body, "keys"), i, key) {
        char *value = getenv(text_of(key, "name"));
        if (value)
            explicit_bzero(value, strlen(value));
        (void)unsetenv(text_of(key, "name"));
    }
    return 0;
}

int own_keys_give(struct own_keys *keys, const struct client *c, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < keys->n && r == 0; i++)
        r = secret_give(c, keys->secret[i], keys->value[i], e);
    own_keys_done(keys);
    return r;
}

void own_keys_done(struct own_keys *keys)
{
    for (size_t i = 0; i < keys->n; i++) {
        explicit_bzero(keys->value[i], strlen(keys->value[i]));
        free(keys->value[i]);
    }
    keys->n = 0;
}
