/* Writes JSON into a buffer. Keeps commas, escapes and nesting right; jsonout_finish() reports a wrong call.
 *
 *     struct jsonout j;
 *     jsonout_init(&j, &out);
 *     jsonout_open_object(&j, NULL);
 *     jsonout_string(&j, "outcome", "ok");
 *     jsonout_close(&j);
 *     r = jsonout_finish(&j);
 *
 * key is the member's name inside an object and NULL inside an array or at the top. */
#ifndef CARREL_BASE_JSONOUT_H
#define CARREL_BASE_JSONOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { JSON_DEPTH_MAX = 32 };

struct jsonout {
    struct buf *out;        /* borrowed */
    uint32_t    objects;    /* bit n: level n is an object, else an array */
    uint32_t    filled;     /* bit n: level n has a member already */
    unsigned    depth;
    bool        done;       /* the top value is complete */
    bool        misused;
};

void jsonout_init(struct jsonout *j, struct buf *out);

void jsonout_open_object(struct jsonout *j, const char *key);
void jsonout_open_array(struct jsonout *j, const char *key);
void jsonout_close(struct jsonout *j);

/* text NULL writes null. Bytes that are not UTF-8 become U+FFFD. */
void jsonout_string(struct jsonout *j, const char *key, const char *text);
void jsonout_bytes(struct jsonout *j, const char *key, const char *data, size_t size);
void jsonout_unsigned(struct jsonout *j, const char *key, uint64_t value);
void jsonout_signed(struct jsonout *j, const char *key, int64_t value);
/* A fixed-point number: (1234567, 3) is 1234.567. */
void jsonout_decimal(struct jsonout *j, const char *key, uint64_t value, unsigned decimals);
void jsonout_bool(struct jsonout *j, const char *key, bool value);
/* A value that is JSON already; it is not checked. */
void jsonout_raw(struct jsonout *j, const char *key, const char *data, size_t size);
void jsonout_null(struct jsonout *j, const char *key);

/* Whether a reader gets these bytes back as they are. */
bool jsonout_is_text(const char *data, size_t size);

/* 0 when exactly one complete value was written; -EFBIG or -ENOMEM from the buffer; -EINVAL after a wrong call. */
MUST_CHECK int jsonout_finish(struct jsonout *j);

#endif
