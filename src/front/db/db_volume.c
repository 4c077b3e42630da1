/* Volumes: their names and owners. Their files are the keeper's. */
#include "front/db/db_private.h"

int db_volume_put(struct db *db, const struct db_volume *volume, struct err *e)
{
    return db_change(db, QUERY_VOLUME_PUT, e, "issss", (int64_t)volume->number, volume->id, volume->owner,
                     volume->name, volume->body);
}

int db_volume_delete(struct db *db, uint64_t number, struct err *e)
{
    return db_change(db, QUERY_VOLUME_DELETE, e, "i", (int64_t)number);
}

struct volume_listing {
    int (*each)(const struct db_volume *, void *);
    void *arg;
};

static int give_volume(sqlite3_stmt *q, void *arg)
{
    const struct volume_listing *l = arg;
    struct db_volume volume = {
        .number = (uint64_t)sqlite3_column_int64(q, 0),
        .id = db_text(q, 1),
        .owner = db_text(q, 2),
        .name = db_text(q, 3),
        .body = db_text(q, 4),
    };

    return l->each(&volume, l->arg);
}

int db_volumes(struct db *db, int (*each)(const struct db_volume *, void *), void *arg, struct err *e)
{
    return db_each(db, QUERY_VOLUMES, give_volume, &(struct volume_listing){ each, arg }, e, "");
}
