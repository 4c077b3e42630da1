/* Writes JSON into a buffer. Commas, escapes and nesting are kept right; a wrong call is told at the end.
 *
 *     struct json j;
 *     json_init(&j, &out);
 *     json_open_object(&j, NULL);
 *     json_string(&j, "outcome", "ok");
 *     json_close(&j);
 *     r = json_finish(&j);
 *
 * key is the member's name inside an object and NULL inside an array or at the top. */
#ifndef CARREL_BASE_JSON_H
#define CARREL_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { JSON_DEPTH_MAX = 32 };

struct json {
    struct buf *out;        /* borrowed */
    uint32_t    objects;    /* bit n: level n is an object, else an array */
    uint32_t    filled;     /* bit n: level n has a member already */
    unsigned    depth;
    bool        done;       /* the top value is complete */
    bool        misused;
};

void json_init(struct json *j, struct buf *out);

void json_open_object(struct json *j, const char *key);
void json_open_array(struct json *j, const char *key);
void json_close(struct json *j);

/* text NULL writes null. Bytes that are not UTF-8 become U+FFFD. */
void json_string(struct json *j, const char *key, const char *text);
void json_bytes(struct json *j, const char *key, const char *data, size_t size);
void json_unsigned(struct json *j, const char *key, uint64_t value);
void json_signed(struct json *j, const char *key, int64_t value);
/* A fixed-point number: (1234567, 3) is 1234.567. */
void json_decimal(struct json *j, const char *key, uint64_t value, unsigned decimals);
void json_bool(struct json *j, const char *key, bool value);
void json_null(struct json *j, const char *key);

/* 0 when exactly one complete value was written; -EFBIG or -ENOMEM from the buffer; -EINVAL after a wrong call. */
MUST_CHECK int json_finish(struct json *j);

#endif
