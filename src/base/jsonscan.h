/* Looks at JSON without taking it apart: is it valid, and where in it is a member? For texts that are passed on as they
 * are. Strict: RFC 8259 and UTF-8, nothing before or after but blanks, at most JSONSCAN_DEPTH levels. */
#ifndef CARREL_BASE_JSONSCAN_H
#define CARREL_BASE_JSONSCAN_H

#include <stdbool.h>
#include <stddef.h>

enum { JSONSCAN_DEPTH = 256 };

/* A part of somebody's text. data NULL: there is none. */
struct jsonslice {
    const char *data;
    size_t      size;
};

/* Whether the bytes are one JSON object, or one value of any kind. */
bool jsonscan_is_object(const char *data, size_t size);
bool jsonscan_is_value(const char *data, size_t size);

/* About how much memory a tree of this JSON takes (jansson's), without making it; never much less. Of bytes that are no
 * JSON it says something. */
size_t jsonscan_weight(const char *data, size_t size);

/* The raw value of a member; of several with the name the last, as most parsers do. text must be a valid object. */
struct jsonslice jsonscan_find(struct jsonslice text, const char *name);

/* Walks through the members of an object, or the elements of an array:
 *
 *     struct jsonwalk w = jsonscan_walk(value);
 *     while (jsonscan_next(&w))
 *         ... w.key (an object's; with its quotes), w.value ...
 *
 * value must be valid; what is neither object nor array has no members. */
struct jsonwalk {
    struct jsonslice key, value;
    const char      *at, *end;
    bool             is_object;
};
struct jsonwalk jsonscan_walk(struct jsonslice value);
bool            jsonscan_next(struct jsonwalk *w);

/* Whether the value is this string. */
bool jsonscan_is(struct jsonslice value, const char *text);
/* A string's text, UTF-8, NUL-terminated. False if it is no string, has a NUL in it, or does not fit. A half of a
 * surrogate pair becomes U+FFFD. */
bool jsonscan_text(struct jsonslice value, char *text, size_t size);
/* What is between the quotes, still escaped; data NULL if it is no string. */
struct jsonslice jsonscan_inside(struct jsonslice value);
/* How much of what is inside (still escaped) gives at most so many bytes of text, whole characters only; *ret_bytes:
 * how many it gives. inside must be valid. */
size_t jsonscan_cut(struct jsonslice inside, size_t bytes, size_t *ret_bytes);
/* A whole number that is not negative; false if it is none. */
bool jsonscan_number(struct jsonslice value, unsigned long long *ret);

#endif
