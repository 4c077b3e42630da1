#define _GNU_SOURCE
#include "front/boxes/box_mounts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "front/front.h"

static bool has_flag(const struct box_mount *m, unsigned flags)
{
    return (mount_table[m->kind].flags & flags) != 0;
}

static void drop(struct box_mount *m)
{
    free(m->target);
    free(m->source);
    fd_close(m->fd);
}

void box_mounts_done(struct box_mounts *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        drop(&list->at[i]);
    *list = (struct box_mounts){ 0 };
}

/* The order of kinds in a list; callers' mounts come last, because they may cover others. */
static int rank(enum mount_kind kind)
{
    return kind == MOUNT_HOST ? MOUNT_KINDS : kind;
}

int box_mounts_add(struct box_mounts *list, enum mount_kind kind, uint64_t number, const char *target,
                   const char *source, struct box_mount **ret, struct err *e)
{
    struct box_mount m = { .kind = kind, .number = number, .fd = -1 };
    uint32_t at = list->n;

    if (box_mounts_count(list, kind) == mount_table[kind].most)
        return err_set(e, EINVAL, STEP_USAGE, "a box has at most %u of these", mount_table[kind].most);
    if ((target && !(m.target = strdup(target))) || (source && !(m.source = strdup(source)))) {
        drop(&m);
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "mount");
    }
    while (at > 0 && rank(list->at[at - 1].kind) > rank(kind))
        at--;
    memmove(&list->at[at + 1], &list->at[at], (list->n - at) * sizeof m);
    list->at[at] = m;
    list->n++;
    if (ret)
        *ret = &list->at[at];
    return 0;
}

static bool is_at_or_below(const char *path, const char *place)
{
    size_t length = strlen(place);

    return strncmp(path, place, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

bool box_mounts_cover(const struct box_mounts *list, const char *path)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const char *target = list->at[i].target;
        if (target && target[0] == '/' && (is_at_or_below(target, path) || is_at_or_below(path, target)))
            return true;
    }
    return false;
}

void box_mounts_set(struct box_mounts *list, enum mount_kind kind, uint64_t number, bool writable)
{
    struct box_mount *m = NULL;
    struct err ignored;
    uint32_t i = 0;

    while (i < list->n && list->at[i].kind != kind)
        i++;
    if (i < list->n)
        m = &list->at[i];
    if (m && !number && !writable) {
        drop(m);
        memmove(m, m + 1, (--list->n - i) * sizeof *m);
        return;
    }
    if (!m && (number || writable))
        (void)!box_mounts_add(list, kind, number, NULL, NULL, &m, &ignored);    /* there is room, and no string */
    if (m) {
        m->number = number;
        m->writable = writable;
    }
}

int box_mounts_name(struct box_mounts *list, enum mount_kind kind, const char *target, struct err *e)
{
    char *copy = strdup(target);
    uint32_t i = 0;

    while (i < list->n && list->at[i].kind != kind)
        i++;
    if (!copy || i == list->n) {
        free(copy);
        return err_at(e, copy ? ENOENT : ENOMEM, STEP_MEMORY, 0, "mount");
    }
    free(list->at[i].target);
    list->at[i].target = copy;
    return 0;
}

int box_mounts_set_packages(struct box_mounts *list, const char *lines, uint32_t python, struct err *e)
{
    struct box_mount *m = (struct box_mount *)(uintptr_t)box_mounts_find(list, MOUNT_PACKAGES);
    int r = m ? 0 : box_mounts_add(list, MOUNT_PACKAGES, 0, "", "", &m, e);
    char *copy = r == 0 && lines ? strdup(lines) : NULL;

    if (r < 0 || (lines && !copy))
        return r < 0 ? r : err_at(e, ENOMEM, STEP_MEMORY, 0, "packages");
    if (lines) {
        free(m->source);
        m->source = copy;
    }
    if (python)
        m->number = python;
    return 0;
}

const struct box_mount *box_mounts_find(const struct box_mounts *list, enum mount_kind kind)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i].kind == kind)
            return &list->at[i];
    return NULL;
}

uint64_t box_mounts_number(const struct box_mounts *list, enum mount_kind kind)
{
    const struct box_mount *m = box_mounts_find(list, kind);

    return m ? m->number : 0;
}

uint32_t box_mounts_count(const struct box_mounts *list, enum mount_kind kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n; i++)
        n += list->at[i].kind == kind;
    return n;
}

bool box_mounts_are_all(const struct box_mounts *list, unsigned flags)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!has_flag(&list->at[i], flags))
            return false;
    return true;
}

int box_mounts_copy(const struct box_mounts *from, unsigned flags, struct box_mounts *ret)
{
    struct err ignored;

    *ret = (struct box_mounts){ 0 };
    for (uint32_t i = 0; i < from->n; i++) {
        const struct box_mount *m = &from->at[i];
        struct box_mount *copy = NULL;
        if (flags && !has_flag(m, flags))
            continue;
        if (box_mounts_add(ret, m->kind, m->number, m->target, m->source, &copy, &ignored) < 0) {
            box_mounts_done(ret);
            return -ENOMEM;
        }
        copy->writable = m->writable;
    }
    return 0;
}

static bool is_same(const struct box_mount *a, const struct box_mount *b)
{
    return a->kind == b->kind && a->number == b->number && a->writable == b->writable &&
           strcmp(a->target ? a->target : "", b->target ? b->target : "") == 0;
}

/* Whether the entries of some kinds (a bit for each) are the same in both. */
static bool kinds_are_equal(const struct box_mounts *a, const struct box_mounts *b, unsigned kinds)
{
    uint32_t i = 0, k = 0;

    for (;;) {
        while (i < a->n && !(kinds >> a->at[i].kind & 1))
            i++;
        while (k < b->n && !(kinds >> b->at[k].kind & 1))
            k++;
        if (i == a->n || k == b->n)
            return i == a->n && k == b->n;
        if (!is_same(&a->at[i++], &b->at[k++]))
            return false;
    }
}

bool box_mounts_equal(const struct box_mounts *a, const struct box_mounts *b, unsigned flags)
{
    unsigned kinds = 0;

    for (int kind = 0; kind < MOUNT_KINDS; kind++)
        kinds |= mount_table[kind].flags & flags ? 1u << kind : 0;
    return kinds_are_equal(a, b, kinds);
}

size_t box_mounts_fds(const struct box_mounts *list, int fds[KEEPER_LIST])
{
    size_t n = 0;

    for (uint32_t i = 0; i < list->n; i++)
        if (has_flag(&list->at[i], MOUNT_HAS_FD))
            fds[n++] = list->at[i].fd;
    return n;
}

void box_mounts_close(struct box_mounts *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        list->at[i].fd = fd_close(list->at[i].fd);
}

/* The index of the mount at this target; list->n: none. */
static uint32_t find_target(const struct box_mounts *list, const char *target)
{
    uint32_t i = 0;

    while (i < list->n && !(has_flag(&list->at[i], MOUNT_HAS_FD) && strcmp(list->at[i].target, target) == 0))
        i++;
    return i;
}

static uint32_t count_opened(const struct box_mounts *list)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < list->n; i++)
        n += has_flag(&list->at[i], MOUNT_HAS_FD);
    return n;
}

int box_mounts_match(const struct box_mounts *list, const struct box_mounts *again, struct err *e)
{
    uint32_t n = count_opened(list), n_again = count_opened(again);

    if (n && !n_again)
        return err_set(e, EINVAL, STEP_USAGE, "the box has %u mounts; they must be handed over again to start it", n);
    for (uint32_t i = 0; i < list->n; i++) {
        const struct box_mount *m = &list->at[i];
        if (!has_flag(m, MOUNT_HAS_FD))
            continue;
        uint32_t k = find_target(again, m->target);
        if (k == again->n)
            return err_set(e, EINVAL, STEP_USAGE, "the mount at %.150s must be handed over again to start the box",
                           m->target);
        if (again->at[k].writable != m->writable)
            return err_set(e, EINVAL, STEP_USAGE, "the mount at %.150s is %s, and stays so", m->target,
                           m->writable ? "writable" : "read-only");
    }
    if (n_again != n)
        return err_set(e, EINVAL, STEP_USAGE, "the box has %u mounts, and a start adds none", n);
    return 0;
}

void box_mounts_reopen(struct box_mounts *list, struct box_mounts *again)
{
    for (uint32_t i = 0; i < list->n; i++) {
        struct box_mount *m = &list->at[i];
        uint32_t k = has_flag(m, MOUNT_HAS_FD) ? find_target(again, m->target) : again->n;
        if (k == again->n)
            continue;
        struct box_mount *other = &again->at[k];
        fd_close(m->fd);
        m->fd = TAKE_FD(other->fd);
        if (other->source) {
            free(m->source);
            m->source = other->source;
            other->source = NULL;
        }
    }
}

/* A kind without a number is present if it is writable. */
void box_mounts_set_disk(struct box_mounts *list, bool on_disk)
{
    box_mounts_set(list, MOUNT_STORE, 0, on_disk);
}

bool box_mounts_on_disk(const struct box_mounts *list)
{
    return box_mounts_find(list, MOUNT_STORE) != NULL;
}

uint32_t box_mounts_template(const struct box_mounts *list)
{
    return (uint32_t)box_mounts_number(list, MOUNT_LAYER);
}

void box_mounts_want_template(struct box_mounts *list)
{
    if (!box_mounts_template(list))
        box_mounts_set(list, MOUNT_LAYER, 1, false);
}

uint32_t box_mounts_layers(const struct front *front, const struct box_mounts *list)
{
    uint32_t template = box_mounts_template(list);

    template = template ? template : 1;
    return !box_mounts_number(list, MOUNT_ROOT) && template <= front->boxes.n_templates ? template : 0;
}

bool box_mounts_are_alike(const struct front *front, const struct box_mounts *a, const struct box_mounts *b)
{
    return box_mounts_layers(front, a) == box_mounts_layers(front, b) && kinds_are_equal(a, b, ~(1u << MOUNT_LAYER));
}

static void add_to_frame(const struct box_mount *m, uint64_t store, struct frame_mounts *ret)
{
    struct frame_mount *f = frame_mount_add(ret, m->kind, m->kind == MOUNT_STORE ? store : m->number);

    f->writable = m->writable;
    if (m->target)
        snprintf(f->target, sizeof f->target, "%s", m->target);
}

/* Whether a volume's place is in one of the caller's directories, which would hide it if it came later. */
static bool lies_in_mount(const struct box_mounts *list, const struct box_mount *volume)
{
    for (uint32_t i = 0; i < list->n; i++) {
        size_t length = list->at[i].kind == MOUNT_HOST ? strlen(list->at[i].target) : 0;
        if (length && strncmp(volume->target, list->at[i].target, length) == 0 && volume->target[length] == '/')
            return true;
    }
    return false;
}

void box_mounts_frame(const struct front *front, const struct box_mounts *list, uint64_t store,
                      struct frame_mounts *ret)
{
    uint32_t template = box_mounts_layers(front, list);

    *ret = (struct frame_mounts){ 0 };
    if (template)
        frame_mount_add(ret, MOUNT_LAYER, template);
    for (int late = 0; late < 2; late++)
        for (uint32_t i = 0; i < list->n; i++) {
            const struct box_mount *m = &list->at[i];
            bool is_late = m->kind == MOUNT_VOLUME && lies_in_mount(list, m);
            if (m->kind != MOUNT_LAYER && is_late == (late == 1))
                add_to_frame(m, store, ret);
        }
}

void box_mounts_show(const struct front *front, const struct box_mounts *list, json_t *into)
{
    for (size_t i = 0; i < BOX_MOUNT_FIELDS; i++)
        json_object_set_new(into, box_mount_fields[i].body.name, box_mount_fields[i].show(front, list));
}

int box_mounts_load(const struct front *front, json_t *body, struct box_mounts *into, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < BOX_MOUNT_FIELDS && r == 0; i++) {
        json_t *value = json_object_get(body, box_mount_fields[i].body.name);
        if (value)
            r = box_mount_fields[i].load(front, value, into, e);
    }
    return r;
}
