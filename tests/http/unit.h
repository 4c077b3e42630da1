/* cmocka with what it needs before it. */
#ifndef CARREL_TESTS_HTTP_UNIT_H
#define CARREL_TESTS_HTTP_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* For string literals that hold NUL bytes. */
#define BYTES(literal) (literal), (sizeof(literal) - 1)

#endif
