/* The format is https://github.com/cncf-tags/container-device-interface, versions 0.3.0 to 0.8.0. Its readers are
 * strict: an unknown member may be what makes the device safe, so it is an error here, too. */
#include "devices/cdi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

struct cdi_maker {
    const char *name;           /* of the file */
    struct err *e;
};

static int refuse(const struct cdi_maker *m, const struct notation *at, const char *before, const char *what,
                  const char *after)
{
    return err_set(m->e, EINVAL, STEP_USAGE, "%s:%u: %s%s%s", parse_quote_path(m->name).text, at->line, before,
                   parse_quote(what).text, after);
}

/* ---- names ---- */

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_word(const char *text, size_t n, const char *more)
{
    if (n == 0 || !is_alnum(text[0]) || !is_alnum(text[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_alnum(text[i]) && !(text[i] && strchr(more, text[i])))
            return false;
    return true;
}

bool cdi_kind_is_valid(const char *text, size_t length)
{
    const char *slash = memchr(text, '/', length);

    return slash && length < CDI_NAME_MAX / 2 && is_word(text, (size_t)(slash - text), "_-.")
        && is_word(slash + 1, length - (size_t)(slash + 1 - text), "_-.");
}

bool cdi_name_is_valid(const char *text)
{
    const char *equals = strchr(text, '=');

    return equals && strlen(text) < CDI_NAME_MAX && cdi_kind_is_valid(text, (size_t)(equals - text))
        && is_word(equals + 1, strlen(equals + 1), "_-.:");
}

bool cdi_kind_is_allowed(const char *list, const char *kind)
{
    const char *class = strchr(kind, '/');

    for (const char *at = list; *at && class;) {
        size_t n = strcspn(at, ",");
        if ((n == 1 && *at == '*') || (n == strlen(kind) && memcmp(at, kind, n) == 0)
            || (n > 2 && at[0] == '*' && at[1] == '/' && n - 1 == strlen(class) && memcmp(at + 1, class, n - 1) == 0))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* ---- members ---- */

static int check_members(const struct cdi_maker *m, const struct notation *map, const char *const *known)
{
    if (map->kind != NOTATION_MAP)
        return refuse(m, map, "", map->key ? map->key : "an entry", " must be an object");
    for (const struct notation *c = map->child; c; c = c->next) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], c->key) != 0)
            i++;
        if (!known[i])
            return refuse(m, c, "'", c->key, "' is not known here");
    }
    return 0;
}

static int get_text(const struct cdi_maker *m, const struct notation *map, const char *key, bool must, const char **ret)
{
    const struct notation *one = notation_get(map, key);

    if (one && one->kind != NOTATION_TEXT)
        return refuse(m, one, "'", key, "' must be a text");
    if (must && (!one || !one->text[0]))
        return refuse(m, map, "'", key, "' is missing");
    *ret = one && one->text[0] ? one->text : NULL;
    return 0;
}

static int get_list(const struct cdi_maker *m, const struct notation *map, const char *key, const struct notation **ret,
                    size_t *ret_n)
{
    const struct notation *one = notation_get(map, key);

    *ret = NULL;
    *ret_n = 0;
    if (one && one->kind == NOTATION_TEXT && !one->text[0])
        return 0;       /* null, as an empty list is often written */
    if (one && one->kind != NOTATION_LIST)
        return refuse(m, one, "'", key, "' must be a list");
    *ret = one ? one->child : NULL;
    for (const struct notation *c = *ret; c; c = c->next)
        ++*ret_n;
    return 0;
}

/* Absolute, and without components that lead elsewhere. */
static bool is_plain_path(const char *path)
{
    if (path[0] != '/' || strlen(path) >= 4096)
        return false;
    for (const char *part = path; part; part = strchr(part, '/')) {
        size_t n = strcspn(++part, "/");
        if (n == 0 || n > 255 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
    }
    return true;
}

static int get_number(const struct cdi_maker *m, const struct notation *map, const char *key, bool *ret_has,
                      uint32_t *ret)
{
    const struct notation *one = notation_get(map, key);
    struct err ignored = { 0 };

    if (!one)
        return 0;
    if (one->kind != NOTATION_TEXT || parse_count(key, one->text, 0, 1 << 20, ret, &ignored) < 0)
        return refuse(m, one, "'", key, "' must be a number");
    *ret_has = true;
    return 0;
}

static int read_node(const struct cdi_maker *m, const struct notation *from, struct cdi_node *node)
{
    static const char *const known[] = { "path", "hostPath", "type",        "major", "minor",
                                         "fileMode", "uid",  "gid", "permissions", NULL };
    const char *type = NULL, *permissions = NULL;
    bool has_minor = false;
    int r = check_members(m, from, known);

    if (r == 0)
        r = get_text(m, from, "path", true, &node->path);
    if (r == 0)
        r = get_text(m, from, "hostPath", false, &node->host);
    if (r == 0)
        r = get_text(m, from, "type", false, &type);
    if (r == 0)
        r = get_text(m, from, "permissions", false, &permissions);
    if (r == 0)
        r = get_number(m, from, "major", &node->has_number, &node->major);
    if (r == 0)
        r = get_number(m, from, "minor", &has_minor, &node->minor);
    if (r != 0)
        return r;
    if (!node->host)
        node->host = node->path;
    if (!is_plain_path(node->path) || strncmp(node->path, "/dev/", 5) != 0)
        return refuse(m, from, "a device must be below /dev in the box, not at ", node->path, "");
    if (!is_plain_path(node->host))
        return refuse(m, from, "'", node->host, "' is not a plain absolute path");
    if (type && strcmp(type, "c") != 0 && strcmp(type, "b") != 0 && strcmp(type, "u") != 0)
        return refuse(m, from, "a device of type '", type, "' is not understood");
    node->type = !type ? '\0' : type[0] == 'u' ? 'c' : type[0];
    if (node->has_number != has_minor)
        return refuse(m, from, "", node->path, " needs both major and minor");
    /* runc's letters; no box may make nodes ('m'). */
    node->read = !permissions || strchr(permissions, 'r');
    node->write = !permissions || strchr(permissions, 'w');
    if (permissions && strspn(permissions, "rwm") != strlen(permissions))
        return refuse(m, from, "permissions '", permissions, "' are not understood");
    return node->read ? 0 : refuse(m, from, "", node->path, " cannot be given without the right to read it");
}

static int read_mount(const struct cdi_maker *m, const struct notation *from, struct cdi_mount *mount, char *refused,
                      size_t size)
{
    static const char *const known[] = { "hostPath", "containerPath", "options", "type", NULL };
    const struct notation *options;
    size_t n;
    int r = check_members(m, from, known);

    if (r == 0)
        r = get_text(m, from, "hostPath", true, &mount->host);
    if (r == 0)
        r = get_text(m, from, "containerPath", true, &mount->path);
    if (r == 0)
        r = get_list(m, from, "options", &options, &n);
    if (r != 0)
        return r;
    if (!is_plain_path(mount->host) || !is_plain_path(mount->path))
        return refuse(m, from, "'", mount->path, "' is not mounted: paths must be plain and absolute");
    if (strncmp(mount->path, "/dev/", 5) == 0 || strncmp(mount->path, "/proc/", 6) == 0)
        snprintf(refused, size, "it mounts something at %s", parse_quote_path(mount->path).text);
    for (; options; options = options->next)
        if (options->kind == NOTATION_TEXT && strcmp(options->text, "rw") == 0)
            snprintf(refused, size, "it mounts %s for writing", parse_quote_path(mount->host).text);
    return 0;
}

static void refuse_hooks(const struct notation *hook, struct cdi_edits *edits)
{
    const struct notation *name = notation_get(hook, "hookName"), *path = notation_get(hook, "path");

    snprintf(edits->refused, sizeof edits->refused, "it wants the hook %s (%s) run on the host, outside of every box",
             name && name->kind == NOTATION_TEXT ? parse_quote(name->text).text : "?",
             path && path->kind == NOTATION_TEXT ? parse_quote_path(path->text).text : "?");
}

static void *make_list(size_t n, size_t size)
{
    return calloc(n ? n : 1, size);
}

static int read_env(const struct cdi_maker *m, const struct notation *from, struct cdi_edits *edits)
{
    for (const struct notation *c = from; c; c = c->next) {
        const char *equals = c->kind == NOTATION_TEXT ? strchr(c->text, '=') : NULL;
        if (!equals || equals == c->text)
            return refuse(m, c, "'", c->text, "' must be NAME=VALUE");
        for (const char *at = c->text; at < equals; at++)
            if (!is_alnum(*at) && *at != '_')
                return refuse(m, c, "'", c->text, "' is not the name of a variable");
        edits->env[edits->n_env++] = c->text;
    }
    return 0;
}

static int read_edits(const struct cdi_maker *m, const struct notation *from, struct cdi_edits *edits)
{
    static const char *const known[] = { "env",        "deviceNodes", "mounts",         "hooks",
                                         "netDevices", "intelRdt",    "additionalGids", "additionalGIDs", NULL };
    const struct notation *env, *nodes, *mounts, *hooks;
    size_t n_env, n_nodes, n_mounts, n_hooks;

    if (!from || (from->kind == NOTATION_TEXT && !from->text[0]))
        return 0;
    int r = check_members(m, from, known);
    if (r < 0 || (r = get_list(m, from, "env", &env, &n_env)) < 0
        || (r = get_list(m, from, "deviceNodes", &nodes, &n_nodes)) < 0
        || (r = get_list(m, from, "mounts", &mounts, &n_mounts)) < 0
        || (r = get_list(m, from, "hooks", &hooks, &n_hooks)) < 0)
        return r;
    edits->env = make_list(n_env, sizeof *edits->env);
    edits->node = make_list(n_nodes, sizeof *edits->node);
    edits->mount = make_list(n_mounts, sizeof *edits->mount);
    if (!edits->env || !edits->node || !edits->mount)
        return err_at(m->e, ENOMEM, STEP_MEMORY, 0, m->name);
    r = read_env(m, env, edits);
    for (; nodes && r == 0; nodes = nodes->next)
        r = read_node(m, nodes, &edits->node[edits->n_nodes++]);
    for (; mounts && r == 0; mounts = mounts->next)
        r = read_mount(m, mounts, &edits->mount[edits->n_mounts++], edits->refused, sizeof edits->refused);
    for (size_t i = 4; known[i]; i++)
        if (notation_get(from, known[i]))
            snprintf(edits->refused, sizeof edits->refused, "it wants %s", known[i]);
    if (hooks)
        refuse_hooks(hooks, edits);
    return r;
}

static int check_version(const struct cdi_maker *m, const struct notation *root)
{
    static const char *const versions[] = { "0.3.", "0.4.", "0.5.", "0.6.", "0.7.", "0.8.", NULL };
    const char *version;
    int r = get_text(m, root, "cdiVersion", true, &version);

    for (size_t i = 0; r == 0 && versions[i]; i++)
        if (strncmp(version, versions[i], 4) == 0 && strspn(version + 4, "0123456789") == strlen(version + 4))
            return 0;
    return r < 0 ? r : refuse(m, root, "cdiVersion '", version, "' is not understood; 0.3.0 to 0.8.0 are");
}

static int read_devices(const struct cdi_maker *m, const struct notation *from, struct cdi_file *file)
{
    static const char *const known[] = { "name", "annotations", "containerEdits", NULL };

    for (; from; from = from->next) {
        struct cdi_device *device = &file->device[file->n];
        int r = check_members(m, from, known);
        if (r == 0)
            r = get_text(m, from, "name", true, &device->name);
        if (r == 0 && !is_word(device->name, strlen(device->name), "_-.:"))
            r = refuse(m, from, "'", device->name, "' cannot be the name of a device");
        for (size_t i = 0; i < file->n && r == 0; i++)
            if (strcmp(file->device[i].name, device->name) == 0)
                r = refuse(m, from, "two devices have the name '", device->name, "'");
        if (r < 0)
            return r;
        file->n++;
        if ((r = read_edits(m, notation_get(from, "containerEdits"), &device->edits)) < 0)
            return r;
    }
    return 0;
}

int cdi_parse(const char *name, const char *text, size_t size, struct cdi_file *ret, struct err *e)
{
    static const char *const known[] = { "cdiVersion", "kind", "annotations", "devices", "containerEdits", NULL };
    struct cdi_maker m = { name, e };
    struct cdi_file file = { 0 };
    const struct notation *devices = NULL;
    size_t n = 0;
    int r = notation_read(name, text, size, &file.tree, e);

    if (r < 0)
        return r;
    const struct notation *root = file.tree.root;
    if ((r = check_members(&m, root, known)) == 0 && (r = check_version(&m, root)) == 0
        && (r = get_text(&m, root, "kind", true, &file.kind)) == 0
        && !cdi_kind_is_valid(file.kind, strlen(file.kind)))
        r = refuse(&m, root, "kind '", file.kind, "' is not like vendor.com/class");
    if (r == 0)
        r = get_list(&m, root, "devices", &devices, &n);
    if (r == 0 && !(file.device = make_list(n, sizeof *file.device)))
        r = err_at(e, ENOMEM, STEP_MEMORY, 0, name);
    if (r == 0)
        r = read_edits(&m, notation_get(root, "containerEdits"), &file.edits);
    if (r == 0)
        r = read_devices(&m, devices, &file);
    if (r < 0) {
        cdi_free(&file);
        return r;
    }
    *ret = file;
    return 0;
}

static void free_edits(struct cdi_edits *edits)
{
    free(edits->env);
    free(edits->node);
    free(edits->mount);
}

void cdi_free(struct cdi_file *file)
{
    for (size_t i = 0; i < file->n; i++)
        free_edits(&file->device[i].edits);
    free_edits(&file->edits);
    free(file->device);
    notation_free(&file->tree);
    *file = (struct cdi_file){ 0 };
}
