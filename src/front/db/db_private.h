/* Shared by db.c (the database) and the files with its contents (db_box.c, db_token.c, db_service.c, db_volume.c,
 * db_tables.c). */
#ifndef CARREL_FRONT_DB_DB_PRIVATE_H
#define CARREL_FRONT_DB_DB_PRIVATE_H

#include <sqlite3.h>
#include <stdarg.h>

#include "front/db/db.h"

/* db.c has the texts in the same order. */
enum db_query {
    QUERY_BOX_INSERT, QUERY_BOX_UPDATE, QUERY_BOX_DELETE, QUERY_BOX_BY_KEY, QUERY_BOXES, QUERY_BOXES_ALIVE,
    QUERY_PRUNE_BOXES, QUERY_PRUNE_EVENTS,
    QUERY_EXEC_INSERT, QUERY_EXEC_UPDATE, QUERY_EXEC_DELETE, QUERY_EXECS,
    QUERY_EVENT_INSERT, QUERY_EVENTS, QUERY_EVENTS_ALL,
    QUERY_BEGIN, QUERY_COMMIT,
    QUERY_TOKEN_INSERT, QUERY_TOKEN_BY_HASH, QUERY_TOKEN_REVOKE, QUERY_TOKEN_USED, QUERY_TOKENS, QUERY_TOKENS_SWEEP,
    QUERY_SERVICE_PUT, QUERY_SERVICE_DELETE, QUERY_SERVICES,
    QUERY_GRANT_INSERT, QUERY_GRANT_USED, QUERY_GRANT_DELETE, QUERY_GRANTS,
    QUERY_VOLUME_PUT, QUERY_VOLUME_DELETE, QUERY_VOLUMES,
    QUERY_COUNT
};

struct db {
    sqlite3      *sqlite;
    sqlite3_stmt *query[QUERY_COUNT];
    char          path[300];
};

/* Parameters by types: s text (NULL: null), i int64_t, h 32 bytes. 0, -ENOENT if no row was changed, or the failure. */
MUST_CHECK int db_change(struct db *db, enum db_query query, struct err *e, const char *types, ...);

/* Calls row for each row until it returns non-zero; returns that if it is negative. No row is no error. */
MUST_CHECK int db_each(struct db *db, enum db_query query, int (*row)(sqlite3_stmt *, void *), void *arg,
                          struct err *e, const char *types, ...);

/* The same with any statement of this database. */
MUST_CHECK int db_run(struct db *db, sqlite3_stmt *q, struct err *e, const char *types, va_list args);
MUST_CHECK int db_list(struct db *db, sqlite3_stmt *q, int (*row)(sqlite3_stmt *, void *), void *arg, struct err *e,
                       const char *types, va_list args);
/* Runs statements separated by semicolons. */
MUST_CHECK int db_script(struct db *db, const char *script, struct err *e);

/* An open database's last failure as errno and sentence. */
int db_fail(struct db *db, int code, struct err *e);

/* Migrates a database to version n with the missing scripts, each in its own transaction. */
MUST_CHECK int db_migrate(struct db *db, const char *const *scripts, int n, struct err *e);

const char *db_text(sqlite3_stmt *q, int column);    /* NULL for null */

#endif
