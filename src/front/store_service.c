/* Services, and the grants to call them. */
#include "front/store_private.h"

int store_service_put(struct store *s, const struct store_service *service, struct err *e)
{
    return store_change(s, QUERY_SERVICE_PUT, e, "sssis", service->id, service->owner, service->name,
                        (int64_t)service->box, service->body);
}

int store_service_delete(struct store *s, const char *id, struct err *e)
{
    return store_change(s, QUERY_SERVICE_DELETE, e, "s", id);
}

struct service_listing {
    int (*each)(const struct store_service *, void *);
    void *arg;
};

static int give_service(sqlite3_stmt *q, void *arg)
{
    const struct service_listing *l = arg;
    struct store_service service = {
        .id = store_text(q, 0),
        .owner = store_text(q, 1),
        .name = store_text(q, 2),
        .box = (uint64_t)sqlite3_column_int64(q, 3),
        .body = store_text(q, 4),
    };

    return l->each(&service, l->arg);
}

int store_services(struct store *s, int (*each)(const struct store_service *, void *), void *arg, struct err *e)
{
    return store_each(s, QUERY_SERVICES, give_service, &(struct service_listing){ each, arg }, e, "");
}

int store_grant_insert(struct store *s, const struct store_grant *grant, struct err *e)
{
    return store_change(s, QUERY_GRANT_INSERT, e, "sssisi", grant->id, grant->owner, grant->service,
                        (int64_t)grant->box, grant->body, (int64_t)grant->used);
}

int store_grant_used(struct store *s, const char *id, int64_t used, struct err *e)
{
    return store_change(s, QUERY_GRANT_USED, e, "si", id, used);
}

int store_grant_delete(struct store *s, const char *id, struct err *e)
{
    return store_change(s, QUERY_GRANT_DELETE, e, "s", id);
}

struct grant_listing {
    int (*each)(const struct store_grant *, void *);
    void *arg;
};

static int give_grant(sqlite3_stmt *q, void *arg)
{
    const struct grant_listing *l = arg;
    struct store_grant grant = {
        .id = store_text(q, 0),
        .owner = store_text(q, 1),
        .service = store_text(q, 2),
        .box = (uint64_t)sqlite3_column_int64(q, 3),
        .body = store_text(q, 4),
        .used = (uint64_t)sqlite3_column_int64(q, 5),
    };

    return l->each(&grant, l->arg);
}

int store_grants(struct store *s, int (*each)(const struct store_grant *, void *), void *arg, struct err *e)
{
    return store_each(s, QUERY_GRANTS, give_grant, &(struct grant_listing){ each, arg }, e, "");
}
