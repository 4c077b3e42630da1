/* Objects for the tables of the plans, from JSON. */
#ifndef CARREL_TESTS_CONTROLLER_DECODING_H
#define CARREL_TESTS_CONTROLLER_DECODING_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cluster/object.h"
#include "unit/unit.h"

static inline struct object *decode(enum kind kind, const char *text)
{
    struct err e;

    if (!jsonscan_is_object(text, strlen(text)))
        fail_msg("no JSON: %s", text);
    struct object *o = object_decode(kind, (struct jsonslice){ text, strlen(text) }, &e);
    if (!o)
        fail_msg("%s: %s", e.what, text);
    return o;
}

static inline struct object *decode_format(enum kind kind, const char *format, ...) PRINTF_LIKE(2, 3);
static inline struct object *decode_format(enum kind kind, const char *format, ...)
{
    char text[8192];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return decode(kind, text);
}

#endif
