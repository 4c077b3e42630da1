/* Errors in the shape of Carrel's own API, for every door without another: {"error":{"code","message","details"}}. The
 * code is for programs and never changes, the message is for people. */
#ifndef CARREL_FRONT_REQUEST_ERROR_H
#define CARREL_FRONT_REQUEST_ERROR_H

#include <jansson.h>

#include "base/err.h"

struct http_request;

/* Status and code for an error. */
int  error_status(const struct err *e, const char **ret_code);
/* The same for an errno of the file helper: a box's file, not ours. */
int  error_file_status(int number, const char **ret_code);

/* Each answers the request. details is taken over; may be NULL. */
void error_reply(struct http_request *r, int status, const char *code, const char *message, json_t *details);
void error_reply_err(struct http_request *r, const struct err *e, json_t *details);
/* 429: the caller's budget of memory is used up. */
void error_reply_full(struct http_request *r);

#endif
