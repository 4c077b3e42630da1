#include "proto/keys.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"

bool key_name_is_valid(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && (i == 0 || !strchr(".-", name[i])))
            return false;
    return size > 0 && size < KEY_NAME_SIZE && !isdigit((unsigned char)name[0]);
}

bool key_split(const char *text, struct key_text *ret)
{
    const char *at = strchr(text, '@'), *equals = strchr(text, '=');
    size_t name = strcspn(text, "=@");

    *ret = (struct key_text){ .header = KEY_USUAL_HEADER };
    if (!at || !key_name_is_valid(text, name))
        return false;
    size_t host = strcspn(at + 1, ":");
    memcpy(ret->name, text, name);
    if (equals && equals < at) {
        ret->source = equals + 1;
        ret->source_size = (size_t)(at - equals - 1);
    }
    /* One that is too long stays empty, and is refused like that. */
    if (host < sizeof ret->host)
        memcpy(ret->host, at + 1, host);
    if (at[1 + host] == ':')
        ret->header = at + 1 + host + 1;
    return true;
}

int key_take_host(const char *what, const char *host, struct broker_key *ret, struct err *e)
{
    struct net_address address;

    if (!net_name_clean(host, strlen(host), ret->host) || !strchr(host, '.') || net_address_parse(host, &address) ||
        strchr(host, '*'))
        return err_set(e, EINVAL, STEP_USAGE, "%s: %s is no name of a host; write one exact name, as in "
                       "api.openai.com", what, parse_quote(host).text);
    return 0;
}

static bool is_header_name(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (name[i] <= ' ' || name[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", name[i]))
            return false;
    return size > 0;
}

/* Fields about the message itself are the broker's. */
static bool is_own_field(const char *name)
{
    static const char *const own[] = { "host", "connection", "content-length", "transfer-encoding", "te", "trailer",
                                       "upgrade", "expect", "keep-alive", "proxy-connection", "proxy-authorization",
                                       "accept-encoding" };

    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcasecmp(name, own[i]) == 0)
            return true;
    return false;
}

static bool is_plain(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] < ' ' || text[i] >= 0x7f)
            return false;
    return size < BROKER_AFFIX_SIZE;
}

int key_take_header(const char *what, const char *text, struct broker_key *ret, struct err *e)
{
    size_t name = strcspn(text, ":");
    const char *value = text + name + (text[name] == ':'), *hole = strstr(value, "{}");

    value += strspn(value, " ");
    if (text[name] != ':' || !is_header_name(text, name) || name >= BROKER_HEADER_SIZE || !hole ||
        strstr(hole + 2, "{}"))
        return err_set(e, EINVAL, STEP_USAGE, "%s: '%.80s' is no header with the key's place; write it like "
                       "'x-api-key: {}' (a key goes to port 443 only)", what, parse_quote(text).text);
    if (!is_plain(value, (size_t)(hole - value)) || !is_plain(hole + 2, strlen(hole + 2)))
        return err_set(e, EINVAL, STEP_USAGE, "%s: the words around {} have %d printable characters at most", what,
                       BROKER_AFFIX_SIZE - 1);
    snprintf(ret->header, sizeof ret->header, "%.*s", (int)name, text);
    snprintf(ret->before, sizeof ret->before, "%.*s", (int)(hole - value), value);
    snprintf(ret->after, sizeof ret->after, "%s", hole + 2);
    if (is_own_field(ret->header))
        return err_set(e, EINVAL, STEP_USAGE, "%s: %s is no header for a key", what, ret->header);
    return 0;
}

/* It must fit into a header field as it is. */
int key_take_value(const char *what, const char *from, const void *bytes, size_t size, struct broker_key *ret,
                   struct err *e)
{
    const uint8_t *value = bytes;

    while (size > 0 && (value[size - 1] == '\n' || value[size - 1] == '\r'))
        size--;
    if (size > BROKER_VALUE_MOST)
        return err_set(e, E2BIG, STEP_USAGE, "%s: the value in %.100s has more than %d bytes", what, from,
                       BROKER_VALUE_MOST);
    if (size < BROKER_VALUE_LEAST)
        return err_set(e, EINVAL, STEP_USAGE, "%s: the value in %.100s has %zu bytes; a key has at least %d", what,
                       from, size, BROKER_VALUE_LEAST);
    for (size_t i = 0; i < size; i++)
        if (value[i] <= ' ' || value[i] >= 0x7f)
            return err_set(e, EINVAL, STEP_USAGE, "%s: byte %zu of the value in %.100s is a blank, a control "
                           "character or not ASCII; that cannot stand in a header", what, i + 1, from);
    memcpy(ret->value, value, size);
    ret->value_size = (uint32_t)size;
    return 0;
}

bool key_next(const char **at, char *ret, size_t size)
{
    size_t n = 0;

    while (**at && n == 0) {
        const char *from = *at + strspn(*at, " ");
        n = strcspn(from, ";");
        *at = from + n + (from[n] == ';');
        while (n > 0 && from[n - 1] == ' ')
            n--;
        snprintf(ret, size, "%.*s", (int)n, from);
    }
    return n > 0;
}

int key_read(const char *what, const char *text, struct key_text *ret, struct broker_key *ret_key, struct err *e)
{
    if (!key_split(text, ret) || (ret->source && ret->source_size == 0))
        return err_set(e, EINVAL, STEP_USAGE, "%s: '%s' is no key; write NAME@HOST, NAME=SECRET@HOST or "
                       "NAME@HOST:x-api-key: {}, with ; between several", what, parse_quote(text).text);
    int r = key_take_host(what, ret->host, ret_key, e);
    return r < 0 ? r : key_take_header(what, ret->header, ret_key, e);
}
