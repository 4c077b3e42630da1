/* The files of secrets: STATE/secrets/HASH, where HASH is the SHA-256 of owner and name, so that no name of a caller
 * becomes a path. The first line of a file is JSON about the secret, the rest is the value. A file is its only record:
 * it is complete or it does not exist, and there is no second place that a crash could leave behind.
 *
 * A new file is written beside the old one, synced, renamed over it, and the directory is synced. What a crash leaves
 * of that is a name that begins with NEW; it is removed at the next start.
 *
 * Credentials that systemd passed to the service are secrets, too: their files are opened before the process is
 * confined, and the configuration names the identities that may use them. */
#define _GNU_SOURCE
#include "front/secrets/secrets.h"

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
#include "base/sha256.h"
#include "front/front.h"
#include "proto/defaults.h"

#define NEW "new-"

enum { SECRETS_OF_ONE = 1000, HEADER_MAX = 1024, OWNER_MAX = 79 };

struct secret {
    struct secret *next;        /* by owner, then by name */
    int            dir;         /* borrowed: the directory of the files; -1: a credential */
    int            credential;  /* owned: its file, or -1 */
    char           file[SHA256_HEX + 1];
    char           owner[OWNER_MAX + 1], name[SECRET_NAME_MAX + 1];
    size_t         at, size;    /* the value in the file */
    int64_t        created_ms, changed_ms;
};

struct front_secrets {
    int            dir;         /* owned */
    struct secret *first;
};

void secret_value_done(struct secret_value *value)
{
    if (value->bytes)
        explicit_bzero(value->bytes, value->size);
    free(value->bytes);
    *value = (struct secret_value){ 0 };
}

int secret_value_check_text(const char *name, const struct secret_value *value, struct err *e)
{
    if (!memchr(value->bytes, '\0', value->size))
        return 0;
    return err_set(e, EINVAL, STEP_USAGE, "the secret '%s' has a NUL byte, which no variable can have; give it as a "
                   "file: \"file\": \"" BOX_SECRETS "/NAME\"", name);
}

/* ---- names ---- */

bool secret_name_is_valid(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t n = strlen(name);

    if (n < 1 || n > SECRET_NAME_MAX || !strchr(first, name[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strchr(first, name[i]) && !strchr("._-", name[i]))
            return false;
    return true;
}

static void name_file(const char *owner, const char *name, char ret[SHA256_HEX + 1])
{
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];

    sha256_begin(&s);
    sha256_add(&s, owner, strlen(owner) + 1);
    sha256_add(&s, name, strlen(name));
    sha256_end(&s, digest);
    sha256_hex(digest, ret);
}

/* ---- the list ---- */

static struct secret *look_up(const struct front *front, const char *identity, const char *name)
{
    for (struct secret *s = front->secrets ? front->secrets->first : NULL; s; s = s->next)
        if (strcmp(s->owner, identity) == 0 && strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

static void insert(struct front_secrets *all, struct secret *s)
{
    struct secret **at = &all->first;

    while (*at && (strcmp((*at)->owner, s->owner) < 0
                   || (strcmp((*at)->owner, s->owner) == 0 && strcmp((*at)->name, s->name) <= 0)))
        at = &(*at)->next;
    s->next = *at;
    *at = s;
}

static void drop(struct front_secrets *all, struct secret *s)
{
    struct secret **at = &all->first;

    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
    fd_close(s->credential);
    free(s);
}

static struct secret *new_secret(const char *owner, const char *name)
{
    struct secret *s = calloc(1, sizeof *s);

    if (!s)
        abort();        /* as everywhere when a few bytes cannot be allocated */
    s->dir = s->credential = -1;
    snprintf(s->owner, sizeof s->owner, "%s", owner);
    snprintf(s->name, sizeof s->name, "%s", name);
    name_file(owner, name, s->file);
    return s;
}

int secrets_find(struct front *front, const char *identity, const char *name, struct secret **ret, struct err *e)
{
    struct secret *s = look_up(front, identity, name);

    if (!s)
        return err_set(e, ENOENT, STEP_USAGE, "there is no secret '%s' of %s; 'carrel secret create' makes it",
                       parse_quote(name).text, identity);
    *ret = s;
    return 0;
}

json_t *secret_json(const struct secret *s)
{
    return json_pack("{s:s,s:s,s:I,s:s,s:o,s:o}", "name", s->name, "owner", s->owner, "bytes", (json_int_t)s->size,
                     "kind", s->dir < 0 ? "credential" : "stored", "created_at", front_time_json(s->created_ms),
                     "changed_at", front_time_json(s->changed_ms));
}

json_t *secrets_json(const struct front *front, const char *identity)
{
    json_t *list = json_array();

    for (const struct secret *s = front->secrets->first; s; s = s->next)
        if (!identity || strcmp(s->owner, identity) == 0)
            json_array_append_new(list, secret_json(s));
    return list;
}

/* ---- reading ---- */

static int read_at(int fd, void *data, size_t size, off_t at)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)data + done, size - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        done += (size_t)n;
    }
    return 0;
}

int secret_read(const struct secret *s, struct secret_value *ret, struct err *e)
{
    struct stat status;
    FD opened = s->dir < 0 ? -1 : openat(s->dir, s->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int fd = s->dir < 0 ? s->credential : opened;
    struct secret_value value = { malloc(s->size + 1), s->size };

    if (!value.bytes)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "secret");
    if (fd < 0 || fstat(fd, &status) < 0 || status.st_size != (off_t)(s->at + s->size)
        || read_at(fd, value.bytes, s->size, (off_t)s->at) < 0) {
        secret_value_done(&value);
        return err_set(e, EIO, STEP_USAGE, "the file of the secret '%s' is gone or damaged; make it again with "
                       "'carrel secret create --replace'", s->name);
    }
    value.bytes[s->size] = '\0';
    *ret = value;
    return 0;
}

/* ---- storing ---- */

static int check(const struct front *front, const char *identity, const char *name, size_t size, bool replaces,
                 const struct secret *old, struct err *e)
{
    unsigned n = 0;

    if (!secret_name_is_valid(name))
        return err_set(e, EINVAL, STEP_USAGE, "the name of a secret is 1 to %d letters, digits, '.', '_' and '-', and "
                       "begins with a letter or a digit", SECRET_NAME_MAX);
    if (strlen(identity) > OWNER_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "the name of this identity is too long");
    if (size == 0)
        return err_set(e, EINVAL, STEP_USAGE, "the value of the secret '%s' is empty", name);
    if (size > SECRET_BYTES_MAX)
        return err_set(e, EFBIG, STEP_USAGE, "a secret may have %d bytes", SECRET_BYTES_MAX);
    if (old && old->dir < 0)
        return err_set(e, EPERM, STEP_USAGE, "the secret '%s' is a credential of the service; its file is changed "
                       "where systemd gets it", name);
    if (old && !replaces)
        return err_set(e, EEXIST, STEP_USAGE, "there is a secret '%s' already; 'carrel secret create --replace' "
                       "(?replace=true) gives it this value", name);
    for (const struct secret *s = front->secrets->first; s; s = s->next)
        n += strcmp(s->owner, identity) == 0;
    if (!old && n >= SECRETS_OF_ONE)
        return err_set(e, EDQUOT, STEP_USAGE, "%s may have %d secrets", identity, SECRETS_OF_ONE);
    return 0;
}

/* 0 or -errno; the name is left to the caller. */
static int write_file(int dir, const char *path, const char *header, size_t header_size, const void *bytes, size_t size)
{
    FD fd = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? -errno : fd_write_all(fd, header, header_size);

    if (r == 0)
        r = fd_write_all(fd, bytes, size);
    return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

static int put_file(struct secret *s, const void *bytes, struct err *e)
{
    char path[sizeof NEW + SHA256_HEX];
    json_t *about = json_pack("{s:s,s:s,s:I,s:I}", "owner", s->owner, "name", s->name, "created_ms",
                              (json_int_t)s->created_ms, "changed_ms", (json_int_t)s->changed_ms);
    char *text = about ? json_dumps(about, JSON_COMPACT) : NULL;
    AUTO_FREE char *header = NULL;
    int length = text ? asprintf(&header, "%s\n", text) : -1;

    free(text);
    json_decref(about);
    if (length < 0 || length > HEADER_MAX)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "secret");
    snprintf(path, sizeof path, NEW "%s", s->file);
    s->at = (size_t)length;
    (void)unlinkat(s->dir, path, 0);
    int r = write_file(s->dir, path, header, (size_t)length, bytes, s->size);
    if (r == 0 && renameat(s->dir, path, s->dir, s->file) < 0)
        r = -errno;
    if (r == 0 && fsync(s->dir) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(s->dir, path, 0);
    return r < 0 ? err_set(e, -r, STEP_HOST, "storing the secret '%s'", s->name) : 0;
}

int secret_store(struct front *front, const char *identity, const char *name, const void *bytes, size_t size,
                 bool replaces, struct secret **ret, struct err *e)
{
    struct secret *old = look_up(front, identity, name);
    int r = check(front, identity, name, size, replaces, old, e);

    if (r < 0)
        return r;
    struct secret *s = new_secret(identity, name);
    s->dir = front->secrets->dir;
    s->size = size;
    s->changed_ms = front_now_ms();
    s->created_ms = old ? old->created_ms : s->changed_ms;
    r = put_file(s, bytes, e);
    if (r < 0) {
        free(s);
        return r;
    }
    if (old)
        drop(front->secrets, old);
    insert(front->secrets, s);
    *ret = s;
    return 0;
}

int secret_remove(struct front *front, const char *identity, const char *name, struct err *e)
{
    struct secret *s;
    int r = secrets_find(front, identity, name, &s, e);

    if (r < 0)
        return r;
    if (s->dir < 0)
        return err_set(e, EPERM, STEP_USAGE, "the secret '%s' is a credential of the service; the configuration names "
                       "who may use it", name);
    if (unlinkat(s->dir, s->file, 0) < 0 && errno != ENOENT)
        return err_set(e, errno, STEP_HOST, "removing the secret '%s'", name);
    (void)!fsync(s->dir);
    drop(front->secrets, s);
    return 0;
}

/* ---- loading ---- */

/* Only the first line of a file is read. */
static int read_header(int dir, const char *file, struct secret **ret)
{
    char line[HEADER_MAX + 1];
    struct stat status = { 0 };
    FD fd = openat(dir, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n = fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) ? -1 : read(fd, line, HEADER_MAX);
    char *end = n > 0 ? memchr(line, '\n', (size_t)n) : NULL;
    json_t *about = end ? json_loadb(line, (size_t)(end - line), JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *owner = json_string_value(json_object_get(about, "owner"));
    const char *name = json_string_value(json_object_get(about, "name"));
    int r = -EBADMSG;

    if (owner && name && strlen(owner) <= OWNER_MAX && secret_name_is_valid(name)) {
        struct secret *s = new_secret(owner, name);
        s->dir = dir;
        s->at = (size_t)(end - line) + 1;
        s->size = (size_t)status.st_size - s->at;
        s->created_ms = json_integer_value(json_object_get(about, "created_ms"));
        s->changed_ms = json_integer_value(json_object_get(about, "changed_ms"));
        r = strcmp(s->file, file) == 0 && s->size > 0 && s->size <= SECRET_BYTES_MAX ? 0 : -EBADMSG;
        if (r == 0)
            *ret = s;
        else
            free(s);
    }
    json_decref(about);
    explicit_bzero(line, sizeof line);
    return r;
}

int secrets_load(struct front *front, struct err *e)
{
    struct front_secrets *all = front->secrets;
    char path[300];

    snprintf(path, sizeof path, "%s/secrets", front->config.state);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set(e, errno, STEP_HOST, "%s", path);
    all->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = all->dir < 0 ? NULL : fdopendir(dup(all->dir));
    if (!list)
        return err_set(e, errno, STEP_HOST, "%s", path);
    for (struct dirent *entry; (entry = readdir(list));) {
        struct secret *s;
        if (entry->d_name[0] == '.')
            continue;
        if (strncmp(entry->d_name, NEW, strlen(NEW)) == 0)
            (void)unlinkat(all->dir, entry->d_name, 0);
        else if (read_header(all->dir, entry->d_name, &s) == 0)
            insert(all, s);     /* after a credential of that name, which is found first */
        else
            front_log("error", "the file of a secret is damaged and is ignored", "file", entry->d_name, NULL);
    }
    closedir(list);
    return 0;
}

/* The file of a credential; *ret_size: of the value. */
static int open_credential(const char *folder, const char *name, size_t *ret_size)
{
    struct stat status;
    FD place = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    FD fd = place < 0 ? -1 : openat(place, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
        return -ENOENT;
    if (status.st_size < 1 || status.st_size > SECRET_BYTES_MAX)
        return -EFBIG;
    *ret_size = (size_t)status.st_size;
    return TAKE_FD(fd);
}

static void add_credential(struct front *front, const char *folder, const char *name, const char *identity)
{
    size_t size = 0;
    bool is_named = secret_name_is_valid(name) && strlen(identity) <= OWNER_MAX;
    int fd = folder && is_named ? open_credential(folder, name, &size) : -ENOENT;

    if (fd < 0) {
        front_log("error", fd == -EFBIG ? "a credential of secrets.credentials is empty or has more than 65,536 bytes"
                                        : "systemd passed no such credential; the unit needs LoadCredential=NAME:FILE",
                  "name", name, NULL);
        return;
    }
    struct secret *s = new_secret(identity, name);
    s->credential = fd;
    s->size = size;
    insert(front->secrets, s);
}

void secrets_open_credentials(struct front *front)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    char name[SECRET_NAME_MAX + 2], identity[OWNER_MAX + 2];

    front->secrets = calloc(1, sizeof *front->secrets);
    if (!front->secrets)
        abort();
    front->secrets->dir = -1;
    for (const char *at = front->config.credentials; *(at += strspn(at, " ")); at += strcspn(at, " ")) {
        size_t left = strcspn(at, "="), right = strcspn(at, " ") - left - 1;    /* config_check_pairs() saw both */
        snprintf(name, sizeof name, "%.*s", (int)left, at);
        snprintf(identity, sizeof identity, "%.*s", (int)right, at + left + 1);
        add_credential(front, folder, name, identity);
    }
}

void secrets_free(struct front *front)
{
    if (!front->secrets)
        return;
    while (front->secrets->first)
        drop(front->secrets, front->secrets->first);
    fd_close(front->secrets->dir);
    free(front->secrets);
    front->secrets = NULL;
}
