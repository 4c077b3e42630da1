/* The JSON body of a request, read in one place for all doors: bounded, charged to the caller, checked. The door
 * answers errors itself, because each has its own shape. */
#ifndef CARREL_FRONT_REQUEST_BODY_H
#define CARREL_FRONT_REQUEST_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct http_request;

/* One of on_json and on_text is set. owner is the request's owner. */
struct body_reader {
    /* An object; an empty body counts as {}. Valid during the call. */
    void (*on_json)(void *owner, json_t *root);
    /* The same without a tree: the text of a valid JSON object, NUL-terminated; valid during the call. */
    void (*on_text)(void *owner, const char *data, size_t size);
    /* 400 invalid_json or invalid, 413 too_large, 429 quota_exceeded, 503 out_of_memory. Header fields (Retry-After)
     * are in the answer already. */
    void (*on_fail)(void *owner, int status, const char *code, const char *why);
    bool null_is_empty;         /* some clients send "null" for an empty body */
};

/* May call back before it returns. The reader must outlive the request. */
void body_read(struct http_request *r, size_t most_bytes, const struct body_reader *reader);

#endif
