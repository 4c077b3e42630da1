/* Numbers with units as people write them. name is the noun in messages ("--memory"). A failure is -EINVAL at
 * STEP_USAGE with one sentence that says what is wrong and what would be right. *ret is written only on success. */
#ifndef CARREL_BASE_PARSE_H
#define CARREL_BASE_PARSE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
    PARSE_CPU_MILLI_MIN = 10,
    PARSE_CPU_MILLI_MAX = 10000 * 1000,
    PARSE_ID_MAX        = 65535,        /* a box has 65,536 ids */
};
#define PARSE_DURATION_MAX_MS (UINT64_C(365) * 24 * 3600 * 1000)

/* "1048576", "64k", "512M", "1.5G", "1Gi", "2MiB": units are powers of 1024. From least (1 or more) to 2^63 - 1. */
MUST_CHECK int parse_size(const char *name, const char *text, uint64_t least, uint64_t *ret_bytes, struct err *e);

/* "500ms", "30s", "1.5m", "2h", "1d"; a bare number is seconds. From 1 ms to a year. */
MUST_CHECK int parse_duration(const char *name, const char *text, uint64_t *ret_ms, struct err *e);

/* "2", "1.5", "0.01": processors, as thousandths. */
MUST_CHECK int parse_cpus(const char *name, const char *text, uint32_t *ret_milli, struct err *e);

/* A whole number from least to most. */
MUST_CHECK int parse_count(const char *name, const char *text, uint32_t least, uint32_t most, uint32_t *ret,
                           struct err *e);

/* "1000" or "1000:100"; without a group the group is the same number. */
MUST_CHECK int parse_user(const char *name, const char *text, uid_t *ret_uid, gid_t *ret_gid, struct err *e);

/* A text as messages show it: shortened, unprintable bytes as '?'. */
struct parse_quote {
    char text[44];
};
struct parse_quote parse_quote(const char *text);
/* The same for a path, of which the end is shown. */
struct parse_quote parse_quote_path(const char *path);
/* A size as parse_size reads it, for messages: "64M", or "100 bytes" where no unit is exact. */
struct parse_quote parse_show_size(uint64_t bytes);

#endif
