/* Sessions of the Jupyter door: names for kernels. */
#include "front/store_private.h"

int store_session_put(struct store *s, const struct store_session *session, struct err *e)
{
    return store_change(s, QUERY_SESSION_PUT, e, "ssssss", session->id, session->owner, session->kernel, session->path,
                        session->name, session->type);
}

int store_session_delete(struct store *s, const char *id, struct err *e)
{
    return store_change(s, QUERY_SESSION_DELETE, e, "s", id);
}

struct session_listing {
    int (*each)(const struct store_session *, void *);
    void *arg;
};

static int give_session(sqlite3_stmt *q, void *arg)
{
    const struct session_listing *l = arg;
    struct store_session session = {
        .id = store_text(q, 0),
        .owner = store_text(q, 1),
        .kernel = store_text(q, 2),
        .path = store_text(q, 3),
        .name = store_text(q, 4),
        .type = store_text(q, 5),
    };

    return l->each(&session, l->arg);
}

int store_sessions(struct store *s, int (*each)(const struct store_session *, void *), void *arg, struct err *e)
{
    return store_each(s, QUERY_SESSIONS, give_session, &(struct session_listing){ each, arg }, e, "");
}
