/* carrel cp: files as they are, folders as tar. A file copied out of a box is written beside its place and renamed, so
 * that no half-written file is ever visible.
 *
 * A folder that was copied out before has links that the box made, and they may lead anywhere. So the last name of a
 * destination is never followed, unless the user named that folder itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/files/transfer.h"
#include "proto/defaults.h"

static const char usage[] = "usage: carrel cp [-r] LOCAL... BOX:PATH [--url URL]\n"
                            "       carrel cp [-r] BOX:PATH... LOCAL\n"
                            "       carrel cp [-r] LOCAL... volume:NAME/PATH\n"
                            "       carrel cp [-r] volume:NAME/PATH... LOCAL    (of another: volume:OWNER/NAME:/PATH)\n"
                            "\n"
                            "Copies files into and out of a box; with -r, folders. A PATH without a leading slash is "
                            "below /home/box. As LOCAL, - is standard input or\n"
                            "output; write ./a:b for a file with a colon in its name.\n";

enum { PIECE = 256 << 10, TARGET_MAX = 16 << 10 };

struct copy {
    struct client    client;
    bool             recursive;
    struct exchange *x;         /* owned */
    char            *piece;     /* owned */
};

/* A parsed BOX:PATH; box NULL: a local path. */
struct cp_place {
    char             *box;      /* owned, unless it is a volume's */
    const char       *path;
    const char       *word;     /* as it was given */
    struct volume_box volume;   /* of volume:NAME/PATH */
};

static int set_recursive(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct copy *)into)->recursive = true;
    return 0;
}

static struct cp_place place_of(const char *word)
{
    const char *colon = strchr(word, ':'), *slash = strchr(word, '/');

    if (!colon || colon == word || (slash && slash < colon))
        return (struct cp_place){ .path = word };
    return (struct cp_place){ .box = strndup(word, (size_t)(colon - word)), .path = colon + 1 };
}

/* 0, or the exit status. */
static int open_place(const struct copy *c, const char *word, bool to_read, struct cp_place *ret)
{
    if (!volume_is_named(word)) {
        *ret = place_of(word);
        ret->word = word;
        return 0;
    }
    *ret = (struct cp_place){ .word = word };
    int status = volume_box_make(&ret->volume, &c->client, word, to_read);
    ret->box = ret->volume.id;
    ret->path = ret->volume.path;
    return status;
}

static void close_place(struct cp_place *place, const char *word)
{
    if (volume_is_named(word))
        volume_box_done(&place->volume);
    else
        free(place->box);
}

static int fail(const char *what, int code)
{
    fprintf(stderr, "carrel: %s: %s\n", show_text(what), strerror(code));
    return EXIT_CLIENT;
}

/* The last name of a path, without slashes at its end; "" if it has none. */
static const char *last_name(const char *path, char *storage)
{
    snprintf(storage, PATH_MAX, "%s", path);
    const char *name = basename(storage);
    return strcmp(name, "/") == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "" : name;
}

static bool ends_with_slash(const char *path)
{
    size_t n = strlen(path);
    return n > 0 && path[n - 1] == '/';
}

/* ---- requests ---- */

static void file_target(struct buf *target, const char *box, const char *path, const char *query)
{
    buf_init(target, TARGET_MAX);
    target_add(target, "/v1/boxes/", box);
    buf_add_text(target, "/files");
    target_add_path(target, path);
    buf_add_text(target, query);
}

static void archive_target(struct buf *target, const char *box, const char *path)
{
    buf_init(target, TARGET_MAX);
    target_add(target, "/v1/boxes/", box);
    target_add(target, "/archive?path=", path[0] == '/' ? "" : BOX_HOME "/");
    target_add(target, "", path);
}

/* The type of a path in the box: 'd', 'f', another letter, or 0 if it does not exist. -1: unknown; the error was
 * reported. */
static int look(struct copy *c, const char *box, const char *path, uint64_t *ret_size, mode_t *ret_mode)
{
    struct buf target;
    json_t *answer = NULL;
    struct err e = { 0 };
    int kind = -1;

    file_target(&target, box, path, "?stat=true");
    int status = client_ask(&c->client, "GET", buf_string(&target), NULL, &answer, &e);
    const char *code = text_of(json_object_get(answer, "error"), "code"), *type = text_of(answer, "type");
    if (status < 0) {
        (void)client_complain(&e);
    } else if (status == 200) {
        kind = strcmp(type, "device") == 0 ? 'c' : type[0];
        *ret_size = (uint64_t)json_integer_value(json_object_get(answer, "size"));
        *ret_mode = (mode_t)strtoul(text_of(answer, "mode"), NULL, 8) & 0777;
    } else if (status == 404 && strcmp(code, "not_found") != 0) {
        kind = 0;
    } else {
        (void)client_refused(status, answer);
    }
    json_decref(answer);
    buf_done(&target);
    return kind;
}

/* The answer to an upload. */
static int finish_upload(struct copy *c)
{
    struct err e = { 0 };

    if (exchange_answer(c->x, &e) < 0)
        return client_complain(&e);
    json_t *answer = client_read_json(c->x);
    int status = c->x->status < 300 ? 0 : client_refused(c->x->status, answer);
    json_decref(answer);
    return status;
}

/* ---- into the box ---- */

static int send_file(struct copy *c, int fd, int64_t size, struct progress *p)
{
    int64_t left = size;
    ssize_t n;
    int r = 0;

    while (r == 0 && left != 0) {
        size_t want = size >= 0 && left < PIECE ? (size_t)left : PIECE;
        n = read(fd, c->piece, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(p->name, errno);
        if (n == 0 && size >= 0) {
            fprintf(stderr, "carrel: %s became shorter while it was read\n", show_text(p->name));
            return EXIT_CLIENT;
        }
        if (n == 0)
            break;
        r = exchange_send(c->x, c->piece, (size_t)n);
        progress_add(p, (uint64_t)n);
        left -= size >= 0 ? n : 0;
    }
    if (r == 0)
        r = exchange_send_end(c->x);
    if (r < 0 && r != -EPIPE)
        return fail("sending", -r);
    return finish_upload(c);
}

static int upload_file(struct copy *c, int fd, const struct stat *st, const char *name, const struct cp_place *to,
                       const char *path, bool parents)
{
    struct buf target;
    struct err e = { 0 };
    struct progress p;
    char query[64];
    bool is_file = S_ISREG(st->st_mode);
    int64_t size = is_file ? st->st_size : EXCHANGE_CHUNKED;

    snprintf(query, sizeof query, "?mode=%04o%s", is_file ? st->st_mode & 0777 : 0644, parents ? "&parents=true" : "");
    file_target(&target, to->box, path, query);
    int r = exchange_open(c->x, &c->client.server, "PUT", buf_string(&target), "Connection: close\r\n", size, &e);
    buf_done(&target);
    if (r < 0)
        return client_complain(&e);
    progress_begin(&p, name, is_file ? (uint64_t)st->st_size : 0);
    int status = send_file(c, fd, size, &p);
    progress_end(&p);
    exchange_close(c->x);
    return status;
}

static int upload_folder(struct copy *c, const char *local, const struct cp_place *to, const char *path)
{
    char absolute[PATH_MAX];
    struct buf target;
    struct err e = { 0 };
    struct progress p;

    if (!realpath(local, absolute))
        return fail(local, errno);
    archive_target(&target, to->box, path);
    int r = exchange_open(c->x, &c->client.server, "PUT", buf_string(&target),
                          "Content-Type: application/x-tar\r\nConnection: close\r\n", EXCHANGE_CHUNKED, &e);
    buf_done(&target);
    if (r < 0)
        return client_complain(&e);
    progress_begin(&p, local, 0);
    r = tree_send(absolute, c->x, &p, &e);
    progress_end(&p);
    int status = r < 0 && r != -EPIPE ? client_complain(&e) : finish_upload(c);
    exchange_close(c->x);
    return status;
}

static int upload(struct copy *c, const char *local, const struct cp_place *to, bool into_folder)
{
    char storage[PATH_MAX], path[2 * PATH_MAX];
    bool is_stdin = strcmp(local, "-") == 0;
    struct stat st;
    uint64_t size;
    mode_t mode;

    FD fd = is_stdin ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : open(local, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(local, errno);
    if (S_ISDIR(st.st_mode) && !c->recursive) {
        fprintf(stderr, "carrel: %s is a folder; use cp -r\n", show_text(local));
        return EXIT_CLIENT;
    }
    bool makes_folder = ends_with_slash(to->path);
    int kind = look(c, to->box, to->path, &size, &mode);
    if (kind < 0)
        return EXIT_CLIENT;
    if (into_folder && kind != 'd' && !makes_folder) {
        fprintf(stderr, "carrel: %s is not a folder\n", show_text(to->word));
        return EXIT_CLIENT;
    }
    snprintf(path, sizeof path, "%s", to->path);
    if (kind == 'd' || makes_folder) {
        const char *name = is_stdin ? "" : last_name(local, storage);
        if (!name[0] && !S_ISDIR(st.st_mode)) {
            fputs("carrel: the file needs a name in the box: BOX:PATH\n", stderr);
            return EXIT_CLIENT;
        }
        snprintf(path, sizeof path, "%s%s%s", to->path, to->path[0] && !makes_folder ? "/" : "", name);
    }
    return S_ISDIR(st.st_mode) ? upload_folder(c, local, to, path)
                               : upload_file(c, fd, &st, is_stdin ? "standard input" : local, to, path, makes_folder);
}

/* ---- out of the box ---- */

static int receive_file(struct copy *c, int fd, struct progress *p)
{
    ssize_t n;

    while ((n = exchange_read(c->x, c->piece, PIECE, true)) > 0) {
        int r = fd_write_all(fd, c->piece, (size_t)n);
        if (r < 0)
            return fail(p->name, -r);
        progress_add(p, (uint64_t)n);
    }
    if (n < 0)
        fprintf(stderr, "carrel: %s: the server broke off in the middle\n", show_text(p->name));
    return n < 0 ? EXIT_CLIENT : 0;
}

/* Requests a body. 0, or the exit status. */
static int open_download(struct copy *c, const char *target)
{
    struct err e = { 0 };

    if (exchange_open(c->x, &c->client.server, "GET", target, "Connection: close\r\n", EXCHANGE_NO_BODY, &e) < 0)
        return client_complain(&e);
    if (exchange_answer(c->x, &e) < 0) {
        exchange_close(c->x);
        return client_complain(&e);
    }
    if (c->x->status == 200)
        return 0;
    json_t *answer = client_read_json(c->x);
    int status = client_refused(c->x->status, answer);
    json_decref(answer);
    exchange_close(c->x);
    return status;
}

/* /dev/stdout, /dev/fd/63; nothing below /dev/shm, where any user may write. */
static bool is_devs_own(const char *local)
{
    return strncmp(local, "/dev/", 5) == 0 && (strncmp(local, "/dev/fd/", 8) == 0 || !strchr(local + 5, '/'));
}

/* A device or FIFO that is written directly. Of links, only the system's own lead to one. */
static bool is_special(const char *local)
{
    struct stat st;

    if (lstat(local, &st) < 0)
        return false;
    /* The link leads to a descriptor, perhaps of a plain file, and must not be replaced. */
    return S_ISLNK(st.st_mode) ? is_devs_own(local) : !S_ISREG(st.st_mode);
}

static char temporary[3 * PATH_MAX];        /* removed if a signal ends us; "": nothing */

static void on_end(int number)
{
    if (temporary[0])
        (void)unlink(temporary);
    (void)raise(number);
}

static void catch_end(void)
{
    static const int deadly[] = { SIGINT, SIGTERM, SIGHUP };
    struct sigaction ours = { .sa_handler = on_end, .sa_flags = SA_RESETHAND | SA_NODEFER }, before;

    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        if (sigaction(deadly[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            (void)sigaction(deadly[i], &ours, NULL);
}

static int open_temporary(const char *local)
{
    sigset_t all, before;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", local);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        temporary[0] = '\0';
    sigprocmask(SIG_SETMASK, &before, NULL);
    return fd;
}

/* Writes a new file beside the destination and renames it. A device or FIFO is written directly. */
static int save(struct copy *c, const char *local, mode_t mode, struct progress *p)
{
    mode_t mask = umask(0);

    umask(mask);
    if (strcmp(local, "-") == 0)
        return receive_file(c, STDOUT_FILENO, p);
    if (is_special(local)) {
        FD special = open(local, O_WRONLY | O_APPEND | O_CLOEXEC | (is_devs_own(local) ? 0 : O_NOFOLLOW));
        return special < 0 ? fail(local, errno) : receive_file(c, special, p);
    }
    FD fd = open_temporary(local);
    if (fd < 0)
        return fail(local, errno);
    int status = receive_file(c, fd, p);
    if (status == 0 && (fchmod(fd, mode & ~mask) < 0 || rename(temporary, local) < 0))
        status = fail(local, errno);
    if (status != 0)
        (void)unlink(temporary);
    temporary[0] = '\0';
    return status;
}

static int download_file(struct copy *c, const struct cp_place *from, const char *local, uint64_t size, mode_t mode)
{
    struct buf target;
    struct progress p;

    file_target(&target, from->box, from->path, "");
    int status = open_download(c, buf_string(&target));
    buf_done(&target);
    if (status != 0)
        return status;
    progress_begin(&p, from->path, size);
    status = save(c, local, mode, &p);
    progress_end(&p);
    exchange_close(c->x);
    return status;
}

static int download_folder(struct copy *c, const struct cp_place *from, const char *local)
{
    char absolute[2 * PATH_MAX + 2], storage[PATH_MAX], folder[2 * PATH_MAX];
    const char *name = last_name(local, storage);
    struct buf target;
    struct progress p;
    struct stat st;
    struct err e = { 0 };

    snprintf(folder, sizeof folder, "%s", local);
    if (!realpath(name[0] ? dirname(folder) : local, absolute))
        return fail(local, errno);
    if (name[0])
        snprintf(absolute + strlen(absolute), PATH_MAX, "/%s", name);
    if (lstat(absolute, &st) == 0 && S_ISLNK(st.st_mode)) {
        fprintf(stderr, "carrel: %s is a link here, which is not followed; remove it, or copy to another place\n",
                show_text(local));
        return EXIT_CLIENT;
    }
    archive_target(&target, from->box, from->path);
    int status = open_download(c, buf_string(&target));
    buf_done(&target);
    if (status != 0)
        return status;
    progress_begin(&p, from->path, 0);
    int r = tree_receive(absolute, c->x, &p, &e);
    progress_end(&p);
    exchange_close(c->x);
    return r < 0 ? client_complain(&e) : 0;
}

static int download(struct copy *c, const struct cp_place *from, const char *local, bool into_folder)
{
    char storage[PATH_MAX], path[2 * PATH_MAX];
    struct stat st;
    uint64_t size = 0;
    mode_t mode = 0644;
    int kind = look(c, from->box, from->path, &size, &mode);
    bool is_folder = stat(local, &st) == 0 && S_ISDIR(st.st_mode);

    if (kind < 0)
        return EXIT_CLIENT;
    if (kind == 0) {
        fprintf(stderr, "carrel: %s: no such file or folder\n", show_text(from->word));
        return EXIT_CLIENT;
    }
    if (kind == 'd' && !c->recursive) {
        fprintf(stderr, "carrel: %s is a folder; use cp -r\n", show_text(from->word));
        return EXIT_CLIENT;
    }
    if (!is_folder && (into_folder || (ends_with_slash(local) && kind != 'd')))
        return fail(local, stat(local, &st) < 0 ? errno : ENOTDIR);
    snprintf(path, sizeof path, "%s", local);
    if (is_folder) {
        const char *name = last_name(from->path[0] ? from->path : BOX_HOME, storage);
        if (name[0])
            snprintf(path, sizeof path, "%s/%s", local, name);
        else if (!realpath(local, path))
            return fail(local, errno);
    }
    return kind == 'd' ? download_folder(c, from, path) : download_file(c, from, path, size, mode);
}

static int copy_all(struct copy *c, const struct words *words)
{
    const char *last = words->at[words->n - 1];
    struct cp_place to;
    int status = open_place(c, last, false, &to);

    for (int i = 0; i < words->n - 1 && (status == 0 || to.box || !volume_is_named(last)); i++) {
        struct cp_place from;
        int r = open_place(c, words->at[i], true, &from);
        if (r == 0 && !from.box == !to.box)
            r = client_misused(&c->client, from.box ? "one side must be local" : "one side must be BOX:PATH");
        else if (r == 0)
            r = to.box ? upload(c, from.path, &to, words->n > 2) : download(c, &from, to.path, words->n > 2);
        status = r ? r : status;
        close_place(&from, words->at[i]);
    }
    close_place(&to, last);
    return status;
}

int client_cp(int argc, char **argv)
{
    static const struct flag flags[] = { { "recursive", 'r', false, set_recursive } };
    struct copy c = { .client = { .name = "cp", .usage = usage } };
    struct words words;
    int status = client_begin(&c.client, argc, argv, flags, 1, &c, false, &words);

    if (status >= 0)
        return status;
    if (words.n < 2)
        return client_misused(&c.client, "from where to where?");
    catch_end();
    c.x = malloc(sizeof *c.x);
    c.piece = malloc(PIECE);
    status = c.x && c.piece ? copy_all(&c, &words) : EXIT_CLIENT;
    free(c.x);
    free(c.piece);
    return status;
}
