/* Texts that live as long as a plan. Texts that do not fit are cut. */
#ifndef CARREL_CLUSTER_TEXTS_H
#define CARREL_CLUSTER_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct texts {
    size_t used;
    char   data[3072];
};

const char *texts_add(struct texts *t, const char *format, ...) PRINTF_LIKE(2, 3);

/* NULL counts as "". */
bool texts_are_same(const char *a, const char *b);

#endif
