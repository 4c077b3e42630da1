/* A volume's life.
 *
 *   create  row (making) -> keeper makes the files -> row (ready)
 *   update  keeper grows the files -> row with the new size; sharing is the row alone
 *   delete  row (removing) -> keeper removes the files -> no row
 *
 * After a crash the keeper reports the volumes that it has, and each row that was left in the middle is settled:
 * one that was being made is ready if it is there, and deleted if it is not; one that was being removed is removed
 * again. Files without a row are never removed: they can only be what a lost database leaves. */
#define _GNU_SOURCE
#include "front/volumes/volumes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/list.h"
#include "base/parse.h"
#include "front/boxes/box_disk.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/volumes/volume_private.h"

const char *const volume_state_names[VOLUME_STATES] = { "making", "ready", "growing", "removing", "lost" };

enum { VOLUMES_OF_ONE = 1000 };

struct measuring {
    struct measuring *next, **back;
    unsigned          n;                /* answers to come */
    uint64_t          number;           /* of a single volume; 0: several */
    volume_callback  *call;             /* NULL: cancelled */
    void             *arg;
};

/* ---- the list ---- */

static void list_volume(struct volume *v)
{
    struct volume **at = &v->front->volumes->first;

    while (*at && (strcmp((*at)->owner, v->owner) < 0
                   || (strcmp((*at)->owner, v->owner) == 0 && strcmp((*at)->name, v->name) < 0)))
        at = &(*at)->next;
    v->next = *at;
    v->back = at;
    if (v->next)
        v->next->back = &v->next;
    *at = v;
}

static void free_volume(struct volume *v)
{
    for (struct volume_call *c = v->front->volumes->calls; c; c = c->next)
        if (c->volume == v)
            c->volume = NULL;
    if (v->back)
        LIST_REMOVE(v);
    json_decref(v->shared);
    free(v->owner);
    free(v->name);
    free(v);
}

static struct volume *new_volume(struct front *front, const char *owner, const char *name)
{
    struct volume *v = calloc(1, sizeof *v);

    if (!v)
        return NULL;
    v->front = front;
    v->owner = strdup(owner);
    v->name = strdup(name);
    v->shared = json_array();
    if (v->owner && v->name && v->shared)
        return v;
    free_volume(v);
    return NULL;
}

struct volume *volume_by_number(const struct front *front, uint64_t number)
{
    struct volume *v = front->volumes->first;

    while (v && v->number != number)
        v = v->next;
    return v;
}

static bool may_see(const struct volume *v, const char *viewer, bool is_admin)
{
    return is_admin || strcmp(v->owner, viewer) == 0 || volume_is_shared_with(v, viewer);
}

struct volume *volume_find(const struct front *front, const char *viewer, bool is_admin, const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *owner = slash ? name : viewer;
    size_t length = slash ? (size_t)(slash - name) : strlen(viewer);

    for (struct volume *v = front->volumes->first; v; v = v->next) {
        bool is_it = strcmp(v->id, name) == 0
                  || (strlen(v->owner) == length && memcmp(v->owner, owner, length) == 0
                      && strcmp(v->name, slash ? slash + 1 : name) == 0);
        if (is_it && may_see(v, viewer, is_admin))
            return v;
    }
    return NULL;
}

static int save(struct volume *v, struct err *e)
{
    json_t *body = volume_row(v);
    char *text = json_dumps(body, JSON_COMPACT);
    const struct db_volume row = { v->number, v->id, v->owner, v->name, text };
    int r = text ? db_volume_put(v->front->db, &row, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "volume");

    free(text);
    json_decref(body);
    return r;
}

static void save_or_log(struct volume *v)
{
    struct err e;

    if (save(v, &e) < 0)
        front_log("error", "cannot store a volume", "volume", v->id, NULL);
}

/* Without its row. The files are gone, or were never made. */
static void forget(struct volume *v)
{
    struct err e;
    int r = db_volume_delete(v->front->db, v->number, &e);

    if (r < 0 && r != -ENOENT)
        front_log("error", "cannot remove a volume from the database", "volume", v->id, NULL);
    free_volume(v);
}

/* ---- the keeper ---- */

static void finish(struct volume_call *c, struct volume *v, const struct err *e)
{
    if (c->call)
        c->call(v, e, c->arg);
    LIST_REMOVE(c);
    free(c);
}

static int ask(struct volume *v, enum volume_operation operation, uint64_t bytes, keeper_answer *answer,
               volume_callback *call, void *arg, struct volume_call **ret, struct err *e)
{
    struct request_volume q = { .head.type = REQUEST_VOLUME, .volume = v->number, .bytes = bytes,
                                .operation = operation };
    struct volume_call *c = calloc(1, sizeof *c);

    if (!c)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "volume");
    c->volume = v;
    c->wish.bytes = bytes;
    c->call = call;
    c->arg = arg;
    LIST_ADD(v->front->volumes->calls, c);
    keeper_link_request(v->front->keeper, &q, sizeof q, NULL, 0, answer, c);
    if (ret)
        *ret = c;
    return 0;
}

/* A keeper that went away may still have done it: the next one's report settles that (volumes_on_synced). */
static void on_made(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct volume_call *c = arg;
    struct volume *v = c->volume;
    const struct err *e = event_failure(event);
    struct err why;

    (void)fds;
    (void)n_fds;
    if (e && e->code == ECONNRESET) {
        v->state = VOLUME_REMOVING;     /* the caller learns that there is none */
        save_or_log(v);
    } else if (e) {
        why = *e;
        forget(v);
        e = &why;
        v = NULL;
    } else {
        v->state = VOLUME_READY;
        v->seen = true;
        save_or_log(v);
    }
    finish(c, v, e);
}

static void on_grown(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct volume_call *c = arg;
    struct volume *v = c->volume;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    if (v->state == VOLUME_GROWING)
        v->state = VOLUME_READY;
    if (!e) {
        v->bytes = c->wish.bytes;
        save_or_log(v);
    }
    finish(c, v, e);
}

static void on_removed(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct volume_call *c = arg;
    struct volume *v = c->volume;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    if (!e) {
        forget(v);
        v = NULL;
    } else if (e->code != ECONNRESET) {
        v->state = v->seen ? VOLUME_READY : VOLUME_LOST;
        save_or_log(v);
    }
    finish(c, v, e);
}

static void on_measured(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct volume_call *c = arg;
    struct measuring *m = c->measuring;

    (void)fds;
    (void)n_fds;
    if (c->volume && event->head.type == EVENT_VOLUME)
        c->volume->used_bytes = event->volume.used_bytes;
    if (--m->n == 0) {
        if (m->call)
            m->call(m->number ? c->volume : NULL, NULL, m->arg);
        LIST_REMOVE(m);
        free(m);
    }
    finish(c, NULL, NULL);
}

void volumes_cancel(struct front *front, const void *arg)
{
    for (struct volume_call *c = front->volumes->calls; c; c = c->next)
        if (c->arg == arg)
            c->call = NULL;
    for (struct measuring *m = front->volumes->measurings; m; m = m->next)
        if (m->arg == arg)
            m->call = NULL;
}

/* ---- what is requested ---- */

static int check_keeper(const struct front *front, struct err *e)
{
    if (!front->ready)
        return err_set(e, ECONNREFUSED, STEP_HOST, "the server cannot reach its boxes now; try again in a moment");
    if (front->boxes.volumes == VOLUMES_NONE)
        return err_set(e, ENOTSUP, STEP_USAGE, "there are no volumes here: %.150s", front->boxes.why_no_store.what);
    return 0;
}

static int check_size(uint64_t *bytes, struct err *e)
{
    if (*bytes < VOLUME_STEP_BYTES || *bytes > VOLUME_MOST_BYTES)
        return err_set(e, EINVAL, STEP_USAGE, "size must be between 16M and 16T, not %s",
                       parse_show_size(*bytes).text);
    *bytes += VOLUME_STEP_BYTES - 1;
    *bytes -= *bytes % VOLUME_STEP_BYTES;
    return 0;
}

uint64_t volumes_promised(const struct front *front, const char *owner, unsigned *ret_n)
{
    uint64_t bytes = 0;
    unsigned n = 0;

    for (const struct volume *v = front->volumes->first; v; v = v->next)
        if (!owner || strcmp(v->owner, owner) == 0) {
            bytes += v->bytes;
            n++;
        }
    if (ret_n)
        *ret_n = n;
    return bytes;
}

/* Below 2^62, so that it is a number everywhere. */
static uint64_t random_number(void)
{
    uint64_t number = 0;

    while (getrandom(&number, sizeof number, 0) != sizeof number || number >> 2 == 0)
        ;
    return number >> 2;
}

int volume_create(struct front *front, const char *owner, const struct volume_wish *wish, volume_callback *call,
                  void *arg, struct err *e)
{
    uint64_t bytes = wish->bytes ? wish->bytes : VOLUME_DEFAULT_BYTES;
    unsigned n;
    int r = check_keeper(front, e);

    if (r == 0)
        r = check_size(&bytes, e);
    (void)volumes_promised(front, owner, &n);
    if (r == 0 && n >= VOLUMES_OF_ONE)
        r = err_set(e, EDQUOT, STEP_USAGE, "%s has %u volumes, and may not have more; remove one first", owner, n);
    if (r == 0)
        r = box_disk_check(front, owner, bytes, e);
    if (r < 0)
        return r;
    struct volume *v = new_volume(front, owner, wish->name);
    if (!v)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "volume");
    front_make_id('v', v->id);
    v->number = random_number();
    v->bytes = bytes;
    v->many = wish->many > 0;
    v->created_ms = front_now_ms();
    if (wish->shared) {
        json_decref(v->shared);
        v->shared = json_incref(wish->shared);
    }
    r = save(v, e);
    if (r < 0) {
        free_volume(v);
        return r == -EEXIST ? err_set(e, EEXIST, STEP_USAGE, "a volume called %s exists already", wish->name) : r;
    }
    list_volume(v);
    r = ask(v, VOLUME_OP_MAKE, bytes, on_made, call, arg, NULL, e);
    if (r < 0)
        forget(v);
    return r;
}

int volume_update(struct volume *v, const struct volume_wish *wish, volume_callback *call, void *arg, struct err *e)
{
    uint64_t bytes = wish->bytes ? wish->bytes : v->bytes;
    int r = check_keeper(v->front, e);

    if (r == 0)
        r = check_size(&bytes, e);
    if (r == 0 && !volume_state_allows(v, e))
        return -e->code;
    if (r == 0 && bytes < v->bytes)
        r = err_set(e, EINVAL, STEP_USAGE, "size: the volume %s has %s, and a volume only grows; make a smaller "
                    "one and copy", v->name, parse_show_size(v->bytes).text);
    if (r == 0 && bytes > v->bytes)
        r = volume_check_unused(v, "grows", e);
    if (r == 0 && bytes > v->bytes)
        r = box_disk_check(v->front, v->owner, bytes - v->bytes, e);
    if (r < 0)
        return r;
    if (wish->shared) {
        json_t *before = v->shared;
        v->shared = json_incref(wish->shared);
        r = save(v, e);
        json_decref(r < 0 ? v->shared : before);
        if (r < 0) {
            v->shared = before;
            return r;
        }
    }
    if (bytes == v->bytes)
        return 0;
    r = ask(v, VOLUME_OP_GROW, bytes, on_grown, call, arg, NULL, e);
    if (r == 0)
        v->state = VOLUME_GROWING;
    return r < 0 ? r : 1;
}

int volume_delete(struct volume *v, volume_callback *call, void *arg, struct err *e)
{
    int r = check_keeper(v->front, e);

    if (r == 0 && v->state != VOLUME_LOST && !volume_state_allows(v, e))
        return -e->code;
    if (r == 0)
        r = volume_check_unused(v, "is removed", e);
    if (r < 0)
        return r;
    enum volume_state before = v->state;
    v->state = VOLUME_REMOVING;
    r = save(v, e);
    if (r == 0)
        r = ask(v, VOLUME_OP_REMOVE, 0, on_removed, call, arg, NULL, e);
    if (r < 0)
        v->state = before;
    return r;
}

void volumes_measure(struct front *front, struct volume *v, const char *viewer, bool is_admin, volume_callback *call,
                     void *arg)
{
    struct measuring *m = calloc(1, sizeof *m);
    struct err ignored;

    if (!m)
        abort();
    *m = (struct measuring){ .number = v ? v->number : 0, .call = call, .arg = arg };
    LIST_ADD(front->volumes->measurings, m);
    for (struct volume *one = front->volumes->first; one; one = one->next) {
        struct volume_call *c;
        if (v ? one != v : !may_see(one, viewer, is_admin))
            continue;
        if (ask(one, VOLUME_OP_LOOK, 0, on_measured, NULL, NULL, &c, &ignored) < 0)
            continue;
        c->measuring = m;
        m->n++;
    }
    if (m->n)
        return;
    m->n = 1;
    struct volume_call *c = calloc(1, sizeof *c);
    struct request_volume q = { .head.type = REQUEST_VOLUME, .volume = 1, .operation = VOLUME_OP_LOOK };
    if (!c)
        abort();
    c->measuring = m;
    LIST_ADD(front->volumes->calls, c);
    keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_measured, c);   /* so that it answers from the loop */
}

/* ---- after a start, or with another keeper ---- */

void volumes_on_greeted(struct front *front)
{
    for (struct volume *v = front->volumes->first; v; v = v->next)
        v->seen = false;
}

void volumes_on_told(struct front *front, const struct event_volume *event)
{
    struct volume *v = volume_by_number(front, event->volume);
    char number[24];

    if (v) {
        v->seen = true;
        v->used_bytes = event->used_bytes;
        if (event->bytes)
            v->bytes = event->bytes;
        return;
    }
    snprintf(number, sizeof number, "%llu", (unsigned long long)event->volume);
    front_log("warning", "the files of a volume belong to no volume in the database, and are kept; see volumes/ beside "
              "the stores", "number", number, NULL);
}

static void settle(struct volume *v)
{
    struct err e;
    enum volume_state before = v->state;

    if (v->state == VOLUME_REMOVING && v->seen) {
        (void)!ask(v, VOLUME_OP_REMOVE, 0, on_removed, NULL, NULL, NULL, &e);
        return;
    }
    if ((v->state == VOLUME_REMOVING || v->state == VOLUME_MAKING) && !v->seen) {
        forget(v);
        return;
    }
    v->state = v->seen ? VOLUME_READY : VOLUME_LOST;
    if (v->state == VOLUME_LOST && before != VOLUME_LOST)
        front_log("error", "the files of a volume are gone", "volume", v->id, "owner", v->owner, NULL);
    if (v->state != before)
        save_or_log(v);
}

void volumes_on_synced(struct front *front)
{
    for (struct volume *v = front->volumes->first, *next; v; v = next) {
        next = v->next;
        settle(v);
    }
}

static int load_one(const struct db_volume *row, void *arg)
{
    struct front *front = arg;
    json_t *body = json_loads(row->body, 0, NULL);
    struct volume *v = body ? new_volume(front, row->owner, row->name) : NULL;

    if (!v || volume_from_row(v, body) < 0) {
        if (v)
            free_volume(v);
        front_log("error", "a volume in the database cannot be read", "volume", row->id, NULL);
    } else {
        snprintf(v->id, sizeof v->id, "%s", row->id);
        v->number = row->number;
        list_volume(v);
    }
    json_decref(body);
    return 0;
}

void volumes_init(struct front *front)
{
    front->volumes = calloc(1, sizeof *front->volumes);
    if (!front->volumes)
        abort();
}

int volumes_load(struct front *front, struct err *e)
{
    return db_volumes(front->db, load_one, front, e);
}

void volumes_free(struct front *front)
{
    struct front_volumes *all = front->volumes;

    if (!all)
        return;
    for (struct volume_call *c = all->calls, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    for (struct measuring *m = all->measurings, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    all->calls = NULL;
    for (struct volume *v = all->first, *next; v; v = next) {
        next = v->next;
        v->back = NULL;
        free_volume(v);
    }
    free(all);
    front->volumes = NULL;
}
