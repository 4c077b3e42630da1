/* The fields of the API that become mounts. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "front/boxes/box_devices.h"
#include "front/boxes/box_mounts.h"
#include "front/boxes/box_request.h"
#include "front/front.h"
#include "front/identity/auth.h"
#include "proto/checks.h"
#include "proto/defaults.h"

static struct box_mounts *mounts_of(void *into)
{
    return &((struct box_request *)into)->settings.mounts;
}

/* ---- the root ---- */

static bool root_is_writable(const struct box_mounts *list)
{
    const struct box_mount *root = box_mounts_find(list, MOUNT_ROOT);

    return root && root->writable;
}

/* The number of a configured root; 0: no such name. */
static uint32_t find_root(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->n_roots; i++)
        if (strcmp(config->root_name[i], name) == 0)
            return i + 1;
    return 0;
}

static int take_root(const char *name, json_t *v, void *into, struct err *e)
{
    const struct front *front = ((struct box_request *)into)->front;
    struct box_mounts *list = mounts_of(into);
    const char *text;
    int r = body_text(name, v, 63, &text, e);

    if (r < 0 || strcmp(text, "host") == 0)
        return r;
    uint32_t number = find_root(&front->config, text);
    if (!number)
        return err_set(e, EINVAL, STEP_USAGE, "%s: there is no root '%s' on this server; GET /v1/info lists them", name,
                       parse_quote(text).text);
    box_mounts_set(list, MOUNT_ROOT, number, root_is_writable(list));
    return 0;
}

static json_t *show_root(const struct front *front, const struct box_mounts *list)
{
    uint64_t number = box_mounts_number(list, MOUNT_ROOT);

    return json_string(number ? front->config.root_name[number - 1] : "host");
}

static int load_root(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    const char *text = json_string_value(value);

    (void)e;
    box_mounts_set(into, MOUNT_ROOT, text ? find_root(&front->config, text) : 0, root_is_writable(into));
    return 0;
}

static int take_writable_root(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_mounts *list = mounts_of(into);
    bool writable = false;
    int r = body_bool(name, v, &writable, e);

    if (r == 0)
        box_mounts_set(list, MOUNT_ROOT, box_mounts_number(list, MOUNT_ROOT), writable);
    return r;
}

static json_t *show_writable_root(const struct front *front, const struct box_mounts *list)
{
    (void)front;
    return json_boolean(root_is_writable(list));
}

static int load_writable_root(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    (void)front;
    (void)e;
    box_mounts_set(into, MOUNT_ROOT, box_mounts_number(into, MOUNT_ROOT), json_is_true(value));
    return 0;
}

/* ---- the template ---- */

static int take_template(const char *name, json_t *v, void *into, struct err *e)
{
    const struct front *front = ((struct box_request *)into)->front;
    const char *text;
    int r = json_is_null(v) ? 0 : body_text(name, v, 63, &text, e);

    if (r < 0 || json_is_null(v))
        return r;
    uint32_t number = config_template_find(&front->config, text);
    if (!number)
        return err_set(e, EINVAL, STEP_USAGE,
                       "%s: there is no template '%s' on this server; its configuration names them", name,
                       parse_quote(text).text);
    box_mounts_set(mounts_of(into), MOUNT_LAYER, number, false);
    return 0;
}

static json_t *show_template(const struct front *front, const struct box_mounts *list)
{
    const struct config_template *template = config_template(&front->config, box_mounts_template(list));

    return template ? json_string(template->name) : json_null();
}

static int load_template(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    const char *text = json_string_value(value);

    (void)e;
    box_mounts_set(into, MOUNT_LAYER, config_template_find(&front->config, text ? text : ""), false);
    return 0;
}

/* ---- the place to write to ---- */

static int take_store(const char *name, json_t *v, void *into, struct err *e)
{
    const char *text = json_is_string(v) ? json_string_value(v) : "";

    if (strcmp(text, "memory") != 0 && strcmp(text, "disk") != 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be \"memory\" or \"disk\"", name);
    box_mounts_set_disk(mounts_of(into), text[0] == 'd');
    return 0;
}

static json_t *show_store(const struct front *front, const struct box_mounts *list)
{
    (void)front;
    return json_string(box_mounts_on_disk(list) ? "disk" : "memory");
}

static int load_store(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    const char *text = json_string_value(value);

    (void)front;
    (void)e;
    box_mounts_set_disk(into, text && strcmp(text, "disk") == 0);
    return 0;
}

/* ---- the caller's own directories and files ---- */

struct mount_body {
    const char *source, *target;
    bool        writable, has_fd;
    uint32_t    fd;             /* index of a descriptor that came with the request */
};

static int take_fd(const char *name, json_t *v, void *into, struct err *e)
{
    struct mount_body *m = into;

    m->has_fd = true;
    return body_count(name, v, 0, HTTP_FDS_MAX - 1, &m->fd, e);
}

static int take_source(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, 4095, &((struct mount_body *)into)->source, e);
}

static int take_target(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, BOX_TARGET_MAX, &((struct mount_body *)into)->target, e);
}

static int take_writable(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct mount_body *)into)->writable, e);
}

/* The caller opens a mount's source, with the caller's rights, and sends it in an envelope (keeper/envelope.h) with the
 * request: a server of root that opened paths itself would open for every caller files that only root may open. Only
 * the user who runs this server may name a path instead, because the server has the same rights. */
static int open_source(const struct box_request *c, const char *name, const struct mount_body *m, int *ret,
                       struct err *e)
{
    struct ucred maker;
    socklen_t size = sizeof maker;
    FD fd = -1;

    if (m->has_fd) {
        if (m->fd >= c->r->n_fds)
            return err_set(e, EINVAL, STEP_USAGE, "%s.fd: no descriptor %u came with the request", name, m->fd);
        fd = fcntl(c->r->fds[m->fd], F_DUPFD_CLOEXEC, 3);
        if (fd < 0 || !fd_is_socket_pair(fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &size) < 0)
            return err_set(e, EINVAL, STEP_USAGE,
                           "%s.fd must be one end of a socket pair with the opened directory in it", name);
        if (c->who->uid == (uid_t)-1 || maker.uid != c->who->uid)
            return err_set(e, EPERM, STEP_USAGE, "%s.fd: another user than %s made the socket pair", name,
                           c->who->name);
    } else if (c->who->uid != (uid_t)-1 && c->who->uid == geteuid()) {
        fd = open(m->source, O_PATH | O_CLOEXEC);
        if (fd < 0)
            return err_set(e, EINVAL, STEP_USAGE, "%s.source %s: %s", name, parse_quote(m->source).text,
                           strerror(errno));
    } else {
        return err_set(e, EPERM, STEP_USAGE,
                       "%s: this server cannot open a path with the rights of %s; 'carrel create --mount' and the SDK "
                       "hand the opened directory over through the unix socket",
                       name, c->who->name);
    }
    *ret = TAKE_FD(fd);
    return 0;
}

static int take_mounts(const char *name, json_t *v, void *into, struct err *e)
{
    static const struct body_field fields[] = {
        { "source", take_source }, { "target", take_target }, { "writable", take_writable }, { "fd", take_fd }
    };
    struct box_request *c = into;
    size_t i;
    json_t *one;

    if (!json_is_array(v) || json_array_size(v) > KEEPER_MOUNTS)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of at most %d objects", name, KEEPER_MOUNTS);
    json_array_foreach(v, i, one) {
        struct mount_body m = { 0 };
        struct box_mount *added;
        char where[32];
        FD fd = -1;
        snprintf(where, sizeof where, "%s[%zu].", name, i);
        int r = body_fields(one, where, fields, sizeof fields / sizeof *fields, &m, e);
        if (r < 0)
            return r;
        if (!m.source || !m.target || m.source[0] != '/' || !target_is_plain(m.target, strlen(m.target) + 1))
            return err_set(e, EINVAL, STEP_USAGE,
                           "%s[%zu] needs source and target, both absolute paths without . and ..; no target "
                           "is in /proc or /dev", name, i);
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        if ((r = open_source(c, where, &m, &fd, e)) < 0
            || (r = box_mounts_add(mounts_of(into), MOUNT_HOST, 0, m.target, m.source, &added, e)) < 0)
            return r;
        added->fd = TAKE_FD(fd);
        added->writable = m.writable;
    }
    return 0;
}

static json_t *show_mounts(const struct front *front, const struct box_mounts *list)
{
    json_t *shown = json_array();

    (void)front;
    for (uint32_t i = 0; i < list->n; i++) {
        const struct box_mount *m = &list->at[i];
        if (m->kind == MOUNT_HOST)
            json_array_append_new(shown, json_pack("{s:s,s:s,s:b}", "source", m->source ? m->source : "", "target",
                                                   m->target, "writable", m->writable));
    }
    return shown;
}

static int load_mounts(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    size_t i;
    json_t *one;
    int r = 0;

    (void)front;
    json_array_foreach(value, i, one) {
        const char *target = json_string_value(json_object_get(one, "target"));
        const char *source = json_string_value(json_object_get(one, "source"));
        struct box_mount *added;
        if (i == KEEPER_MOUNTS)
            break;
        r = box_mounts_add(into, MOUNT_HOST, 0, target ? target : "", source ? source : "", &added, e);
        if (r < 0)
            return r;
        added->writable = json_is_true(json_object_get(one, "writable"));
    }
    return r;
}

/* ---- devices ---- */

static int take_devices(const char *name, json_t *v, void *into, struct err *e)
{
    return box_devices_take(((struct box_request *)into)->front, name, v, mounts_of(into), e);
}

static json_t *show_devices(const struct front *front, const struct box_mounts *list)
{
    json_t *shown = json_array();

    (void)front;
    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i].kind == MOUNT_DEVICE)
            json_array_append_new(shown, json_string(list->at[i].target));
    return shown;
}

static int load_devices(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    size_t i;
    json_t *one;
    int r = 0;

    (void)front;
    json_array_foreach(value, i, one) {
        if (r == 0 && i < KEEPER_DEVICES && json_is_string(one))
            r = box_mounts_add(into, MOUNT_DEVICE, 0, json_string_value(one), NULL, NULL, e);
    }
    return r;
}

const struct box_mount_field box_mount_fields[BOX_MOUNT_FIELDS] = {
    { { "root", take_root }, false, show_root, load_root },
    { { "template", take_template }, false, show_template, load_template },
    { { "writable_root", take_writable_root }, false, show_writable_root, load_writable_root },
    { { "store", take_store }, false, show_store, load_store },
    { { "mounts", take_mounts }, true, show_mounts, load_mounts },
    { { "devices", take_devices }, false, show_devices, load_devices },
    { { "packages", box_packages_take }, false, box_packages_show, box_packages_load },
    { { "python", box_python_take }, false, box_python_show, box_python_load },
    { { "volumes", box_volumes_take }, false, box_volumes_show, box_volumes_load },
    { { "layer", box_layer_take }, false, box_layer_show, box_layer_load },     /* after its packages */
};
