#define _GNU_SOURCE
#include "box/layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rmtree.h"

enum { INFO_BYTES = 1 << 20, LEFT_S = 600 };

static const char staged[] = "new-", removed[] = "old-", partial[] = "part-";

void layers_place(char ret[LAYER_PATH])
{
    const char *named = secure_getenv("CARREL_LAYERS"), *data = secure_getenv("XDG_DATA_HOME"),
               *home = secure_getenv("HOME");
    int n = 0;

    ret[0] = '\0';
    if (named && named[0] == '/')
        n = snprintf(ret, LAYER_PATH, "%s", named);
    else if (geteuid() == 0)
        n = snprintf(ret, LAYER_PATH, "/var/lib/carrel/layers");
    else if (data && data[0] == '/')
        n = snprintf(ret, LAYER_PATH, "%s/carrel/layers", data);
    else if (home && home[0] == '/')
        n = snprintf(ret, LAYER_PATH, "%s/.local/share/carrel/layers", home);
    if (n >= LAYER_PATH)
        ret[0] = '\0';
}

static int make_folders(const char *path)
{
    char part[LAYER_PATH];

    for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
        if (mkdir(part, slash ? 0755 : 0700) < 0 && errno != EEXIST)
            return -errno;
        if (!slash)
            return 0;
    }
}

int layers_open(const char *place, const char *owner, struct layers *ret, struct err *e)
{
    struct stat status;

    ret->dir = -1;
    if (!place[0])
        return err_set(e, ENOENT, STEP_USAGE,
                       "there is no place for packages: HOME is not set; CARREL_LAYERS can name a "
                       "directory");
    int r = make_folders(place);
    FD above = r < 0 ? -1 : open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0 || fstat(above, &status) < 0)
        return err_set(e, r < 0 ? -r : errno, STEP_HOST, "the directory of packages %s", place);
    if (status.st_uid != geteuid() || (status.st_mode & 022))
        return err_set(e, EPERM, STEP_HOST, "the directory of packages %s must belong to you and be closed to the "
                       "writes of others", place);
    if (mkdirat(above, owner, 0700) < 0 && errno != EEXIST)
        return err_set(e, errno, STEP_HOST, "the directory of packages %s/%s", place, owner);
    if (snprintf(ret->path, sizeof ret->path, "%s/%s", place, owner) >= (int)sizeof ret->path)
        return err_set(e, ENAMETOOLONG, STEP_HOST, "the directory of packages %s", place);
    ret->dir = openat(above, owner, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return ret->dir < 0 ? err_set(e, errno, STEP_HOST, "the directory of packages %s", ret->path) : 0;
}

void layers_close(struct layers *layers)
{
    layers->dir = fd_close(layers->dir);
}

static bool is_digest(const char *name, size_t length)
{
    return length == SHA256_HEX && strspn(name, "0123456789abcdef") >= SHA256_HEX;
}

/* ---- crashes of the host: a layer is marked until all of it is on the disk ---- */

static void read_boot(char ret[64])
{
    ssize_t n = fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret, 64);
    ret[n > 0 ? n : 0] = '\0';
}

/* The mark is from an earlier boot: files may be empty that were not written when the host stopped. */
static bool may_be_damaged(const struct layers *layers, const char *digest)
{
    char name[LAYER_NAME + 8], marked[64], boot[64];

    snprintf(name, sizeof name, "%s.dirty", digest);
    ssize_t n = fd_read_file(layers->dir, name, marked, sizeof marked);
    marked[n > 0 ? n : 0] = '\0';
    read_boot(boot);
    return n >= 0 && strcmp(marked, boot) != 0;
}

/* Flushing a whole disk may take long, so it is not waited for. */
static void sync_later(const struct layers *layers, const char *digest)
{
    char name[LAYER_NAME + 8];

    snprintf(name, sizeof name, "%s.dirty", digest);
    if (fork() != 0)
        return;
    (void)setsid();
    for (int fd = 0; fd < 3; fd++)
        fd_close(fd);
    if (syncfs(layers->dir) == 0)
        (void)unlinkat(layers->dir, name, 0);
    _exit(0);
}

int layer_find(const struct layers *layers, const char *key, char ret[LAYER_NAME])
{
    char name[LAYER_NAME + 8], to[LAYER_NAME + 1];
    struct stat status;

    snprintf(name, sizeof name, "%s.key", key);
    ssize_t n = readlinkat(layers->dir, name, to, sizeof to);
    if (n < 0)
        return -errno;
    if (!is_digest(to, (size_t)n))
        return -ENOENT;
    to[n] = '\0';
    if (fstatat(layers->dir, to, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode))
        return -ENOENT;
    if (may_be_damaged(layers, to)) {
        struct err e;
        (void)!layer_remove(layers, to, &e);
        return -ENOENT;
    }
    memcpy(ret, to, LAYER_NAME);
    return 0;
}

int layer_open(const struct layers *layers, const char *digest, int *ret)
{
    char info[LAYER_NAME + 8];

    if (!is_digest(digest, strlen(digest)))
        return -ENOENT;
    FD fd = openat(layers->dir, digest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    snprintf(info, sizeof info, "%s.info", digest);
    (void)utimensat(layers->dir, info, NULL, 0);     /* time of the last use */
    *ret = TAKE_FD(fd);
    return 0;
}

/* ---- making a layer ---- */

/* Its writer was killed, or its layer is gone: a living one needs such a file for a moment only. */
static bool is_old(const struct layers *layers, const char *name)
{
    struct stat status;

    return fstatat(layers->dir, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && time(NULL) - status.st_mtime > LEFT_S;
}

/* DIGEST.info and DIGEST.dirty without the layer, KEY.key that leads to none. */
static bool is_orphan(const struct layers *layers, const char *name)
{
    const char *dot = strchr(name, '.');
    char layer[LAYER_NAME + 1];
    struct stat status;

    if (!dot || !is_digest(name, (size_t)(dot - name)))
        return false;
    if (strcmp(dot, ".key") == 0) {
        ssize_t n = readlinkat(layers->dir, name, layer, sizeof layer);
        if (n < 0 || !is_digest(layer, (size_t)n))
            return n >= 0;
        layer[n] = '\0';
        return fstatat(layers->dir, layer, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
    }
    snprintf(layer, sizeof layer, "%.*s", (int)(dot - name), name);
    return (strcmp(dot, ".info") == 0 || strcmp(dot, ".dirty") == 0)
           && fstatat(layers->dir, layer, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT && is_old(layers, name);
}

unsigned layers_sweep(const struct layers *layers)
{
    unsigned n = 0;

    FD copy = openat(layers->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);

    if (!list)
        return 0;
    copy = -1;
    for (struct dirent *d; (d = readdir(list));) {
        if (is_orphan(layers, d->d_name)
            || (strncmp(d->d_name, partial, sizeof partial - 1) == 0 && is_old(layers, d->d_name)))
            (void)unlinkat(layers->dir, d->d_name, 0);
        if (strncmp(d->d_name, staged, sizeof staged - 1) != 0 && strncmp(d->d_name, removed, sizeof removed - 1) != 0)
            continue;
        FD one = openat(layers->dir, d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (one < 0 || flock(one, LOCK_EX | LOCK_NB) == 0)
            n += rmtree(layers->dir, d->d_name) == 0;
    }
    closedir(list);
    return n;
}

int layers_owners(const char *place, void (*call)(const struct layers *layers, const char *owner, void *arg), void *arg,
                  struct err *e)
{
    DIR *list = place[0] ? opendir(place) : NULL;
    int r = 0;

    if (!list)
        return !place[0] || errno == ENOENT ? 0 : err_set(e, errno, STEP_HOST, "the directory of packages %s", place);
    for (struct dirent *d; r == 0 && (d = readdir(list));) {
        struct layers one;
        if ((strncmp(d->d_name, "uid-", 4) != 0 && strncmp(d->d_name, "id-", 3) != 0)
            || (r = layers_open(place, d->d_name, &one, e)) < 0)
            continue;
        call(&one, d->d_name, arg);
        layers_close(&one);
    }
    closedir(list);
    return r;
}

int layer_stage(const struct layers *layers, struct layer_stage *ret, struct err *e)
{
    uint64_t number;

    (void)layers_sweep(layers);
    for (;;) {
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return err_at(e, errno, STEP_HOST, 0, "a name for the packages");
        snprintf(ret->name, sizeof ret->name, "%s%016llx", staged, (unsigned long long)number);
        if (mkdirat(layers->dir, ret->name, 0755) < 0 && errno != EEXIST)
            return err_set(e, errno, STEP_HOST, "making a directory in %s", layers->path);
        FD fd = openat(layers->dir, ret->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        /* Another process's sweep may have come first. */
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            continue;
        struct stat here, there;
        if (fstat(fd, &here) < 0 || fstatat(layers->dir, ret->name, &there, AT_SYMLINK_NOFOLLOW) < 0
            || here.st_ino != there.st_ino)
            continue;
        ret->fd = TAKE_FD(fd);
        return 0;
    }
}

void layer_drop(const struct layers *layers, struct layer_stage *stage)
{
    if (stage->fd < 0)
        return;
    (void)!rmtree(layers->dir, stage->name);
    stage->fd = fd_close(stage->fd);
}

static int write_file(int dir, const char *name, const char *text)
{
    char temporary[LAYER_NAME + 24];

    snprintf(temporary, sizeof temporary, "%s%s", partial, name);
    FD fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
    if (r == 0 && renameat(dir, temporary, dir, name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(dir, temporary, 0);
    return r;
}

int layer_keep(const struct layers *layers, struct layer_stage *stage, const char *digest, const char *info,
               struct err *e)
{
    char name[LAYER_NAME + 8], boot[64];

    read_boot(boot);
    snprintf(name, sizeof name, "%s.dirty", digest);
    int r = write_file(layers->dir, name, boot);
    snprintf(name, sizeof name, "%s.info", digest);
    if (r == 0)
        r = write_file(layers->dir, name, info);
    /* A layer is not empty, so rename replaces no existing one. */
    if (r == 0 && renameat(layers->dir, stage->name, layers->dir, digest) < 0)
        r = errno == ENOTEMPTY ? -EEXIST : -errno;
    if (r < 0) {
        layer_drop(layers, stage);
    } else {
        stage->fd = fd_close(stage->fd);
        sync_later(layers, digest);
    }
    return r == 0 || r == -EEXIST ? 0 : err_set(e, -r, STEP_HOST, "keeping the packages in %s", layers->path);
}

int layer_name(const struct layers *layers, const char *key, const char *digest, struct err *e)
{
    char name[LAYER_NAME + 8], temporary[LAYER_NAME + 24];

    snprintf(name, sizeof name, "%s.key", key);
    snprintf(temporary, sizeof temporary, "%s%s", partial, name);
    (void)unlinkat(layers->dir, temporary, 0);
    if (symlinkat(digest, layers->dir, temporary) == 0 && renameat(layers->dir, temporary, layers->dir, name) == 0)
        return 0;
    return err_set(e, errno, STEP_HOST, "keeping the packages in %s", layers->path);
}

/* ---- all layers ---- */

static void list_one(const struct layers *layers, const char *digest, void (*call)(const struct layer_info *, void *),
                     void *arg)
{
    static char text[INFO_BYTES];
    struct layer_info info = { .text = text };
    struct stat status;
    char name[LAYER_NAME + 8];

    snprintf(name, sizeof name, "%s.info", digest);
    FD fd = openat(layers->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    memcpy(info.digest, digest, LAYER_NAME);
    if (fd >= 0 && fstat(fd, &status) == 0)
        info.used_s = status.st_mtim.tv_sec;
    const char *bytes = strstr(text, "\nbytes ");
    info.bytes = bytes ? strtoull(bytes + 7, NULL, 10) : 0;
    call(&info, arg);
}

int layers_each(const struct layers *layers, void (*call)(const struct layer_info *info, void *arg), void *arg,
                struct err *e)
{
    FD copy = openat(layers->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);

    if (!list)
        return err_set(e, errno, STEP_HOST, "reading %s", layers->path);
    copy = -1;
    for (struct dirent *d; (d = readdir(list));)
        if (is_digest(d->d_name, strlen(d->d_name)))
            list_one(layers, d->d_name, call, arg);
    closedir(list);
    return 0;
}

int layer_remove(const struct layers *layers, const char *digest, struct err *e)
{
    char old[LAYER_NAME + 8], info[LAYER_NAME + 8];

    FD fd = openat(layers->dir, digest, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || !is_digest(digest, strlen(digest)))
        return err_set(e, ENOENT, STEP_USAGE, "there is no layer %.64s", digest);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, EBUSY, STEP_USAGE, "a box uses the layer %.12s; remove the box first", digest);
    snprintf(old, sizeof old, "%s%s", removed, digest);
    snprintf(info, sizeof info, "%s.dirty", digest);
    (void)unlinkat(layers->dir, info, 0);
    snprintf(info, sizeof info, "%s.info", digest);
    int r = renameat(layers->dir, digest, layers->dir, old) < 0 ? -errno : 0;
    (void)unlinkat(layers->dir, info, 0);
    if (r == 0) {
        r = rmtree(layers->dir, old);
        (void)layers_sweep(layers);     /* its keys */
    }
    return r < 0 ? err_set(e, -r, STEP_HOST, "removing the layer %.12s", digest) : 0;
}
