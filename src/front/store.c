/* One connection in WAL mode, used by one thread. Every change is one statement and so one transaction, prepared once:
 * a create costs a write to the log and no fsync. SQLite would sync when the log has grown (a checkpoint), in the
 * middle of somebody's create; therefore that is left to store_maintain(), which the front calls when it has nothing to
 * do, and the own checkpoint of SQLite stays only as an upper bound. There is no thread for it: one made before the
 * front locks itself in would stay outside.
 *
 * A version is a number in the file (user_version); scripts[i] brings version i to i + 1. A script that has been
 * released never changes. */
#include "front/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/store_private.h"

enum {
    APPLICATION_ID = 0x4361726c,    /* "Carl", for file(1) and against databases of somebody else */
    BUSY_MS = 2000,
    CHECKPOINT_PAGES = 8000,        /* 32 MB of log at the most */
};

/* AUTOINCREMENT: a number is the keeper's token, and must not come back after its row is gone. */
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

static const char *const scripts[] = { schema_1, schema_2, schema_3 };

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
    [QUERY_SESSION_PUT] = "INSERT INTO sessions (id, owner, kernel, path, name, type) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
                          " ON CONFLICT (id) DO UPDATE SET kernel = ?3, path = ?4, name = ?5, type = ?6",
    [QUERY_SESSION_DELETE] = "DELETE FROM sessions WHERE id = ?1",
    [QUERY_SESSIONS] = "SELECT id, owner, kernel, path, name, type FROM sessions ORDER BY number",
    [QUERY_SERVICE_PUT] = "INSERT INTO services (id, owner, name, box, body) VALUES (?1, ?2, ?3, ?4, ?5)"
                          " ON CONFLICT (id) DO UPDATE SET body = ?5",
    [QUERY_SERVICE_DELETE] = "DELETE FROM services WHERE id = ?1",
    [QUERY_SERVICES] = "SELECT id, owner, name, box, body FROM services ORDER BY number",
    [QUERY_GRANT_INSERT] =
        "INSERT INTO grants (id, owner, service, box, body, used) VALUES (?1, ?2, ?3, nullif(?4, 0), ?5, ?6)",
    [QUERY_GRANT_USED] = "UPDATE grants SET used = ?2 WHERE id = ?1",
    [QUERY_GRANT_DELETE] = "DELETE FROM grants WHERE id = ?1",
    [QUERY_GRANTS] = "SELECT id, owner, service, ifnull(box, 0), body, used FROM grants ORDER BY number",
};

/* ---- failures ---- */

static int full_disk(struct store *s, int os, struct err *e)
{
    return err_set(e, os == EDQUOT ? EDQUOT : ENOSPC, STEP_NONE, "cannot write to the database %s", s->path);
}

static int fail_constraint(struct store *s, int code, struct err *e)
{
    const char *message = sqlite3_errmsg(s->db);    /* names the columns */

    if (code == SQLITE_CONSTRAINT_FOREIGNKEY)
        return err_set(e, ENOENT, STEP_USAGE, "there is no such box");
    if (code != SQLITE_CONSTRAINT_UNIQUE && code != SQLITE_CONSTRAINT_PRIMARYKEY)
        return err_set(e, EINVAL, STEP_USAGE, "the database refuses this: %s", message);
    if (strstr(message, "boxes.name"))
        return err_set(e, EEXIST, STEP_USAGE, "a living box of this name exists");
    if (strstr(message, "boxes.key"))
        return err_set(e, EEXIST, STEP_USAGE, "a box was already made with this idempotency key");
    return err_set(e, EEXIST, STEP_USAGE, "this id exists already");
}

int store_fail(struct store *s, int code, struct err *e)
{
    int os = s->db ? sqlite3_system_errno(s->db) : 0;
    const char *message = s->db ? sqlite3_errmsg(s->db) : sqlite3_errstr(code);

    switch (code & 0xff) {
    case SQLITE_CONSTRAINT:
        return fail_constraint(s, code, e);
    case SQLITE_FULL:
        return full_disk(s, ENOSPC, e);
    case SQLITE_NOMEM:
        return err_at(e, ENOMEM, STEP_MEMORY, 0, s->path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(e, EBUSY, STEP_USAGE, "the database %s is held by another process", s->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(e, EIO, STEP_USAGE, "the database %s is damaged (%s); move it away to start afresh", s->path,
                       message);
    case SQLITE_READONLY:
        return err_set(e, EROFS, STEP_USAGE, "the database %s cannot be written (%s)", s->path, message);
    case SQLITE_CANTOPEN:
        return err_set(e, os ? os : EIO, STEP_NONE, "cannot open the database %s", s->path);
    case SQLITE_TOOBIG:
        return err_set(e, EFBIG, STEP_USAGE, "a text is too large for the database %s", s->path);
    case SQLITE_IOERR:
        if (os == ENOSPC || os == EDQUOT)
            return full_disk(s, os, e);
        return err_set(e, EIO, STEP_USAGE, "reading or writing the database %s failed (%s%s%s)", s->path, message,
                       os ? ": " : "", os ? strerror(os) : "");
    default:
        return err_set(e, EINVAL, STEP_USAGE, "the database %s: %s", s->path, message);
    }
}

/* ---- statements ---- */

const char *store_text(sqlite3_stmt *q, int column)
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

int store_change(struct store *s, enum store_query query, struct err *e, const char *types, ...)
{
    sqlite3_stmt *q = s->query[query];
    va_list args;
    int r;

    va_start(args, types);
    r = bind(q, types, args);
    va_end(args);
    if (r == SQLITE_OK)
        r = sqlite3_step(q);
    r = r == SQLITE_DONE ? 0 : store_fail(s, r, e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    if (r < 0)
        return r;
    return sqlite3_changes(s->db) ? 0 : err_set(e, ENOENT, STEP_USAGE, "there is no such entry in the database");
}

int store_each(struct store *s, enum store_query query, int (*row)(sqlite3_stmt *, void *), void *arg, struct err *e,
               const char *types, ...)
{
    sqlite3_stmt *q = s->query[query];
    bool is_spare = sqlite3_stmt_busy(q);   /* a callback asks the same again */
    int r = is_spare ? sqlite3_prepare_v2(s->db, queries[query], -1, &q, NULL) : SQLITE_OK, stop = 0;
    va_list args;

    if (r != SQLITE_OK)
        return store_fail(s, r, e);
    va_start(args, types);
    r = bind(q, types, args);
    va_end(args);
    while (r == SQLITE_OK || r == SQLITE_ROW) {
        r = sqlite3_step(q);
        if (r == SQLITE_ROW)
            stop = row(q, arg);
        if (stop)
            break;
    }
    if (!stop && r != SQLITE_DONE)
        stop = store_fail(s, r, e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    if (is_spare)
        sqlite3_finalize(q);
    return stop < 0 ? stop : 0;
}

void store_begin(struct store *s)
{
    /* If it cannot begin, every change is one of its own and says itself what is wrong. */
    (void)sqlite3_step(s->query[QUERY_BEGIN]);
    sqlite3_reset(s->query[QUERY_BEGIN]);
}

void store_undo(struct store *s)
{
    if (!sqlite3_get_autocommit(s->db))
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}

int store_end(struct store *s, struct err *e)
{
    if (sqlite3_get_autocommit(s->db))
        return 0;       /* a failure has undone it already, and was told */
    int r = sqlite3_step(s->query[QUERY_COMMIT]);
    r = r == SQLITE_DONE ? 0 : store_fail(s, r, e);
    sqlite3_reset(s->query[QUERY_COMMIT]);
    if (r < 0)
        store_undo(s);
    return r;
}

/* ---- open and close ---- */

static int run_script(struct store *s, const char *script, struct err *e)
{
    int r = sqlite3_exec(s->db, script, NULL, NULL, NULL);

    return r == SQLITE_OK ? 0 : store_fail(s, sqlite3_extended_errcode(s->db), e);
}

static int ask_number(struct store *s, const char *question, int64_t *ret, struct err *e)
{
    sqlite3_stmt *q = NULL;
    int r = sqlite3_prepare_v2(s->db, question, -1, &q, NULL);

    if (r == SQLITE_OK)
        r = sqlite3_step(q);
    if (r == SQLITE_ROW)
        *ret = sqlite3_column_int64(q, 0);
    r = r == SQLITE_ROW ? 0 : store_fail(s, sqlite3_extended_errcode(s->db), e);
    sqlite3_finalize(q);
    return r;
}

static int migrate_step(struct store *s, const char *script, int version, struct err *e)
{
    char mark[96];
    struct err ignored;
    int r = run_script(s, script, e);

    snprintf(mark, sizeof mark, "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", APPLICATION_ID,
             version);
    if (r == 0)
        r = run_script(s, mark, e);
    if (r < 0 && !sqlite3_get_autocommit(s->db))
        (void)!run_script(s, "ROLLBACK", &ignored);
    return r;
}

int store_migrate(struct store *s, const char *const *list, int n, struct err *e)
{
    int64_t version = 0, application = 0, tables = 0;
    int r;

    for (;;) {
        r = run_script(s, "BEGIN IMMEDIATE", e);    /* two servers that start at once */
        if (r == 0)
            r = ask_number(s, "PRAGMA user_version", &version, e);
        if (r == 0)
            r = ask_number(s, "PRAGMA application_id", &application, e);
        if (r == 0)
            r = ask_number(s, "SELECT count(*) FROM sqlite_master", &tables, e);
        if (r == 0 && (application != APPLICATION_ID || version < 1) && (tables || version || application))
            r = err_set(e, EINVAL, STEP_USAGE, "%s is a database of another program", s->path);
        if (r == 0 && version > n)
            r = err_set(e, ENOTSUP, STEP_USAGE, "%s was written by a newer carrel (version %lld; this one knows %d); "
                        "upgrade carrel or choose another state directory", s->path, (long long)version, n);
        if (r == 0 && version < n) {
            r = migrate_step(s, list[version], (int)version + 1, e);
            if (r < 0)
                return r;
            continue;
        }
        if (!sqlite3_get_autocommit(s->db))
            sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return r;
    }
}

/* Makes directory and file with rights for their owner only; SQLite gives its log the rights of the file. An existing
 * file is not opened here, because closing it would drop the locks of another connection of this process. */
static int prepare_file(struct store *s, const char *state, struct err *e)
{
    if (mkdir(state, 0700) < 0 && errno != EEXIST)
        return err_set(e, errno, STEP_NONE, "cannot make the directory %s", state);
    FD fd = open(s->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && (errno != EEXIST || access(s->path, R_OK | W_OK) < 0))
        return err_set(e, errno, STEP_NONE, "cannot open the database %s", s->path);
    return 0;
}

static int configure(struct store *s, struct err *e)
{
    static const char settings[] = "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = "
                                   "OFF; PRAGMA cell_size_check = ON;"
                                   "PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 4194304";
    sqlite3_stmt *q = NULL;
    bool is_wal = false;

    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    sqlite3_wal_autocheckpoint(s->db, CHECKPOINT_PAGES);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    int r = sqlite3_prepare_v2(s->db, "PRAGMA journal_mode = WAL", -1, &q, NULL);
    if (r == SQLITE_OK)
        r = sqlite3_step(q);
    if (r == SQLITE_ROW)
        is_wal = !strcmp(store_text(q, 0), "wal");
    r = r == SQLITE_ROW ? 0 : store_fail(s, sqlite3_extended_errcode(s->db), e);
    sqlite3_finalize(q);
    if (r == 0 && !is_wal)
        r = err_set(e, ENOTSUP, STEP_USAGE, "the filesystem of %s cannot hold a database with a log (WAL)", s->path);
    return r < 0 ? r : run_script(s, settings, e);
}

static int open_all(struct store *s, const char *state, struct err *e)
{
    int r = prepare_file(s, state, e);
    if (r < 0)
        return r;
    r = sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (r != SQLITE_OK)
        return store_fail(s, r, e);
    r = configure(s, e);
    if (r == 0)
        r = store_migrate(s, scripts, sizeof scripts / sizeof scripts[0], e);
    for (int i = 0; r == 0 && i < QUERY_COUNT; i++) {
        int code = sqlite3_prepare_v3(s->db, queries[i], -1, SQLITE_PREPARE_PERSISTENT, &s->query[i], NULL);
        if (code != SQLITE_OK)
            r = store_fail(s, code, e);
    }
    return r;
}

int store_open(const char *state, struct store **ret, struct err *e)
{
    struct store *s = calloc(1, sizeof *s);

    if (!s)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "the store");
    if (snprintf(s->path, sizeof s->path, "%s/state.db", state) >= (int)sizeof s->path) {
        free(s);
        return err_set(e, ENAMETOOLONG, STEP_NONE, "the state directory");
    }
    int r = open_all(s, state, e);
    if (r < 0) {
        store_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    for (int i = 0; i < QUERY_COUNT; i++)
        sqlite3_finalize(s->query[i]);
    sqlite3_close(s->db);
    free(s);
}

int store_maintain(struct store *s, struct err *e)
{
    int r = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

    return r == SQLITE_OK || r == SQLITE_BUSY ? 0 : store_fail(s, r, e);
}
