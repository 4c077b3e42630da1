/* Versions are rows of a separate table, made when the first door needs it: the number in the file stays the front's.
 * All missing scripts run in one transaction, so that a failure leaves the tables as they were. */
#include "front/db/db_tables.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#include "front/db/db_private.h"

#define VERSIONS "CREATE TABLE IF NOT EXISTS door_versions (name TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"

struct db_tables {
    struct db              *db;
    const struct db_schema *schema;
    sqlite3_stmt           *statement[];
};

struct db_row {
    sqlite3_stmt *statement;
};

/* Runs one statement with the schema's name and a number; *ret (may be NULL) is its result, if it has one. */
static int ask(struct db *db, const char *text, const char *name, int number, int *ret, struct err *e)
{
    sqlite3_stmt *q = NULL;
    int r = sqlite3_prepare_v2(db->sqlite, text, -1, &q, NULL);

    if (r == SQLITE_OK && sqlite3_bind_parameter_count(q) > 0)
        r = sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
    if (r == SQLITE_OK && sqlite3_bind_parameter_count(q) > 1)
        r = sqlite3_bind_int(q, 2, number);
    if (r == SQLITE_OK)
        r = sqlite3_step(q);
    if (r == SQLITE_ROW && ret)
        *ret = sqlite3_column_int(q, 0);
    r = r == SQLITE_ROW || r == SQLITE_DONE ? 0 : db_fail(db, sqlite3_extended_errcode(db->sqlite), e);
    sqlite3_finalize(q);
    return r;
}

static int migrate(struct db *db, const struct db_schema *s, struct err *e)
{
    int is_there = 0, version = 0;
    int r = ask(db, "SELECT count(*) FROM sqlite_master WHERE name = 'door_versions'", NULL, 0, &is_there, e);

    if (r == 0 && is_there)
        r = ask(db, "SELECT version FROM door_versions WHERE name = ?1", s->name, 0, &version, e);
    if (r == 0 && version > s->n_scripts)
        r = err_set(e, ENOTSUP, STEP_USAGE, "the tables of '%s' in %s were written by a newer carrel (version %d; this "
                    "one knows %d)", s->name, db->path, version, s->n_scripts);
    if (r < 0 || version == s->n_scripts)
        return r;
    r = db_script(db, VERSIONS, e);
    for (int i = version; i < s->n_scripts && r == 0; i++)
        r = db_script(db, s->scripts[i], e);
    return r < 0 ? r : ask(db, "INSERT OR REPLACE INTO door_versions VALUES (?1, ?2)", s->name, s->n_scripts, NULL, e);
}

static int prepare(struct db_tables *t, struct err *e)
{
    for (int i = 0; i < t->schema->n_statements; i++) {
        int code = sqlite3_prepare_v3(t->db->sqlite, t->schema->statements[i], -1, SQLITE_PREPARE_PERSISTENT,
                                      &t->statement[i], NULL);
        if (code != SQLITE_OK)
            return db_fail(t->db, code, e);
    }
    return 0;
}

int db_tables_open(struct db *db, const struct db_schema *schema, struct db_tables **ret, struct err *e)
{
    struct db_tables *t = calloc(1, sizeof *t + (size_t)schema->n_statements * sizeof *t->statement);

    if (!t)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "the database");
    *t = (struct db_tables){ .db = db, .schema = schema };
    int r = db_script(db, "BEGIN IMMEDIATE", e);        /* two servers may start at once */
    if (r == 0)
        r = migrate(db, schema, e);
    if (r == 0)
        r = db_script(db, "COMMIT", e);
    db_undo(db);
    if (r == 0)
        r = prepare(t, e);
    if (r < 0) {
        db_tables_close(t);
        return r;
    }
    *ret = t;
    return 0;
}

void db_tables_close(struct db_tables *t)
{
    for (int i = 0; t && i < t->schema->n_statements; i++)
        sqlite3_finalize(t->statement[i]);
    free(t);
}

int db_tables_change(struct db_tables *t, int statement, struct err *e, const char *types, ...)
{
    va_list args;

    va_start(args, types);
    int r = db_run(t->db, t->statement[statement], e, types, args);
    va_end(args);
    return r;
}

struct table_listing {
    int (*row)(const struct db_row *row, void *arg);
    void *arg;
};

static int give(sqlite3_stmt *q, void *arg)
{
    const struct table_listing *l = arg;

    return l->row(&(struct db_row){ q }, l->arg);
}

int db_tables_each(struct db_tables *t, int statement, int (*row)(const struct db_row *row, void *arg), void *arg,
                   struct err *e, const char *types, ...)
{
    struct table_listing l = { row, arg };
    va_list args;

    va_start(args, types);
    int r = db_list(t->db, t->statement[statement], give, &l, e, types, args);
    va_end(args);
    return r;
}

const char *db_row_text(const struct db_row *row, int column)
{
    return db_text(row->statement, column);
}

int64_t db_row_number(const struct db_row *row, int column)
{
    return sqlite3_column_int64(row->statement, column);
}
