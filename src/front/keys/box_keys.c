/* The list of keys of a box: from a request, from a template's words, against the owner's secrets and the box's
 * network. Placeholders are made from the seed of the box's authority and the variable's name: they need no place in a
 * record, and one variable has one placeholder for all its hosts. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/parse.h"
#include "base/sha256.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/keys/keys_private.h"
#include "front/net/net.h"
#include "front/request/fields.h"
#include "front/secrets/secret_uses.h"
#include "front/secrets/secrets.h"
#include "proto/certificates.h"

/* Of a placeholder: as many as those of `carrel run --key`. */
enum { PLACEHOLDER_DIGITS = 24 };

/* ---- the list ---- */

struct key_body {
    const char       *secret, *name;
    const char       *header;
    bool              has_host;
    struct broker_key checked;
};

static int take_secret(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, SECRET_NAME_MAX, &((struct key_body *)into)->secret, e);
}

static int take_variable(const char *name, json_t *v, void *into, struct err *e)
{
    struct key_body *k = into;
    int r = body_text(name, v, KEY_NAME_SIZE - 1, &k->name, e);

    if (r == 0 && !key_name_is_valid(k->name, strlen(k->name)))
        return err_set(e, EINVAL, STEP_USAGE, "%s: '%s' cannot be the name of a variable", name,
                       parse_quote(k->name).text);
    return r;
}

static int take_host(const char *name, json_t *v, void *into, struct err *e)
{
    struct key_body *k = into;
    const char *text;
    int r = body_text(name, v, NET_NAME_SIZE - 1, &text, e);

    k->has_host = true;
    return r < 0 ? r : key_take_host(name, text, &k->checked, e);
}

static int take_header(const char *name, json_t *v, void *into, struct err *e)
{
    struct key_body *k = into;
    int r = body_text(name, v, BROKER_HEADER_SIZE + 2 * BROKER_AFFIX_SIZE, &k->header, e);

    return r < 0 ? r : key_take_header(name, k->header, &k->checked, e);
}

static json_t *key_json(const char *secret, const char *name, const char *host, const char *header)
{
    return json_pack("{s:s,s:s,s:s,s:s}", "secret", secret, "name", name, "host", host, "header", header);
}

static int take_one(const char *where, json_t *v, json_t *list, struct err *e)
{
    static const struct body_field fields[] = {
        { "secret", take_secret }, { "name", take_variable }, { "host", take_host }, { "header", take_header }
    };
    static struct key_body k;
    char prefix[48];

    k = (struct key_body){ .header = KEY_USUAL_HEADER };
    snprintf(prefix, sizeof prefix, "%s.", where);
    if (!json_is_object(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an object, as in {\"secret\": \"openai\", \"name\": "
                       "\"OPENAI_API_KEY\", \"host\": \"api.openai.com\"}", where);
    int r = body_fields(v, prefix, fields, sizeof fields / sizeof *fields, &k, e);
    if (r < 0)
        return r;
    if (!k.name || !k.has_host)
        return err_set(e, EINVAL, STEP_USAGE, "%s.%s is missing: %s", where, k.name ? "host" : "name",
                       k.name ? "the one host that gets the key" : "the variable that has the placeholder in the box");
    return json_array_append_new(list, key_json(k.secret ? k.secret : k.name, k.name, k.checked.host, k.header)) < 0
               ? err_at(e, ENOMEM, STEP_MEMORY, 0, where) : 0;
}

/* An empty list is none. */
static int give_list(int r, json_t *list, json_t **ret)
{
    if (r == 0)
        *ret = json_array_size(list) > 0 ? json_incref(list) : NULL;
    json_decref(list);
    return r;
}

int keys_take(const char *name, json_t *value, json_t **ret, struct err *e)
{
    size_t i;
    json_t *one;
    int r = 0;

    if (json_is_null(value)) {
        *ret = NULL;
        return 0;
    }
    if (!json_is_array(value))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of objects", name);
    if (json_array_size(value) > BROKER_KEYS)
        return err_set(e, EINVAL, STEP_USAGE, "%s: a box can have %d keys", name, BROKER_KEYS);
    json_t *list = json_array();
    json_array_foreach(value, i, one) {
        char where[32];
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        if (r == 0)
            r = take_one(where, one, list, e);
    }
    return give_list(r, list, ret);
}

int keys_read(const char *name, const char *text, json_t **ret, struct err *e)
{
    static struct broker_key checked;
    struct key_text parts;
    char word[CONFIG_KEYS_SIZE], secret[SECRET_NAME_MAX + 1];
    json_t *list = json_array();
    int r = 0;

    while (r == 0 && key_next(&text, word, sizeof word)) {
        if ((r = key_read(name, word, &parts, &checked, e)) < 0)
            break;
        snprintf(secret, sizeof secret, "%.*s", (int)(parts.source ? parts.source_size : sizeof secret),
                 parts.source ? parts.source : parts.name);
        if (json_array_size(list) == BROKER_KEYS)
            r = err_set(e, EINVAL, STEP_USAGE, "%s: a box can have %d keys", name, BROKER_KEYS);
        else if (json_array_append_new(list, key_json(secret, parts.name, checked.host, parts.header)) < 0)
            r = err_at(e, ENOMEM, STEP_MEMORY, 0, name);
    }
    return give_list(r, list, ret);
}

static const char *text_of(const json_t *key, const char *member)
{
    const char *text = json_string_value(json_object_get(key, member));

    return text ? text : "";
}

int key_fill(struct front *front, const char *owner, const char *what, const json_t *key, struct broker_key *ret,
             struct err *e)
{
    const char *name = text_of(key, "secret");
    struct secret_value value = { 0 };
    struct secret *secret;
    char from[SECRET_NAME_MAX + 16];

    snprintf(from, sizeof from, "the secret %s", name);
    int r = key_take_host(what, text_of(key, "host"), ret, e);
    if (r == 0)
        r = key_take_header(what, text_of(key, "header"), ret, e);
    if (r == 0)
        r = secrets_find(front, owner, name, &secret, e);
    if (r == -ENOENT)
        r = err_set(e, EINVAL, STEP_USAGE, "%s: there is no secret '%.64s' of %.64s; 'carrel secret create' "
                    "makes it", what, name, owner);
    if (r == 0)
        r = secret_read(secret, &value, e);
    if (r == 0)
        r = key_take_value(what, from, value.bytes, value.size, ret, e);
    secret_value_done(&value);
    return r;
}

int keys_admit(struct front *front, const char *owner, const struct box_settings *s, struct err *e)
{
    static struct broker_key frame;
    const char *why_none = keys_why_none(front);
    size_t i, k;
    json_t *key, *use;
    int r = 0;

    if (!s->keys)
        return 0;
    if (why_none)
        return err_set(e, ENOTSUP, STEP_USAGE, "keys: %s", why_none);
    json_array_foreach(s->keys, i, key) {
        char what[32];
        snprintf(what, sizeof what, "keys[%zu]", i);
        if (json_object_get(s->env, text_of(key, "name")))
            return err_set(e, EINVAL, STEP_USAGE, "%s: the box would get %s itself by env; leave that out", what,
                           text_of(key, "name"));
        json_array_foreach(s->secrets, k, use)
            if (secret_use_variable(use) && strcmp(secret_use_variable(use), text_of(key, "name")) == 0)
                return err_set(e, EINVAL, STEP_USAGE, "%s: the box would get the value in %s itself by secrets; leave "
                               "that out", what, text_of(key, "name"));
        r = key_fill(front, owner, what, key, &frame, e);
        explicit_bzero(&frame, sizeof frame);
        if (r < 0)
            return r;
    }
    return net_check_keys(&front->config, s->net, s->keys, e);
}

void keys_list_hosts(const json_t *keys, struct egress_brokered *ret)
{
    size_t i;
    json_t *key;

    ret->n = 0;
    json_array_foreach(keys, i, key) {
        const char *host = text_of(key, "host");
        if (ret->n < EGRESS_BROKERED_MOST && strlen(host) < sizeof ret->name[0])
            snprintf(ret->name[ret->n++], sizeof ret->name[0], "%s", host);
    }
}

/* ---- a box ---- */

int keys_make_seed(struct box *b, struct err *e)
{
    return b->settings.keys && getrandom(b->keys.seed, sizeof b->keys.seed, 0) != sizeof b->keys.seed
               ? err_at(e, EIO, STEP_HOST, 0, "random bytes") : 0;
}

json_t *keys_seed_json(const struct box *b)
{
    char text[SHA256_HEX + 1];

    _Static_assert((int)BROKER_SEED_BYTES == (int)SHA256_BYTES, "its text");
    sha256_hex(b->keys.seed, text);
    return b->settings.keys ? json_string(text) : NULL;
}

void keys_load_seed(struct box *b, const json_t *stored)
{
    const char *text = json_string_value(stored);
    unsigned byte;

    for (size_t i = 0; text && i < sizeof b->keys.seed && sscanf(text + 2 * i, "%2x", &byte) == 1; i++)
        b->keys.seed[i] = (uint8_t)byte;
}

void key_placeholder(const struct box *b, const char *name, char ret[BROKER_PLACEHOLDER_SIZE])
{
    uint8_t digest[SHA256_BYTES];
    char text[SHA256_HEX + 1];
    struct sha256 hash;

    sha256_begin(&hash);
    sha256_add(&hash, "placeholder", sizeof "placeholder");
    sha256_add(&hash, b->keys.seed, sizeof b->keys.seed);
    sha256_add(&hash, name, strlen(name));
    sha256_end(&hash, digest);
    sha256_hex(digest, text);
    snprintf(ret, BROKER_PLACEHOLDER_SIZE, "carrel-placeholder-%.*s", PLACEHOLDER_DIGITS, text);
}

int keys_add_variables(const struct box *b, json_t *env)
{
    static const char *const certificates[] = CERTIFICATES_OF_BOX_VARIABLES;
    char placeholder[BROKER_PLACEHOLDER_SIZE];
    size_t i;
    json_t *key;
    int r = 0;

    for (i = 0; b->settings.keys && i < sizeof certificates / sizeof *certificates && r == 0; i++)
        r = json_object_set_new(env, certificates[i], json_string(CERTIFICATES_OF_BOX));
    json_array_foreach(b->settings.keys, i, key) {
        key_placeholder(b, text_of(key, "name"), placeholder);
        if (r == 0)
            r = json_object_set_new(env, text_of(key, "name"), json_string(placeholder));
    }
    return r;
}
