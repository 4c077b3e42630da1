/* What every fuzz target includes. */
#ifndef CARREL_TESTS_FUZZ_H
#define CARREL_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An invariant: unlike assert it is never compiled out. */
#define HOLDS(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

/* The input as a string on the heap, so that a read past its end is seen. */
static inline char *fuzz_string(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    HOLDS(text);
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    return text;
}

/* A refusal has a code, a step and a sentence. */
static inline void fuzz_check_refusal(int r, const struct err *e)
{
    char line[300];

    HOLDS(r < 0 && e->code == -r && e->step && e->what[0]);
    err_text(e, line, sizeof line);
    HOLDS(line[0] && !strchr(line, '\n') && !strchr(line, '\033'));
}

#endif
