/* The part of the host's configuration that boxes on the host's own root may see: files that programs below /usr expect
 * in /etc, by a list.
 *
 * The list has files that say how programs work: CA certificates, names of ports and types, a shell's appearance,
 * configuration that files below /usr link to. It excludes files that describe this machine, its users or its network,
 * or that may hold a password: passwd, hosts, machine-id, fstab, environment, profile.d, ssl/private, odbc.ini,
 * gitconfig, pip.conf, npmrc and the like. From these last ones, boxes with network get the addresses of packages
 * (etc_indexes.c).
 *
 * Of the listed files a box gets those that are world-readable. With root no others could be read anyway, because a
 * box's users have no rights outside. A box of an ordinary user has that user's groups: a folder with anything that the
 * user may read and others may not is left out completely. Small files are copied, because a mount costs more; the rest
 * is bound. */
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

enum {
    COPIED_MOST = 16384, SMALL_FOLDER = 6, SMALL_FOLDER_BYTES = 4096, AGAIN_US = 10000000, DEPTH_MOST = 4,
    WALKED_MOST = 4096
};

/* Below /etc. */
static const char *const names[] = {
    /* for the loader, links and libraries below /usr */
    "ld.so.cache", "alternatives", "fonts", "locale.alias", "timezone", "lsb-release", "debian_version",
    /* CA certificates: Debian, Fedora, Arch, Alpine */
    "ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates/extracted", "pki/tls/certs", "pki/tls/cert.pem",
    "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "crypto-policies",
    /* names of numbers and types */
    "services", "protocols", "mime.types", "mailcap", "papersize",
    /* shells and their programs */
    "bash.bashrc", "bashrc", "profile", "inputrc", "zsh", "vim", "vimrc", "emacs", "nanorc",
    "screenrc",
    /* languages and libraries */
    "matplotlibrc", "R", "java", "maven", "julia", "texmf", "ghostscript", "OpenCL", "vulkan", "openmpi",
};

/* The same for names that begin so. */
static const char *const beginnings[] = { "python3.", "java-", "octave", "ImageMagick" };

static bool everybody_reads(const struct stat *status)
{
    return S_ISDIR(status->st_mode) ? (status->st_mode & 0005) == 0005 : (status->st_mode & 0004) != 0;
}

/* Whether it contains anything that this process may read and others may not. */
static bool holds_private(int above, const char *name, int depth, int *left)
{
    FD fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct stat status;
    bool found = false;

    if (!dir)
        return false;       /* unreadable, so no process in the box can read it */
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

/* Copies a small file; false if it must be bound. */
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

/* A link is copied if its target can be in a box. */
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

/* Copies a folder of a few small files. False: it must be bound. */
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

/* Whether every folder above the name lets everybody pass. */
static bool everybody_passes(int etc, const char *name)
{
    char above[sizeof ((struct facts_etc *)0)->name];
    struct stat status;

    snprintf(above, sizeof above, "%s", name);
    for (char *slash; (slash = strrchr(above, '/')) != NULL;) {
        *slash = '\0';
        if (fstatat(etc, above, &status, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(status.st_mode) ||
            !(status.st_mode & 0001))
            return false;
    }
    return true;
}

static void add(struct host_facts *facts, int etc, const char *name)
{
    struct facts_etc *found = &facts->etc[facts->n_etc];
    struct stat status;
    int left = WALKED_MOST;

    if (facts->n_etc == FACTS_ETC || strlen(name) >= sizeof found->name || !everybody_passes(etc, name))
        return;
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
        /* Reading a large folder's names takes longer than all the rest; more than two links are folders in it. */
        bool is_copied = status.st_size <= SMALL_FOLDER_BYTES && status.st_nlink <= 2 && copy_folder(facts, etc, name);
        if (is_copied || (facts->is_rootless && holds_private(etc, name, DEPTH_MOST, &left)))
            return;
    } else if (!copy_text(facts, etc, name, &found->text)) {
        found->text = NULL;
    }
    facts->n_etc++;
}

static void add_beginnings(struct host_facts *facts, int etc)
{
    DIR *dir = opendir("/etc");

    for (struct dirent *d; dir && (d = readdir(dir));)
        for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
            if (strncmp(d->d_name, beginnings[i], strlen(beginnings[i])) == 0)
                add(facts, etc, d->d_name);
    if (dir)
        closedir(dir);
}

/* What only boxes with network have: the keys that sign apt's packages, and addresses of packages. */
static void add_for_network(struct host_facts *facts, int etc)
{
    size_t from = facts->n_etc;

    add(facts, etc, "apt/trusted.gpg.d");
    add(facts, etc, "apt/keyrings");
    for (; from < facts->n_etc; from++)
        facts->etc[from].for_network = true;
    facts_read_indexes(facts, etc);
    facts->etc_has_network = true;
}

void facts_read_etc(struct host_facts *facts, bool for_network)
{
    uint64_t now = clock_monotonic_us();
    bool is_fresh = facts->etc_read_us && now - facts->etc_read_us < AGAIN_US;

    if (is_fresh && (facts->etc_has_network || !for_network))
        return;
    FD etc = open("/etc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (!is_fresh) {
        facts->etc_read_us = now;
        facts->n_etc = facts->etc_text_used = 0;
        facts->etc_has_network = false;
        for (size_t i = 0; etc >= 0 && i < sizeof names / sizeof *names; i++)
            add(facts, etc, names[i]);
        if (etc >= 0)
            add_beginnings(facts, etc);
    }
    if (etc >= 0 && for_network)
        add_for_network(facts, etc);
}
