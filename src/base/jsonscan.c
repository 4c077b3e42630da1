/* One pass over the bytes, no recursion: a bit per level says whether it is an object. Most bytes are inside strings,
 * so plain ASCII is skipped eight bytes at a time. */
#define _GNU_SOURCE
#include "base/jsonscan.h"

#include <stdint.h>
#include <string.h>

struct scan {
    const unsigned char *at, *end;
    unsigned             depth;
    uint8_t              is_object[JSONSCAN_DEPTH / 8];
};

static void skip_blanks(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

/* Skips bytes other than quotes, backslashes, controls and non-ASCII characters. */
static void skip_plain(struct scan *s)
{
    while (s->end - s->at >= 8) {
        uint64_t w;
        memcpy(&w, s->at, 8);
        uint64_t quote = w ^ EACH('"'), slash = w ^ EACH('\\');
        uint64_t odd = (w - EACH(0x20)) | (quote - EACH(1)) | (slash - EACH(1)) | w;
        if (odd & EACH(0x80))
            break;
        s->at += 8;
    }
}

static int hex(unsigned char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
}

/* Length of the non-ASCII character at p, 0 if it is not UTF-8. */
static size_t utf8_length(const unsigned char *p, const unsigned char *end)
{
    size_t n = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;

    if (n == 0 || (size_t)(end - p) < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) || (p[0] == 0xf0 && p[1] < 0x90)
        || (p[0] == 0xf4 && p[1] >= 0x90))
        return 0;
    return n;
}

static bool skip_escape(struct scan *s)
{
    if (++s->at == s->end)
        return false;
    if (*s->at != 'u')
        return *s->at && strchr("\"\\/bfnrt", *s->at++);
    if (s->end - s->at < 5)
        return false;
    for (int i = 1; i < 5; i++)
        if (hex(s->at[i]) < 0)
            return false;
    s->at += 5;
    return true;
}

/* At the opening quote; leaves it after the closing one. */
static bool skip_string(struct scan *s)
{
    s->at++;
    for (;;) {
        skip_plain(s);
        if (s->at == s->end || *s->at < 0x20)
            return false;
        if (*s->at == '"') {
            s->at++;
            return true;
        }
        if (*s->at == '\\') {
            if (!skip_escape(s))
                return false;
        } else if (*s->at < 0x80) {
            s->at++;
        } else {
            size_t n = utf8_length(s->at, s->end);
            if (n == 0)
                return false;
            s->at += n;
        }
    }
}

static bool skip_digits(struct scan *s)
{
    const unsigned char *start = s->at;

    while (s->at < s->end && *s->at >= '0' && *s->at <= '9')
        s->at++;
    return s->at > start;
}

static bool skip_number(struct scan *s)
{
    if (*s->at == '-')
        s->at++;
    const unsigned char *start = s->at;
    if (!skip_digits(s) || (*start == '0' && s->at - start > 1))
        return false;
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!skip_digits(s))
            return false;
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
            s->at++;
        if (!skip_digits(s))
            return false;
    }
    return true;
}

static bool skip_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

static bool skip_scalar(struct scan *s)
{
    switch (*s->at) {
    case '"':
        return skip_string(s);
    case 't':
        return skip_word(s, "true");
    case 'f':
        return skip_word(s, "false");
    case 'n':
        return skip_word(s, "null");
    default:
        return skip_number(s);
    }
}

static bool in_object(const struct scan *s)
{
    return s->is_object[(s->depth - 1) / 8] >> (s->depth - 1) % 8 & 1;
}

static bool open_level(struct scan *s, bool is_object)
{
    if (s->depth == JSONSCAN_DEPTH)
        return false;
    uint8_t bit = (uint8_t)(1u << s->depth % 8), *byte = &s->is_object[s->depth / 8];
    *byte = is_object ? *byte | bit : *byte & (uint8_t)~bit;
    s->depth++;
    s->at++;
    return true;
}

/* "name": of an object's member, up to its value. */
static bool skip_name(struct scan *s)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != '"' || !skip_string(s))
        return false;
    skip_blanks(s);
    if (s->at == s->end || *s->at != ':')
        return false;
    s->at++;
    skip_blanks(s);
    return true;
}

/* After a value: closes the levels that end here and moves to the next value. False: invalid. *done: the text is
 * complete. */
static bool go_on(struct scan *s, bool *done)
{
    for (;;) {
        if (s->depth == 0) {
            *done = true;
            return true;
        }
        skip_blanks(s);
        if (s->at == s->end)
            return false;
        if (*s->at == ',') {
            s->at++;
            skip_blanks(s);
            return !in_object(s) || skip_name(s);
        }
        if (*s->at != (in_object(s) ? '}' : ']'))
            return false;
        s->at++;
        s->depth--;
    }
}

/* One value with everything in it. */
static bool skip_value(struct scan *s)
{
    bool done = false;

    while (!done) {
        if (s->at == s->end)
            return false;
        if (*s->at == '{' || *s->at == '[') {
            bool is_object = *s->at == '{';
            if (!open_level(s, is_object))
                return false;
            skip_blanks(s);
            if (s->at == s->end)
                return false;
            if (*s->at != (is_object ? '}' : ']')) {
                if (is_object && !skip_name(s))
                    return false;
                continue;
            }
        } else if (!skip_scalar(s)) {
            return false;
        }
        if (!go_on(s, &done))
            return false;
    }
    return true;
}

static struct scan scan_of(const char *data, size_t size)
{
    const unsigned char *start = (const unsigned char *)data;

    return (struct scan){ .at = start, .end = start ? start + size : start };
}

bool jsonscan_is_value(const char *data, size_t size)
{
    struct scan s = scan_of(data, size);

    skip_blanks(&s);
    if (!skip_value(&s))
        return false;
    skip_blanks(&s);
    return s.at == s.end;
}

bool jsonscan_is_object(const char *data, size_t size)
{
    struct scan s = scan_of(data, size);

    skip_blanks(&s);
    return s.at < s.end && *s.at == '{' && jsonscan_is_value(data, size);
}

size_t jsonscan_weight(const char *data, size_t size)
{
    enum { VALUE = 64, MEMBER = 96, ARRAY = 144, OBJECT = 320 };
    size_t weight = VALUE;
    bool in_string = false;

    for (size_t i = 0; i < size; i++) {
        if (in_string) {
            if (data[i] == '\\')
                i++;
            else if (data[i] == '"')
                in_string = false;
            weight++;
            continue;
        }
        switch (data[i]) {
        case '"':
            in_string = true;
            break;
        case ',':
            weight += VALUE;
            break;
        case ':':
            weight += MEMBER;
            break;
        case '[':
            weight += ARRAY;
            break;
        case '{':
            weight += OBJECT;
            break;
        default:
            break;
        }
    }
    return weight;
}

struct jsonwalk jsonscan_walk(struct jsonslice value)
{
    struct scan s = scan_of(value.data, value.size);
    struct jsonwalk w = { 0 };

    if (!value.data)
        return w;
    skip_blanks(&s);
    if (s.at == s.end || (*s.at != '{' && *s.at != '['))
        return w;
    w.is_object = *s.at == '{';
    w.at = (const char *)s.at + 1;
    w.end = value.data + value.size;
    return w;
}

bool jsonscan_next(struct jsonwalk *w)
{
    struct scan s = scan_of(w->at, (size_t)(w->end - w->at));

    if (!w->at)
        return false;
    skip_blanks(&s);
    if (w->value.data && s.at < s.end && *s.at == ',') {
        s.at++;
        skip_blanks(&s);
    }
    if (s.at == s.end || *s.at == '}' || *s.at == ']')
        return false;
    if (w->is_object) {
        w->key.data = (const char *)s.at;
        if (*s.at != '"' || !skip_string(&s))
            return false;
        w->key.size = (size_t)((const char *)s.at - w->key.data);
        skip_blanks(&s);
        if (s.at == s.end || *s.at++ != ':')
            return false;
        skip_blanks(&s);
    }
    w->value.data = (const char *)s.at;
    if (!skip_value(&s))
        return false;
    w->at = (const char *)s.at;
    w->value.size = (size_t)(w->at - w->value.data);
    return true;
}

struct jsonslice jsonscan_find(struct jsonslice text, const char *name)
{
    struct jsonwalk w = jsonscan_walk(text);
    struct jsonslice found = { 0 };

    while (w.is_object && jsonscan_next(&w))
        if (jsonscan_is(w.key, name))
            found = w.value;
    return found;
}

static size_t put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

static uint32_t read_hex(const char *p)
{
    uint32_t c = 0;

    for (int i = 0; i < 4; i++)
        c = c << 4 | (uint32_t)hex((unsigned char)p[i]);
    return c;
}

/* The escape at p, which is valid; *ret_size: its length. */
static uint32_t read_escape(const char *p, const char *end, size_t *ret_size)
{
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";

    *ret_size = 2;
    if (p[1] != 'u') {
        const char *letter = strchr(letters, p[1]);
        return letter ? (unsigned char)meant[letter - letters] : (unsigned char)p[1];
    }
    *ret_size = 6;
    uint32_t c = read_hex(p + 2);
    if (c < 0xd800 || c > 0xdfff)
        return c;
    if (c < 0xdc00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u') {
        uint32_t low = read_hex(p + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            *ret_size = 12;
            return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return 0xfffd;
}

struct jsonslice jsonscan_inside(struct jsonslice value)
{
    if (!value.data || value.size < 2 || value.data[0] != '"')
        return (struct jsonslice){ 0 };
    return (struct jsonslice){ .data = value.data + 1, .size = value.size - 2 };
}

size_t jsonscan_cut(struct jsonslice inside, size_t bytes, size_t *ret_bytes)
{
    const char *p = inside.data, *end = p + inside.size;
    size_t n = 0, length;
    char ignored[4];

    while (p < end) {
        const char *escape = memchr(p, '\\', (size_t)(end - p));
        size_t plain = (size_t)((escape ? escape : end) - p);
        if (plain > bytes - n) {
            plain = bytes - n;
            while (plain > 0 && (p[plain] & 0xc0) == 0x80)
                plain--;
            n += plain;
            p += plain;
            break;
        }
        n += plain;
        p += plain;
        size_t more = escape ? put_utf8(ignored, read_escape(p, end, &length)) : 0;
        if (!escape || more > bytes - n)
            break;
        n += more;
        p += length;
    }
    *ret_bytes = n;
    return (size_t)(p - inside.data);
}

bool jsonscan_text(struct jsonslice value, char *text, size_t size)
{
    struct jsonslice inside = jsonscan_inside(value);
    size_t n = 0;

    if (!inside.data)
        return false;
    for (const char *p = inside.data, *end = p + inside.size; p < end;) {
        size_t length = 1;
        uint32_t c = *p == '\\' ? read_escape(p, end, &length) : (unsigned char)*p;
        char bytes[4] = { *p };
        size_t k = *p == '\\' ? put_utf8(bytes, c) : 1;
        if (c == 0 || n + k >= size)
            return false;
        memcpy(text + n, bytes, k);
        n += k;
        p += length;
    }
    if (n >= size)
        return false;
    text[n] = '\0';
    return true;
}

bool jsonscan_is(struct jsonslice value, const char *text)
{
    char own[128];
    size_t n = strlen(text);
    struct jsonslice inside = jsonscan_inside(value);

    if (!inside.data)
        return false;
    if (inside.size == n && memcmp(inside.data, text, n) == 0)
        return !memchr(text, '\\', n);
    return n < sizeof own && jsonscan_text(value, own, sizeof own) && strcmp(own, text) == 0;
}

bool jsonscan_number(struct jsonslice value, unsigned long long *ret)
{
    unsigned long long n = 0;

    if (!value.data || value.size == 0 || value.size > 18)
        return false;
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return false;
        n = n * 10 + (unsigned)(value.data[i] - '0');
    }
    *ret = n;
    return true;
}
