#define _GNU_SOURCE
#include "front/files/file_entry.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/jsonout.h"
#include "front/front.h"
#include "http/wsframe.h"

static const char *type_name(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    case S_IFCHR:
    case S_IFBLK:
        return "device";
    default:
        return "unknown";
    }
}

bool file_entry_next(const char **data, size_t *size, struct files_entry *ret, const char **ret_name,
                     const char **ret_link)
{
    if (*size < sizeof *ret)
        return false;
    memcpy(ret, *data, sizeof *ret);
    size_t whole = (sizeof *ret + ret->name_size + ret->link_size + 7) & ~(size_t)7;
    if (*size < sizeof *ret + ret->name_size + ret->link_size)
        return false;
    *ret_name = *data + sizeof *ret;
    *ret_link = *ret_name + ret->name_size;
    whole = whole < *size ? whole : *size;
    *data += whole;
    *size -= whole;
    return true;
}

/* A name is bytes; if they are not UTF-8, the exact ones are added. */
static void add_bytes(struct jsonout *j, const char *key, const char *data, size_t size)
{
    unsigned char text[4 * (FILES_PATH_MAX + 3) / 3 + 5];
    char exact[32];

    jsonout_bytes(j, key, data, size);
    if (wsframe_is_utf8(data, size) || size > FILES_PATH_MAX)
        return;
    int n = EVP_EncodeBlock(text, (const unsigned char *)data, (int)size);
    snprintf(exact, sizeof exact, "%s_base64", key);
    jsonout_bytes(j, exact, (const char *)text, (size_t)n);
}

void file_entry_json(struct buf *out, const struct files_entry *entry, const char *name, const char *link,
                     const char *path)
{
    struct jsonout j;
    char text[32];

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    add_bytes(&j, "name", name, entry->name_size);
    if (path)
        add_bytes(&j, "path", path, strlen(path));
    jsonout_string(&j, "type", type_name(entry->mode));
    jsonout_unsigned(&j, "size", entry->size);
    snprintf(text, sizeof text, "%04o", entry->mode & 07777);
    jsonout_string(&j, "mode", text);
    front_time_text(entry->mtime_ns / 1000000, text);
    jsonout_string(&j, "modified_at", text);
    jsonout_unsigned(&j, "uid", entry->uid);
    jsonout_unsigned(&j, "gid", entry->gid);
    if (entry->link_size)
        add_bytes(&j, "target", link, entry->link_size);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0 && !out->failure)
        out->failure = EINVAL;
}
