/* Tables of a door, in the front's database. The door provides the scripts that make them and the statements that use
 * them; it sees no more of SQL. Its version is kept beside the tables, so that doors can be added, removed and changed
 * without the front's own schema. Failures are those of db.h. */
#ifndef CARREL_FRONT_DB_DB_TABLES_H
#define CARREL_FRONT_DB_DB_TABLES_H

#include <stdint.h>

#include "base/err.h"

struct db;
struct db_row;
struct db_tables;

struct db_schema {
    const char        *name;            /* the door's; its tables' names should begin with it */
    const char *const *scripts;         /* scripts[i] brings version i to i + 1; a released one never changes */
    int                n_scripts;
    const char *const *statements;      /* prepared once, named by their index */
    int                n_statements;
};

/* Migrates the tables to the newest version; refuses those of a newer one. The schema must outlive the result. */
MUST_CHECK int db_tables_open(struct db *db, const struct db_schema *schema, struct db_tables **ret, struct err *e);
void           db_tables_close(struct db_tables *t);        /* before db_close(); NULL is allowed */

/* Parameters by types: s text (NULL: null), i int64_t, h 32 bytes. 0, -ENOENT if no row was changed, or the failure. */
MUST_CHECK int db_tables_change(struct db_tables *t, int statement, struct err *e, const char *types, ...);
/* Calls row for each row until it returns non-zero; returns that if it is negative. No row is no error. */
MUST_CHECK int db_tables_each(struct db_tables *t, int statement, int (*row)(const struct db_row *row, void *arg),
                              void *arg, struct err *e, const char *types, ...);
const char    *db_row_text(const struct db_row *row, int column);     /* during the call; NULL for null */
int64_t        db_row_number(const struct db_row *row, int column);

#endif
