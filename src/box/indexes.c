/* Settings of package clients hold addresses and sometimes credentials: in the address (https://user:token@host/), in a
 * query, or beside it (//host/:_authToken=...). So only values known to be addresses without credentials are passed on:
 * a line is parsed and written again, and comments are dropped. */
#define _GNU_SOURCE
#include "box/indexes.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

struct piece {
    const char *at;
    size_t      size;
};

struct cleaner {
    struct buf *out;
    unsigned    dropped;
};

static bool piece_is(struct piece p, const char *text)
{
    if (p.size != strlen(text))
        return false;
    for (size_t i = 0; i < p.size; i++)
        if (p.at[i] != text[i] && !(p.at[i] == '_' && text[i] == '-'))
            return false;
    return true;
}

static bool begins(struct piece p, const char *text)
{
    return p.size >= strlen(text) && memcmp(p.at, text, strlen(text)) == 0;
}

static struct piece trim(struct piece p)
{
    while (p.size && isspace((unsigned char)p.at[0])) {
        p.at++;
        p.size--;
    }
    while (p.size && isspace((unsigned char)p.at[p.size - 1]))
        p.size--;
    return p;
}

/* The next line, without its end. False: there is none. */
static bool next_line(const char **text, struct piece *ret)
{
    if (!**text)
        return false;
    *ret = (struct piece){ *text, strcspn(*text, "\n") };
    *text += ret->size + ((*text)[ret->size] == '\n');
    return true;
}

static bool next_word(struct piece *rest, const char *between, struct piece *ret)
{
    while (rest->size && strchr(between, rest->at[0])) {
        rest->at++;
        rest->size--;
    }
    size_t n = 0;
    while (n < rest->size && !strchr(between, rest->at[n]))
        n++;
    *ret = (struct piece){ rest->at, n };
    rest->at += n;
    rest->size -= n;
    return n > 0;
}

/* Whether it is an http address that can hide nothing: no "user@", no query, no variable, no quote. */
static bool is_clean(struct piece url)
{
    size_t scheme = begins(url, "https://") ? 8 : begins(url, "http://") ? 7 : 0;

    if (scheme == 0 || url.size == scheme)
        return false;
    for (size_t i = 0; i < url.size; i++)
        if (url.at[i] <= ' ' || url.at[i] >= 127 || strchr("@?#$%\"'\\`{}<>|^", url.at[i]))
            return false;
    return true;
}

static bool take_url(struct cleaner *c, struct piece url)
{
    if (is_clean(url))
        return true;
    c->dropped++;
    return false;
}

/* For "trusted-host": a name or address, and a port. */
static bool is_host(struct piece p)
{
    for (size_t i = 0; i < p.size; i++)
        if (!isalnum((unsigned char)p.at[i]) && !strchr(".-:*[]", p.at[i]))
            return false;
    return p.size > 0;
}

/* Parses a line of an ini file: "key = value", or a further "value" of the previous key in *key. False: it belongs to
 * no key. */
static bool read_pair(struct piece line, struct piece *key, struct piece *value)
{
    bool goes_on = line.size && (line.at[0] == ' ' || line.at[0] == '\t');
    size_t n = 0;

    line = trim(line);
    if (line.size == 0 || line.at[0] == '#' || line.at[0] == ';')
        return false;
    *value = line;
    if (goes_on && key->size)
        return true;
    while (n < line.size && line.at[n] != '=' && line.at[n] != ':')
        n++;
    *key = trim((struct piece){ line.at, n == line.size ? 0 : n });
    *value = (struct piece){ line.at + n + 1, n == line.size ? 0 : line.size - n - 1 };
    return key->size > 0;
}

/* Collects all values of one key, from any section, under one name: pip rejects a repeated key. */
static void clean_key(struct cleaner *c, const char *text, const char *name)
{
    bool is_one = strcmp(name, "index-url") == 0, are_hosts = strcmp(name, "trusted-host") == 0, has_begun = false;
    struct piece key = { NULL, 0 }, value, word;

    for (struct piece line; next_line(&text, &line);) {
        if (!read_pair(line, &key, &value) || !piece_is(key, name))
            continue;
        while (next_word(&value, " \t\r", &word)) {
            if ((has_begun && is_one) || !(are_hosts ? is_host(word) : take_url(c, word)))
                continue;
            buf_printf(c->out, "%s%s%.*s", has_begun ? "" : name, has_begun ? "\n    " : " = ", (int)word.size,
                       word.at);
            has_begun = true;
        }
    }
    if (has_begun)
        buf_add_char(c->out, '\n');
}

static void clean_pip(struct cleaner *c, const char *text)
{
    clean_key(c, text, "index-url");
    clean_key(c, text, "extra-index-url");
    clean_key(c, text, "trusted-host");
}

/* registry=URL and @scope:registry=URL. */
static void clean_npm(struct cleaner *c, const char *text)
{
    for (struct piece line; next_line(&text, &line);) {
        struct piece key = trim(line);
        const char *equals = key.size ? memchr(key.at, '=', key.size) : NULL;
        if (!equals)
            continue;
        struct piece value = trim((struct piece){ equals + 1, key.size - (size_t)(equals + 1 - key.at) });
        key = trim((struct piece){ key.at, (size_t)(equals - key.at) });
        bool is_scoped = key.size > 10 && key.at[0] == '@' && memcmp(key.at + key.size - 9, ":registry", 9) == 0;
        for (size_t i = 1; is_scoped && i < key.size - 9; i++)
            is_scoped = isalnum((unsigned char)key.at[i]) || strchr("-_.~", key.at[i]);
        if ((is_scoped || piece_is(key, "registry")) && take_url(c, value))
            buf_printf(c->out, "%.*s=%.*s\n", (int)key.size, key.at, (int)value.size, value.at);
    }
}

/* The text between the first two quotes of a value. */
static struct piece unquote(struct piece value)
{
    value = trim(value);
    if (value.size == 0 || (value.at[0] != '"' && value.at[0] != '\''))
        return (struct piece){ value.at, 0 };
    const char *end = memchr(value.at + 1, value.at[0], value.size - 1);
    return (struct piece){ value.at + 1, end ? (size_t)(end - value.at - 1) : 0 };
}

/* index-url = "URL" at the top, and the url of each [[index]], with default = true if it was set. */
static void clean_uv(struct cleaner *c, const char *text)
{
    struct piece url = { NULL, 0 };
    bool in_index = false, is_top = true, is_default = false, is_over = false;
    struct piece line;

    while (!is_over) {
        is_over = !next_line(&text, &line);
        struct piece key = is_over ? (struct piece){ "[", 1 } : trim(line);
        if (key.size && key.at[0] == '[') {
            if (in_index && url.size && take_url(c, url))
                buf_printf(c->out, "[[index]]\nurl = \"%.*s\"\n%s", (int)url.size, url.at,
                           is_default ? "default = true\n" : "");
            in_index = begins(key, "[[index]]");
            is_top = is_default = false;
            url.size = 0;
            continue;
        }
        const char *equals = key.size && key.at[0] != '#' ? memchr(key.at, '=', key.size) : NULL;
        if (!equals)
            continue;
        struct piece value = { equals + 1, key.size - (size_t)(equals + 1 - key.at) };
        key = trim((struct piece){ key.at, (size_t)(equals - key.at) });
        if (in_index && piece_is(key, "url"))
            url = unquote(value);
        else if (in_index && piece_is(key, "default"))
            is_default = begins(trim(value), "true");
        else if (is_top && piece_is(key, "index-url") && take_url(c, unquote(value)))
            buf_printf(c->out, "index-url = \"%.*s\"\n", (int)unquote(value).size, unquote(value).at);
    }
}

/* Whether every address of the line is clean. */
static bool urls_are_clean(struct cleaner *c, struct piece words)
{
    for (struct piece word; next_word(&words, " \t\r", &word);)
        if (memmem(word.at, word.size, "://", 3) && !take_url(c, word))
            return false;
    return true;
}

static void clean_apt_list(struct cleaner *c, const char *text)
{
    for (struct piece line; next_line(&text, &line);) {
        line = trim(line);
        if ((begins(line, "deb ") || begins(line, "deb-src ")) && !memchr(line.at, '#', line.size) &&
            urls_are_clean(c, line))
            buf_printf(c->out, "%.*s\n", (int)line.size, line.at);
    }
}

/* Handles one paragraph, up to an empty line. Returns the rest. */
static const char *clean_paragraph(struct cleaner *c, const char *text)
{
    const char *at = text;
    bool is_whole = true;
    struct piece line;

    while (next_line(&at, &line) && trim(line).size > 0)
        if (line.at[0] != '#')
            is_whole = urls_are_clean(c, line) && is_whole;
    for (const char *again = text; is_whole && next_line(&again, &line) && trim(line).size > 0;)
        if (line.at[0] != '#')
            buf_printf(c->out, "%.*s\n", (int)line.size, line.at);
    return at;
}

/* A paragraph with an unclean address is dropped completely. */
static void clean_apt_sources(struct cleaner *c, const char *text)
{
    while (*text) {
        size_t before = c->out->length;
        text = clean_paragraph(c, text);
        if (c->out->length > before)
            buf_add_char(c->out, '\n');
    }
}

unsigned indexes_clean(enum index_kind kind, const char *text, struct buf *out)
{
    static void (*const clean[])(struct cleaner *c, const char *text) = {
        [INDEX_PIP] = clean_pip,           [INDEX_UV] = clean_uv, [INDEX_NPM] = clean_npm,
        [INDEX_APT_LIST] = clean_apt_list, [INDEX_APT_SOURCES] = clean_apt_sources,
    };
    struct cleaner c = { .out = out };

    clean[kind](&c, text);
    return c.dropped;
}
