/* What every unit test includes: cmocka, which wants these headers before its own. */
#ifndef CARREL_TESTS_UNIT_H
#define CARREL_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The message of an error has this in it. */
static inline void assert_says(const struct err *e, const char *part)
{
    char text[400];

    err_text(e, text, sizeof text);
    if (!strstr(text, part))
        fail_msg("the message is \"%s\"; expected \"%s\" in it", text, part);
    assert_null(strchr(text, '\n'));
}

#endif
