/* The host's configuration that boxes on the host's own root may see: what programs below /usr expect in /etc, by a
 * list.
 *
 * On the list is what says how programs work: certificates of authorities, names of ports and types, how a shell
 * looks, configuration that files below /usr are links to. Not on it is whatever tells about this machine, its users,
 * its network, or may hold a password: passwd, hosts, machine-id, fstab, environment, profile.d, ssl/private,
 * odbc.ini, gitconfig, pip.conf, npmrc and the like.
 *
 * Of that a box gets what everybody on the host may read. As root nothing else could be read either, because users of
 * a box are nobody out there. A box of an ordinary user has that user's groups: a folder in which the user may read
 * what not everybody may is left out whole. Small files are copied, because a mount costs more; the rest is bound. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/plan.h"

enum { COPIED_MOST = 16384, SMALL_FOLDER = 6, AGAIN_US = 10000000, DEPTH_MOST = 4, WALKED_MOST = 4096 };

/* Below /etc; one that ends with a star is the beginning of a name. */
static const char *const names[] = {
    /* what the loader, links and libraries below /usr need */
    "ld.so.cache", "alternatives", "fonts", "locale.alias", "timezone", "lsb-release", "debian_version",
    /* certificates of authorities: Debian, Fedora, Arch, Alpine */
    "ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates/extracted", "pki/tls/certs", "pki/tls/cert.pem",
    "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies",
    /* names of numbers and types */
    "services", "protocols", "mime.types", "mailcap", "papersize",
    /* shells and what runs in them */
    "bash.bashrc", "bashrc", "profile", "inputrc", "zsh", "vim", "vimrc", "nanorc", "screenrc",
    /* languages and libraries */
    "matplotlibrc", "python3.*", "R", "java-*", "java", "maven", "octave*", "julia", "texmf", "ImageMagick*",
    "ghostscript", "OpenCL", "vulkan", "openmpi",
};

static bool everybody_reads(const struct stat *status)
{
    return S_ISDIR(status->st_mode) ? (status->st_mode & 0005) == 0005 : (status->st_mode & 0004) != 0;
}

/* Whether below it is something that this process may read and others may not. */
static bool holds_private(int above, const char *name, int depth, int *left)
{
    FD fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat status;
    bool found = false;

    if (!dir)
        return false;       /* and so nobody in the box reads it */
    fd = -1;
    for (struct dirent *d; !found && (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        if (fstatat(dirfd(dir), d->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(status.st_mode))
            continue;
        if (--*left < 0 || depth == 0)
            found = true;
        else if (!everybody_reads(&status))
            found = faccessat(dirfd(dir), d->d_name, R_OK, 0) == 0;
        else if (S_ISDIR(status.st_mode))
            found = holds_private(dirfd(dir), d->d_name, depth - 1, left);
    }
    closedir(dir);
    return found;
}

/* Of a small file; false if it is bound instead. */
static bool copy_text(struct host_facts *facts, int etc, const char *name, const char **ret)
{
    size_t room = sizeof facts->etc_text - facts->etc_text_used;
    char *text = facts->etc_text + facts->etc_text_used;
    struct stat status;
    FD fd = openat(etc, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || !everybody_reads(&status) ||
        status.st_size > COPIED_MOST || (size_t)status.st_size >= room)
        return false;
    ssize_t n = read(fd, text, (size_t)status.st_size);
    if (n != status.st_size || memchr(text, 0, (size_t)n))
        return false;
    text[n] = '\0';
    facts->etc_text_used += (size_t)n + 1;
    *ret = text;
    return true;
}

/* A link is made again if it leads to what can be in a box. */
static bool copy_link(int etc, const char *name, struct facts_etc *ret)
{
    char path[PATH_MAX], real[PATH_MAX];
    ssize_t n = readlinkat(etc, name, ret->link, sizeof ret->link - 1);

    snprintf(path, sizeof path, "/etc/%s", name);
    if (n <= 0 || !realpath(path, real))
        return false;
    ret->link[n] = '\0';
    return strncmp(real, "/usr/", 5) == 0 || strncmp(real, "/etc/", 5) == 0;
}

static void add(struct host_facts *facts, int etc, const char *name);

/* A folder of a few files, all of them small: it is made again with copies of them. False: it is bound instead. */
static bool copy_folder(struct host_facts *facts, int etc, const char *name)
{
    char inner[SMALL_FOLDER][sizeof facts->etc[0].name];
    FD fd = openat(etc, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat status;
    size_t n = 0, total = 0;
    bool is_small = dir != NULL;

    if (!dir)
        return false;
    fd = -1;
    for (struct dirent *d; is_small && (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        is_small = n < SMALL_FOLDER && fstatat(dirfd(dir), d->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                   (S_ISREG(status.st_mode) || S_ISLNK(status.st_mode)) &&
                   (total += (size_t)status.st_size) <= COPIED_MOST &&
                   snprintf(inner[n], sizeof *inner, "%s/%s", name, d->d_name) < (int)sizeof *inner;
        n++;
    }
    closedir(dir);
    for (size_t i = 0; is_small && i < n; i++)
        add(facts, etc, inner[i]);
    return is_small;
}

static void add(struct host_facts *facts, int etc, const char *name)
{
    struct facts_etc *found = &facts->etc[facts->n_etc];
    const char *slash = strrchr(name, '/');
    char above[sizeof found->name];
    struct stat status;
    int left = WALKED_MOST;

    if (facts->n_etc == FACTS_ETC || strlen(name) >= sizeof found->name)
        return;
    snprintf(above, sizeof above, "%.*s", slash ? (int)(slash - name) : 0, name);
    for (char *end = above + strlen(above); above[0]; *end = '\0') {
        if (fstatat(etc, above, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode) ||
            !(status.st_mode & 0001))
            return;
        end = strrchr(above, '/') ? strrchr(above, '/') : above;
    }
    if (fstatat(etc, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    *found = (struct facts_etc){ .is_dir = S_ISDIR(status.st_mode) };
    snprintf(found->name, sizeof found->name, "%s", name);
    if (S_ISLNK(status.st_mode)) {
        if (!copy_link(etc, name, found))
            return;
    } else if ((!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)) || !everybody_reads(&status)) {
        return;
    } else if (S_ISDIR(status.st_mode)) {
        if (copy_folder(facts, etc, name) || (facts->is_rootless && holds_private(etc, name, DEPTH_MOST, &left)))
            return;
    } else if (!copy_text(facts, etc, name, &found->text)) {
        found->text = NULL;
    }
    facts->n_etc++;
}

static void add_beginning(struct host_facts *facts, int etc, const char *start, size_t length)
{
    DIR *dir = opendir("/etc");

    for (struct dirent *d; dir && (d = readdir(dir));)
        if (strncmp(d->d_name, start, length) == 0)
            add(facts, etc, d->d_name);
    if (dir)
        closedir(dir);
}

void facts_read_etc(struct host_facts *facts)
{
    uint64_t now = clock_monotonic_us();
    FD etc = -1;

    if (facts->etc_read_us && now - facts->etc_read_us < AGAIN_US)
        return;
    facts->etc_read_us = now;
    facts->n_etc = facts->etc_text_used = 0;
    etc = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; etc >= 0 && i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i]);
        if (names[i][length - 1] == '*')
            add_beginning(facts, etc, names[i], length - 1);
        else
            add(facts, etc, names[i]);
    }
}
