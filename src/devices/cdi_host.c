/* By its specifications the administrator decides which of the host's devices a box may have. So a file counts only if
 * no other user can write it: the file and its directory belong to root (or to us, who then only trust ourselves) and
 * are not writable for group and others. /var/run/cdi is written at every start of the machine and takes precedence
 * over /etc/cdi. */
#define _GNU_SOURCE
#include "devices/cdi_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"

enum { OVERFLOW_ID = 65534 };
static const char *const directories[] = { "/var/run/cdi", "/etc/cdi" };

/* Without root a device grants only what its caller could open anyway, and only root can write to these directories; so
 * it is enough that others cannot write here. */
static bool is_trusted(const struct stat *status, bool rootless)
{
    return (status->st_uid == 0 || status->st_uid == geteuid() || (rootless && status->st_uid == OVERFLOW_ID))
        && !(status->st_mode & (S_IWGRP | S_IWOTH));
}

static bool is_specification(const char *name)
{
    const char *dot = strrchr(name, '.');

    return name[0] != '.' && dot && (!strcmp(dot, ".json") || !strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

static int read_one(int dir, const char *directory, const char *name, bool rootless, struct cdi_file *ret,
                    struct err *e)
{
    char path[512];
    struct stat status;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    FD fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &status) < 0)
        return err_set(e, errno, STEP_USAGE, "%s: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode) || !is_trusted(&status, rootless))
        return err_set(e, EPERM, STEP_USAGE, "%s does not count: others than root can write it", path);
    if (status.st_size > NOTATION_BYTES_MAX)
        return err_set(e, EFBIG, STEP_USAGE, "%s is larger than 1 MiB", path);
    size_t size = 0, room = (size_t)status.st_size;
    char *text = malloc(room + 1);
    if (!text)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, path);
    for (ssize_t n; size < room && (n = read(fd, text + size, room - size)) > 0;)
        size += (size_t)n;
    int r = cdi_parse(path, text, size, ret, e);
    free(text);
    return r;
}

static void read_directory(const char *directory, bool rootless, struct devices *devices)
{
    struct stat status;
    FD fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int dir = fd < 0 || fstat(fd, &status) < 0 || !is_trusted(&status, rootless) ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *list = dir < 0 ? NULL : fdopendir(dir);

    if (!list) {
        fd_close(dir);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(list));) {
        struct err e = { 0 };
        if (!is_specification(entry->d_name))
            continue;
        if (devices->n < DEVICES_FILES_MAX
            && read_one(fd, directory, entry->d_name, rootless, &devices->file[devices->n], &e) == 0) {
            devices->n++;
            continue;
        }
        if (devices->n_wrong++ == 0)
            devices->wrong = e;
    }
    closedir(list);
}

void devices_read(bool rootless, struct devices *ret)
{
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
        read_directory(directories[i], rootless, ret);
}

void devices_free(struct devices *devices)
{
    for (size_t i = 0; i < devices->n; i++)
        cdi_free(&devices->file[i]);
    devices->n = 0;
}

static const char *reason(const struct cdi_file *file, const struct cdi_device *device)
{
    return file->edits.refused[0] ? file->edits.refused : device->edits.refused;
}

void devices_each(const struct devices *devices, void (*call)(const char *name, const char *refused, void *arg),
                  void *arg)
{
    char name[CDI_NAME_MAX + 64];

    for (size_t i = 0; i < devices->n; i++)
        for (size_t k = 0; k < devices->file[i].n; k++) {
            const struct cdi_file *file = &devices->file[i];
            snprintf(name, sizeof name, "%s=%s", file->kind, file->device[k].name);
            call(name, reason(file, &file->device[k]), arg);
        }
}

struct names {
    char   text[120];
    size_t used;
};

static void add_name(const char *name, const char *refused, void *arg)
{
    struct names *names = arg;
    size_t n = strlen(name);

    (void)refused;
    if (names->used + n + 3 < sizeof names->text)
        names->used += (size_t)snprintf(names->text + names->used, sizeof names->text - names->used, "%s%s",
                                        names->used ? ", " : "", name);
}

int devices_find(const struct devices *devices, const char *name, const struct cdi_file **ret_file,
                 const struct cdi_device **ret, struct err *e)
{
    const char *equals = strchr(name, '=');
    struct names names = { .used = 0 };

    if (!cdi_name_is_valid(name))
        return err_set(e, EINVAL, STEP_USAGE, "device '%s': a device is named like vendor.com/class=device",
                       parse_quote(name).text);
    for (size_t i = 0; i < devices->n; i++) {
        const struct cdi_file *file = &devices->file[i];
        if (strlen(file->kind) != (size_t)(equals - name) || memcmp(file->kind, name, strlen(file->kind)) != 0)
            continue;
        for (size_t k = 0; k < file->n; k++)
            if (strcmp(file->device[k].name, equals + 1) == 0) {
                const char *why = reason(file, &file->device[k]);
                if (why[0])
                    return err_set(e, ENOTSUP, STEP_USAGE, "device %s: %s; write its specification without that",
                                   parse_quote(name).text, why);
                *ret_file = file;
                *ret = &file->device[k];
                return 0;
            }
    }
    if (devices->n_wrong)
        return err_set(e, ENOENT, STEP_USAGE, "there is no device %s, but a specification that cannot be read: %s",
                       parse_quote(name).text, devices->wrong.what);
    devices_each(devices, add_name, &names);
    return err_set(e, ENOENT, STEP_USAGE, "there is no device %s: %s%s", parse_quote(name).text,
                   names.used ? "this host has " : "this host has no CDI specification", names.used ? names.text : "");
}
