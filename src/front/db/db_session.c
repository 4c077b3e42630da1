/* Sessions of the Jupyter door: names for kernels. */
#include "front/db/db_private.h"

int db_session_put(struct db *db, const struct db_session *session, struct err *e)
{
    return db_change(db, QUERY_SESSION_PUT, e, "ssssss", session->id, session->owner, session->kernel, session->path,
                        session->name, session->type);
}

int db_session_delete(struct db *db, const char *id, struct err *e)
{
    return db_change(db, QUERY_SESSION_DELETE, e, "s", id);
}

struct session_listing {
    int (*each)(const struct db_session *, void *);
    void *arg;
};

static int give_session(sqlite3_stmt *q, void *arg)
{
    const struct session_listing *l = arg;
    struct db_session session = {
        .id = db_text(q, 0),
        .owner = db_text(q, 1),
        .kernel = db_text(q, 2),
        .path = db_text(q, 3),
        .name = db_text(q, 4),
        .type = db_text(q, 5),
    };

    return l->each(&session, l->arg);
}

int db_sessions(struct db *db, int (*each)(const struct db_session *, void *), void *arg, struct err *e)
{
    return db_each(db, QUERY_SESSIONS, give_session, &(struct session_listing){ each, arg }, e, "");
}
