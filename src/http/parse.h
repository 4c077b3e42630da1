/* Strict HTTP/1.1 message heads and chunked bodies. Pure: no I/O, no allocation; works on the caller's buffer, as bytes
 * arrive. Refuses, and never repairs, anything that two programs could read differently. */
#ifndef CARREL_HTTP_PARSE_H
#define CARREL_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/arena.h"

#define HTTP_HEAD_MAX_BYTES    32768
#define HTTP_FIELDS_MAX        100
#define HTTP_TARGET_MAX_BYTES  8192
#define HTTP_METHOD_MAX_BYTES  32
#define HTTP_CHUNK_EXT_MAX     256      /* of one chunk */
#define HTTP_CHUNK_EXT_SUM_MAX 4096     /* of one body */
#define HTTP_TRAILER_MAX_BYTES 8192

/* Borrowed bytes; not NUL-terminated. */
struct http_text {
    const char *data;
    size_t size;
};
#define HTTP_TEXT_FORMAT(t) (int)(t).size, (t).data     /* for "%.*s" */

/* Why a message is refused. fault.c has names and statuses in the same order. */
enum http_fault {
    HTTP_OK,
    HTTP_BARE_LF, HTTP_BARE_CR, HTTP_BAD_METHOD, HTTP_BAD_TARGET, HTTP_BAD_ESCAPE, HTTP_DOT_SEGMENT, HTTP_LONG_TARGET,
    HTTP_BAD_VERSION, HTTP_OTHER_VERSION, HTTP_BAD_STATUS, HTTP_BAD_NAME, HTTP_SPACE_BEFORE_COLON, HTTP_FOLDED_FIELD,
    HTTP_BAD_VALUE, HTTP_MANY_FIELDS, HTTP_LONG_HEAD, HTTP_NO_HOST, HTTP_MANY_HOSTS, HTTP_BAD_HOST, HTTP_OTHER_HOST,
    HTTP_BAD_LENGTH, HTTP_MANY_LENGTHS, HTTP_LENGTH_AND_CODING, HTTP_MANY_CODINGS, HTTP_OTHER_CODING,
    HTTP_OTHER_EXPECTATION, HTTP_NO_TUNNELS, HTTP_BAD_CHUNK_SIZE, HTTP_BAD_CHUNK_EXT, HTTP_LONG_CHUNK_EXT,
    HTTP_BAD_CHUNK_END, HTTP_BAD_TRAILER, HTTP_LONG_TRAILER,
    HTTP_FAULTS
};

int         http_fault_status(enum http_fault f);   /* the status to answer with: 400, 414, 431, 501, 505 … */
const char *http_fault_text(enum http_fault f);     /* for a person */
const char *http_status_text(int status);           /* "Not Found" */

/* Offsets into the head. */
struct http_field {
    uint16_t name, name_size, value, value_size;
};

struct http_head {
    const char *base;               /* the buffer; set by http_head_parse() */
    /* Valid once the head is complete: */
    struct http_text method;        /* request only */
    struct http_text target;        /* as sent */
    struct http_text path;          /* raw, starts with '/' (or is "*"); escapes are sound, no dot segments, no %00 */
    struct http_text query;         /* raw, without '?'; data is NULL when there was none */
    struct http_text host;          /* empty for HTTP/1.0 without Host */
    struct http_text reason;        /* response only */
    int     status;                 /* response only */
    int64_t length;                 /* Content-Length, or -1 */
    uint8_t minor;                  /* HTTP/1.minor */
    bool    chunked, keep_alive, wants_continue, wants_upgrade;     /* the last: Connection names "upgrade" */
    uint16_t n_fields;
    /* Progress. */
    bool     is_response, has_first_line;
    uint8_t  n_hosts, n_lengths, n_codings;
    uint32_t start, at, scanned;    /* first byte of the first line; of the present line; end of the part already
                                     * searched for LF */
    struct http_field first;        /* method and target, or nothing and reason */
    uint16_t host_at, host_size;
    enum http_fault fault;
    struct http_field field[HTTP_FIELDS_MAX];
};

void http_head_init(struct http_head *h, bool is_response);

/* data holds all bytes of the message so far; it may move between calls. Returns the head's size once it is complete,
 * 0 if more bytes are needed, -EBADMSG with h->fault set if it is refused. Work is linear however the bytes arrive. */
ssize_t http_head_parse(struct http_head *h, const char *data, size_t size) MUST_CHECK;

void http_head_field(const struct http_head *h, unsigned i, struct http_text *ret_name, struct http_text *ret_value);

/* The first field with this name; data is NULL if there is none. */
struct http_text http_head_get(const struct http_head *h, const char *name);

/* How a response's body ends, given the request's method was HEAD or not. */
enum http_body { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_UNTIL_CLOSE };
enum http_body http_head_response_body(const struct http_head *h, bool was_head);

bool http_text_is(struct http_text t, const char *word);            /* exact */
bool http_text_is_nocase(struct http_text t, const char *word);     /* ASCII case ignored */
bool http_list_has(struct http_text list, const char *token);       /* "a, B" has "b" */
bool http_is_token(struct http_text t);                             /* a legal method or field name */
bool http_is_field_value(struct http_text t);                       /* may stand in a field */
struct http_text http_text_trim(struct http_text t);                /* without spaces and tabs around it */

/* Cuts the next comma-separated, trimmed, non-empty element off the front of list. */
bool http_list_next(struct http_text *list, struct http_text *ret_element);

/* ---- chunked bodies ---- */

struct http_chunked {
    uint64_t left;          /* of the present chunk's data */
    uint8_t  state, digits;
    uint16_t n_ext, sum_ext, n_trailer;
    enum http_fault fault;
};

/* Zeroed = at the start of a body. Takes bytes from in (at most size) and puts data bytes to out (at most room).
 * Sets *ret_taken and *ret_put. Returns 1 at the end of the body, 0 if it goes on, -EBADMSG with fault set. */
int http_chunked_decode(struct http_chunked *c, const char *in, size_t size, char *out, size_t room,
                        size_t *ret_taken, size_t *ret_put) MUST_CHECK;
/* Nothing of the next chunk has come, not even of its size. */
bool http_chunked_is_between(const struct http_chunked *c);

/* ---- paths and queries ---- */

/* Decodes %XX (and '+' to a space when plus is true) to a NUL-terminated text. 0, -EBADMSG (bad escape, NUL),
 * -ENOMEM. */
int http_unescape(struct arena *a, struct http_text raw, bool plus, struct http_text *ret) MUST_CHECK;

/* HTTP_OK, HTTP_BAD_TARGET, HTTP_BAD_ESCAPE or HTTP_DOT_SEGMENT. An escaped slash counts as a slash. */
enum http_fault http_path_check(struct http_text path);

/* Cuts the next "name=value" off the front of query, still escaped. */
bool http_query_next(struct http_text *query, struct http_text *ret_name, struct http_text *ret_value);

/* The first value of that name, decoded. 0, -ENOENT, -EBADMSG, -ENOMEM. */
int http_query_get(struct arena *a, struct http_text query, const char *name, struct http_text *ret) MUST_CHECK;

#endif
