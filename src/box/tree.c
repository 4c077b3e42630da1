/* Detached trees, made in the keeper's mount namespace (open_tree cannot clone from another). A family's init inherits
 * them; a plain box's is born before they are made, so that the first payload can make the network meanwhile, and
 * receives them over its link.
 *
 * The keeper fills the root while it is detached, under the keeper's own user, which the box does not know. So no user
 * of the box owns any part of it, and real device nodes can be made on it, where mounting the host's one by one would
 * cost more than the rest of the root. */
#define _GNU_SOURCE
#include "box/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "box/leafview.h"
#include "box/payload.h"
#include "sys/mountfd.h"

enum {
    INODE_BYTES = 4096,
    ROOT_INODES = 4096,
    ROOT_BYTES = 1 << 20,
    ROOT_WRITABLE_MAX = 64 << 20,
    SCRATCH_DEFAULT = 64 << 20,
    SECRETS_BYTES = 8 << 20     /* all files that a command may have, old and new */
};
enum { STORE_NOBODY = 65536 };       /* on the disk of a store: beyond every box's ids */

static int make_file(int dir, const struct plan_entry *entry)
{
    FD fd = openat(dir, entry->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, entry->mode);
    if (fd < 0)
        return -errno;
    size_t size = entry->size ? entry->size : strlen(entry->text);
    return size ? fd_write_all(fd, entry->text, size) : 0;
}

static int make_entry(int dir, const struct plan_entry *entry)
{
    switch (entry->kind) {
    case PLAN_DIR:
        /* The umask is 0; see box_host_open. */
        return mkdirat(dir, entry->path, entry->mode) < 0 ? -errno : 0;
    case PLAN_LINK:
        return symlinkat(entry->text, dir, entry->path) < 0 ? -errno : 0;
    case PLAN_FILE:
        return make_file(dir, entry);
    case PLAN_NODE:
        return mknodat(dir, entry->path, entry->mode, entry->device) < 0 ? -errno : 0;
    }
    return -EINVAL;
}

/* Opens the parent folder of an entry, without following a link: one would lead to the host's own files. */
static int open_above(int tree, const char *path, const char *slash)
{
    char above[256];

    if (snprintf(above, sizeof above, "%.*s", (int)(slash - path), path) >= (int)sizeof above)
        return -ENAMETOOLONG;
    return mountfd_open_plain(tree, above);
}

/* On a store that had a box before, the guest may have put anything at the place of a mount point: no link is followed,
 * and existing files stay as they are. */
static int make_on_store(const struct plan *plan, int store, const struct plan_entry *entry)
{
    const char *slash = strrchr(entry->path, '/'), *name = slash ? slash + 1 : entry->path;
    uid_t uid = entry->owner == OWNER_BOX_USER ? plan->uid : entry->owner == OWNER_BOX_ROOT ? 0 : STORE_NOBODY;
    gid_t gid = entry->owner == OWNER_BOX_USER ? plan->gid : entry->owner == OWNER_BOX_ROOT ? 0 : STORE_NOBODY;
    struct stat status;

    FD dir = slash ? open_above(store, entry->path, slash) : mountfd_open_plain(store, ".");
    if (dir < 0)
        return dir;
    struct plan_entry last = *entry;
    last.path = name;
    int r = make_entry(dir, &last);
    if (r == 0)
        return fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
    if (r != -EEXIST || fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return r;
    if (entry->kind == PLAN_DIR)
        return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
    if (entry->text && entry->text[0])      /* no mount point: the box may have changed or removed it */
        return 0;
    return S_ISREG(status.st_mode) ? 0 : -EEXIST;
}

/* The parent folder of the last entry, which the next entry often shares. */
struct above {
    int         tree, dir;
    const char *path;
    size_t      length;
};

static int find_above(struct above *above, int tree, const char *path, const char *slash)
{
    size_t length = (size_t)(slash - path);

    if (above->dir >= 0 && above->tree == tree && above->length == length && memcmp(above->path, path, length) == 0)
        return above->dir;
    fd_close(above->dir);
    *above = (struct above){ .tree = tree, .dir = open_above(tree, path, slash), .path = path, .length = length };
    return above->dir;
}

static int make_owned(struct above *above, int tree, const struct plan_entry *entry, uid_t uid, gid_t gid)
{
    const char *slash = strrchr(entry->path, '/');
    struct plan_entry last = *entry;
    int dir = slash ? find_above(above, tree, entry->path, slash) : tree;

    if (dir < 0)
        return dir;
    last.path = slash ? slash + 1 : entry->path;
    int r = make_entry(dir, &last);
    if (r == 0 && uid != (uid_t)-1 && fchownat(dir, last.path, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    return r;
}

static int fill(const struct plan *plan, const struct ids *ids, bool keep_own, const struct trees *trees, struct err *e)
{
    uint32_t root_id = ids_outside(ids, 0, false);
    uint32_t user = ids_outside(ids, plan->uid, keep_own), group = ids_outside(ids, plan->gid, keep_own);

    if (plan->writable_root && fchown(trees->root, root_id, root_id) < 0)
        return err_at(e, errno, STEP_ROOT, 0, "/");
    struct above above = { .dir = -1 };
    int r = 0;
    for (size_t i = 0; i < plan->n_entries && r == 0; i++) {
        const struct plan_entry *entry = &plan->entry[i];
        int tree = entry->on_scratch ? trees->scratch : trees->root;
        if (entry->on_scratch && plan->store >= 0) {
            r = make_on_store(plan, tree, entry);
            if (r < 0)
                r = err_set(e, -r, STEP_ROOT, "%s among the box's kept files", entry->path);
            continue;
        }
        bool of_user = entry->owner == OWNER_BOX_USER, of_root = entry->owner == OWNER_BOX_ROOT;
        r = make_owned(&above, tree, entry, of_user ? user : of_root ? root_id : (uid_t)-1,
                       of_user ? group : of_root ? root_id : (gid_t)-1);
        if (r < 0)
            r = err_at(e, -r, STEP_ROOT, i, entry->path);
    }
    fd_close(above.dir);
    return r;
}

/* One inode for each block would let empty files take as much kernel memory as the limit gives to data. */
static uint64_t inodes_for(uint64_t bytes)
{
    return bytes / INODE_BYTES / 4 + 1024;
}

static int make_tmpfs(uint64_t bytes, uint64_t inodes, const char *mode, unsigned flags, int *ret)
{
    char size[24], count[24];

    snprintf(size, sizeof size, "%llu", (unsigned long long)bytes);
    snprintf(count, sizeof count, "%llu", (unsigned long long)inodes);
    const char *options[] = { "size", size, "nr_inodes", count, "mode", mode, NULL };
    return mountfd_new("tmpfs", options, flags, ret);
}

/* The caller's id on the disk becomes the box's user; other users' files have no owner in the box. */
static int map_caller(const struct box_host *host, const struct plan *plan, const struct ids *ids, int tree)
{
    char uid_map[64], gid_map[64];

    snprintf(uid_map, sizeof uid_map, "%u %u 1\n", host->caller_uid, ids_outside(ids, plan->uid, false));
    snprintf(gid_map, sizeof gid_map, "%u %u 1\n", host->caller_gid, ids_outside(ids, plan->gid, false));
    FD users = ids_namespace(host->self, uid_map, gid_map);
    return users < 0 ? users : mountfd_map_ids(tree, users);
}

static int map_whole(const struct box_host *host, const struct ids *ids, int tree)
{
    char map[IDS_MAP_TEXT];

    ids_map_text(ids, 0, false, 0, map);
    FD users = ids_namespace(host->self, map, map);
    return users < 0 ? users : mountfd_map_ids(tree, users);
}

/* A rootless keeper lives in a mount namespace of its own and cannot clone from a descriptor of the caller's: the same
 * path is opened here, with the same user's rights, and must be the same file. */
static int reopen(int fd)
{
    char name[40], path[4096];
    struct stat there, here;

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    if (n < 0 || fstat(fd, &there) < 0)
        return -errno;
    path[n] = '\0';
    FD again = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    if (again < 0 || fstat(again, &here) < 0)
        return -errno;
    return here.st_dev == there.st_dev && here.st_ino == there.st_ino ? TAKE_FD(again) : -ESTALE;
}

static int clone_given(const struct box_host *host, const struct plan *plan, const struct ids *ids, bool keep_own,
                       const struct plan_mount *mount, int *ret, struct err *e)
{
    FD tree = -1;

    int r = mountfd_clone(mount->fd, "", mount->recursive, mount->flags, &tree);
    if (r == -EINVAL && host->rootless) {
        FD again = reopen(mount->fd);
        r = again < 0 ? again : mountfd_clone(again, "", mount->recursive, mount->flags, &tree);
    }
    if (r < 0)
        return err_at(e, -r, STEP_TREE, 0, mount->path);
    if (mount->source == FROM_CALLER && !keep_own && host->facts.can_map_ids)
        r = map_caller(host, plan, ids, tree);
    if (r == -EINVAL && !(mount->flags & TREE_READONLY))
        return err_set(e, EINVAL, STEP_USAGE,
                       "%s cannot be mounted for writing: its file system does not map ids; mount it ':ro'",
                       mount->path);
    /* Without a map a read-only tree shows less, and nothing that it should not. */
    if (r < 0 && r != -EINVAL)
        return err_at(e, -r, STEP_TREE, 0, mount->path);
    *ret = TAKE_FD(tree);
    return 0;
}

/* The disk has the box's own ids, as a store has. */
static int take_volume(const struct box_host *host, const struct ids *ids, const struct plan_mount *mount, int *ret)
{
    FD tree = fcntl(mount->fd, F_DUPFD_CLOEXEC, 3);
    int r = tree < 0 ? -errno : mountfd_restrict(tree, false, mount->flags);

    if (r == 0)
        r = map_whole(host, ids, tree);
    if (r == 0)
        *ret = TAKE_FD(tree);
    return r;
}

/* Shared memory has half of the memory, as the kernel does for a host. */
static int make_memory(const struct plan *plan, const char *path, const struct ids *ids, bool keep_own, int *ret)
{
    bool of_secrets = strcmp(path, PLAN_SECRETS) == 0;
    uint64_t half = plan->limits.memory_bytes ? plan->limits.memory_bytes / 2 : SCRATCH_DEFAULT;
    uint64_t bytes = of_secrets ? SECRETS_BYTES : half;
    FD tree = -1;
    int r = make_tmpfs(bytes, inodes_for(bytes), of_secrets ? "0700" : "1777", TREE_NOSUID | TREE_NODEV | TREE_NOEXEC,
                       &tree);

    if (r == 0 && fchownat(tree, "", ids_outside(ids, plan->uid, keep_own), ids_outside(ids, plan->gid, keep_own),
                           AT_EMPTY_PATH) < 0)
        r = -errno;
    if (r == 0)
        *ret = TAKE_FD(tree);
    return r;
}

static int clone_all(const struct box_host *host, const struct plan *plan, const struct ids *ids, bool keep_own,
                     struct trees *trees, struct err *e)
{
    FD root = open(plan->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_at(e, errno, STEP_TREE, 0, plan->root);
    FD host_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host_root < 0)
        return err_at(e, errno, STEP_TREE, 0, "/");

    for (size_t i = 0; i < plan->n_mounts; i++) {
        const struct plan_mount *mount = &plan->mount[i];
        int r = 0;

        if (mount->source == FROM_HOST || mount->source == FROM_DEVICE)
            r = mountfd_clone(mount->source == FROM_HOST ? root : host_root, mount->path, mount->recursive,
                              mount->flags, &trees->mount[i]);
        else if (mount->source == FROM_OVERLAY) {
            r = mountfd_clone(root, mount->path, false, TREE_READONLY | TREE_NOSUID | TREE_NODEV, &trees->mount[i]);
            if (r == 0 && host->facts.can_map_ids)
                r = map_whole(host, ids, trees->mount[i]);
            if (r == -EINVAL)
                return err_set(e, EINVAL, STEP_USAGE, "/%s cannot be made writable: its file system does not map ids",
                               mount->path);
        } else if (mount->source == FROM_MEMORY) {
            r = make_memory(plan, mount->path, ids, keep_own, &trees->mount[i]);
        } else if (mount->source == FROM_VOLUME) {
            r = take_volume(host, ids, mount, &trees->mount[i]);
        } else if (mount->source == FROM_CALLER || mount->source == FROM_LAYER
                   || mount->source == FROM_NODE) {
            r = clone_given(host, plan, ids, keep_own, mount, &trees->mount[i], e);
            if (r < 0)
                return r;
        }
        if (r == -ENOENT && mount->optional)
            r = 0;      /* it was removed since it was found */
        if (r < 0)
            return err_at(e, -r, STEP_TREE, i, mount->path);
    }
    return 0;
}

int trees_make(const struct box_host *host, const struct plan *plan, const struct ids *ids, bool keep_own,
               struct trees *ret, struct err *e)
{
    uint64_t disk = plan->limits.disk_bytes ? plan->limits.disk_bytes : SCRATCH_DEFAULT;
    uint64_t root = ROOT_BYTES;

    /* A writable root takes its part of the disk limit. */
    if (plan->writable_root && plan->store >= 0) {
        root = ROOT_WRITABLE_MAX;       /* it is memory, and counted as such */
    } else if (plan->writable_root) {
        root = disk / 4 < ROOT_WRITABLE_MAX ? disk / 4 : ROOT_WRITABLE_MAX;
        disk -= root;
    }

    root += plan->trust_bytes;

    ret->root = ret->scratch = -1;
    for (size_t i = 0; i < plan->n_mounts; i++)
        ret->mount[i] = -1;

    int r = 0;
    if (plan->store >= 0)
        r = (ret->scratch = fcntl(plan->store, F_DUPFD_CLOEXEC, 3)) < 0 ? -errno : 0;
    else
        r = make_tmpfs(disk, inodes_for(disk), "0755", TREE_NOSUID | TREE_NODEV, &ret->scratch);
    if (r < 0)
        r = err_at(e, -r, STEP_ROOT, 0, "scratch");
    if (r == 0) {
        r = make_tmpfs(root, ROOT_INODES, "0755", TREE_NOSUID, &ret->root);
        if (r < 0)
            r = err_at(e, -r, STEP_ROOT, 0, "root tmpfs");
    }
    if (r == 0)
        r = fill(plan, ids, keep_own, ret, e);
    /* The disk has the box's own ids, so that the next box can have another range of the host's. */
    if (r == 0 && plan->store >= 0 && (r = map_whole(host, ids, ret->scratch)) < 0)
        r = err_at(e, -r, STEP_ROOT, 0, "mapping the ids of the box's files");
    if (r == 0)
        r = clone_all(host, plan, ids, keep_own, ret, e);
    struct stat status = { 0 };
    if (r == 0 && fstat(ret->root, &status) < 0)
        r = err_at(e, errno, STEP_ROOT, 0, "/");
    ret->device = status.st_dev;
    if (r < 0)
        trees_close(ret, plan->n_mounts);
    return r;
}

void trees_close(struct trees *trees, size_t n)
{
    trees->root = fd_close(trees->root);
    trees->scratch = fd_close(trees->scratch);
    for (size_t i = 0; i < n; i++)
        trees->mount[i] = fd_close(trees->mount[i]);
}

/* Where the descriptors beside it belong. */
struct trees_part {
    uint32_t n, is_last;
    dev_t    device;
    uint32_t place[FDPASS_MAX];         /* a mount's number, or one of these: */
};
enum { PLACE_ROOT = PLAN_MOUNTS, PLACE_SCRATCH };

static int send_part(int link, struct trees_part *part, const int *fds, bool is_last, struct err *e)
{
    part->is_last = is_last;
    int r = link_send(link, part, sizeof *part, fds, part->n);
    part->n = 0;
    return r < 0 ? err_at(e, -r, STEP_ROOT, 0, "handing over the box's files") : 0;
}

static int send_all(const struct trees *trees, size_t n, int link, struct err *e)
{
    struct trees_part part = { .n = 2, .device = trees->device, .place = { PLACE_ROOT, PLACE_SCRATCH } };
    int fds[FDPASS_MAX] = { trees->root, trees->scratch }, r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        if (trees->mount[i] < 0)
            continue;
        if (part.n == FDPASS_MAX)
            r = send_part(link, &part, fds, false, e);
        part.place[part.n] = (uint32_t)i;
        fds[part.n++] = trees->mount[i];
    }
    return r < 0 ? r : send_part(link, &part, fds, true, e);
}

int trees_give(const struct box_host *host, const struct plan *plan, struct engine_box *box, struct err *e)
{
    struct trees trees;
    int r = trees_make(host, plan, &box->ids, box->keep_own, &trees, e);

    if (r < 0)
        return r;
    box->root_device = trees.device;
    leafview_add(plan, &box->leaf, &trees);
    r = send_all(&trees, plan->n_mounts, box->link, e);
    box->scratch = TAKE_FD(trees.scratch);
    trees_close(&trees, plan->n_mounts);
    return r;
}

int trees_receive(int link, size_t n, struct trees *ret, struct err *e)
{
    struct trees_part part = { .n = 0 };

    ret->root = ret->scratch = -1;
    for (size_t i = 0; i < n; i++)
        ret->mount[i] = -1;
    do {
        int fds[FDPASS_MAX];
        int r = link_receive(link, &part, sizeof part, fds, FDPASS_MAX, true);
        if (r < 0)
            return err_at(e, -r, STEP_WAIT, 0, "the box's files");
        for (size_t i = 0; i < part.n; i++)
            *(part.place[i] == PLACE_ROOT      ? &ret->root
              : part.place[i] == PLACE_SCRATCH ? &ret->scratch : &ret->mount[part.place[i]]) = fds[i];
    } while (!part.is_last);
    ret->device = part.device;
    return 0;
}
