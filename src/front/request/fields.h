/* Members of a JSON object, read by tables: each has a name and a function that checks its value. Used for all JSON
 * from callers, in every door. */
#ifndef CARREL_FRONT_REQUEST_FIELDS_H
#define CARREL_FRONT_REQUEST_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct body_field {
    const char *name;
    int (*take)(const char *name, json_t *value, void *into, struct err *e);
};
/* Passes each member to its field; an unknown one is an error with its name. where: "limits.", or "". */
MUST_CHECK int body_fields(json_t *object, const char *where, const struct body_field *fields, size_t n, void *into,
                           struct err *e);

/* Of one value; name is for the message. */
MUST_CHECK int body_text(const char *name, json_t *value, size_t most, const char **ret, struct err *e);
MUST_CHECK int body_bool(const char *name, json_t *value, bool *ret, struct err *e);
MUST_CHECK int body_size(const char *name, json_t *value, uint64_t *ret, struct err *e);
MUST_CHECK int body_cpus(const char *name, json_t *value, uint32_t *ret, struct err *e);
MUST_CHECK int body_count(const char *name, json_t *value, uint32_t least, uint32_t most, uint32_t *ret, struct err *e);
MUST_CHECK int body_duration(const char *name, json_t *value, uint64_t *ret_ms, struct err *e);     /* 0: none */
MUST_CHECK int body_mode(const char *name, json_t *value, uint32_t *ret, struct err *e);            /* "0644" or 420 */
/* 1000, "1000:1000" or {"uid":1000,"gid":1000}. */
MUST_CHECK int body_user(const char *name, json_t *value, uint32_t *ret_uid, uint32_t *ret_gid, struct err *e);
MUST_CHECK int body_env_name(const char *where, const char *variable, struct err *e);
MUST_CHECK int body_env(const char *name, json_t *value, struct err *e);
MUST_CHECK int body_labels(const char *name, json_t *value, struct err *e);
bool           body_name_is_valid(const char *name);
MUST_CHECK int body_mode_text(const char *name, const char *text, uint32_t *ret, struct err *e);

#endif
