/* Bearer tokens: "carrel_" and 32 random bytes in base64url. The server keeps the SHA-256 of the whole text, never the
 * text. */
#ifndef CARREL_FRONT_IDENTITY_TOKEN_H
#define CARREL_FRONT_IDENTITY_TOKEN_H

#include <stdbool.h>

#include "http/parse.h"

enum {
    TOKEN_SECRET_SIZE = 7 + 43 + 1,     /* with the NUL */
    TOKEN_ID_SIZE = 1 + 12 + 1,         /* "t" and 60 random bits in base32 */
};

MUST_CHECK int token_make_id(char ret[TOKEN_ID_SIZE]);          /* 0 or -errno */
MUST_CHECK int token_make_secret(char ret[TOKEN_SECRET_SIZE]);  /* 0 or -errno */

/* Whether the text has the form of a secret. */
bool           token_is_sound(struct http_text text);
/* 0 or -EIO if libcrypto fails. */
MUST_CHECK int token_hash(struct http_text secret, unsigned char ret[32]);

/* The token in an Authorization field: "Bearer T" or "token T". 0, or -EBADMSG for any other scheme or form. */
MUST_CHECK int token_from_field(struct http_text value, struct http_text *ret);
/* The value of token= in a query, decoded to storage. 0, -ENOENT, or -EBADMSG if it is malformed or repeated. */
MUST_CHECK int token_from_query(struct http_text query, char storage[TOKEN_SECRET_SIZE], struct http_text *ret);

#endif
