/* Checks JSON and finds members in it without building a tree, for texts that are passed on unchanged. Strict: RFC 8259
 * and UTF-8, nothing but blanks before or after, at most JSONSCAN_DEPTH levels. */
#ifndef CARREL_BASE_JSONSCAN_H
#define CARREL_BASE_JSONSCAN_H

#include <stdbool.h>
#include <stddef.h>

enum { JSONSCAN_DEPTH = 256 };

/* A part of a borrowed text. data NULL: there is none. */
struct jsonslice {
    const char *data;
    size_t      size;
};

/* Whether the bytes are one JSON object, or one value of any kind. */
bool jsonscan_is_object(const char *data, size_t size);
bool jsonscan_is_value(const char *data, size_t size);

/* An estimate of the memory that jansson's tree of this JSON would take, without building it; never much too low. Bytes
 * that are not JSON give some number. */
size_t jsonscan_weight(const char *data, size_t size);

/* The raw value of a member; the last one if several have the name, as in most parsers. text must be a valid object. */
struct jsonslice jsonscan_find(struct jsonslice text, const char *name);

/* Walks through the members of an object, or the elements of an array:
 *
 *     struct jsonwalk w = jsonscan_walk(value);
 *     while (jsonscan_next(&w))
 *         ... w.key (an object's; with its quotes), w.value ...
 *
 * value must be valid; a value that is neither object nor array has no members. */
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
/* The text between the quotes, still escaped; data NULL if the value is no string. */
struct jsonslice jsonscan_inside(struct jsonslice value);
/* How much of an escaped text (valid, from jsonscan_inside) decodes to at most so many bytes, in whole characters;
 * *ret_bytes: the decoded length. */
size_t jsonscan_cut(struct jsonslice inside, size_t bytes, size_t *ret_bytes);
/* A non-negative whole number; false for anything else. */
bool jsonscan_number(struct jsonslice value, unsigned long long *ret);

#endif
