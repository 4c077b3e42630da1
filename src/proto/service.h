/* The protocol between the front and a service's worker on the link (link.h). A message is one JSON object. Its
 * SERVICE_KEY_TYPE is a word of enum service_message, which also lists its other members. The front numbers the
 * calls. */
#ifndef CARREL_PROTO_SERVICE_H
#define CARREL_PROTO_SERVICE_H

#include "proto/link.h"

enum {
    SERVICE_MESSAGE_LEAST = 2,  /* bytes: {} */
    SERVICE_NO_CALL = 0,        /* the ID of the loading, and of prints outside of calls */
};

enum service_message {
    /* To the worker: */
    SERVICE_LOAD,           /* first, once: code, filename, path and models, as they came in the API's request */
    SERVICE_CALL,           /* ID, FUNCTION, ARGS (an array), KWARGS (an object) */
    SERVICE_CHECK,          /* like CALL, which follows in its turn: answers INVALID now if the arguments do not fit */
    SERVICE_CANCEL,         /* ID: the caller is gone */
    SERVICE_DESCRIBE,       /* from a new front: drop the present call, and send LOADED again */
    /* From it: */
    SERVICE_STARTED,        /* first: a later end is the interface's fault, not the interpreter's */
    SERVICE_LOADED,         /* FUNCTIONS: an array of objects, as in the API */
    SERVICE_FAILED,         /* FAILURE: an object, why it cannot be loaded; the worker ends */
    SERVICE_PRINT,          /* ID, STREAM, VALUE: a text that the call printed */
    SERVICE_RESULT,         /* ID, VALUE: the function's result */
    SERVICE_ERROR,          /* ID, VALUE: an object, the raised exception */
    SERVICE_INVALID,        /* ID, VALUE: an object, which argument does not fit, and why */
    SERVICE_MESSAGES
};

enum service_stream { SERVICE_STDOUT, SERVICE_STDERR, SERVICE_STREAMS };

/* NULL for an invalid number. */
const char *service_message_name(enum service_message message);
const char *service_stream_name(enum service_stream stream);

/* Members of messages; see above. */
#define SERVICE_KEY_TYPE      "type"
#define SERVICE_KEY_ID        "id"
#define SERVICE_KEY_FUNCTION  "function"
#define SERVICE_KEY_ARGS      "args"
#define SERVICE_KEY_KWARGS    "kwargs"
#define SERVICE_KEY_FUNCTIONS "functions"
#define SERVICE_KEY_FAILURE   "error"
#define SERVICE_KEY_STREAM    "stream"
#define SERVICE_KEY_VALUE     "value"

/* In the guest's folder. */
#define SERVICE_PROGRAM       "carrel_service"

#endif
