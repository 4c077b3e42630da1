/* Services, and the grants to call them. */
#include "front/db/db_private.h"

int db_service_put(struct db *db, const struct db_service *service, struct err *e)
{
    return db_change(db, QUERY_SERVICE_PUT, e, "sssis", service->id, service->owner, service->name,
                        (int64_t)service->box, service->body);
}

int db_service_delete(struct db *db, const char *id, struct err *e)
{
    return db_change(db, QUERY_SERVICE_DELETE, e, "s", id);
}

struct service_listing {
    int (*each)(const struct db_service *, void *);
    void *arg;
};

static int give_service(sqlite3_stmt *q, void *arg)
{
    const struct service_listing *l = arg;
    struct db_service service = {
        .id = db_text(q, 0),
        .owner = db_text(q, 1),
        .name = db_text(q, 2),
        .box = (uint64_t)sqlite3_column_int64(q, 3),
        .body = db_text(q, 4),
    };

    return l->each(&service, l->arg);
}

int db_services(struct db *db, int (*each)(const struct db_service *, void *), void *arg, struct err *e)
{
    return db_each(db, QUERY_SERVICES, give_service, &(struct service_listing){ each, arg }, e, "");
}

int db_grant_insert(struct db *db, const struct db_grant *grant, struct err *e)
{
    return db_change(db, QUERY_GRANT_INSERT, e, "sssisi", grant->id, grant->owner, grant->service,
                        (int64_t)grant->box, grant->body, (int64_t)grant->used);
}

int db_grant_used(struct db *db, const char *id, int64_t used, struct err *e)
{
    return db_change(db, QUERY_GRANT_USED, e, "si", id, used);
}

int db_grant_delete(struct db *db, const char *id, struct err *e)
{
    return db_change(db, QUERY_GRANT_DELETE, e, "s", id);
}

struct grant_listing {
    int (*each)(const struct db_grant *, void *);
    void *arg;
};

static int give_grant(sqlite3_stmt *q, void *arg)
{
    const struct grant_listing *l = arg;
    struct db_grant grant = {
        .id = db_text(q, 0),
        .owner = db_text(q, 1),
        .service = db_text(q, 2),
        .box = (uint64_t)sqlite3_column_int64(q, 3),
        .body = db_text(q, 4),
        .used = (uint64_t)sqlite3_column_int64(q, 5),
    };

    return l->each(&grant, l->arg);
}

int db_grants(struct db *db, int (*each)(const struct db_grant *, void *), void *arg, struct err *e)
{
    return db_each(db, QUERY_GRANTS, give_grant, &(struct grant_listing){ each, arg }, e, "");
}
