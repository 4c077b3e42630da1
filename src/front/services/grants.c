#define _GNU_SOURCE
#include "front/services/grants.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/boxes/box_parts.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/identity/auth.h"
#include "front/identity/token.h"
#include "front/request/admitted.h"
#include "front/services/services.h"

static struct grant *make(struct service *s, const char *id, const struct grant_options *o)
{
    struct grant *g = calloc(1, sizeof *g);

    if (g)
        g->owner = strdup(o->owner);
    if (!g || !g->owner)
        abort();        /* as everywhere when a few bytes cannot be allocated */
    g->front = s->front;
    g->service = s;
    g->box = o->box;
    if (id)
        snprintf(g->id, sizeof g->id, "%s", id);
    else
        front_make_id('g', g->id);
    g->functions = json_incref(o->functions);
    g->created_ms = front_now_ms();
    g->expires_ms = o->expires_ms;
    g->max_calls = o->max_calls;
    LIST_ADD(s->front->grants, g);
    return g;
}

static void free_grant(struct grant *g)
{
    free(g->owner);
    json_decref(g->functions);
    free(g);
}

static void drop(struct grant *g)
{
    LIST_REMOVE(g);
    free_grant(g);
}

static int save(const struct grant *g, struct err *e)
{
    json_t *body = json_pack("{s:O?,s:s,s:I,s:I,s:I}", "functions", g->functions, "token", g->token, "created_ms",
                             (json_int_t)g->created_ms, "expires_ms", (json_int_t)g->expires_ms, "max_calls",
                             (json_int_t)g->max_calls);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct db_grant row = { .id = g->id,
                               .owner = g->owner,
                               .service = g->service->id,
                               .box = g->box ? g->box->number : 0,
                               .body = text,
                               .used = g->used };
    int r = text ? db_grant_insert(g->front->db, &row, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "grant");

    free(text);
    json_decref(body);
    return r;
}

static bool is_expired(const struct grant *g)
{
    return g->expires_ms && g->expires_ms <= front_now_ms();
}

int grant_create(struct service *s, const struct grant_options *o, char *ret_secret, struct grant **ret, struct err *e)
{
    char identity[32], token[TOKEN_ID_SIZE] = "";
    unsigned n = 0;

    ret_secret[0] = '\0';
    for (struct grant *g = s->front->grants, *next; g; g = next) {
        next = g->next;
        if (is_expired(g))
            grant_delete(g);
        else
            n += strcmp(g->owner, o->owner) == 0;
    }
    if (n >= GRANTS_PER_OWNER)
        return err_set(e, EDQUOT, STEP_USAGE, "%s may have %d grants; delete some", o->owner, GRANTS_PER_OWNER);
    /* Tokens of ended grants answer so until the next grant is made: they are never many. */
    if (!o->box && db_tokens_sweep(s->front->db, front_now_ms(), e) < 0)
        return -e->code;
    struct grant *g = make(s, NULL, o);
    snprintf(identity, sizeof identity, "grant:%s", g->id);
    int r = o->box ? 0
                   : auth_token_create(s->front->auth, identity, "grant", o->expires_ms, token, ret_secret,
                                       TOKEN_SECRET_SIZE, e);
    snprintf(g->token, sizeof g->token, "%s", token);
    if (r == 0)
        r = save(g, e);
    if (r < 0) {
        drop(g);
        return r;
    }
    *ret = g;
    return 0;
}

struct grant *grant_find(struct front *front, const char *owner, const char *id)
{
    for (struct grant *g = front->grants; g; g = g->next)
        if (strcmp(g->id, id) == 0 && (!owner || strcmp(g->owner, owner) == 0))
            return g;
    return NULL;
}

void grant_delete(struct grant *g)
{
    struct err e;

    if (g->token[0] && db_token_revoke(g->front->db, g->token, &e) < 0)
        front_log("error", "cannot revoke a grant's token", "grant", g->id, NULL);
    if (db_grant_delete(g->front->db, g->id, &e) < 0)
        front_log("error", "cannot remove a grant from the database", "grant", g->id, NULL);
    drop(g);
}

json_t *grant_json(const struct grant *g)
{
    return json_pack("{s:s,s:s,s:s,s:O?,s:s?,s:o,s:o,s:o,s:I}", "id", g->id, "owner", g->owner, "service",
                     g->service->name, "functions", g->functions, "box", g->box ? g->box->id : NULL, "created_at",
                     front_time_json(g->created_ms), "expires_at", front_time_json(g->expires_ms), "max_calls",
                     g->max_calls ? json_integer((json_int_t)g->max_calls) : json_null(), "calls",
                     (json_int_t)g->used);
}

/* ---- permission to call ---- */

static bool is_held_by(const struct grant *g, const struct grant_holder *h)
{
    return h->box ? g->box == h->box : h->id && !g->box && strcmp(g->id, h->id) == 0;
}

static bool names(const struct grant *g, const char *function)
{
    size_t i;
    json_t *one;

    if (!g->functions)
        return true;
    json_array_foreach(g->functions, i, one)
        if (strcmp(json_string_value(one), function) == 0)
            return true;
    return false;
}

static bool is_used_up(const struct grant *g)
{
    return g->max_calls && g->used >= g->max_calls;
}

int grant_check(struct front *front, const struct grant_holder *h, const char *service, const char *function,
                struct grant **ret, struct err *e)
{
    struct grant *found = NULL, *spent = NULL;

    for (struct grant *g = front->grants; g; g = g->next) {
        if (!is_held_by(g, h) || (service && strcmp(g->service->name, service) != 0) || !names(g, function) ||
            (g->service->state == SERVICE_READY && !service_function(g->service, function)))
            continue;
        if (is_expired(g) || is_used_up(g)) {
            spent = g;
            continue;
        }
        if (found && found->service != g->service)
            return err_set(e, EINVAL, STEP_USAGE, "several services have '%.40s'; \"service\" must say which",
                           function);
        found = g;
    }
    if (!found && spent)
        return err_set(e, EPERM, STEP_USAGE, is_expired(spent) ? "the grant of '%.40s' has expired"
                                                               : "the grant of '%.40s' is used up", function);
    if (!found)
        return err_set(e, ENOENT, STEP_USAGE, "there is no function '%.40s' for you here", function);
    *ret = found;
    return 0;
}

void grant_use(struct grant *g)
{
    struct err e;

    g->used++;
    /* Others are counted for display only. */
    if (g->max_calls && db_grant_used(g->front->db, g->id, (int64_t)g->used, &e) < 0)
        front_log("error", "cannot count the use of a grant", "grant", g->id, NULL);
}

json_t *grants_of(struct front *front, const struct grant_holder *h)
{
    json_t *list = json_array();

    for (struct grant *g = front->grants; g; g = g->next)
        if (is_held_by(g, h) && !is_expired(g))
            json_array_append_new(
                list, json_pack("{s:s,s:s,s:o,s:o,s:o}", "service", g->service->name, "state",
                                service_state_names[g->service->state], "functions",
                                service_functions(g->service, g->functions), "expires_at",
                                front_time_json(g->expires_ms), "calls_left",
                                g->max_calls ? json_integer((json_int_t)(g->max_calls - g->used)) : json_null()));
    return list;
}

static bool is_good_for(const struct grant *g, const struct grant_holder *h, const char *service)
{
    return is_held_by(g, h) && !is_expired(g) && strcmp(g->service->name, service) == 0;
}

bool grants_name_service(struct front *front, const struct grant_holder *h, const char *service)
{
    for (const struct grant *g = front->grants; g; g = g->next)
        if (is_good_for(g, h, service))
            return true;
    return false;
}

json_t *grants_functions(struct front *front, const struct grant_holder *h, const char *service)
{
    json_t *all = NULL, *seen = json_object(), *one;
    size_t i;

    for (struct grant *g = front->grants; g; g = g->next) {
        if (!is_good_for(g, h, service))
            continue;
        json_t *functions = service_functions(g->service, g->functions);
        all = all ? all : json_array();
        json_array_foreach(functions, i, one) {
            const char *name = json_string_value(json_object_get(one, "name"));
            if (!json_object_get(seen, name) && json_object_set_new(seen, name, json_true()) == 0)
                json_array_append(all, one);
        }
        json_decref(functions);
    }
    json_decref(seen);
    return all;
}

/* ---- the end of a service or box ---- */

void grants_on_service_end(struct service *s)
{
    for (struct grant *g = s->front->grants, *next; g; g = next) {
        next = g->next;
        if (g->service == s)
            grant_delete(g);
    }
}

/* A stopped box keeps its grants. */
static void on_box_end(struct box *box, enum phase phase, enum box_reason reason)
{
    (void)reason;
    for (struct grant *g = box->front->grants, *next; g; g = next) {
        next = g->next;
        if (g->box == box && phase != PHASE_STOPPED)
            grant_delete(g);
    }
}

const struct box_part grants_part = { .on_end = on_box_end };

static int load_one(const struct db_grant *row, void *arg)
{
    struct front *front = arg;
    json_t *body = json_loads(row->body, 0, NULL), *functions = json_object_get(body, "functions");
    struct service *s = service_by_id(front, row->service);
    struct box *box = NULL;

    for (struct box *b = front->boxes.first; b && row->box && !box; b = b->next)
        if (b->number == row->box)
            box = b;
    if (s && body && (!row->box || (box && box_is_alive(box)))) {
        struct grant_options o = { .owner = row->owner,
                                   .functions = json_is_array(functions) ? functions : NULL,
                                   .box = box,
                                   .expires_ms = json_integer_value(json_object_get(body, "expires_ms")),
                                   .max_calls = (uint64_t)json_integer_value(json_object_get(body, "max_calls")) };
        struct grant *g = make(s, row->id, &o);
        const char *token = json_string_value(json_object_get(body, "token"));
        snprintf(g->token, sizeof g->token, "%s", token ? token : "");
        g->created_ms = json_integer_value(json_object_get(body, "created_ms"));
        g->used = row->used;
    }
    json_decref(body);
    return 0;
}

int grants_load(struct front *front, struct err *e)
{
    return db_grants(front->db, load_one, front, e);
}

void grants_free(struct front *front)
{
    struct grant *g = front->grants;

    front->grants = NULL;
    while (g) {
        struct grant *next = g->next;
        free_grant(g);
        g = next;
    }
}
