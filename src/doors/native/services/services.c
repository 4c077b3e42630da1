/* /v1/services: create, read, restart, delete. The prints of module-level code can be followed while it loads. A
 * service that fails to load leaves nothing behind. */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/list.h"
#include "base/parse.h"
#include "doors/native/services/service.h"
#include "front/boxes/box_request.h"
#include "front/secrets/secret_uses.h"

enum { CREATE_BODY_MOST = 8 << 20, PATHS_MOST = 64, MODELS_MOST = 256 };

struct service *ask_service(struct ask *a, const char *name)
{
    struct service *s = service_find(a->front, a->who.name, name);

    if (!s && (a->who.scopes & SCOPE_ADMIN))
        s = service_find(a->front, NULL, name);
    if (!s)
        reply_fail(a, 404, "not_found", "there is no service '%s'", parse_quote(name).text);
    return s;
}

/* ---- what is asked for ---- */

struct service_body {
    const char *name, *box;
    json_t     *spec;           /* owned */
    json_t     *secrets, *settings;     /* ---- the body ---- */
    uint64_t    load_timeout_ms;
    bool        has_code;
};

static bool name_is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n > 0 && n <= SERVICE_NAME_MOST && !name[n] && name[0] != '.' && name[0] != '-';
}

static int take_name(const char *name, json_t *v, void *into, struct err *e)
{
    struct service_body *b = into;

    if (json_is_null(v))
        return 0;
    if (!json_is_string(v) || !name_is_plain(json_string_value(v)))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be 1 to %d letters, digits, '.', '_' and '-'", name,
                       SERVICE_NAME_MOST);
    b->name = json_string_value(v);
    return 0;
}

static int take_box(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_text(name, v, 63, &((struct service_body *)into)->box, e);
}

static int take_text(struct service_body *b, const char *name, json_t *v, size_t most, struct err *e)
{
    const char *text;
    int r = body_text(name, v, most, &text, e);

    if (r == 0 && strlen(text) != json_string_length(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must not have a NUL in it", name);
    if (r == 0)
        json_object_set(b->spec, name, v);
    return r;
}

static int take_code(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct service_body *)into)->has_code = true;
    return take_text(into, name, v, SERVICE_CODE_MOST, e);
}

static int take_filename(const char *name, json_t *v, void *into, struct err *e)
{
    const char *text = json_is_string(v) ? json_string_value(v) : "";

    if (!text[0] || strchr(text, '/') || text[0] == '.')
        return err_set(e, EINVAL, STEP_USAGE, "%s must be the name of a file, like \"interface.py\"", name);
    return take_text(into, name, v, 128, e);
}

static int take_python(const char *name, json_t *v, void *into, struct err *e)
{
    if (json_is_null(v))
        return 0;
    if (!json_is_string(v) || json_string_value(v)[0] != '/')
        return err_set(e, EINVAL, STEP_USAGE, "%s must be the path of an interpreter in the box", name);
    return take_text(into, name, v, 4095, e);
}

static int take_path(const char *name, json_t *v, void *into, struct err *e)
{
    struct service_body *b = into;
    size_t i;
    json_t *one;

    if (!json_is_array(v) || json_array_size(v) > PATHS_MOST)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of at most %d directories", name, PATHS_MOST);
    json_array_foreach(v, i, one)
        if (!json_is_string(one) || json_string_value(one)[0] != '/' || json_string_length(one) > 4095)
            return err_set(e, EINVAL, STEP_USAGE, "%s[%zu] must be an absolute path in the box", name, i);
    json_object_set(b->spec, name, v);
    return 0;
}

static int take_env(const char *name, json_t *v, void *into, struct err *e)
{
    int r = body_env(name, v, e);

    if (r == 0)
        json_object_set(((struct service_body *)into)->spec, name, v);
    return r;
}

static int take_secrets(const char *name, json_t *v, void *into, struct err *e)
{
    struct service_body *b = into;

    if (!json_is_array(v)) {
        b->secrets = v;
        return body_env(name, v, e);
    }
    int r = secret_uses_check(name, v, e);
    if (r == 0)
        json_object_set(b->spec, name, v);
    return r;
}

static int take_models(const char *name, json_t *v, void *into, struct err *e)
{
    const char *key;
    json_t *one;

    if (!json_is_object(v) || json_object_size(v) > MODELS_MOST)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an object: of each model's name, its path in the box", name);
    json_object_foreach(v, key, one)
        if (!json_is_string(one) || json_string_value(one)[0] != '/')
            return err_set(e, EINVAL, STEP_USAGE, "%s: '%s' must be an absolute path in the box", name,
                           parse_quote(key).text);
    json_object_set(((struct service_body *)into)->spec, name, v);
    return 0;
}

static int take_load_timeout(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_duration(name, v, &((struct service_body *)into)->load_timeout_ms, e);
}

static int take_settings(const char *name, json_t *v, void *into, struct err *e)
{
    if (!json_is_object(v) && !json_is_null(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an object, as of POST /v1/boxes", name);
    ((struct service_body *)into)->settings = v;
    return 0;
}

static int read_body(struct service_body *b, json_t *root, struct err *e)
{
    static const struct body_field fields[] = {
        { "name", take_name },       { "box", take_box },         { "code", take_code },
        { "filename", take_filename }, { "path", take_path },     { "env", take_env },
        { "secrets", take_secrets }, { "models", take_models },   { "load_timeout", take_load_timeout },
        { "python", take_python },   { "settings", take_settings },
    };
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, b, e);

    if (r == 0 && !b->has_code)
        r = err_set(e, EINVAL, STEP_USAGE, "code is missing: the text of the interface file");
    if (r == 0 && b->box && b->settings && !json_is_null(b->settings))
        r = err_set(e, EINVAL, STEP_USAGE, "settings are for a box that is made for the service; this one has its own");
    if (r == 0)
        r = secret_uses_check_env(json_object_get(b->spec, "secrets"), json_object_get(b->spec, "env"), e);
    if (r == 0 && !json_object_get(b->spec, "filename"))
        json_object_set_new(b->spec, "filename", json_string("interface.py"));
    return r;
}

/* ---- creating ---- */

struct creating {
    struct lines           lines;       /* first: lines.c */
    struct ask            *ask;
    struct service_watcher watcher;
    char                   id[16];      /* of the service; "": not made yet */
    char                   name[SERVICE_NAME_MOST + 1];
    json_t                *spec, *secrets;      /* owned */
    uint64_t               load_timeout_ms, own_box;
    bool                   stream;
};

static void done(struct creating *w)
{
    service_unwatch(&w->watcher);
    json_decref(w->spec);
    json_decref(w->secrets);
    w->spec = w->secrets = NULL;
}

static void drop_box(struct creating *w)
{
    struct box *box = w->own_box ? boxes_by_number(w->ask->front, w->own_box) : NULL;
    struct err ignored;

    w->own_box = 0;
    if (box)
        (void)!box_delete(box, BOX_REASON_SERVICE_FAILED, NULL, NULL, &ignored);
}

/* The client is gone and will never learn the service's name. */
static void on_end(struct ask *a, enum http_end how)
{
    struct creating *w = a->work;
    struct service *s = w->id[0] ? service_by_id(a->front, w->id) : NULL;

    (void)how;
    boxes_cancel(a->front, a);
    done(w);
    lines_done(&w->lines);
    if (s && s->state == SERVICE_LOADING)
        service_delete(s, "its creator has gone");
    else if (!s)
        drop_box(w);
}

static void put_json(struct creating *w, json_t *body)
{
    char *text = body ? json_dumps(body, ASK_DUMP) : NULL;

    json_decref(body);
    if (text)
        lines_put(&w->lines, text, strlen(text));
    free(text);
}

static void fail(struct creating *w, int status, const char *code, const char *text, json_t *details)
{
    struct ask *a = w->ask;

    done(w);
    if (w->stream) {
        put_json(w, json_pack("{s:s,s:i,s:{s:s,s:s,s:o}}", "type", "error", "status", status, "error", "code", code,
                              "message", text, "details", details ? details : json_object()));
        lines_end(&w->lines);
        return;
    }
    a->on_end = NULL;
    error_reply(a->r, status, code, text, details);
}

static void refuse(struct creating *w, const struct err *e)
{
    char text[512];
    const char *code;
    int status = error_status(e, &code);

    err_text(e, text, sizeof text);
    drop_box(w);
    fail(w, status, code, text, NULL);
}

static void on_print(struct service_watcher *watcher, const char *stream, struct jsonslice text)
{
    struct creating *w = container_of(watcher, struct creating, watcher);

    if (w->stream)
        lines_print(&w->lines, stream, text);
}

static const char *failure_code(const struct service *s)
{
    return s->interpreter_failed ? "interpreter_failed" : "load_failed";
}

static void on_state(struct service_watcher *watcher, struct service *s)
{
    struct creating *w = container_of(watcher, struct creating, watcher);
    struct ask *a = w->ask;

    if (s->state == SERVICE_LOADING)
        return;
    if (s->state == SERVICE_DEAD) {
        char text[640];
        const char *said = json_string_value(json_object_get(s->error, "message"));
        const char *type = json_string_value(json_object_get(s->error, "type"));
        if (s->interpreter_failed)
            snprintf(text, sizeof text, "%s", s->reason);
        else
            snprintf(text, sizeof text, "the interface could not be loaded: %s%s%s", type ? type : "",
                     type ? ": " : "", said ? said : s->reason);
        const char *code = failure_code(s);
        json_t *details = json_incref(s->error);
        if (s->outcome && json_is_object(details))
            json_object_set_new(details, "outcome", json_string(outcome_name(s->outcome)));
        service_unwatch(watcher);
        service_delete(s, "it could not be loaded");
        fail(w, 422, code, text, details);
        return;
    }
    json_t *shown = service_json(s);
    done(w);
    if (w->stream) {
        json_object_set_new(shown, "type", json_string("service"));
        put_json(w, shown);
        lines_end(&w->lines);
        return;
    }
    a->on_end = NULL;
    reply_json(a, 201, shown);
}

static void go(struct creating *w, struct box *box)
{
    struct service_options o = { .name = w->name, .spec = w->spec, .secrets = w->secrets, .own_box = w->own_box != 0,
                                 .load_timeout_ms = w->load_timeout_ms };
    struct service *s = NULL;
    struct err e = { 0 };

    if (service_create(box, &o, &s, &e) < 0) {
        refuse(w, &e);
        return;
    }
    snprintf(w->id, sizeof w->id, "%s", s->id);
    w->watcher.on_print = on_print;
    w->watcher.on_state = on_state;
    service_watch(s, &w->watcher);
}

static void on_made(struct box *box, const struct err *e, void *arg)
{
    struct creating *w = ((struct ask *)arg)->work;

    if (e)
        refuse(w, e);
    else
        go(w, box);
}

static int make_box(struct creating *w, json_t *settings, struct err *e)
{
    struct ask *a = w->ask;
    struct box_request c = { .front = a->front, .who = &a->who, .r = a->r };
    json_t *own = json_is_object(settings) ? json_incref(settings) : json_object();
    struct box *box = NULL;
    bool existed;

    int r = box_request_read(&c, own, e);
    if (r == 0)
        box_mounts_want_template(&c.settings.mounts);
    if (r == 0)
        r = boxes_create(a->front, a->who.name, a->who.uid, a->who.gid, c.name, NULL, &c.settings, on_made, a, &box,
                         &existed, e);
    json_decref(own);
    w->own_box = box ? box->number : 0;
    return r;
}

static struct box *find_box(struct ask *a, const char *id)
{
    struct box *box = boxes_find(a->front, a->who.name, id);

    if (!box && (a->who.scopes & SCOPE_ADMIN))
        box = boxes_find(a->front, NULL, id);
    return box;
}

static void create(struct ask *a, json_t *root)
{
    struct service_body b = { .spec = json_object() };
    struct creating *w = arena_alloc(&a->r->arena, sizeof *w);
    struct err e = { 0 };

    if (!w || !b.spec) {
        json_decref(b.spec);
        http_request_abort(a->r);
        return;
    }
    int r = read_body(&b, root, &e);
    struct box *box = r == 0 && b.box ? find_box(a, b.box) : NULL;
    if (r == 0 && b.box && !box)
        r = err_set(&e, ENOENT, STEP_USAGE, "there is no box '%s'", parse_quote(b.box).text);
    struct service *old = r == 0 && b.name ? service_find(a->front, box ? box->owner : a->who.name, b.name) : NULL;
    if (old && !service_is_lost(old))
        r = err_set(&e, EEXIST, STEP_USAGE, "there is a service '%s' already", b.name);
    if (r < 0) {
        json_decref(b.spec);
        reply_err(a, &e);
        return;
    }
    *w = (struct creating){ .ask = a, .spec = b.spec, .secrets = json_incref(b.secrets),
                            .load_timeout_ms = b.load_timeout_ms, .stream = ask_accepts(a, "application/x-ndjson") };
    if (b.name)
        snprintf(w->name, sizeof w->name, "%s", b.name);
    else
        front_make_id('s', w->name);
    a->work = w;
    a->on_end = on_end;
    if (w->stream && !lines_start(&w->lines, a))
        return;
    if (box)
        go(w, box);
    else if (make_box(w, b.settings, &e) < 0)
        refuse(w, &e);
}

void ask_service_create(struct ask *a)
{
    body_json(a, CREATE_BODY_MOST, create);
}

/* ---- the rest ---- */

void ask_service_list(struct ask *a)
{
    json_t *list = json_array();

    for (struct service *s = a->front->services; s; s = s->next)
        if (strcmp(s->owner, a->who.name) == 0 || (a->who.scopes & SCOPE_ADMIN))
            json_array_append_new(list, service_json(s));
    reply_json(a, 200, json_pack("{s:o}", "services", list));
}

void ask_service_get(struct ask *a)
{
    struct service *s = ask_service(a, http_match_get(a->match, "service").data);

    if (s)
        reply_json(a, 200, service_json(s));
}

void ask_service_calls(struct ask *a)
{
    struct service *s = ask_service(a, http_match_get(a->match, "service").data);

    if (s)
        reply_json(a, 200, json_pack("{s:o}", "calls", service_log(s)));
}

void ask_service_delete(struct ask *a)
{
    struct service *s = ask_service(a, http_match_get(a->match, "service").data);

    if (!s)
        return;
    service_delete(s, "it was deleted");
    reply_none(a);
}

/* A restart is over when the interface is loaded again, or has failed. */
struct restarting {
    struct service_watcher watcher;
    struct ask            *ask;
};

static void restart_on_end(struct ask *a, enum http_end how)
{
    (void)how;
    service_unwatch(&((struct restarting *)a->work)->watcher);
}

static void restart_on_state(struct service_watcher *watcher, struct service *s)
{
    struct restarting *w = container_of(watcher, struct restarting, watcher);
    struct ask *a = w->ask;

    if (s->state == SERVICE_LOADING)
        return;
    service_unwatch(watcher);
    a->on_end = NULL;
    if (s->state == SERVICE_READY)
        reply_json(a, 200, service_json(s));
    else
        error_reply(a->r, 422, failure_code(s), s->reason, json_incref(s->error));
}

void ask_service_restart(struct ask *a)
{
    struct service *s = ask_service(a, http_match_get(a->match, "service").data);
    struct restarting *w = s ? arena_alloc(&a->r->arena, sizeof *w) : NULL;
    struct err e = { 0 };

    if (!s)
        return;
    if (!w) {
        http_request_abort(a->r);
        return;
    }
    *w = (struct restarting){ .ask = a, .watcher.on_state = restart_on_state };
    if (service_restart(s, &e) < 0) {
        reply_err(a, &e);
        return;
    }
    if (s->state == SERVICE_DEAD) {     /* the restart could not even begin */
        error_reply(a->r, 422, failure_code(s), s->reason, json_incref(s->error));
        return;
    }
    a->work = w;
    a->on_end = restart_on_end;
    service_watch(s, &w->watcher);
}
