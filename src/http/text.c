/* Texts and lists of a head, paths and queries. */
#include "http/parse.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "http/chars.h"

/* ---- texts and lists ---- */

bool http_text_is(struct http_text t, const char *word)
{
    return t.size == strlen(word) && memcmp(t.data, word, t.size) == 0;
}

bool http_text_is_nocase(struct http_text t, const char *word)
{
    return t.size == strlen(word) && strncasecmp(t.data, word, t.size) == 0;
}

struct http_text http_text_trim(struct http_text t)
{
    while (t.size && (t.data[0] == ' ' || t.data[0] == '\t'))
        t.data++, t.size--;
    while (t.size && (t.data[t.size - 1] == ' ' || t.data[t.size - 1] == '\t'))
        t.size--;
    return t;
}

bool http_list_next(struct http_text *list, struct http_text *ret_element)
{
    while (list->size) {
        const char *comma = memchr(list->data, ',', list->size);
        size_t n = comma ? (size_t)(comma - list->data) : list->size;
        struct http_text element = http_text_trim((struct http_text){ list->data, n });
        list->data += n + (comma != NULL);
        list->size -= n + (comma != NULL);
        if (element.size) {
            *ret_element = element;
            return true;
        }
    }
    return false;
}

bool http_list_has(struct http_text list, const char *token)
{
    struct http_text element;
    while (http_list_next(&list, &element))
        if (http_text_is_nocase(element, token))
            return true;
    return false;
}

bool http_is_token(struct http_text t)
{
    for (size_t i = 0; i < t.size; i++)
        if (!char_is(t.data[i], CHAR_TOKEN))
            return false;
    return t.size > 0;
}

bool http_is_field_value(struct http_text t)
{
    for (size_t i = 0; i < t.size; i++)
        if (!char_is(t.data[i], CHAR_VALUE))
            return false;
    return true;
}

/* ---- paths and queries ---- */

/* The byte at *i, unescaped, and *i moved past it; -1 for a bad escape or a NUL. */
static int next_byte(struct http_text t, size_t *i)
{
    char byte = t.data[(*i)++];
    if (byte != '%')
        return (unsigned char)byte;
    if (t.size - *i < 2)
        return -1;
    int high = char_hex(t.data[*i]), low = char_hex(t.data[*i + 1]);
    *i += 2;
    return high < 0 || low < 0 || high + low == 0 ? -1 : high << 4 | low;
}

enum http_fault http_path_check(struct http_text path)
{
    if (!path.size || path.data[0] != '/')
        return HTTP_BAD_TARGET;
    size_t length = 0, dots = 0;        /* of the segment so far */
    for (size_t i = 0; i < path.size;) {
        bool raw_backslash = path.data[i] == '\\';
        int byte = next_byte(path, &i);
        if (byte < 0)
            return HTTP_BAD_ESCAPE;
        if (raw_backslash)
            return HTTP_BAD_TARGET;
        if (byte != '/') {
            length++;
            dots += byte == '.';
        }
        if (byte == '/' || i == path.size) {
            if (length == dots && (dots == 1 || dots == 2))
                return HTTP_DOT_SEGMENT;
            length = dots = 0;
        }
    }
    return HTTP_OK;
}

int http_unescape(struct arena *a, struct http_text raw, bool plus, struct http_text *ret)
{
    char *text = arena_alloc(a, raw.size + 1);
    if (!text)
        return -ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < raw.size;) {
        bool space = plus && raw.data[i] == '+';
        int byte = next_byte(raw, &i);
        if (byte < 0)
            return -EBADMSG;
        text[n++] = space ? ' ' : (char)byte;
    }
    text[n] = 0;
    *ret = (struct http_text){ text, n };
    return 0;
}

bool http_query_next(struct http_text *query, struct http_text *ret_name, struct http_text *ret_value)
{
    while (query->size) {
        const char *end = memchr(query->data, '&', query->size);
        size_t n = end ? (size_t)(end - query->data) : query->size;
        const char *pair = query->data;
        query->data += n + (end != NULL);
        query->size -= n + (end != NULL);
        if (n == 0)
            continue;
        const char *equals = memchr(pair, '=', n);
        size_t name = equals ? (size_t)(equals - pair) : n;
        *ret_name = (struct http_text){ pair, name };
        *ret_value = (struct http_text){ equals ? equals + 1 : pair + n, equals ? n - name - 1 : 0 };
        return true;
    }
    return false;
}

int http_query_get(struct arena *a, struct http_text query, const char *name, struct http_text *ret)
{
    struct http_text n, v, decoded;
    while (http_query_next(&query, &n, &v)) {
        int r = http_unescape(a, n, true, &decoded);
        if (r < 0)
            return r;
        if (http_text_is(decoded, name))
            return http_unescape(a, v, true, ret);
    }
    return -ENOENT;
}
