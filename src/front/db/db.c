/* One connection in WAL mode, used by one thread. Every change is one statement and so one transaction, prepared once:
 * a create costs a write to the log and no fsync. SQLite would sync when the log has grown (a checkpoint), in the
 * middle of a create; therefore db_maintain() does that, which the front calls when it is idle, and SQLite's own
 * checkpoint is only an upper bound. There is no thread for it: a thread made before the front confines itself would
 * stay unconfined.
 *
 * A version is a number in the file (user_version); scripts[i] brings version i to i + 1. A released script never
 * changes. */
#include "front/db/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/db/db_private.h"

enum {
    APPLICATION_ID = 0x4361726c,    /* "Carl", for file(1), and to detect foreign databases */
    BUSY_MS = 2000,
    CHECKPOINT_PAGES = 8000,        /* 32 MB of log at the most */
};

/* AUTOINCREMENT: a number is the keeper's token, and must not be reused after its row is gone. */
static const char schema_1[] =
    "CREATE TABLE boxes (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, name "
    "TEXT,"
    " key TEXT, phase TEXT NOT NULL, body TEXT NOT NULL, created_ms INTEGER NOT NULL, ended_ms INTEGER,"
    " alive INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX boxes_name ON boxes (owner, name) WHERE alive AND name IS NOT NULL;"
    "CREATE UNIQUE INDEX boxes_key ON boxes (owner, key) WHERE key IS NOT NULL;"
    "CREATE INDEX boxes_alive ON boxes (number) WHERE alive;"
    "CREATE INDEX boxes_ended ON boxes (ended_ms) WHERE ended_ms IS NOT NULL;"
    "CREATE TABLE execs (number INTEGER PRIMARY KEY AUTOINCREMENT, box INTEGER NOT NULL REFERENCES boxes ON DELETE "
    "CASCADE,"
    " id TEXT NOT NULL UNIQUE, body TEXT NOT NULL, ended INTEGER NOT NULL) STRICT;"
    "CREATE INDEX execs_box ON execs (box);"
    "CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, box INTEGER REFERENCES boxes ON DELETE CASCADE,"
    " time_ms INTEGER NOT NULL, type TEXT NOT NULL, body TEXT) STRICT;"
    "CREATE INDEX events_box ON events (box);"
    "CREATE TABLE tokens (id TEXT PRIMARY KEY, hash BLOB NOT NULL UNIQUE, identity TEXT NOT NULL, scopes TEXT NOT NULL,"
    " created_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL, used_ms INTEGER NOT NULL, revoked INTEGER NOT NULL) "
    "STRICT;";

/* The Jupyter door's; it now has tables of its own (db_tables.h), but a released script never changes. */
static const char schema_2[] =
    "CREATE TABLE sessions (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " kernel TEXT NOT NULL, path TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL) STRICT;";

static const char schema_3[] =
    "CREATE TABLE services (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " name TEXT NOT NULL, box INTEGER NOT NULL REFERENCES boxes ON DELETE CASCADE, body TEXT NOT NULL) STRICT;"
    "CREATE INDEX services_box ON services (box);"
    "CREATE TABLE grants (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " service TEXT NOT NULL REFERENCES services (id) ON DELETE CASCADE,"
    " box INTEGER REFERENCES boxes ON DELETE CASCADE, body TEXT NOT NULL, used INTEGER NOT NULL) STRICT;"
    "CREATE INDEX grants_service ON grants (service);"
    "CREATE INDEX grants_box ON grants (box);";

/* Two fronts on one database could make services of one name; lookups found the newest, which keeps the name. 63
 * characters are the longest name, 14 of them a dash and an id. */
static const char schema_4[] =
    "UPDATE services SET name = substr(name, 1, 49) || '-' || id WHERE EXISTS (SELECT 1 FROM services AS newer"
    " WHERE newer.owner = services.owner AND newer.name = services.name AND newer.number > services.number);"
    "CREATE UNIQUE INDEX services_name ON services (owner, name);";

/* A number is random and names the files of a volume: one that was given again would show them to another owner. */
static const char schema_5[] =
    "CREATE TABLE volumes (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " name TEXT NOT NULL, body TEXT NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX volumes_name ON volumes (owner, name);";

static const char *const scripts[] = { schema_1, schema_2, schema_3, schema_4, schema_5 };

#define BOX_COLUMNS "number, id, owner, name, key, phase, body, created_ms, alive"
#define TOKEN_COLUMNS "id, hash, identity, scopes, created_ms, expires_ms, used_ms, revoked"

static const char *const queries[QUERY_COUNT] = {
    [QUERY_BOX_INSERT] = "INSERT INTO boxes (id, owner, name, key, phase, body, created_ms, alive, ended_ms)"
                         " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, CASE WHEN ?8 THEN NULL ELSE ?7 END)",
    [QUERY_BOX_UPDATE] = "UPDATE boxes SET phase = ?2, body = ?3, name = ?4, alive = ?5,"
                         " ended_ms = CASE WHEN ?5 THEN NULL ELSE ifnull(ended_ms, ?6) END WHERE number = ?1",
    [QUERY_BOX_DELETE] = "DELETE FROM boxes WHERE number = ?1",
    [QUERY_BOX_BY_KEY] = "SELECT number FROM boxes WHERE owner = ?1 AND key = ?2",
    [QUERY_BOXES] = "SELECT " BOX_COLUMNS " FROM boxes ORDER BY number",
    [QUERY_BOXES_ALIVE] = "SELECT " BOX_COLUMNS " FROM boxes WHERE alive ORDER BY number",
    [QUERY_PRUNE_BOXES] = "DELETE FROM boxes WHERE number IN"
                          " (SELECT number FROM boxes WHERE ended_ms < ?1 AND NOT alive ORDER BY ended_ms LIMIT 100)",
    [QUERY_PRUNE_EVENTS] = "DELETE FROM events WHERE number IN"
                           " (SELECT number FROM events WHERE box IS NULL AND time_ms < ?1 LIMIT 1000)",
    [QUERY_EXEC_INSERT] = "INSERT INTO execs (box, id, body, ended) VALUES (?1, ?2, ?3, ?4)",
    [QUERY_EXEC_UPDATE] = "UPDATE execs SET body = ?2, ended = ?3 WHERE number = ?1",
    [QUERY_EXEC_DELETE] = "DELETE FROM execs WHERE number = ?1",
    [QUERY_EXECS] = "SELECT number, box, id, body, ended FROM execs WHERE box = ?1 ORDER BY number",
    [QUERY_EVENT_INSERT] = "INSERT INTO events (box, time_ms, type, body) VALUES (nullif(?1, 0), ?2, ?3, ?4)",
    [QUERY_EVENTS] =
        "SELECT number, box, time_ms, type, body FROM events WHERE box = ?1 AND number > ?2 ORDER BY number LIMIT ?3",
    [QUERY_EVENTS_ALL] =
        "SELECT number, box, time_ms, type, body FROM events WHERE number > ?1 ORDER BY number LIMIT ?2",
    [QUERY_BEGIN] = "BEGIN IMMEDIATE",
    [QUERY_COMMIT] = "COMMIT",
    [QUERY_TOKEN_INSERT] = "INSERT INTO tokens (" TOKEN_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [QUERY_TOKEN_BY_HASH] = "SELECT " TOKEN_COLUMNS " FROM tokens WHERE hash = ?1",
    [QUERY_TOKEN_REVOKE] = "UPDATE tokens SET revoked = 1 WHERE id = ?1",
    [QUERY_TOKEN_USED] = "UPDATE tokens SET used_ms = ?2 WHERE id = ?1",
    [QUERY_TOKENS_SWEEP] = "DELETE FROM tokens WHERE scopes = 'grant' AND "
                           "(revoked = 1 OR (expires_ms > 0 AND expires_ms <= ?1))",
    [QUERY_TOKENS] = "SELECT " TOKEN_COLUMNS " FROM tokens ORDER BY created_ms, id",
    [QUERY_SERVICE_PUT] = "INSERT INTO services (id, owner, name, box, body) VALUES (?1, ?2, ?3, ?4, ?5)"
                          " ON CONFLICT (id) DO UPDATE SET box = ?4, body = ?5",
    [QUERY_SERVICE_DELETE] = "DELETE FROM services WHERE id = ?1",
    [QUERY_SERVICES] = "SELECT id, owner, name, box, body FROM services ORDER BY number",
    [QUERY_GRANT_INSERT] =
        "INSERT INTO grants (id, owner, service, box, body, used) VALUES (?1, ?2, ?3, nullif(?4, 0), ?5, ?6)",
    [QUERY_GRANT_USED] = "UPDATE grants SET used = ?2 WHERE id = ?1",
    [QUERY_GRANT_DELETE] = "DELETE FROM grants WHERE id = ?1",
    [QUERY_VOLUME_PUT] = "INSERT INTO volumes (number, id, owner, name, body) VALUES (?1, ?2, ?3, ?4, ?5)"
                         " ON CONFLICT (number) DO UPDATE SET body = ?5",
    [QUERY_VOLUME_DELETE] = "DELETE FROM volumes WHERE number = ?1",
    [QUERY_VOLUMES] = "SELECT number, id, owner, name, body FROM volumes ORDER BY owner, name",
    [QUERY_GRANTS] = "SELECT id, owner, service, ifnull(box, 0), body, used FROM grants ORDER BY number",
};

/* ---- failures ---- */

static int full_disk(struct db *db, int os, struct err *e)
{
    return err_set(e, os == EDQUOT ? EDQUOT : ENOSPC, STEP_NONE, "cannot write to the database %s", db->path);
}

static int fail_constraint(struct db *db, int code, struct err *e)
{
    const char *message = sqlite3_errmsg(db->sqlite);    /* names the columns */

    if (code == SQLITE_CONSTRAINT_FOREIGNKEY)
        return err_set(e, ENOENT, STEP_USAGE, "there is no such box");
    if (code != SQLITE_CONSTRAINT_UNIQUE && code != SQLITE_CONSTRAINT_PRIMARYKEY)
        return err_set(e, EINVAL, STEP_USAGE, "the database refuses this: %s", message);
    if (strstr(message, "boxes.name"))
        return err_set(e, EEXIST, STEP_USAGE, "a living box of this name exists");
    if (strstr(message, "volumes.name"))
        return err_set(e, EEXIST, STEP_USAGE, "there is a volume of this name already");
    if (strstr(message, "services.name"))
        return err_set(e, EEXIST, STEP_USAGE, "there is a service of this name already");
    if (strstr(message, "boxes.key"))
        return err_set(e, EEXIST, STEP_USAGE, "a box was already made with this idempotency key");
    return err_set(e, EEXIST, STEP_USAGE, "this id exists already");
}

int db_fail(struct db *db, int code, struct err *e)
{
    int os = db->sqlite ? sqlite3_system_errno(db->sqlite) : 0;
    const char *message = db->sqlite ? sqlite3_errmsg(db->sqlite) : sqlite3_errstr(code);

    switch (code & 0xff) {
    case SQLITE_CONSTRAINT:
        return fail_constraint(db, code, e);
    case SQLITE_FULL:
        return full_disk(db, ENOSPC, e);
    case SQLITE_NOMEM:
        return err_at(e, ENOMEM, STEP_MEMORY, 0, db->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, EBUSY, STEP_USAGE, "the database %s is held by another process", db->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, EIO, STEP_USAGE, "the database %s is damaged (%s); move it away to start afresh", db->path,
                       message);
    case SQLITE_READONLY:
        return err_set(e, EROFS, STEP_USAGE, "the database %s cannot be written (%s)", db->path, message);
    case SQLITE_CANTOPEN:
        return err_set(e, os ? os : EIO, STEP_NONE, "cannot open the database %s", db->path);
    case SQLITE_TOOBIG:
        return err_set(e, EFBIG, STEP_USAGE, "a text is too large for the database %s", db->path);
    case SQLITE_IOERR:
        if (os == ENOSPC || os == EDQUOT)
            return full_disk(db, os, e);
        return err_set(e, EIO, STEP_USAGE, "reading or writing the database %s failed (%s%s%s)", db->path, message,
                       os ? ": " : "", os ? strerror(os) : "");
    default:
        return err_set(e, EINVAL, STEP_USAGE, "the database %s: %s", db->path, message);
    }
}

/* ---- statements ---- */

const char *db_text(sqlite3_stmt *q, int column)
{
    return (const char *)sqlite3_column_text(q, column);
}

/* Texts are not copied: the statement is stepped and reset while the caller's strings live. */
static int bind(sqlite3_stmt *q, const char *types, va_list args)
{
    int r = SQLITE_OK;

    for (int i = 1; *types && r == SQLITE_OK; types++, i++)
        switch (*types) {
        case 's':
            r = sqlite3_bind_text(q, i, va_arg(args, const char *), -1, SQLITE_STATIC);
            break;
        case 'h':
            r = sqlite3_bind_blob(q, i, va_arg(args, const unsigned char *), 32, SQLITE_STATIC);
            break;
        default:
            r = sqlite3_bind_int64(q, i, va_arg(args, int64_t));
        }
    return r;
}

int db_run(struct db *db, sqlite3_stmt *q, struct err *e, const char *types, va_list args)
{
    int r = bind(q, types, args);

    if (r == SQLITE_OK)
        r = sqlite3_step(q);
    r = r == SQLITE_DONE ? 0 : db_fail(db, r, e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    if (r < 0)
        return r;
    return sqlite3_changes(db->sqlite) ? 0 : err_set(e, ENOENT, STEP_USAGE, "there is no such entry in the database");
}

int db_change(struct db *db, enum db_query query, struct err *e, const char *types, ...)
{
    va_list args;

    va_start(args, types);
    int r = db_run(db, db->query[query], e, types, args);
    va_end(args);
    return r;
}

int db_list(struct db *db, sqlite3_stmt *q, int (*row)(sqlite3_stmt *, void *), void *arg, struct err *e,
            const char *types, va_list args)
{
    bool is_spare = sqlite3_stmt_busy(q);   /* a callback runs the same query again */
    int r = is_spare ? sqlite3_prepare_v2(db->sqlite, sqlite3_sql(q), -1, &q, NULL) : SQLITE_OK, stop = 0;

    if (r != SQLITE_OK)
        return db_fail(db, r, e);
    r = bind(q, types, args);
    while (r == SQLITE_OK || r == SQLITE_ROW) {
        r = sqlite3_step(q);
        if (r == SQLITE_ROW)
            stop = row(q, arg);
        if (stop)
            break;
    }
    if (!stop && r != SQLITE_DONE)
        stop = db_fail(db, r, e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    if (is_spare)
        sqlite3_finalize(q);
    return stop < 0 ? stop : 0;
}

int db_each(struct db *db, enum db_query query, int (*row)(sqlite3_stmt *, void *), void *arg, struct err *e,
               const char *types, ...)
{
    va_list args;

    va_start(args, types);
    int r = db_list(db, db->query[query], row, arg, e, types, args);
    va_end(args);
    return r;
}

void db_begin(struct db *db)
{
    /* If it cannot begin, every change is a transaction of its own and reports its own errors. */
    (void)sqlite3_step(db->query[QUERY_BEGIN]);
    sqlite3_reset(db->query[QUERY_BEGIN]);
}

void db_undo(struct db *db)
{
    if (!sqlite3_get_autocommit(db->sqlite))
        sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
}

int db_end(struct db *db, struct err *e)
{
    if (sqlite3_get_autocommit(db->sqlite))
        return 0;       /* a failure has undone it already, and was reported */
    int r = sqlite3_step(db->query[QUERY_COMMIT]);
    r = r == SQLITE_DONE ? 0 : db_fail(db, r, e);
    sqlite3_reset(db->query[QUERY_COMMIT]);
    if (r < 0)
        db_undo(db);
    return r;
}

/* ---- open and close ---- */

int db_script(struct db *db, const char *script, struct err *e)
{
    int r = sqlite3_exec(db->sqlite, script, NULL, NULL, NULL);

    return r == SQLITE_OK ? 0 : db_fail(db, sqlite3_extended_errcode(db->sqlite), e);
}

static int ask_number(struct db *db, const char *question, int64_t *ret, struct err *e)
{
    sqlite3_stmt *q = NULL;
    int r = sqlite3_prepare_v2(db->sqlite, question, -1, &q, NULL);

    if (r == SQLITE_OK)
        r = sqlite3_step(q);
    if (r == SQLITE_ROW)
        *ret = sqlite3_column_int64(q, 0);
    r = r == SQLITE_ROW ? 0 : db_fail(db, sqlite3_extended_errcode(db->sqlite), e);
    sqlite3_finalize(q);
    return r;
}

static int migrate_step(struct db *db, const char *script, int version, struct err *e)
{
    char mark[96];
    struct err ignored;
    int r = db_script(db, script, e);

    snprintf(mark, sizeof mark, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", APPLICATION_ID,
             version);
    if (r == 0)
        r = db_script(db, mark, e);
    if (r < 0 && !sqlite3_get_autocommit(db->sqlite))
        (void)!db_script(db, "ROLLBACK", &ignored);
    return r;
}

int db_migrate(struct db *db, const char *const *list, int n, struct err *e)
{
    int64_t version = 0, application = 0, tables = 0;
    int r;

    for (;;) {
        r = db_script(db, "BEGIN IMMEDIATE", e);    /* two servers may start at once */
        if (r == 0)
            r = ask_number(db, "PRAGMA user_version", &version, e);
        if (r == 0)
            r = ask_number(db, "PRAGMA application_id", &application, e);
        if (r == 0)
            r = ask_number(db, "SELECT count(*) FROM sqlite_master", &tables, e);
        if (r == 0 && (application != APPLICATION_ID || version < 1) && (tables || version || application))
            r = err_set(e, EINVAL, STEP_USAGE, "%s is a database of another program", db->path);
        if (r == 0 && version > n)
            r = err_set(e, ENOTSUP, STEP_USAGE, "%s was written by a newer carrel (version %lld; this one knows %d); "
                        "upgrade carrel or choose another state directory", db->path, (long long)version, n);
        if (r == 0 && version < n) {
            r = migrate_step(db, list[version], (int)version + 1, e);
            if (r < 0)
                return r;
            continue;
        }
        if (!sqlite3_get_autocommit(db->sqlite))
            sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);
        return r;
    }
}

/* Makes directory and file with rights for their owner only; SQLite gives its log the rights of the file. An existing
 * file is not opened here, because closing it would drop the locks of another connection of this process. */
static int prepare_file(struct db *db, const char *state, struct err *e)
{
    if (mkdir(state, 0700) < 0 && errno != EEXIST)
        return err_set(e, errno, STEP_NONE, "cannot make the directory %s", state);
    FD fd = open(db->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && (errno != EEXIST || access(db->path, R_OK | W_OK) < 0))
        return err_set(e, errno, STEP_NONE, "cannot open the database %s", db->path);
    return 0;
}

static int configure(struct db *db, struct err *e)
{
    static const char settings[] = "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = "
                                   "OFF; PRAGMA cell_size_check = ON;"
                                   "PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 4194304";
    sqlite3_stmt *q = NULL;
    bool is_wal = false;

    sqlite3_extended_result_codes(db->sqlite, 1);
    sqlite3_busy_timeout(db->sqlite, BUSY_MS);
    sqlite3_wal_autocheckpoint(db->sqlite, CHECKPOINT_PAGES);
    sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    int r = sqlite3_prepare_v2(db->sqlite, "PRAGMA journal_mode = WAL", -1, &q, NULL);
    if (r == SQLITE_OK)
        r = sqlite3_step(q);
    if (r == SQLITE_ROW)
        is_wal = !strcmp(db_text(q, 0), "wal");
    r = r == SQLITE_ROW ? 0 : db_fail(db, sqlite3_extended_errcode(db->sqlite), e);
    sqlite3_finalize(q);
    if (r == 0 && !is_wal)
        r = err_set(e, ENOTSUP, STEP_USAGE, "the filesystem of %s cannot hold a database with a log (WAL)", db->path);
    return r < 0 ? r : db_script(db, settings, e);
}

static int open_all(struct db *db, const char *state, struct err *e)
{
    int r = prepare_file(db, state, e);
    if (r < 0)
        return r;
    r = sqlite3_open_v2(db->path, &db->sqlite,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (r != SQLITE_OK)
        return db_fail(db, r, e);
    r = configure(db, e);
    if (r == 0)
        r = db_migrate(db, scripts, sizeof scripts / sizeof scripts[0], e);
    for (int i = 0; r == 0 && i < QUERY_COUNT; i++) {
        int code = sqlite3_prepare_v3(db->sqlite, queries[i], -1, SQLITE_PREPARE_PERSISTENT, &db->query[i], NULL);
        if (code != SQLITE_OK)
            r = db_fail(db, code, e);
    }
    return r;
}

int db_open(const char *state, struct db **ret, struct err *e)
{
    struct db *db = calloc(1, sizeof *db);

    if (!db)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "the store");
    if (snprintf(db->path, sizeof db->path, "%s/state.db", state) >= (int)sizeof db->path) {
        free(db);
        return err_set(e, ENAMETOOLONG, STEP_NONE, "the state directory");
    }
    int r = open_all(db, state, e);
    if (r < 0) {
        db_close(db);
        return r;
    }
    *ret = db;
    return 0;
}

void db_close(struct db *db)
{
    if (!db)
        return;
    for (int i = 0; i < QUERY_COUNT; i++)
        sqlite3_finalize(db->query[i]);
    sqlite3_close(db->sqlite);
    free(db);
}

int db_maintain(struct db *db, struct err *e)
{
    int r = sqlite3_wal_checkpoint_v2(db->sqlite, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

    return r == SQLITE_OK || r == SQLITE_BUSY ? 0 : db_fail(db, r, e);
}
