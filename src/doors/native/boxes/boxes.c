/* /v1/boxes: create, read, change, delete. Requests that need the keeper are answered from its callback; a client that
 * goes away meanwhile only loses the answer. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "base/jsonout.h"
#include "base/parse.h"
#include "doors/native/door.h"
#include "front/boxes/box_request.h"
#include "front/net/net.h"

enum { LIST_DEFAULT = 100, LIST_MAX = 1000, LIST_BYTES_MAX = 64 << 20, FILTERS_MAX = 16, KEY_MAX = 128 };

static void forget_calls(struct ask *a, enum http_end how)
{
    (void)how;
    boxes_cancel(a->front, a);
}

/* ---- create ---- */

static void on_created(struct box *box, const struct err *e, void *arg)
{
    struct ask *a = arg;
    char text[512];
    const char *code;

    a->on_end = NULL;
    if (!e) {
        reply_box(a, 201, box);
        return;
    }
    err_text(e, text, sizeof text);
    int status = error_status(e, &code);
    error_reply(a->r, status, code, text, json_pack("{s:s}", "box", box->id));
}

static const char *read_key(struct ask *a, bool *ret_good)
{
    struct http_text key = http_head_get(&a->r->head, "Idempotency-Key");

    *ret_good = true;
    if (!key.data)
        return NULL;
    *ret_good = key.size > 0 && key.size <= KEY_MAX;
    for (size_t i = 0; i < key.size && *ret_good; i++)
        *ret_good = key.data[i] > 0x20 && key.data[i] < 0x7f;
    if (!*ret_good)
        reply_fail(a, 400, "invalid", "Idempotency-Key must be 1 to %d printable characters without blanks", KEY_MAX);
    return *ret_good ? arena_copy(&a->r->arena, key.data, key.size) : NULL;
}

static void create(struct ask *a, json_t *root)
{
    static const char *const known[] = { "wait", NULL };
    struct box_request c = { .front = a->front, .who = &a->who, .r = a->r };
    struct box *box = NULL;
    struct err e = { 0 };
    bool wait = true, existed = false, good;

    if (!query_only(a, known) || !query_bool(a, "wait", &wait))
        return;
    const char *key = read_key(a, &good);
    if (!good)
        return;
    int r = box_request_read(&c, root, &e);
    if (r == 0)
        r = boxes_create(a->front, a->who.name, a->who.uid, a->who.gid, c.name, key, &c.settings,
                         wait ? on_created : NULL, a, &box, &existed, &e);
    if (r < 0) {
        reply_err(a, &e);
        return;
    }
    const char *place = arena_printf(&a->r->arena, "/v1/boxes/%s", box->id);
    if (place)
        (void)http_reply_header(a->r, "Location", place);
    if (existed)
        (void)http_reply_header(a->r, "Idempotency-Replayed", "true");
    if (existed && box->phase != PHASE_CREATING)
        reply_box(a, 200, box);
    else if (!wait)
        reply_box(a, 202, box);
    else
        a->on_end = forget_calls;
}

void ask_box_create(struct ask *a)
{
    body_json(a, 2 * BODY_SMALL * 4, create);
}

/* ---- list ---- */

struct filter {
    bool        all;
    uint32_t    phases;         /* bit per phase; 0: all but deleted */
    uint64_t    cursor, limit;
    size_t      n_labels;
    const char *label[FILTERS_MAX], *value[FILTERS_MAX];       /* value NULL: any value */
};

static bool add_label(struct ask *a, struct filter *f, const char *text)
{
    const char *equals = strchr(text, '=');

    if (f->n_labels == FILTERS_MAX || !text[0] || equals == text) {
        reply_fail(a, 400, "invalid", "?label= wants NAME or NAME=VALUE, at most %d times", FILTERS_MAX);
        return false;
    }
    f->label[f->n_labels] = arena_copy(&a->r->arena, text, equals ? (size_t)(equals - text) : strlen(text));
    f->value[f->n_labels++] = equals ? equals + 1 : NULL;
    return true;
}

static bool add_phase(struct ask *a, struct filter *f, const char *text)
{
    for (unsigned i = 0; i < PHASE_COUNT; i++)
        if (strcmp(text, phase_names[i]) == 0) {
            f->phases |= 1u << i;
            return true;
        }
    reply_fail(a, 400, "invalid", "there is no phase '%s'", parse_quote(text).text);
    return false;
}

static bool read_filter(struct ask *a, struct filter *f)
{
    static const char *const known[] = { "label", "phase", "limit", "cursor", "all", NULL };
    struct http_text query = a->r->head.query, name, raw, value;

    *f = (struct filter){ .limit = LIST_DEFAULT, .cursor = UINT64_MAX };
    if (!query_only(a, known) || !query_bool(a, "all", &f->all) || !query_number(a, "limit", LIST_MAX, &f->limit)
        || !query_number(a, "cursor", INT64_MAX, &f->cursor))
        return false;
    if (f->limit == 0)
        f->limit = LIST_DEFAULT;
    while (query.data && http_query_next(&query, &name, &raw)) {
        bool is_label = http_text_is(name, "label"), is_phase = http_text_is(name, "phase");
        if (!is_label && !is_phase)
            continue;
        if (http_unescape(&a->r->arena, raw, true, &value) < 0) {
            reply_fail(a, 400, "invalid", "the query cannot be decoded");
            return false;
        }
        if (is_label ? !add_label(a, f, value.data) : !add_phase(a, f, value.data))
            return false;
    }
    if (f->all && !(a->who.scopes & SCOPE_ADMIN)) {
        reply_fail(a, 403, "forbidden", "?all=true is for admins");
        return false;
    }
    return true;
}

static bool matches(const struct ask *a, const struct filter *f, const struct box *b)
{
    if (b->number >= f->cursor || (!f->all && strcmp(b->owner, a->who.name) != 0))
        return false;
    if (f->phases ? !(f->phases >> b->phase & 1) : b->phase == PHASE_DELETED)
        return false;
    for (size_t i = 0; i < f->n_labels; i++) {
        const char *value = json_string_value(json_object_get(b->settings.labels, f->label[i]));
        if (!value || (f->value[i] && strcmp(value, f->value[i]) != 0))
            return false;
    }
    return true;
}

void ask_box_list(struct ask *a)
{
    struct filter f;
    struct buf out;
    uint64_t n = 0, last = 0;
    bool more = false;

    if (!read_filter(a, &f))
        return;
    buf_init(&out, LIST_BYTES_MAX);
    buf_add_text(&out, "{\"boxes\":[");
    for (struct box *b = a->front->boxes.first; b && !more; b = b->next) {
        size_t size;
        if (!matches(a, &f, b))
            continue;
        if (n == f.limit) {
            more = true;
            break;
        }
        const char *text = shown_box(a->native, b, &size);
        if (n++)
            buf_add_char(&out, ',');
        buf_add(&out, text ? text : "null", text ? size : 4);
        last = b->number;
    }
    if (more)
        buf_printf(&out, "],\"next\":\"%llu\"}", (unsigned long long)last);
    else
        buf_add_text(&out, "],\"next\":null}");
    reply_buf(a, 200, &out);
}

void ask_box_get(struct ask *a)
{
    reply_box(a, 200, a->box);
}

/* ---- change ---- */

struct patch {
    const struct ask   *ask;
    struct limits limits;
    bool                has_limits, has_ttl, has_idle, has_net;
    json_t             *net;        /* owned until it is passed on; NULL: none */
    json_t             *labels;     /* borrowed */
    uint32_t            ttl_s, idle_s;
};

static int patch_limits(const char *name, json_t *v, void *into, struct err *e)
{
    struct patch *p = into;

    (void)name;
    p->has_limits = true;
    return box_request_live_limits(&p->ask->front->config, v, &p->limits, e);
}

static int patch_labels(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct patch *)into)->labels = v;
    return body_labels(name, v, e);
}

static int patch_seconds(const char *name, json_t *v, uint32_t *into, bool *has, struct err *e)
{
    uint64_t ms = 0;
    int r = json_is_null(v) ? 0 : body_duration(name, v, &ms, e);

    *into = (uint32_t)((ms + 999) / 1000);
    *has = true;
    return r;
}

static int patch_ttl(const char *name, json_t *v, void *into, struct err *e)
{
    struct patch *p = into;
    return patch_seconds(name, v, &p->ttl_s, &p->has_ttl, e);
}

static int patch_idle(const char *name, json_t *v, void *into, struct err *e)
{
    struct patch *p = into;
    return patch_seconds(name, v, &p->idle_s, &p->has_idle, e);
}

static int patch_net(const char *name, json_t *v, void *into, struct err *e)
{
    struct patch *p = into;

    p->has_net = true;
    return net_take(&p->ask->front->config, name, v, &p->net, e);
}

static void on_changed(struct box *box, const struct err *e, void *arg)
{
    struct ask *a = arg;

    a->on_end = NULL;
    if (e)
        reply_err(a, e);
    else
        reply_box(a, 200, box);
}

static void finish(struct ask *a, int r, const struct err *e)
{
    if (r < 0)
        reply_err(a, e);
    else
        a->on_end = forget_calls;
}

static void update(struct ask *a, json_t *root)
{
    static const struct body_field fields[] = {
        { "limits", patch_limits }, { "labels", patch_labels }, { "ttl", patch_ttl }, { "idle_timeout", patch_idle },
        { "net", patch_net },
    };
    struct patch p = { .ask = a };
    struct err e = { 0 };
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, &p, &e);

    bool has_other = p.has_limits || p.labels || p.has_ttl || p.has_idle;
    if (r == 0 && p.has_net && has_other)
        r = err_set(&e, EINVAL, STEP_USAGE, "change net in a request of its own");
    if (r == 0 && p.has_net)
        r = box_update_net(a->box, json_incref(p.net), on_changed, a, &e);
    else if (r == 0)
        r = box_update(a->box, p.has_limits ? &p.limits : NULL, p.labels, p.has_ttl ? &p.ttl_s : NULL,
                       p.has_idle ? &p.idle_s : NULL, on_changed, a, &e);
    json_decref(p.net);
    finish(a, r, &e);
}

void ask_box_update(struct ask *a)
{
    body_json(a, BODY_SMALL, update);
}

static void pause_box(struct ask *a, bool pause)
{
    struct err e = { 0 };

    if (a->box->phase == (pause ? PHASE_PAUSED : PHASE_RUNNING)) {
        reply_box(a, 200, a->box);
        return;
    }
    finish(a, box_pause(a->box, pause, on_changed, a, &e), &e);
}

void ask_box_pause(struct ask *a)
{
    pause_box(a, true);
}

void ask_box_resume(struct ask *a)
{
    pause_box(a, false);
}

void ask_box_stop(struct ask *a)
{
    struct err e = { 0 };

    if (a->box->phase == PHASE_STOPPED) {
        reply_box(a, 200, a->box);
        return;
    }
    finish(a, box_stop(a->box, BOX_REASON_ASKED, on_changed, a, &e), &e);
}

static void start(struct ask *a, json_t *root)
{
    struct box_request c = { .front = a->front, .who = &a->who, .r = a->r };
    struct err e = { 0 };
    int r = box_request_read_mounts(&c, root, &e);

    /* The owner chose which paths a client opens for this box; an admin's client would open them with more rights. */
    if (r == 0 && c.settings.mounts.n && strcmp(a->box->owner, a->who.name) != 0)
        r = err_set(&e, EPERM, STEP_USAGE, "only the owner of this box can mount its folders again: %s",
                    a->box->owner);
    if (r == 0 && a->box->phase == PHASE_RUNNING) {
        reply_box(a, 200, a->box);
    } else {
        if (r == 0)
            r = box_start(a->box, &c.settings.mounts, on_changed, a, &e);
        finish(a, r, &e);
    }
    box_settings_done(&c.settings);
}

void ask_box_start(struct ask *a)
{
    body_json(a, BODY_SMALL, start);
}

static void on_deleted(struct box *box, const struct err *e, void *arg)
{
    struct ask *a = arg;

    (void)box;
    a->on_end = NULL;
    if (e)
        reply_err(a, e);
    else
        reply_none(a);
}

void ask_box_delete(struct ask *a)
{
    static const char *const known[] = { "wait", NULL };
    struct err e = { 0 };
    bool wait = true;

    if (!query_only(a, known) || !query_bool(a, "wait", &wait))
        return;
    if (a->box->phase == PHASE_DELETED) {
        reply_none(a);
        return;
    }
    int r = box_delete(a->box, BOX_REASON_ASKED, wait ? on_deleted : NULL, a, &e);
    if (r == 0 && !wait)
        reply_box(a, 202, a->box);
    else
        finish(a, r, &e);
}

/* ---- usage ---- */

/* null: nothing counts it. */
static void add_count(struct jsonout *j, const struct frame_usage *u, enum usage_measured part, const char *name,
                      uint64_t count)
{
    if (u->measured & part)
        jsonout_unsigned(j, name, count);
    else
        jsonout_null(j, name);
}

static void on_usage(struct box *box, const struct frame_usage *u, const struct err *e, void *arg)
{
    struct ask *a = arg;
    struct buf out;
    struct jsonout j;

    a->on_end = NULL;
    if (e) {
        reply_err(a, e);
        return;
    }
    buf_init(&out, 4096);
    jsonout_init(&j, &out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "box", box->id);
    add_count(&j, u, USAGE_MEMORY, "memory_bytes", u->memory_bytes);
    add_count(&j, u, USAGE_MEMORY, "memory_peak_bytes", u->memory_peak_bytes);
    jsonout_unsigned(&j, "disk_bytes", u->disk_bytes);
    if (u->measured & USAGE_CPU)
        jsonout_decimal(&j, "cpu_ms", u->cpu_us, 3);
    else
        jsonout_null(&j, "cpu_ms");
    add_count(&j, u, USAGE_PIDS, "pids", u->pids);
    add_count(&j, u, USAGE_PIDS_PEAK, "pids_peak", u->pids_peak);
    add_count(&j, u, USAGE_MEMORY, "oom_kills", u->oom_kills);
    add_count(&j, u, USAGE_PIDS, "pids_refused", u->pids_refused);
    jsonout_bool(&j, "disk_full", u->disk_full);
    jsonout_unsigned(&j, "execs_running", box->running);
    net_hear(a->front);
    net_box_usage(box, &j);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out.failure = ENOMEM;
    reply_buf(a, 200, &out);
}

static void on_net(struct box *box, json_t *shown, const struct err *e, void *arg)
{
    struct ask *a = arg;

    (void)box;
    a->on_end = NULL;
    if (e)
        reply_err(a, e);
    else
        reply_json(a, 200, shown);
}

static void forget_net(struct ask *a, enum http_end end)
{
    (void)end;
    net_cancel(a->front, a);
}

void ask_box_net(struct ask *a)
{
    struct err e = { 0 };
    int r = net_box_show(a->box, on_net, a, &e);

    if (r < 0)
        reply_err(a, &e);
    else
        a->on_end = forget_net;
}

void ask_box_usage(struct ask *a)
{
    struct err e = { 0 };

    finish(a, box_usage(a->box, on_usage, a, &e), &e);
}

static void reply_enforced(struct ask *a, enum wall_network network)
{
    const struct box_settings *s = &a->box->settings;
    const struct box_mount *root = box_mounts_find(&s->mounts, MOUNT_ROOT);
    struct walls walls = {
        .host = a->front->boxes.walls,
        .limits = s->limits,
        .profile = s->profile,
        .writable_root = root && root->writable,
        .network = network,
        .on_disk = box_mounts_on_disk(&s->mounts),
        .volumes = !box_mounts_count(&s->mounts, MOUNT_VOLUME)         ? WALL_VOLUMES_NONE
                   : a->front->boxes.volumes == VOLUMES_FREE ? WALL_VOLUMES_FREE
                                                             : WALL_VOLUMES_LIMITED,
    };
    struct buf out;
    struct jsonout j;

    walls.limits.cpu_request_milli = s->requests.cpu_milli;
    buf_init(&out, 4096);
    jsonout_init(&j, &out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "box", a->box->id);
    walls_write(&j, &walls);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out.failure = ENOMEM;
    reply_buf(a, 200, &out);
}

static void on_network(struct box *box, json_t *shown, const struct err *e, void *arg)
{
    struct ask *a = arg;

    a->on_end = NULL;
    json_decref(shown);
    reply_enforced(a, e ? WALL_NET_UNKNOWN : net_box_wall(box));
}

void ask_box_enforced(struct ask *a)
{
    struct err e = { 0 };

    if (!a->front->was_ready)
        reply_fail(a, 503, "unavailable", "the server cannot reach its boxes yet");
    else if (!box_settings_have_net(&a->box->settings))
        reply_enforced(a, WALL_NET_NONE);
    else if (net_box_show(a->box, on_network, a, &e) < 0)
        reply_enforced(a, WALL_NET_UNKNOWN);
    else
        a->on_end = forget_net;
}
