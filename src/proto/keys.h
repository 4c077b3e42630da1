/* Keys of boxes as people write them, for the command line and the API: NAME[=SOURCE]@HOST[:HEADER]. The parts go into
 * the broker's frame (broker.h). what: names the key in messages, which never contain a value. */
#ifndef CARREL_PROTO_KEYS_H
#define CARREL_PROTO_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/broker.h"

#define KEY_USUAL_HEADER "Authorization: Bearer {}"

enum { KEY_NAME_SIZE = 128 };       /* of a variable, with its NUL */

struct key_text {
    char        name[KEY_NAME_SIZE];
    const char *source;             /* what stands between = and @; NULL: nothing */
    size_t      source_size;
    char        host[NET_NAME_SIZE];
    const char *header;             /* KEY_USUAL_HEADER if none is there */
};

/* Cuts it into its parts; only the name is checked. */
MUST_CHECK bool key_split(const char *text, struct key_text *ret);
bool            key_name_is_valid(const char *name, size_t size);
MUST_CHECK int  key_take_host(const char *what, const char *host, struct broker_key *ret, struct err *e);
MUST_CHECK int  key_take_header(const char *what, const char *header, struct broker_key *ret, struct err *e);
/* Without newlines at the end. from: where it comes from, for messages. */
MUST_CHECK int  key_take_value(const char *what, const char *from, const void *value, size_t size,
                               struct broker_key *ret, struct err *e);

/* Several with ; between them, as in a file. Copies the next one; *at moves behind it. False: there is none. */
bool            key_next(const char **at, char *ret, size_t size);
/* One of them, whose source is the name of a secret, or nothing. */
MUST_CHECK int  key_read(const char *what, const char *text, struct key_text *ret, struct broker_key *ret_key,
                         struct err *e);

#endif
