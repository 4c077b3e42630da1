/* A door of its own, as somebody who adds one writes it: POST /bell rings, GET /bell tells who rang, GET /bell/events
 * tells it as it happens. The setting bell.most bounds what a ring may say, bell.socket and bell.listen say where there
 * is nothing but the bell, and the rings are kept in a table, so that another front knows them. */
#include "bell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/front.h"
#include "front/identity/caller.h"
#include "front/request/body.h"
#include "front/request/error.h"
#include "front/request/event_stream.h"
#include "front/request/fields.h"

enum { BODY_MOST = 65536 };

/* ---- settings ---- */

struct bell_config {
    uint32_t most;
    char     socket[108], listen[128];
};

static const struct bell_config defaults = { .most = 16 };
static const struct config_key keys[] = {
    { "bell.most", KIND_COUNT, CONFIG_AT(struct bell_config, most), 1, 1000, NULL },
    { "bell.socket", KIND_PATH, CONFIG_AT(struct bell_config, socket), 0, 0, NULL },
    { "bell.listen", KIND_LISTEN, CONFIG_AT(struct bell_config, listen), 0, 0, NULL },
};
static const struct config_section settings = { "bell", keys, sizeof keys / sizeof *keys, &defaults, sizeof defaults };

static const char *listen_at(const void *config)
{
    const struct bell_config *c = config;
    return c->socket[0] ? c->socket : c->listen;
}

/* ---- the table ---- */

enum { RING, RINGS, LAST };

static const char *const scripts[] = {
    "CREATE TABLE bell_rings (number INTEGER PRIMARY KEY AUTOINCREMENT, who TEXT NOT NULL, text TEXT NOT NULL) STRICT",
};
static const char *const statements[] = {
    [RING] = "INSERT INTO bell_rings (who, text) VALUES (?1, ?2)",
    [RINGS] = "SELECT number, who, text FROM bell_rings WHERE who = ?1 ORDER BY number",
    [LAST] = "SELECT max(number) FROM bell_rings",
};
static const struct db_schema schema = { "bell", scripts, 1, statements, sizeof statements / sizeof *statements };

/* ---- the door ---- */

struct bell {
    struct listener *listeners;
};

struct listener {
    struct listener    *next, **back;
    struct event_stream stream;
    struct identity     who;
};

/* A request that was let in. */
struct ring {
    struct open_door *door;
    EMBED_ADMITTED;
};

static struct ring *let_in(struct open_door *door, struct http_request *r, unsigned scope)
{
    struct ring *ring = arena_alloc(&r->arena, sizeof *ring);
    struct refusal why;

    if (!ring) {
        http_request_abort(r);
        return NULL;
    }
    *ring = (struct ring){ .door = door, .front = door->front, .r = r };
    r->owner = ring;
    if (caller_admit(&ring->in, scope, &why))
        return ring;
    error_reply(r, why.status, why.code, why.why, NULL);
    return NULL;
}

static void reply(struct http_request *r, int status, json_t *body)
{
    char *text = json_dumps(body, JSON_COMPACT);

    json_decref(body);
    if (!text || http_reply(r, status, "application/json", text, strlen(text)) < 0)
        http_request_abort(r);
    free(text);
}

static int take_number(const struct db_row *row, void *arg)
{
    *(int64_t *)arg = db_row_number(row, 0);
    return 0;
}

static void tell(const struct bell *bell, const char *who, int64_t number, const char *text)
{
    json_t *value = json_string(text);
    char *data = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

    for (struct listener *l = bell->listeners; l && data; l = l->next)
        if (strcmp(l->who.name, who) == 0)
            (void)!event_stream_send(&l->stream, (uint64_t)number, "ring", data, strlen(data));
    json_decref(value);
    free(data);
}

static int take_text(const char *name, json_t *v, void *into, struct err *e)
{
    struct { const char *text; uint32_t most; } *to = into;

    return body_text(name, v, to->most, &to->text, e);
}

static void on_json(void *owner, json_t *root)
{
    static const struct body_field fields[] = { { "text", take_text } };
    struct ring *ring = owner;
    const struct bell_config *config = ring->door->config;
    struct { const char *text; uint32_t most; } body = { "", config->most };
    struct err e = { 0 };
    int64_t number = 0;

    int r = body_fields(root, "", fields, 1, &body, &e);
    if (r == 0)
        r = db_tables_change(ring->door->tables, RING, &e, "ss", ring->who.name, body.text);
    if (r == 0)
        r = db_tables_each(ring->door->tables, LAST, take_number, &number, &e, "");
    if (r < 0) {
        error_reply_err(ring->r, &e, NULL);
        return;
    }
    tell(ring->door->state, ring->who.name, number, body.text);
    reply(ring->r, 201, json_pack("{s:I}", "number", (json_int_t)number));
}

static void on_fail(void *owner, int status, const char *code, const char *why)
{
    error_reply(((struct ring *)owner)->r, status, code, why, NULL);
}

static void handle_ring(struct http_request *r, const struct http_match *m, void *owner)
{
    static const struct body_reader reader = { .on_json = on_json, .on_fail = on_fail };

    (void)m;
    if (let_in(owner, r, SCOPE_WRITE))
        body_read(r, BODY_MOST, &reader);
}

static int add_ring(const struct db_row *row, void *arg)
{
    return json_array_append_new(arg, json_pack("{s:I,s:s}", "number", (json_int_t)db_row_number(row, 0), "text",
                                                db_row_text(row, 2)));
}

static void handle_list(struct http_request *r, const struct http_match *m, void *owner)
{
    struct ring *ring = let_in(owner, r, SCOPE_READ);
    struct err e = { 0 };
    json_t *list;

    (void)m;
    if (!ring)
        return;
    list = json_array();
    if (db_tables_each(ring->door->tables, RINGS, add_ring, list, &e, "s", ring->who.name) < 0) {
        json_decref(list);
        error_reply_err(r, &e, NULL);
        return;
    }
    reply(r, 200, json_pack("{s:o}", "rings", list));
}

static void listener_gone(struct http_request *r, enum http_end how)
{
    struct listener *l = r->owner;

    (void)how;
    LIST_REMOVE(l);
    event_stream_done(&l->stream);
}

static void handle_events(struct http_request *r, const struct http_match *m, void *owner)
{
    struct open_door *door = owner;
    struct bell *bell = door->state;
    struct ring *ring = let_in(door, r, SCOPE_READ);
    struct listener *l = ring ? arena_alloc(&r->arena, sizeof *l) : NULL;

    (void)m;
    if (!l)
        return;
    *l = (struct listener){ .who = ring->who };
    if (!event_stream_start(&l->stream, r))
        return;
    LIST_ADD(bell->listeners, l);
    r->owner = l;
    r->on_end = listener_gone;
}

static const struct http_route routes[] = {
    { "POST", "/bell", handle_ring },
    { "GET", "/bell", handle_list },
    { "GET", "/bell/events", handle_events },
};

static int open_bell(struct open_door *d, struct err *e)
{
    d->state = calloc(1, sizeof(struct bell));
    return d->state ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "the bell");
}

static void close_bell(struct open_door *d)
{
    free(d->state);
}

static const char *const under[] = { "/bell", NULL };

const struct door bell_door = {
    .name = "bell",
    .under = under,
    .config = &settings,
    .schema = &schema,
    .routes = routes,
    .n_routes = sizeof routes / sizeof *routes,
    .listen = listen_at,
    .open = open_bell,
    .close = close_bell,
};
