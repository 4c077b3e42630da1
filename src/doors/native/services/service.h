/* Shared by the files about services and grants. */
#ifndef CARREL_DOORS_NATIVE_SERVICE_H
#define CARREL_DOORS_NATIVE_SERVICE_H

#include "doors/native/door.h"
#include "front/services/grants.h"
#include "front/services/services.h"

/* Lines to a client that may be slow. */
struct lines {
    struct ask *ask;
    struct buf  pending;
    size_t      charged;
    bool        is_over;        /* no further lines will come */
    bool        is_cut;         /* prints were dropped */
};
/* Answers 200 and begins; false: the connection is cut. */
bool lines_start(struct lines *l, struct ask *a);
/* Sends {"type":stream,"text":text}; if the client does not read, the last ones are dropped. */
void lines_print(struct lines *l, const char *stream, struct jsonslice text);
/* A whole line without its end; line ends inside become blanks. */
void lines_put(struct lines *l, const char *data, size_t size);
/* The last line was put; the request ends when it is sent. */
void lines_end(struct lines *l);
void lines_done(struct lines *l);

/* --- calls.c --- */
/* Starts a checked call, and answers the request when it is over. data: the body. */
void call_begin(struct ask *a, struct service *s, struct call_options *options, bool prints);
struct call_body {
    char             service[80], function[128];
    struct jsonslice args, kwargs;
    uint64_t         timeout_ms;
    bool             prints;            /* the answer includes the function's prints */
};
MUST_CHECK int call_body_read(const char *data, size_t size, bool with_service, struct call_body *ret, struct err *e);

/* --- services.c --- */
/* The caller's service by {service} in the path, or by this name; NULL, and 404 answered, if there is none. */
struct service *ask_service(struct ask *a, const char *name);

#endif
