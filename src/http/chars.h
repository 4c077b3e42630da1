/* Classes of bytes, for the parsers only. */
#ifndef CARREL_HTTP_CHARS_H
#define CARREL_HTTP_CHARS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CHAR_TOKEN  = 1,    /* field names and methods */
    CHAR_VALUE  = 2,    /* field values */
    CHAR_TARGET = 4,    /* request targets: printable ASCII without space " # < > */
    CHAR_HOST   = 8,    /* a host name in Host */
};

extern const uint8_t http_chars[256];

static inline bool char_is(char c, unsigned class)
{
    return (http_chars[(unsigned char)c] & class) != 0;
}

/* -1 if c is no hexadecimal digit. */
static inline int char_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static inline bool char_is_hex(char c)
{
    return char_hex(c) >= 0;
}

#endif
