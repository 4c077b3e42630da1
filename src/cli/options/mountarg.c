#include "cli/options/mountarg.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "base/parse.h"

static int refuse(const char *text, const char *why, struct err *e)
{
    return err_set(e, EINVAL, STEP_USAGE, "--mount %s: %s", parse_quote(text).text, why);
}

/* Is path the directory itself or something below it? */
static bool is_within(const char *path, const char *directory)
{
    size_t length = strlen(directory);

    return !strncmp(path, directory, length) && (path[length] == 0 || path[length] == '/');
}

/* Copies a target without empty and "." components; NULL if there is "..", too long a component, or no memory. */
static const char *normalise_target(const char *target, struct arena *arena, const char **ret_why)
{
    char *copy = arena_alloc(arena, strlen(target) + 2), *to = copy;

    *ret_why = NULL;
    if (!copy)
        return NULL;
    for (const char *p = target; *p;) {
        size_t length;
        p += strspn(p, "/");
        length = strcspn(p, "/");
        if (length == 2 && !memcmp(p, "..", 2))
            *ret_why = "the target must not contain '..'";
        else if (length > NAME_MAX)
            *ret_why = "a part of the target is longer than 255 bytes";
        if (*ret_why)
            return NULL;
        if (length && !(length == 1 && *p == '.')) {
            *to++ = '/';
            memcpy(to, p, length);
            to += length;
        }
        p += length;
    }
    if (to == copy)
        *to++ = '/';
    *to = 0;
    return copy;
}

static int check_target(const char *text, const char *target, struct err *e)
{
    if (!strcmp(target, "/"))
        return refuse(text, "the target must not be '/'; to give the box another root use --root DIR", e);
    if (is_within(target, "/proc") || is_within(target, "/dev") || is_within(target, "/sys"))
        return refuse(text, "the target must not be in /proc, /dev or /sys; the box has its own", e);
    return 0;
}

int mountarg_parse(const char *text, struct arena *arena, struct mount_spec *ret, struct err *e)
{
    static const char form[] = "write SOURCE:TARGET, SOURCE:TARGET:ro or SOURCE:TARGET:rw";
    const char *first = strchr(text, ':');
    const char *second = first ? strchr(first + 1, ':') : NULL;
    const char *why;
    bool writable = false;

    if (!first || first == text || (second && strchr(second + 1, ':')))
        return refuse(text, form, e);
    if (second && !strcmp(second, ":rw"))
        writable = true;
    else if (second && strcmp(second, ":ro"))
        return refuse(text, "the third part is ro or rw", e);

    const char *source = arena_copy(arena, text, (size_t)(first - text));
    const char *target = arena_copy(arena, first + 1, second ? (size_t)(second - first - 1) : strlen(first + 1));
    if (!source || !target)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "--mount");
    if (target[0] != '/')
        return refuse(text, "the target must be an absolute path in the box, e.g. /data", e);
    if (strlen(source) >= PATH_MAX || strlen(target) >= PATH_MAX)
        return refuse(text, "a path is longer than 4095 bytes", e);
    target = normalise_target(target, arena, &why);
    if (!target)
        return why ? refuse(text, why, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "--mount");
    int r = check_target(text, target, e);
    if (r < 0)
        return r;
    *ret = (struct mount_spec){ .source = source, .target = target, .writable = writable, .fd = -1 };
    return 0;
}

struct mount_spec *mountarg_root(struct box_spec *box)
{
    for (size_t i = 0; i < box->n_mounts; i++)
        if (box->mount[i].kind == MOUNT_ROOT)
            return &box->mount[i];
    box->mount[box->n_mounts] = (struct mount_spec){ .kind = MOUNT_ROOT, .fd = -1 };
    return &box->mount[box->n_mounts++];
}

int mountarg_add(struct box_spec *box, const char *text, struct arena *arena, struct err *e)
{
    struct mount_spec mount;

    if (box->n_mounts - !!spec_find(box, MOUNT_ROOT) == SPEC_MOUNTS_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "more than %d mounts", SPEC_MOUNTS_MAX);
    int r = mountarg_parse(text, arena, &mount, e);
    if (r < 0)
        return r;
    for (size_t i = 0; i < box->n_mounts; i++)
        if (box->mount[i].target && !strcmp(box->mount[i].target, mount.target))
            return err_set(e, EINVAL, STEP_USAGE, "two mounts have the target %s; leave one of them out",
                           parse_quote(mount.target).text);
    box->mount[box->n_mounts++] = mount;
    return 0;
}
