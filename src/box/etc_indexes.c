/* The host's settings of package clients, cleaned, as files of a box's /etc. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/indexes.h"
#include "box/plan.h"
#include "proto/certificates.h"

enum { SETTINGS_MOST = 32768 };

#define LEFT_OUT "# An address with a user name, a password or the like was left out here.\n"

/* Reads a world-readable file into text; false: it is not one. Root could open a file in a closed folder, so each
 * folder above must be open to all, too; the files named here are directly in /etc. */
static bool read_public(int etc, const char *name, char text[SETTINGS_MOST])
{
    struct stat status;
    FD fd = openat(etc, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        char above[64];
        snprintf(above, sizeof above, "%.*s", (int)(slash - name), name);
        if (fstatat(etc, above, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
            (status.st_mode & (S_IFMT | 0001)) != (S_IFDIR | 0001))
            return false;
    }
    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || !(status.st_mode & 0004) ||
        status.st_size >= SETTINGS_MOST)
        return false;
    ssize_t n = read(fd, text, SETTINGS_MOST - 1);
    if (n <= 0 || memchr(text, 0, (size_t)n))
        return false;
    text[n] = '\0';
    return true;
}

/* Keeps the cleaned rest of a file; NULL: nothing. before: a line of our own, or "". */
static const char *clean(struct host_facts *facts, int etc, const char *name, enum index_kind kind, const char *before)
{
    static char text[SETTINGS_MOST];
    char *kept = facts->etc_text + facts->etc_text_used;
    struct buf out;

    text[0] = '\0';
    bool is_there = read_public(etc, name, text);
    if (!is_there && !before[0])
        return NULL;
    buf_init_fixed(&out, kept, sizeof facts->etc_text - facts->etc_text_used);
    buf_add_text(&out, before);
    unsigned dropped = is_there ? indexes_clean(kind, text, &out) : 0;
    if (dropped)
        buf_add_text(&out, LEFT_OUT);
    facts->index_secrets += dropped;
    if (buf_error(&out) < 0 || out.length == 0)
        return NULL;
    kept = (char *)(uintptr_t)buf_string(&out);
    facts->etc_text_used += out.length + 1;
    return kept;
}

static void add_file(struct host_facts *facts, const char *name, const char *text)
{
    if (!text || facts->n_etc == FACTS_ETC || strlen(name) >= sizeof facts->etc[0].name)
        return;
    struct facts_etc *one = &facts->etc[facts->n_etc++];
    *one = (struct facts_etc){ .text = text, .for_network = true };
    snprintf(one->name, sizeof one->name, "%s", name);
}

static void add_apt(struct host_facts *facts, int etc)
{
    FD fd = openat(etc, "apt/sources.list.d", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    add_file(facts, "apt/sources.list", clean(facts, etc, "apt/sources.list", INDEX_APT_LIST, ""));
    if (!dir)
        return;
    fd = -1;
    for (struct dirent *d; (d = readdir(dir));) {
        const char *dot = strrchr(d->d_name, '.');
        char name[300];
        if (!dot || (strcmp(dot, ".list") != 0 && strcmp(dot, ".sources") != 0))
            continue;
        snprintf(name, sizeof name, "apt/sources.list.d/%s", d->d_name);
        add_file(facts, name, clean(facts, etc, name, dot[1] == 'l' ? INDEX_APT_LIST : INDEX_APT_SOURCES, ""));
    }
    closedir(dir);
}

void facts_read_indexes(struct host_facts *facts, int etc)
{
    char cafile[96] = "", native[32] = "";

    facts->index_secrets = 0;
    facts->certificates = certificates_find();
    if (facts->certificates) {
        snprintf(cafile, sizeof cafile, "cafile=%s\n", facts->certificates);
        snprintf(native, sizeof native, "native-tls = true\n");
    }
    facts->pip = clean(facts, etc, "pip.conf", INDEX_PIP, "");
    if (!facts->pip)
        facts->pip = clean(facts, etc, "xdg/pip/pip.conf", INDEX_PIP, "");
    add_file(facts, "npmrc", clean(facts, etc, "npmrc", INDEX_NPM, cafile));
    add_file(facts, "uv/uv.toml", clean(facts, etc, "uv/uv.toml", INDEX_UV, native));
    add_apt(facts, etc);
}
