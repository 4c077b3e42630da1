/* Memory of one command line: taken piece by piece, given back all at once. */
#ifndef CARREL_CLI_OPTIONS_STRINGS_H
#define CARREL_CLI_OPTIONS_STRINGS_H

#include <stddef.h>

struct pool_chunk;

/* All zero is an empty pool. */
struct pool {
    struct pool_chunk *chunks;
    size_t             left;   /* bytes free at the end of the newest chunk */
    char              *next;
};

/* Aligned for any type and zeroed; NULL when out of memory. */
void *pool_alloc(struct pool *pool, size_t size);
/* A NUL-terminated copy of size bytes. */
char *pool_copy(struct pool *pool, const char *data, size_t size);
void pool_done(struct pool *pool);

#endif
