/* /api/sessions: a document and its kernel. A session only names a kernel and disappears with it. All are in memory
 * and, because kernels outlive the front, in the database. A failed write to the database is only logged: the session
 * works, and is forgotten with this process. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "doors/jupyter/door.h"

enum { SESSIONS_MOST = 1024, PATH_MOST = 4096 };

struct gateway_session {
    struct gateway_session *next;
    char            id[37];
    char           *owner, *path, *name, *type, *kernel;        /* owned */
};

/* A parsed request; texts in its arena, or NULL. */
struct session_request {
    const char *id, *path, *name, *type, *kernel_id, *kernel_name;
};

static void session_free(struct gateway_session *s)
{
    free(s->owner);
    free(s->path);
    free(s->name);
    free(s->type);
    free(s->kernel);
    free(s);
}

/* ---- the store ---- */

static void log_failure(const struct gateway_session *s, const char *what, const struct err *e)
{
    char text[512];

    err_text(e, text, sizeof text);
    front_log("error", what, "session", s->id, "why", text, NULL);
}

static void session_keep(const struct jupyter *j, const struct gateway_session *s)
{
    const struct session_row row = { s->id, s->owner, s->kernel, s->path, s->name, s->type };
    struct err e = { 0 };

    if (session_table_put(j->tables, &row, &e) < 0)
        log_failure(s, "a session cannot be kept", &e);
}

/* Removes it from the list at p. */
static void session_drop(const struct jupyter *j, struct gateway_session **p)
{
    struct gateway_session *s = *p;
    struct err e = { 0 };
    int r = session_table_delete(j->tables, s->id, &e);

    if (r < 0 && r != -ENOENT)
        log_failure(s, "a session cannot be forgotten", &e);
    *p = s->next;
    session_free(s);
}

static int load(const struct session_row *row, void *arg)
{
    struct jupyter *j = arg;
    struct gateway_session *s = calloc(1, sizeof *s);

    if (!s)
        return -ENOMEM;
    snprintf(s->id, sizeof s->id, "%s", row->id);
    s->owner = strdup(row->owner);
    s->path = strdup(row->path);
    s->name = strdup(row->name);
    s->type = strdup(row->type);
    s->kernel = strdup(row->kernel);
    if (!s->owner || !s->path || !s->name || !s->type || !s->kernel) {
        session_free(s);
        return -ENOMEM;
    }
    s->next = j->sessions;
    j->sessions = s;
    return 0;
}

int sessions_load(struct jupyter *j, struct err *e)
{
    int r = session_table_each(j->tables, load, j, e);

    return r == -ENOMEM ? err_at(e, ENOMEM, STEP_MEMORY, 0, "sessions") : r;
}

void sessions_free(struct jupyter *j)
{
    for (struct gateway_session *s = j->sessions, *next; s; s = next) {
        next = s->next;
        session_free(s);
    }
    j->sessions = NULL;
}

void sessions_forget(struct jupyter *j, const char *owner, const char *kernel)
{
    for (struct gateway_session **p = &j->sessions; *p;) {
        struct gateway_session *s = *p;
        if (strcmp(s->kernel, kernel) == 0 && strcmp(s->owner, owner) == 0)
            session_drop(j, p);
        else
            p = &s->next;
    }
}

static json_t *model(struct gateway_request *c, const struct gateway_session *s)
{
    const struct kernel *k = kernel_find(c->front, s->owner, s->kernel);

    return json_pack("{s:s,s:s,s:s,s:s,s:o,s:{s:s,s:s}}", "id", s->id, "path", s->path, "name", s->name, "type",
                     s->type, "kernel", k ? kernel_model(k) : json_null(), "notebook", "path", s->path, "name",
                     s->name);
}

/* Drops sessions whose kernel is gone. */
static void tidy(struct gateway_request *c)
{
    struct jupyter *j = c->jupyter;

    for (struct gateway_session **p = &j->sessions; *p;) {
        struct gateway_session *s = *p;
        if (!kernel_find(c->front, s->owner, s->kernel))
            session_drop(j, p);
        else
            p = &s->next;
    }
}

static struct gateway_session *find(struct gateway_request *c, const char *id, const char *path)
{
    tidy(c);
    for (struct gateway_session *s = c->jupyter->sessions; s; s = s->next)
        if (strcmp(s->owner, c->who.name) == 0
            && ((id && strcmp(s->id, id) == 0) || (path && strcmp(s->path, path) == 0)))
            return s;
    return NULL;
}

static struct gateway_session *named(struct gateway_request *c)
{
    const char *id = http_match_get(c->match, "id").data;
    struct gateway_session *s = find(c, id, NULL);

    if (!s)
        answer_fail(c, 404, "Session does not exist: %s", id);
    return s;
}

/* ---- reading ---- */

static bool text(struct gateway_request *c, json_t *object, const char *name, const char **ret)
{
    json_t *v = json_object_get(object, name);

    if (!v || json_is_null(v))
        return true;
    if (!json_is_string(v) || json_string_length(v) > PATH_MOST) {
        answer_fail(c, 400, "%s must be a string of at most %d bytes", name, PATH_MOST);
        return false;
    }
    *ret = arena_copy(&c->r->arena, json_string_value(v), json_string_length(v));
    return true;
}

static bool read_session_request(struct gateway_request *c, json_t *root, struct session_request *d)
{
    json_t *kernel = json_object_get(root, "kernel"), *notebook = json_object_get(root, "notebook");

    return text(c, notebook, "path", &d->path) && text(c, notebook, "name", &d->name) && text(c, root, "path", &d->path)
        && text(c, root, "name", &d->name) && text(c, root, "type", &d->type) && text(c, kernel, "id", &d->kernel_id)
        && text(c, kernel, "name", &d->kernel_name);
}

static bool set(char **to, const char *value)
{
    char *copy = strdup(value);

    if (copy) {
        free(*to);
        *to = copy;
    }
    return copy != NULL;
}

/* ---- create and change ---- */

static void store(struct gateway_request *c, const struct session_request *d, const struct kernel *k)
{
    struct jupyter *j = c->jupyter;
    struct gateway_session *s = d->id ? find(c, d->id, NULL) : NULL;
    bool is_new = s == NULL;
    unsigned n = 0;

    for (const struct gateway_session *other = j->sessions; other; other = other->next)
        n += strcmp(other->owner, c->who.name) == 0;
    if (is_new && n >= SESSIONS_MOST) {
        answer_fail(c, 403, "%s has %d sessions already; end one", c->who.name, SESSIONS_MOST);
        return;
    }
    if (is_new && (s = calloc(1, sizeof *s)))
        jupyter_uuid(s->id);
    bool good = s && (!is_new || (set(&s->owner, c->who.name) && set(&s->path, "") && set(&s->name, "")
                                  && set(&s->type, "notebook")));
    good = good && (!d->path || set(&s->path, d->path)) && (!d->name || set(&s->name, d->name))
        && (!d->type || set(&s->type, d->type)) && (!k || set(&s->kernel, k->id));
    if (!good) {
        if (s && is_new)
            session_free(s);
        answer_fail(c, 503, "out of memory");
        return;
    }
    if (is_new) {
        s->next = j->sessions;
        j->sessions = s;
        const char *place = arena_printf(&c->r->arena, "/api/sessions/%s", s->id);
        if (place)
            (void)http_reply_header(c->r, "Location", place);
    }
    session_keep(j, s);
    answer_json(c, d->id ? 200 : 201, model(c, s));
}

static void on_started(struct gateway_request *c, struct kernel *k, const struct err *e, bool existed)
{
    const struct session_request *d = c->extra;

    if (!k) {
        answer_err(c, e);
        return;
    }
    /* While the kernel was made, another request may have ended the session, or made one for the same path. */
    struct gateway_session *s = d->id ? find(c, d->id, NULL) : NULL, *same = d->id ? NULL : find(c, NULL, d->path);
    bool is_late = (d->id && !s) || (same && strcmp(same->kernel, k->id) != 0);
    if (is_late && !existed)
        kernel_remove(c->jupyter, k, "its session is not there any more", NULL);
    if (same)
        answer_json(c, 201, model(c, same));
    else if (is_late)
        answer_fail(c, 404, "Session does not exist: %s", d->id);
    if (same || is_late)
        return;
    struct kernel *old = s ? kernel_find(c->front, s->owner, s->kernel) : NULL;
    struct kernel *unused = old && old != k ? old : NULL;
    if (s && unused && !set(&s->kernel, k->id))
        unused = NULL;
    if (unused)
        kernel_remove(c->jupyter, unused, "its session has another kernel now", NULL);
    store(c, d, k);
}

/* Finds or makes a kernel for the session. */
static void with_kernel(struct gateway_request *c, json_t *root, struct session_request *d)
{
    struct kernel *k = d->kernel_id ? gateway_find_kernel(c, d->kernel_id) : NULL;
    struct err e = { 0 };
    struct start_request q;

    c->extra = d;
    if (d->kernel_id && !k) {
        answer_unknown(c, d->kernel_id);
        return;
    }
    if (k) {
        on_started(c, k, NULL, true);
        return;
    }
    json_t *ask = json_object();
    if (d->kernel_name)
        json_object_set_new(ask, "name", json_string(d->kernel_name));
    if (json_object_get(root, "env"))
        json_object_set(ask, "env", json_object_get(root, "env"));
    int r = start_request_read(c->jupyter, ask, &q, &e);
    if (r < 0)
        answer_err(c, &e);
    else
        start_kernel(c, &q, on_started);
    json_decref(ask);
}

static struct session_request *session_request_new(struct gateway_request *c)
{
    struct session_request *d = arena_alloc(&c->r->arena, sizeof *d);

    if (d)
        *d = (struct session_request){ 0 };
    else
        answer_fail(c, 503, "out of memory");
    return d;
}

static void create(struct gateway_request *c, json_t *root)
{
    struct session_request *d = session_request_new(c);

    if (!d || !read_session_request(c, root, d))
        return;
    if (!d->path) {
        answer_fail(c, 400, "Missing field in JSON data: path");
        return;
    }
    struct gateway_session *s = find(c, NULL, d->path);
    if (s)
        answer_json(c, 201, model(c, s));
    else
        with_kernel(c, root, d);
}

void handle_session_create(struct gateway_request *c)
{
    gateway_body(c, create);
}

static void update(struct gateway_request *c, json_t *root)
{
    struct gateway_session *s = named(c);
    struct session_request *d = s ? session_request_new(c) : NULL;

    if (!d || !read_session_request(c, root, d))
        return;
    d->id = arena_copy(&c->r->arena, s->id, strlen(s->id));
    if (d->kernel_id || d->kernel_name)
        with_kernel(c, root, d);
    else
        store(c, d, NULL);
}

void handle_session_update(struct gateway_request *c)
{
    gateway_body(c, update);
}

/* ---- the rest ---- */

void handle_session_list(struct gateway_request *c)
{
    json_t *list = json_array();

    tidy(c);
    for (const struct gateway_session *s = c->jupyter->sessions; s; s = s->next)
        if (strcmp(s->owner, c->who.name) == 0)
            json_array_append_new(list, model(c, s));
    answer_json(c, 200, list);
}

void handle_session_get(struct gateway_request *c)
{
    const struct gateway_session *s = named(c);

    if (s)
        answer_json(c, 200, model(c, s));
}

void handle_session_delete(struct gateway_request *c)
{
    const struct gateway_session *s = named(c);
    struct kernel *k = s ? kernel_find(c->front, s->owner, s->kernel) : NULL;

    if (k)
        kernel_remove(c->jupyter, k, "the session was ended", c);
}
