/* Sessions in the database: names for kernels, which outlive the front. */
#ifndef CARREL_DOORS_JUPYTER_SESSION_TABLE_H
#define CARREL_DOORS_JUPYTER_SESSION_TABLE_H

#include "front/db/db_tables.h"

/* A document that has a kernel; all are texts. */
struct session_row {
    const char *id, *owner, *kernel;        /* kernel: its id */
    const char *path, *name, *type;
};

extern const struct db_schema session_schema;

/* Inserts it, or updates everything but its owner. */
MUST_CHECK int session_table_put(struct db_tables *t, const struct session_row *row, struct err *e);
MUST_CHECK int session_table_delete(struct db_tables *t, const char *id, struct err *e);    /* -ENOENT */
/* The oldest first. Texts live during the call; a callback that returns non-zero stops the listing. */
MUST_CHECK int session_table_each(struct db_tables *t, int (*each)(const struct session_row *, void *), void *arg,
                                  struct err *e);

#endif
