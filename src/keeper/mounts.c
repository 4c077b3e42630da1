/* Each kind of mount has a maker, which turns one entry of the frame into entries of the spec: numbers become the
 * directories of the keeper's configuration, and the descriptors are those of the frame. Slow preparations (a store
 * that a child mounts, descriptors that a child opens) are complete before a maker is called: create.c. */
#define _GNU_SOURCE
#include "keeper/mounts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "keeper/layers.h"
#include "proto/checks.h"
#include "proto/packages.h"

struct mount_reading {
    const struct keeper *keeper;
    struct borrowed     *borrowed;
    const int           *fds;           /* of the remaining entries */
    int                  store;
    const struct volume_uses *volumes;     /* NULL: not mounted yet */
    size_t               n_volumes;     /* that were read */
    size_t               i;             /* of the entry, for messages */
    struct box_spec     *spec;
};

static int add(const struct mount_reading *r, struct mount_spec mount, struct err *e)
{
    if (r->spec->n_mounts == SPEC_LIST_MAX)
        return err_at(e, E2BIG, STEP_USAGE, r->i, "too many mounts");
    r->spec->mount[r->spec->n_mounts++] = mount;
    return 0;
}

static int make_host(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    int fd = *r->fds++;

    if (!target_is_plain(m->target, sizeof m->target))
        return err_at(e, EINVAL, STEP_PROTOCOL, r->i, "mount target");
    return add(r, (struct mount_spec){ .kind = MOUNT_HOST, .source = m->target, .target = m->target,
                                       .writable = m->writable != 0, .is_file = m->is_file != 0, .fd = fd }, e);
}

static int make_root(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    if (m->number > r->keeper->n_roots)
        return err_at(e, EINVAL, STEP_PROTOCOL, r->i, "root");
    return add(r, (struct mount_spec){ .kind = MOUNT_ROOT, .writable = m->writable != 0, .fd = -1,
                                       .source = m->number ? r->keeper->root[m->number - 1] : NULL }, e);
}

static bool has_target(const struct box_spec *spec, const char *target)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mount[i].kind == MOUNT_LAYER && strcmp(spec->mount[i].target, target) == 0)
            return true;
    return false;
}

static int make_layers(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    if (m->number == 0 || m->number > r->keeper->n_templates)
        return err_at(e, EINVAL, STEP_PROTOCOL, r->i, "template");
    const struct kept_template *t = &r->keeper->template[m->number - 1];
    int result = 0;
    for (size_t i = 0; i < t->n && result == 0; i++)
        if (!has_target(r->spec, t->dir[i]))
            result = add(r, (struct mount_spec){ .kind = MOUNT_LAYER, .source = t->dir[i], .target = t->dir[i],
                                                 .fd = t->fd[i] }, e);
    return result;
}

static int make_tmpfs(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    (void)r;        /* the default */
    (void)m;
    (void)e;
    return 0;
}

static int make_store(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    if (m->number == 0)
        return err_at(e, EINVAL, STEP_PROTOCOL, r->i, "store");
    return add(r, (struct mount_spec){ .kind = MOUNT_STORE, .fd = r->store }, e);
}

/* A device by its name. The administrator decides twice: the configuration allows its kind, and this host's
 * specifications define it. */
static int make_device(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    const struct keeper *keeper = r->keeper;
    char kind[CDI_NAME_MAX];

    if (!r->borrowed || !memchr(m->target, 0, sizeof m->target) || !cdi_name_is_valid(m->target))
        return err_at(e, EINVAL, STEP_PROTOCOL, r->i, "device");
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(m->target, "="), m->target);
    if (!keeper->device_kinds || !cdi_kind_is_allowed(keeper->device_kinds, kind))
        return err_set(e, EPERM, STEP_USAGE, "devices of the kind %s are not allowed on this server (devices.allow)",
                       kind);
    return device_add(r->spec, &keeper->host.facts, &r->borrowed->devices, m->target, &r->borrowed->files, e);
}

/* A layer of packages, held since the frame came (layers.h), and the interpreter that they are for, if it is not the
 * template's. */
static int make_packages(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    int fd = layer_target_is_plain(m->target, sizeof m->target) ? keeper_find_layer(r->keeper, m->target) : -1;

    if (fd < 0)
        return err_at(e, EINVAL, STEP_PROTOCOL, r->i, "packages");
    int result = m->number ? make_layers(r, m, e) : 0;
    return result < 0 ? result
                      : add(r, (struct mount_spec){ .kind = MOUNT_PACKAGES, .source = PACKAGES_PLACE,
                                                    .target = PACKAGES_PLACE, .fd = fd }, e);
}

/* A mounted volume, or the folder that it is. */
static int make_volume(struct mount_reading *r, const struct frame_mount *m, struct err *e)
{
    size_t i = r->n_volumes++;

    if (m->number == 0 || m->is_file || !target_is_plain(m->target, sizeof m->target))
        return err_at(e, EINVAL, STEP_PROTOCOL, r->i, "volume");
    return add(r, (struct mount_spec){ .kind = r->keeper->volumes.are_folders ? MOUNT_HOST : MOUNT_VOLUME,
                                       .source = m->target, .target = m->target, .writable = m->writable != 0,
                                       .fd = r->volumes ? r->volumes->use[i].tree : -1 }, e);
}

static const struct mount_maker {
    int (*make)(struct mount_reading *r, const struct frame_mount *m, struct err *e);
    bool is_last;       /* the layers' order is final: its mounts are never moved behind the caller's */
} makers[MOUNT_KINDS] = {
    [MOUNT_HOST] = { make_host, false },
    [MOUNT_ROOT] = { make_root, false },
    [MOUNT_LAYER] = { make_layers, false },
    [MOUNT_TMPFS] = { make_tmpfs, false },
    [MOUNT_STORE] = { make_store, false },
    [MOUNT_DEVICE] = { make_device, true },
    [MOUNT_PACKAGES] = { make_packages, false },
    [MOUNT_VOLUME] = { make_volume, false },
};

static bool is_covered(const struct box_spec *spec, const char *path)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        bool is_callers = spec->mount[i].kind == MOUNT_HOST || spec->mount[i].kind == MOUNT_VOLUME;
        size_t length = is_callers ? strlen(spec->mount[i].target) : 0;
        if (length && strncmp(path, spec->mount[i].target, length) == 0 && path[length] == '/')
            return true;
    }
    return false;
}

/* A template's directory below one of the caller's mounts (root's home, for example) would be hidden by that mount. It
 * is moved behind it, and becomes visible if the mount has an empty directory there; the caller's own files stay. */
static void uncover_layers(struct box_spec *spec)
{
    for (size_t i = spec->n_mounts; i-- > 0;) {
        struct mount_spec layer = spec->mount[i];
        if (layer.kind != MOUNT_LAYER || !is_covered(spec, layer.target))
            continue;
        layer.fills_gap = true;
        memmove(&spec->mount[i], &spec->mount[i + 1], (spec->n_mounts - i - 1) * sizeof layer);
        spec->mount[spec->n_mounts - 1] = layer;
    }
}

static int read_some(struct mount_reading *r, const struct frame_mounts *list, bool last, struct err *e)
{
    int result = 0;

    for (r->i = 0; r->i < list->n && result == 0; r->i++) {
        const struct frame_mount *m = &list->at[r->i];
        if (makers[m->kind].is_last == last)
            result = makers[m->kind].make(r, m, e);
    }
    return result;
}

int keeper_read_mounts(const struct keeper *keeper, const struct frame_mounts *list, const int *fds, int store,
                       const struct volume_uses *volumes, struct borrowed *borrowed, struct box_spec *spec,
                       struct err *e)
{
    struct mount_reading r = { .keeper = keeper, .borrowed = borrowed, .fds = fds, .store = store,
                               .volumes = volumes, .spec = spec };

    if (borrowed && frame_mount_count(list, MOUNT_DEVICE))
        devices_read(keeper->host.rootless, &borrowed->devices);
    int result = read_some(&r, list, false, e);
    uncover_layers(spec);
    return result < 0 ? result : read_some(&r, list, true, e);
}

void keeper_return_mounts(struct borrowed *borrowed)
{
    device_close(&borrowed->files);
    devices_free(&borrowed->devices);
}
