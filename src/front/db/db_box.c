/* Boxes, their execs and their events. */
#include <errno.h>
#include <time.h>

#include "front/db/db_private.h"

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int db_box_insert(struct db *db, struct db_box *box, struct err *e)
{
    int r = db_change(db, QUERY_BOX_INSERT, e, "ssssssii", box->id, box->owner, box->name, box->key, box->phase,
                         box->body, box->created_ms, (int64_t)box->alive);

    if (r == 0)
        box->number = (uint64_t)sqlite3_last_insert_rowid(db->sqlite);
    return r;
}

int db_box_update(struct db *db, const struct db_box *box, struct err *e)
{
    return db_change(db, QUERY_BOX_UPDATE, e, "isssii", (int64_t)box->number, box->phase, box->body, box->name,
                        (int64_t)box->alive, now_ms());
}

int db_box_delete(struct db *db, uint64_t number, struct err *e)
{
    return db_change(db, QUERY_BOX_DELETE, e, "i", (int64_t)number);
}

static int take_number(sqlite3_stmt *q, void *arg)
{
    *(uint64_t *)arg = (uint64_t)sqlite3_column_int64(q, 0);
    return 1;
}

int db_box_by_key(struct db *db, const char *owner, const char *key, uint64_t *ret_number, struct err *e)
{
    uint64_t number = 0;
    int r = db_each(db, QUERY_BOX_BY_KEY, take_number, &number, e, "ss", owner, key);

    if (r < 0)
        return r;
    if (!number)
        return err_set(e, ENOENT, STEP_USAGE, "no box was made with this idempotency key");
    *ret_number = number;
    return 0;
}

struct box_listing {
    int (*each)(const struct db_box *, void *);
    void *arg;
};

static int give_box(sqlite3_stmt *q, void *arg)
{
    const struct box_listing *l = arg;
    struct db_box box = {
        .number = (uint64_t)sqlite3_column_int64(q, 0),
        .id = db_text(q, 1),
        .owner = db_text(q, 2),
        .name = db_text(q, 3),
        .key = db_text(q, 4),
        .phase = db_text(q, 5),
        .body = db_text(q, 6),
        .created_ms = sqlite3_column_int64(q, 7),
        .alive = sqlite3_column_int(q, 8) != 0,
    };

    return l->each(&box, l->arg);
}

int db_boxes(struct db *db, bool alive_only, int (*each)(const struct db_box *, void *), void *arg,
                struct err *e)
{
    return db_each(db, alive_only ? QUERY_BOXES_ALIVE : QUERY_BOXES, give_box, &(struct box_listing){ each, arg }, e,
                      "");
}

/* In portions, so that the log stays small; a crash between two of them is harmless. */
static int prune(struct db *db, enum db_query query, int64_t before_ms, struct err *e)
{
    int r;

    do
        r = db_change(db, query, e, "i", before_ms);
    while (r == 0);
    return r == -ENOENT ? 0 : r;
}

int db_prune(struct db *db, int64_t before_ms, struct err *e)
{
    struct err inner;
    int r = prune(db, QUERY_PRUNE_BOXES, before_ms, &inner);

    if (r == 0)
        r = prune(db, QUERY_PRUNE_EVENTS, before_ms, &inner);
    if (r < 0 && e)
        *e = inner;
    return r;
}

int db_exec_insert(struct db *db, struct db_exec *exec, struct err *e)
{
    int r =
        db_change(db, QUERY_EXEC_INSERT, e, "issi", (int64_t)exec->box, exec->id, exec->body, (int64_t)exec->ended);

    if (r == 0)
        exec->number = (uint64_t)sqlite3_last_insert_rowid(db->sqlite);
    return r;
}

int db_exec_update(struct db *db, const struct db_exec *exec, struct err *e)
{
    return db_change(db, QUERY_EXEC_UPDATE, e, "isi", (int64_t)exec->number, exec->body, (int64_t)exec->ended);
}

int db_exec_delete(struct db *db, uint64_t number, struct err *e)
{
    return db_change(db, QUERY_EXEC_DELETE, e, "i", (int64_t)number);
}

struct exec_listing {
    int (*each)(const struct db_exec *, void *);
    void *arg;
};

static int give_exec(sqlite3_stmt *q, void *arg)
{
    const struct exec_listing *l = arg;
    struct db_exec exec = {
        .number = (uint64_t)sqlite3_column_int64(q, 0),
        .box = (uint64_t)sqlite3_column_int64(q, 1),
        .id = db_text(q, 2),
        .body = db_text(q, 3),
        .ended = sqlite3_column_int(q, 4) != 0,
    };

    return l->each(&exec, l->arg);
}

int db_execs(struct db *db, uint64_t box, int (*each)(const struct db_exec *, void *), void *arg, struct err *e)
{
    return db_each(db, QUERY_EXECS, give_exec, &(struct exec_listing){ each, arg }, e, "i", (int64_t)box);
}

int db_event_insert(struct db *db, struct db_event *event, struct err *e)
{
    int r =
        db_change(db, QUERY_EVENT_INSERT, e, "iiss", (int64_t)event->box, event->time_ms, event->type, event->body);

    if (r == 0)
        event->number = (uint64_t)sqlite3_last_insert_rowid(db->sqlite);
    return r;
}

struct event_listing {
    int (*each)(const struct db_event *, void *);
    void *arg;
};

static int give_event(sqlite3_stmt *q, void *arg)
{
    const struct event_listing *l = arg;
    struct db_event event = {
        .number = (uint64_t)sqlite3_column_int64(q, 0),
        .box = (uint64_t)sqlite3_column_int64(q, 1),    /* null is 0 */
        .time_ms = sqlite3_column_int64(q, 2),
        .type = db_text(q, 3),
        .body = db_text(q, 4),
    };

    return l->each(&event, l->arg);
}

int db_events(struct db *db, uint64_t box, uint64_t after, unsigned limit,
                 int (*each)(const struct db_event *, void *), void *arg, struct err *e)
{
    struct event_listing listing = { each, arg };
    int64_t from = after > INT64_MAX ? INT64_MAX : (int64_t)after;

    if (box)
        return db_each(db, QUERY_EVENTS, give_event, &listing, e, "iii", (int64_t)box, from, (int64_t)limit);
    return db_each(db, QUERY_EVENTS_ALL, give_event, &listing, e, "ii", from, (int64_t)limit);
}
