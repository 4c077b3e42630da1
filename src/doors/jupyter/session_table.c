#include "doors/jupyter/session_table.h"

enum { PUT, DELETE, EACH };

/* Before doors had tables, the front's own schema made this one; an old database has it already. */
static const char *const scripts[] = {
    "CREATE TABLE IF NOT EXISTS sessions (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " kernel TEXT NOT NULL, path TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL) STRICT",
};

static const char *const statements[] = {
    [PUT] = "INSERT INTO sessions (id, owner, kernel, path, name, type) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
            " ON CONFLICT (id) DO UPDATE SET kernel = ?3, path = ?4, name = ?5, type = ?6",
    [DELETE] = "DELETE FROM sessions WHERE id = ?1",
    [EACH] = "SELECT id, owner, kernel, path, name, type FROM sessions ORDER BY number",
};

const struct db_schema session_schema = {
    .name = "jupyter",
    .scripts = scripts,
    .n_scripts = sizeof scripts / sizeof *scripts,
    .statements = statements,
    .n_statements = sizeof statements / sizeof *statements,
};

int session_table_put(struct db_tables *t, const struct session_row *row, struct err *e)
{
    return db_tables_change(t, PUT, e, "ssssss", row->id, row->owner, row->kernel, row->path, row->name, row->type);
}

int session_table_delete(struct db_tables *t, const char *id, struct err *e)
{
    return db_tables_change(t, DELETE, e, "s", id);
}

struct session_listing {
    int (*each)(const struct session_row *, void *);
    void *arg;
};

static int give(const struct db_row *row, void *arg)
{
    const struct session_listing *l = arg;
    const struct session_row session = {
        .id = db_row_text(row, 0),
        .owner = db_row_text(row, 1),
        .kernel = db_row_text(row, 2),
        .path = db_row_text(row, 3),
        .name = db_row_text(row, 4),
        .type = db_row_text(row, 5),
    };

    return l->each(&session, l->arg);
}

int session_table_each(struct db_tables *t, int (*each)(const struct session_row *, void *), void *arg, struct err *e)
{
    return db_tables_each(t, EACH, give, &(struct session_listing){ each, arg }, e, "");
}
