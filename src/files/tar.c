#define _GNU_SOURCE
#include "files/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"

/* Offsets of a header's fields. */
enum {
    AT_NAME = 0, AT_MODE = 100, AT_UID = 108, AT_GID = 116, AT_SIZE = 124, AT_MTIME = 136, AT_SUM = 148, AT_TYPE = 156,
    AT_LINK = 157, AT_MAGIC = 257, AT_PREFIX = 345,
    NAME_SIZE = 100, PREFIX_SIZE = 155, ID_SIZE = 8, NUMBER_SIZE = 12,
};
static const uint64_t size_max = UINT64_C(1) << 62, octal_max = (UINT64_C(1) << 33) - 1;

/* Octal digits, blanks before and blanks or NUL after; or, as GNU does, big-endian binary with the top bit set. */
static bool read_number(const unsigned char *field, size_t size, uint64_t *ret)
{
    uint64_t value = 0;
    size_t i = 0;

    if (field[0] & 0x80) {
        if (field[0] != 0x80)
            return false;       /* negative, or far too large */
        for (i = 1; i < size; i++) {
            if (value >> 54)
                return false;
            value = value << 8 | field[i];
        }
        *ret = value;
        return true;
    }
    while (i < size && field[i] == ' ')
        i++;
    for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
        value = value << 3 | (uint64_t)(field[i] - '0');        /* at most 12 digits */
    for (; i < size; i++)
        if (field[i] != ' ' && field[i] != 0)
            return false;
    *ret = value;
    return true;
}

static bool sum_is_right(const unsigned char *block)
{
    uint64_t noted;
    unsigned sum = 0;
    int signed_sum = 0;     /* of old tars on machines with signed char */

    for (size_t i = 0; i < TAR_BLOCK; i++) {
        unsigned char byte = i >= AT_SUM && i < AT_SUM + 8 ? ' ' : block[i];
        sum += byte;
        signed_sum += (signed char)byte;
    }
    return read_number(block + AT_SUM, 8, &noted) &&
           (noted == sum || (signed_sum >= 0 && noted == (uint64_t)signed_sum));
}

static size_t copy_field(char *to, const unsigned char *field, size_t size)
{
    size_t length = strnlen((const char *)field, size);
    memcpy(to, field, length);
    to[length] = 0;
    return length;
}

int tar_read_header(const unsigned char block[TAR_BLOCK], struct tar_entry *ret)
{
    static const unsigned char zeros[TAR_BLOCK];
    uint64_t mode = 0, uid = 0, gid = 0, mtime = 0;
    char *path = ret->path;

    if (memcmp(block, zeros, TAR_BLOCK) == 0)
        return 0;
    if (!sum_is_right(block) || !read_number(block + AT_SIZE, NUMBER_SIZE, &ret->size) || ret->size > size_max
        || !read_number(block + AT_MODE, ID_SIZE, &mode))
        return -EBADMSG;
    /* These do not matter, and some writers leave garbage here. */
    (void)!read_number(block + AT_UID, ID_SIZE, &uid);
    (void)!read_number(block + AT_GID, ID_SIZE, &gid);
    if (!read_number(block + AT_MTIME, NUMBER_SIZE, &mtime) || mtime > octal_max)
        mtime = 0;
    ret->mode = mode & 07777;
    ret->uid = (uint32_t)uid;
    ret->gid = (uint32_t)gid;
    ret->mtime_s = (int64_t)mtime;
    ret->type = block[AT_TYPE] ? (char)block[AT_TYPE] : TAR_FILE;
    /* The prefix is POSIX's; GNU's format has other fields there. */
    if (memcmp(block + AT_MAGIC, "ustar\0", 6) == 0 && block[AT_PREFIX]) {
        path += copy_field(path, block + AT_PREFIX, PREFIX_SIZE);
        *path++ = '/';
    }
    size_t length = copy_field(path, block + AT_NAME, NAME_SIZE);
    copy_field(ret->link, block + AT_LINK, NAME_SIZE);
    /* Old archives have no type for folders. */
    if (ret->type == TAR_FILE && length > 0 && path[length - 1] == '/')
        ret->type = TAR_FOLDER;
    return 1;
}

/* A decimal number that is all of the text; a fraction is cut off. */
static bool read_decimal(const char *text, size_t size, uint64_t *ret)
{
    uint64_t value = 0;
    size_t i = 0;

    for (; i < size && text[i] >= '0' && text[i] <= '9'; i++) {
        if (value > size_max / 10)
            return false;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (i == 0 || (i < size && text[i] != '.'))
        return false;
    *ret = value;
    return true;
}

static bool take_name(const char *value, size_t size, char *to)
{
    if (size == 0 || size > FILES_PATH_MAX || memchr(value, 0, size))
        return false;
    memcpy(to, value, size);
    to[size] = 0;
    return true;
}

static int take_record(const char *key, size_t key_size, const char *value, size_t size, struct tar_notes *notes)
{
    struct tar_notes ignored_notes, *n = notes ? notes : &ignored_notes;
    bool matters = true, good = true;
    uint64_t number = 0;

#define KEY_IS(name) (key_size == sizeof(name) - 1 && memcmp(key, name, key_size) == 0)
    if (KEY_IS("path")) {
        good = n->has_path = take_name(value, size, n->path);
    } else if (KEY_IS("linkpath")) {
        good = n->has_link = take_name(value, size, n->link);
    } else if (KEY_IS("size")) {
        good = n->has_size = read_decimal(value, size, &n->size) && !memchr(value, '.', size);
    } else if (KEY_IS("mtime")) {
        /* Before 1970, or not a number: no reason to refuse. */
        matters = false;
        n->has_mtime = read_decimal(value, size, &number) && number <= INT64_MAX / 2000000000;
        n->mtime_s = (int64_t)number;
    } else if (key_size >= 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
        return -ENOTSUP;
    } else {
        matters = false;
    }
#undef KEY_IS
    return !good || (matters && !notes) ? -EBADMSG : 0;
}

int tar_read_records(const char *text, size_t size, struct tar_notes *notes)
{
    while (size > 0) {
        size_t length = 0, digits = 0;
        while (digits < size && digits < 6 && text[digits] >= '0' && text[digits] <= '9')
            length = length * 10 + (size_t)(text[digits++] - '0');
        /* "LENGTH KEY=VALUE\n"; LENGTH counts all of it. */
        if (digits == 0 || length > size || length < digits + 4 || text[digits] != ' ' || text[length - 1] != '\n')
            return -EBADMSG;
        const char *key = text + digits + 1, *end = text + length - 1;
        const char *equals = memchr(key, '=', (size_t)(end - key));
        if (!equals || equals == key)
            return -EBADMSG;
        int r = take_record(key, (size_t)(equals - key), equals + 1, (size_t)(end - equals - 1), notes);
        if (r < 0)
            return r;
        text += length;
        size -= length;
    }
    return 0;
}

int tar_read_long_name(const char *text, size_t size, char *ret)
{
    return take_name(text, strnlen(text, size), ret) ? 0 : -EBADMSG;
}

int tar_clean_path(const char *path, char *ret)
{
    char *to = ret;

    *to = 0;
    if (path[0] == '/' || path[0] == 0)
        return -EPERM;
    while (*path) {
        size_t length = strcspn(path, "/");
        bool is_dot = length == 0 || (length == 1 && path[0] == '.');
        if (length == 2 && path[0] == '.' && path[1] == '.')
            return -EPERM;
        if (!is_dot) {
            if (to > ret)
                *to++ = '/';
            memcpy(to, path, length);
            to += length;
        }
        path += length;
        path += *path == '/';
    }
    *to = 0;
    return 0;
}

static void write_number(char *field, size_t size, uint64_t value)
{
    snprintf(field, size, "%0*llo", (int)size - 1, (unsigned long long)value);
}

static void write_block(char *block, const struct tar_entry *entry, char type, uint64_t size)
{
    unsigned sum = 0;

    /* Values that do not fit are in pax records. */
    write_number(block + AT_MODE, ID_SIZE, entry->mode & 07777);
    write_number(block + AT_UID, ID_SIZE, entry->uid <= 07777777 ? entry->uid : 65534);
    write_number(block + AT_GID, ID_SIZE, entry->gid <= 07777777 ? entry->gid : 65534);
    write_number(block + AT_SIZE, NUMBER_SIZE, size <= octal_max ? size : 0);
    bool has_time = entry->mtime_s >= 0 && (uint64_t)entry->mtime_s <= octal_max;
    write_number(block + AT_MTIME, NUMBER_SIZE, has_time ? (uint64_t)entry->mtime_s : 0);
    block[AT_TYPE] = type;
    memcpy(block + AT_MAGIC, "ustar\0" "00", 8);
    memset(block + AT_SUM, ' ', 8);
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += (unsigned char)block[i];
    snprintf(block + AT_SUM, 8, "%06o", sum & 0777777);
}

static bool is_utf8(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t more = *p < 0x80 ? 0 : *p >= 0xc2 && *p < 0xe0 ? 1 : *p >= 0xe0 && *p < 0xf0 ? 2
                    : *p >= 0xf0 && *p < 0xf5 ? 3 : 9;
        if (more == 9)
            return false;
        for (p++; more > 0; more--)
            if ((*p++ & 0xc0) != 0x80)
                return false;
    }
    return true;
}

static size_t write_record(char *to, const char *key, const char *value)
{
    size_t length = strlen(key) + strlen(value) + 3, digits = 1;

    /* The length counts its own digits. */
    for (size_t limit = 10; length + digits >= limit; limit *= 10)
        digits++;
    length += digits;
    snprintf(to, length + 1, "%zu %s=%s\n", length, key, value);
    return length;
}

size_t tar_write_header(const struct tar_entry *entry, char *ret)
{
    static const struct tar_entry records_entry = { .mode = 0644, .path = "" };
    size_t path_size = strlen(entry->path), link_size = strlen(entry->link), used = 0, records = 0;
    char *body = ret + TAR_BLOCK, number[24];

    memset(ret, 0, TAR_BLOCK);
    if ((path_size > NAME_SIZE && !is_utf8(entry->path)) || (link_size > NAME_SIZE && !is_utf8(entry->link)))
        records += write_record(body + records, "hdrcharset", "BINARY");
    if (path_size > NAME_SIZE)
        records += write_record(body + records, "path", entry->path);
    if (link_size > NAME_SIZE)
        records += write_record(body + records, "linkpath", entry->link);
    if (entry->size > octal_max) {
        snprintf(number, sizeof number, "%llu", (unsigned long long)entry->size);
        records += write_record(body + records, "size", number);
    }
    if (records > 0) {
        size_t padded = (records + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
        memset(body + records, 0, padded - records);
        memcpy(ret, "PaxHeader", 9);
        write_block(ret, &records_entry, 'x', records);
        used = TAR_BLOCK + padded;
        memset(ret + used, 0, TAR_BLOCK);
    }
    char *block = ret + used;
    memcpy(block + AT_NAME, entry->path, path_size < NAME_SIZE ? path_size : NAME_SIZE);
    memcpy(block + AT_LINK, entry->link, link_size < NAME_SIZE ? link_size : NAME_SIZE);
    write_block(block, entry, entry->type, entry->size);
    return used + TAR_BLOCK;
}
