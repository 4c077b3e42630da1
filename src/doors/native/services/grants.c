/* /v1/grants: makes and lists the rights to call functions. calls.c has the calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "doors/native/services/service.h"
#include "front/boxes/box_text.h"
#include "front/identity/token.h"
#include "front/services/inlets.h"

enum { NAMES_MOST = 1024 };

struct grant_body {
    const char *service, *box;
    json_t     *functions;
    uint64_t    expires_in_ms, max_calls;
};

static int take_service(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, 79, &((struct grant_body *)into)->service, e);
}

static int take_box(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_text(name, v, 63, &((struct grant_body *)into)->box, e);
}

static int take_functions(const char *name, json_t *v, void *into, struct err *e)
{
    size_t i;
    json_t *one;

    if (json_is_null(v))
        return 0;
    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > NAMES_MOST)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of names, or null for all", name);
    json_array_foreach(v, i, one)
        if (!json_is_string(one))
            return err_set(e, EINVAL, STEP_USAGE, "%s[%zu] must be a string", name, i);
    ((struct grant_body *)into)->functions = v;
    return 0;
}

static int take_expires(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_duration(name, v, &((struct grant_body *)into)->expires_in_ms, e);
}

static int take_max_calls(const char *name, json_t *v, void *into, struct err *e)
{
    uint32_t n = 0;
    int r = json_is_null(v) ? 0 : body_count(name, v, 1, UINT32_MAX - 1, &n, e);

    ((struct grant_body *)into)->max_calls = n;
    return r;
}

struct granting {
    char id[16];
};

static void on_end(struct ask *a, enum http_end how)
{
    (void)how;
    inlets_cancel(a->front, a);
}

static void on_inlet(struct box *box, const struct err *e, void *arg)
{
    struct ask *a = arg;
    struct granting *w = a->work;
    struct grant *g = grant_find(a->front, NULL, w->id);

    (void)box;
    a->on_end = NULL;
    if (e && g)
        grant_delete(g);
    if (e)
        reply_err(a, e);
    else if (!g)
        reply_fail(a, 409, "ended", "the service or the box has gone meanwhile");
    else
        reply_json(a, 201, grant_json(g));
}

/* A name that the service lacks is most likely misspelt. */
static int check_names(const struct service *s, const json_t *names, struct err *e)
{
    size_t i;
    json_t *one;

    json_array_foreach(names, i, one)
        if (!service_function(s, json_string_value(one)))
            return err_set(e, EINVAL, STEP_USAGE, "functions[%zu]: the service has no '%s'", i,
                           parse_quote(json_string_value(one)).text);
    return 0;
}

static void give(struct ask *a, struct grant *g, char *secret)
{
    json_t *shown = grant_json(g);

    json_object_set_new(shown, "token", json_string(secret));
    explicit_bzero(secret, TOKEN_SECRET_SIZE);
    (void)http_reply_header(a->r, "Cache-Control", "no-store");
    reply_json(a, 201, shown);
}

static int read_grant(struct ask *a, json_t *root, struct grant_body *b, struct service **ret_service,
                      struct box **ret_box, struct err *e)
{
    static const struct body_field fields[] = { { "service", take_service },
                                                { "box", take_box },
                                                { "functions", take_functions },
                                                { "expires_in", take_expires },
                                                { "max_calls", take_max_calls } };
    bool is_admin = a->who.scopes & SCOPE_ADMIN;
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, b, e);

    if (r < 0)
        return r;
    if (!b->service)
        return err_set(e, EINVAL, STEP_USAGE, "service is missing: name the service whose functions may be called");
    struct service *s = service_find(a->front, a->who.name, b->service);
    struct box *box = b->box ? boxes_find(a->front, a->who.name, b->box) : NULL;
    if (!s && is_admin)
        s = service_find(a->front, NULL, b->service);
    if (b->box && !box && is_admin)
        box = boxes_find(a->front, NULL, b->box);
    if (!s)
        return err_set(e, ENOENT, STEP_USAGE, "there is no service '%s'", parse_quote(b->service).text);
    if (b->box && !box)
        return err_set(e, ENOENT, STEP_USAGE, "there is no box '%s'", parse_quote(b->box).text);
    if (box && box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box %s; only a running one can be given a grant",
                       box_show_state(box).text);
    *ret_service = s;
    *ret_box = box;
    return check_names(s, b->functions, e);
}

static void create(struct ask *a, json_t *root)
{
    struct grant_body b = { 0 };
    struct granting *w = arena_alloc(&a->r->arena, sizeof *w);
    char secret[TOKEN_SECRET_SIZE];
    struct service *s = NULL;
    struct box *box = NULL;
    struct grant *g = NULL;
    struct err e = { 0 };

    if (!w) {
        http_request_abort(a->r);
        return;
    }
    int r = read_grant(a, root, &b, &s, &box, &e);
    struct grant_options o = { .owner = a->who.name,
                               .functions = b.functions,
                               .box = box,
                               .expires_ms = b.expires_in_ms ? front_now_ms() + (int64_t)b.expires_in_ms : 0,
                               .max_calls = b.max_calls };
    if (r == 0)
        r = grant_create(s, &o, secret, &g, &e);
    if (r < 0) {
        reply_err(a, &e);
        return;
    }
    if (!box) {
        give(a, g, secret);
        return;
    }
    snprintf(w->id, sizeof w->id, "%s", g->id);
    a->work = w;
    a->on_end = on_end;
    if (inlet_open(box, on_inlet, a) > 0)
        on_inlet(box, NULL, a);
}

void ask_grant_create(struct ask *a)
{
    body_json(a, BODY_SMALL, create);
}

void ask_grant_list(struct ask *a)
{
    json_t *list = json_array();

    for (struct grant *g = a->front->grants; g; g = g->next)
        if (strcmp(g->owner, a->who.name) == 0 || (a->who.scopes & SCOPE_ADMIN))
            json_array_append_new(list, grant_json(g));
    reply_json(a, 200, json_pack("{s:o}", "grants", list));
}

void ask_grant_delete(struct ask *a)
{
    const char *owner = a->who.scopes & SCOPE_ADMIN ? NULL : a->who.name;
    const char *id = http_match_get(a->match, "grant").data;
    struct grant *g = grant_find(a->front, owner, id);

    if (!g) {
        reply_fail(a, 404, "not_found", "there is no grant '%s'", parse_quote(id).text);
        return;
    }
    grant_delete(g);
    reply_none(a);
}
