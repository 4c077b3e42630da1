/* A request for a command, in JSON as for POST /v1/boxes/{id}/exec, and its argv and environment. */
#ifndef CARREL_FRONT_EXECS_EXEC_REQUEST_H
#define CARREL_FRONT_EXECS_EXEC_REQUEST_H

#include "front/execs/execs.h"

struct identity;

/* The results are borrowed from the JSON. */
struct exec_request {
    struct box            *box;
    const struct identity *who;
    struct exec_options    options;
    json_t                *argv;        /* list of strings */
    json_t                *env;         /* or NULL */
    json_t                *secrets;     /* or NULL */
    const char            *shell;       /* instead of argv */
    const char            *input;       /* to send to standard input, then close it; NULL: none */
    size_t                 input_size;
    uint32_t               rows, columns;
};

MUST_CHECK int exec_request_read(struct exec_request *c, json_t *root, struct err *e);
MUST_CHECK int exec_request_start(struct exec_request *c, struct exec **ret, struct err *e);

#endif
