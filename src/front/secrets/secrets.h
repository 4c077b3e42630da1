/* Secrets: named values of an identity, which processes in its boxes may get. A value is in a file of its own below the
 * state directory and in no record: who needs it reads it, uses it and wipes it. */
#ifndef CARREL_FRONT_SECRETS_SECRETS_H
#define CARREL_FRONT_SECRETS_SECRETS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct front;
struct secret;

enum { SECRET_BYTES_MAX = 65536, SECRET_NAME_MAX = 64 /* of a-z A-Z 0-9 . _ -, the first a letter or a digit */ };

/* Any bytes, also NUL; a NUL that does not count follows them. Zeroed: none. */
struct secret_value {
    char  *bytes;               /* owned */
    size_t size;                /* 1 to SECRET_BYTES_MAX */
};

/* Wipes it, then frees it; leaves a zeroed one. */
void           secret_value_done(struct secret_value *value);

/* The secret that identity knows by this name; valid until the loop's next turn. -ENOENT: it has none; the message
 * names it. */
MUST_CHECK int secrets_find(struct front *front, const char *identity, const char *name, struct secret **ret,
                            struct err *e);
/* Its value now. The file is read each time: a later call gets the value that replaced this one. -EIO: the file is
 * damaged or gone. */
MUST_CHECK int secret_read(const struct secret *secret, struct secret_value *ret, struct err *e);

/* For a variable: -EINVAL if it has a NUL. */
MUST_CHECK int secret_value_check_text(const char *name, const struct secret_value *value, struct err *e);

bool           secret_name_is_valid(const char *name);
/* Stores a value; it is on the disk when this returns. -EEXIST unless replaces; -EINVAL (empty; a name), -EFBIG,
 * -EDQUOT; of a credential -EPERM. */
MUST_CHECK int secret_store(struct front *front, const char *identity, const char *name, const void *bytes, size_t size,
                            bool replaces, struct secret **ret, struct err *e);
/* -ENOENT; of a credential -EPERM. */
MUST_CHECK int secret_remove(struct front *front, const char *identity, const char *name, struct err *e);
/* As in the API, without its value; all that identity may use (NULL: all of all), as a list. */
json_t        *secret_json(const struct secret *secret);
json_t        *secrets_json(const struct front *front, const char *identity);

/* Called by the front's main part, the first one before the process is confined. */
void           secrets_open_credentials(struct front *front);
MUST_CHECK int secrets_load(struct front *front, struct err *e);
void           secrets_free(struct front *front);

#endif
