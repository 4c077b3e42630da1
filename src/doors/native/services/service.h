/* What the files about services and grants share. */
#ifndef CARREL_DOORS_NATIVE_SERVICE_H
#define CARREL_DOORS_NATIVE_SERVICE_H

#include "doors/native/door.h"
#include "front/services/grants.h"
#include "front/services/services.h"

/* Lines that a client may not take at once. */
struct lines {
    struct ask *ask;
    struct buf  pending;
    size_t      charged;
    bool        is_over;        /* nothing comes after what waits */
    bool        is_cut;         /* prints were dropped */
};
/* Answers 200 and begins; false: the request is cut. */
bool lines_start(struct lines *l, struct ask *a);
/* An event {"type":stream,"text":text}; of a client that does not read, the last ones are lost. */
void lines_print(struct lines *l, const char *stream, struct jsonslice text);
/* A whole line without its end; line ends inside become blanks. */
void lines_put(struct lines *l, const char *data, size_t size);
/* The last one was put; the request ends when it is out. */
void lines_end(struct lines *l);
void lines_done(struct lines *l);

/* --- calls.c --- */
/* Makes a call that was checked, and answers the request when it is over. data: the body. */
void call_begin(struct ask *a, struct service *s, struct call_options *options);
struct call_body {
    char             service[80], function[128];
    struct jsonslice args, kwargs;
    uint64_t         timeout_ms;
};
MUST_CHECK int call_body_read(const char *data, size_t size, bool with_service, struct call_body *ret, struct err *e);

/* --- services.c --- */
/* Of {service} in the path, or by this name; answers 404 and gives NULL if there is none of the caller's. */
struct service *ask_service(struct ask *a, const char *name);

#endif
