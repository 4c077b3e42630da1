#include "base/jsonout.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void jsonout_init(struct jsonout *j, struct buf *out)
{
    *j = (struct jsonout){ .out = out };
}

/* Length of the UTF-8 character at p, 0 if there is none: no surrogates, no overlong forms, nothing above U+10FFFF. */
static size_t utf8_length(const unsigned char *p, size_t size)
{
    unsigned char first = p[0];
    unsigned char low = 0x80, high = 0xbf; /* the range of the second byte */
    size_t length;

    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        length = 2;
    else if (first >= 0xe0 && first <= 0xef)
        length = 3;
    else if (first >= 0xf0 && first <= 0xf4)
        length = 4;
    else
        return 0;
    if (first == 0xe0)
        low = 0xa0;
    else if (first == 0xed)
        high = 0x9f;
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f;
    if (size < length || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

bool jsonout_is_text(const char *data, size_t size)
{
    const unsigned char *p = (const unsigned char *)data, *end = p + size;

    while (p < end) {
        size_t length = utf8_length(p, (size_t)(end - p));
        if (!length)
            return false;
        p += length;
    }
    return true;
}

static void add_escaped(struct buf *out, unsigned char c)
{
    static const char letters[] = "\"\\\b\f\n\r\t";
    static const char escapes[] = "\"\\bfnrt";
    const char *found = c ? strchr(letters, c) : NULL;

    if (found) {
        buf_add_char(out, '\\');
        buf_add_char(out, escapes[found - letters]);
    } else {
        buf_printf(out, "\\u%04x", c);
    }
}

static void add_quoted(struct buf *out, const char *data, size_t size)
{
    const unsigned char *p = (const unsigned char *)data, *end = p + size, *plain = p;

    buf_add_char(out, '"');
    while (p < end) {
        /* U+0080 to U+009F begin an escape sequence on some terminals. */
        bool is_c1 = *p == 0xc2 && end - p > 1 && p[1] >= 0x80 && p[1] <= 0x9f;
        bool special = *p < 0x20 || *p == '"' || *p == '\\' || *p == 0x7f || is_c1;
        size_t length = special ? 0 : utf8_length(p, (size_t)(end - p));
        if (length) {
            p += length;
            continue;
        }
        buf_add(out, plain, (size_t)(p - plain));
        p += is_c1;
        if (special)
            add_escaped(out, *p);
        else
            buf_add_text(out, "\\ufffd");
        plain = ++p;
    }
    buf_add(out, plain, (size_t)(p - plain));
    buf_add_char(out, '"');
}

/* Writes the comma and the key before a value. False: no value may stand here. */
static bool begin_value(struct jsonout *j, const char *key)
{
    uint32_t bit = j->depth ? 1U << (j->depth - 1) : 0;
    bool in_object = j->objects & bit;

    if (j->misused || j->done || in_object != (key != NULL)) {
        j->misused = true;
        return false;
    }
    if (j->filled & bit)
        buf_add_char(j->out, ',');
    j->filled |= bit;
    if (key) {
        add_quoted(j->out, key, strlen(key));
        buf_add_char(j->out, ':');
    }
    if (!j->depth)
        j->done = true; /* json_open undoes it until its jsonout_close */
    return true;
}

static void open_level(struct jsonout *j, const char *key, bool object)
{
    if (j->depth == JSON_DEPTH_MAX)
        j->misused = true;
    if (!begin_value(j, key))
        return;
    j->done = false;
    uint32_t bit = 1U << j->depth++;
    j->filled &= ~bit;
    j->objects = object ? j->objects | bit : j->objects & ~bit;
    buf_add_char(j->out, object ? '{' : '[');
}

void jsonout_open_object(struct jsonout *j, const char *key)
{
    open_level(j, key, true);
}

void jsonout_open_array(struct jsonout *j, const char *key)
{
    open_level(j, key, false);
}

void jsonout_close(struct jsonout *j)
{
    if (j->misused || !j->depth) {
        j->misused = true;
        return;
    }
    j->depth--;
    buf_add_char(j->out, j->objects & 1U << j->depth ? '}' : ']');
    j->done = !j->depth;
}

void jsonout_bytes(struct jsonout *j, const char *key, const char *data, size_t size)
{
    if (begin_value(j, key))
        add_quoted(j->out, data, size);
}

void jsonout_string(struct jsonout *j, const char *key, const char *text)
{
    if (text)
        jsonout_bytes(j, key, text, strlen(text));
    else
        jsonout_null(j, key);
}

void jsonout_unsigned(struct jsonout *j, const char *key, uint64_t value)
{
    if (begin_value(j, key))
        buf_printf(j->out, "%" PRIu64, value);
}

void jsonout_signed(struct jsonout *j, const char *key, int64_t value)
{
    if (begin_value(j, key))
        buf_printf(j->out, "%" PRId64, value);
}

void jsonout_decimal(struct jsonout *j, const char *key, uint64_t value, unsigned decimals)
{
    uint64_t scale = 1;

    if (decimals > 18)
        j->misused = true;
    if (!begin_value(j, key))
        return;
    for (unsigned i = 0; i < decimals; i++)
        scale *= 10;
    buf_printf(j->out, "%" PRIu64, value / scale);
    if (decimals)
        buf_printf(j->out, ".%0*" PRIu64, (int)decimals, value % scale);
}

void jsonout_bool(struct jsonout *j, const char *key, bool value)
{
    if (begin_value(j, key))
        buf_add_text(j->out, value ? "true" : "false");
}

void jsonout_raw(struct jsonout *j, const char *key, const char *data, size_t size)
{
    if (begin_value(j, key))
        buf_add(j->out, data, size);
}

void jsonout_null(struct jsonout *j, const char *key)
{
    if (begin_value(j, key))
        buf_add_text(j->out, "null");
}

int jsonout_finish(struct jsonout *j)
{
    if (j->misused || !j->done)
        return -EINVAL;
    return buf_error(j->out);
}
