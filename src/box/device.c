/* There are two ways to give a device to a box. Root makes a node with the same number on the box's own /dev, with the
 * permissions of the specification: the host's node may be closed to all but a group that no box has. Without root the
 * host's node is bound, and its own permissions count; a device that the box's user could not open is refused here,
 * before the box is made. Only the node itself is opened (O_PATH), never the device: opening one can have effects. */
#define _GNU_SOURCE
#include "box/device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "proto/checks.h"

static int open_place(const char *name, const char *path, struct stat *ret_status, struct err *e)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
    FD fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);

    if (fd < 0 || fstat(fd, ret_status) < 0)
        return err_set(e, errno, STEP_USAGE, "device %s: %s: %s", parse_quote(name).text, parse_quote_path(path).text,
                       strerror(errno));
    return TAKE_FD(fd);
}

/* Whether the target is in the list already, for example because two devices share a node. */
static bool has_target(const struct box_spec *spec, const char *target)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mount[i].target && strcmp(spec->mount[i].target, target) == 0)
            return true;
    return false;
}

static int add(struct box_spec *spec, const char *name, struct mount_spec mount, struct device_files *files,
               struct err *e)
{
    if (spec->n_mounts == SPEC_LIST_MAX || files->n == SPEC_LIST_MAX) {
        fd_close(mount.fd);
        return err_set(e, E2BIG, STEP_USAGE, "device %s: a box cannot have so many mounts", parse_quote(name).text);
    }
    files->fd[files->n++] = mount.fd;
    spec->mount[spec->n_mounts++] = mount;
    return 0;
}

/* For a bound node: whether the box's user has the rights in the specification, and no more. */
static int check_access(const struct cdi_node *node, const char *name, const struct stat *status, struct err *e)
{
    unsigned others = status->st_mode & 7, own = status->st_mode >> 6 & 7, wanted = node->write ? 6 : 4;
    bool is_own = status->st_uid == geteuid();

    if ((others & wanted) != wanted && !(is_own && (own & wanted) == wanted))
        return err_set(e, ENOTSUP, STEP_USAGE,
                       "device %s: %s is not open to everybody, and a box made without root has none of its caller's "
                       "groups; root can give it, or 'chmod o+rw'",
                       parse_quote(name).text, parse_quote_path(node->host).text);
    if (!node->write && ((others | (is_own ? own : 0)) & 2))
        return err_set(e, ENOTSUP, STEP_USAGE, "device %s: only root can give %s for reading alone",
                       parse_quote(name).text, parse_quote_path(node->host).text);
    return 0;
}

static int add_node(struct box_spec *spec, const struct host_facts *facts, const char *name,
                    const struct cdi_node *node, struct device_files *files, struct err *e)
{
    struct stat status;

    if (has_target(spec, node->path))
        return 0;
    FD fd = open_place(name, node->host, &status, e);
    if (fd < 0)
        return fd;
    if ((!S_ISCHR(status.st_mode) && !S_ISBLK(status.st_mode))
        || (node->type && (node->type == 'b') != S_ISBLK(status.st_mode)))
        return err_set(e, ENOTSUP, STEP_USAGE, "device %s: %s is not the kind of device that it should be",
                       parse_quote(name).text, parse_quote_path(node->host).text);
    if (node->has_number && status.st_rdev != makedev(node->major, node->minor))
        return err_set(e, ENOTSUP, STEP_USAGE, "device %s: %s has the number %u:%u, not %u:%u; make the specification "
                       "again", parse_quote(name).text, parse_quote_path(node->host).text, major(status.st_rdev),
                       minor(status.st_rdev), node->major, node->minor);
    int r = facts->can_mknod ? 0 : check_access(node, name, &status, e);
    if (r < 0)
        return r;
    return add(spec, name, (struct mount_spec){ .kind = MOUNT_DEVICE, .source = node->host, .target = node->path,
                                                .writable = node->write, .is_file = true, .device = status.st_rdev,
                                                .is_block = S_ISBLK(status.st_mode), .fd = TAKE_FD(fd) }, files, e);
}

static int add_tree(struct box_spec *spec, const char *name, const struct cdi_mount *mount, struct device_files *files,
                    struct err *e)
{
    struct stat status;

    /* With the host's /usr it exists already, like most mounts of specifications. */
    if (has_target(spec, mount->path)
        || (!spec_root(spec) && strcmp(mount->host, mount->path) == 0 && strncmp(mount->path, "/usr/", 5) == 0))
        return 0;
    if (!target_is_plain(mount->path, strlen(mount->path) + 1))
        return err_set(e, ENOTSUP, STEP_USAGE, "device %s: nothing can be mounted at %s", parse_quote(name).text,
                       parse_quote_path(mount->path).text);
    FD fd = open_place(name, mount->host, &status, e);
    if (fd < 0)
        return fd;
    if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
        return err_set(e, ENOTSUP, STEP_USAGE, "device %s: %s is neither a directory nor a plain file",
                       parse_quote(name).text, parse_quote_path(mount->host).text);
    return add(spec, name, (struct mount_spec){ .kind = MOUNT_LAYER, .source = mount->host, .target = mount->path,
                                                .is_file = S_ISREG(status.st_mode), .fd = TAKE_FD(fd) }, files, e);
}

static int add_edits(struct box_spec *spec, const struct host_facts *facts, const char *name,
                     const struct cdi_edits *edits, struct device_files *files, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < edits->n_nodes && r == 0; i++)
        r = add_node(spec, facts, name, &edits->node[i], files, e);
    for (size_t i = 0; i < edits->n_mounts && r == 0; i++)
        r = add_tree(spec, name, &edits->mount[i], files, e);
    return r;
}

int device_add(struct box_spec *spec, const struct host_facts *facts, const struct devices *devices, const char *name,
               struct device_files *files, struct err *e)
{
    const struct cdi_file *file;
    const struct cdi_device *device;
    int r = devices_find(devices, name, &file, &device, e);

    if (r == 0)
        r = add_edits(spec, facts, name, &file->edits, files, e);
    return r < 0 ? r : add_edits(spec, facts, name, &device->edits, files, e);
}

void device_close(struct device_files *files)
{
    while (files->n > 0)
        fd_close(files->fd[--files->n]);
}
