/* The helper is a copy of the keeper that was sealed like a payload: it has the rights of the box's user and nothing
 * else, so it need not check what the front may do to the box's files. It must keep the stream in step whatever the
 * files are: every answer ends with one DONE, memory is constant, and it opens nothing that could block. It reads a
 * request, executes it, and reads the next. */
#define _GNU_SOURCE
#include "files/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"
#include "proto/defaults.h"

static const struct files_handler {
    int    (*run)(struct conversation *);
    unsigned flags;         /* flags that it accepts */
    bool     takes_data, takes_other;
} ops[FILES_OP_COUNT] = {
    [FILES_STAT] = { op_stat, FILES_NOFOLLOW, false, false },
    [FILES_LIST] = { op_list, 0, false, false },
    [FILES_READ] = { op_read, 0, false, false },
    [FILES_WRITE] = { op_write,
                      FILES_CREATE | FILES_EXCLUSIVE | FILES_TRUNCATE | FILES_APPEND | FILES_ATOMIC | FILES_PARENTS,
                      true, false },
    [FILES_MKDIR] = { op_mkdir, FILES_PARENTS, false, false },
    [FILES_MOVE] = { op_move, FILES_EXCLUSIVE | FILES_PARENTS, false, true },
    [FILES_REMOVE] = { op_remove, FILES_RECURSIVE, false, false },
    [FILES_CHMOD] = { op_chmod, 0, false, false },
    [FILES_PACK] = { op_pack, 0, false, false },
    [FILES_UNPACK] = { op_unpack, FILES_PARENTS | FILES_NOFOLLOW, true, false },
};

const char *files_reason(int code)
{
    static const struct {
        int         code;
        const char *text;
    } reasons[] = {
        { ENOENT, "no such file or folder" },
        { EACCES, "permission denied" },
        { EPERM, "not permitted" },
        { EEXIST, "is there already" },
        { ENOTDIR, "not a folder" },
        { EISDIR, "is a folder" },
        { ENOTEMPTY, "the folder is not empty" },
        { ENOSPC, "no space is left in the box" },
        { EDQUOT, "the quota is used up" },
        { ENOMEM, "out of memory" },
        { EFBIG, "too large" },
        { EROFS, "read-only" },
        { ELOOP, "too many symbolic links, or one where none is allowed" },
        { ENAMETOOLONG, "the name is too long" },
        { EXDEV, "on another file system" },
        { EBUSY, "in use, or a mount point" },
        { EINVAL, "not a valid request" },
        { EAGAIN, "in use" },
        { ESTALE, "changed meanwhile" },
        { ECANCELED, "given up by the caller" },
        { ENODATA, "ended too early" },
        { EIO, "input/output error" },
    };

    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].code == code)
            return reasons[i].text;
    return "failed";
}

/* Appends text, unprintable bytes as '?'. */
static size_t add_text(char *to, size_t at, size_t size, const char *text)
{
    for (; *text && at + 1 < size; text++)
        to[at++] = (unsigned char)*text < 32 || (unsigned char)*text > 126 ? '?' : *text;
    to[at] = 0;
    return at;
}

int files_fail(struct conversation *c, int code, const char *name, const char *why)
{
    struct files_done *done = &c->done;
    const char *reason = why ? why : files_reason(code);
    size_t room = sizeof done->text - strlen(reason) - 3;   /* reasons are our own, and short */

    if (done->code)
        return -done->code;     /* the first one counts */
    done->code = code;
    if (!name)
        name = c->path;
    /* The end of a path says more than its beginning. */
    size_t length = strlen(name), at = 0;
    if (length > room) {
        at = add_text(done->text, 0, sizeof done->text, "...");
        name += length - (room - 3);
    }
    at = add_text(done->text, at, sizeof done->text, name);
    at = add_text(done->text, at, sizeof done->text, ": ");
    add_text(done->text, at, sizeof done->text, reason);
    return -code;
}

/* Reads a path of the request and makes it absolute, without slashes at its end. False: not a valid path. */
static bool take_path(struct conversation *c, size_t size, char *path)
{
    static const char home[] = BOX_HOME;
    char raw[FILES_PATH_MAX + 1];
    size_t length = 0;

    if (stream_get(c, raw, size) < 0)
        return false;
    if (memchr(raw, 0, size))
        return false;
    if (size == 0 || raw[0] != '/') {
        length = sizeof home - 1;
        memcpy(path, home, length);
        path[length++] = '/';
    }
    if (length + size > FILES_PATH_MAX)
        return false;
    memcpy(path + length, raw, size);
    length += size;
    while (length > 1 && path[length - 1] == '/')
        length--;
    path[length] = 0;
    return true;
}

/* Reads the next request. False: there is none. *ret_valid: its paths and flags are valid. */
static bool take_request(struct conversation *c, bool *ret_valid)
{
    struct files_request *q = &c->request;
    struct files_head head;

    if (stream_get(c, &head, sizeof head) < 0)
        return false;
    if (head.type != FILES_REQUEST || head.reserved || head.size < sizeof *q
        || head.size > sizeof *q + 2 * FILES_PATH_MAX || stream_get(c, q, sizeof *q) < 0)
        return false;
    if (q->op == 0 || q->op >= FILES_OP_COUNT || q->path_size > FILES_PATH_MAX || q->other_size > FILES_PATH_MAX
        || head.size != sizeof *q + q->path_size + q->other_size)
        return false;
    const struct files_handler *op = &ops[q->op];
    memset(&c->done, 0, sizeof c->done);
    c->uploading = op->takes_data;
    c->left = 0;
    c->path[0] = c->other[0] = 0;
    bool valid = take_path(c, q->path_size, c->path);
    valid = take_path(c, q->other_size, c->other) && valid;
    *ret_valid = valid && !(q->flags & ~op->flags) && (q->other_size > 0) == op->takes_other
              && q->offset <= INT64_MAX && q->mode <= 07777;
    return !c->broken;
}

static void converse(struct conversation *c)
{
    bool valid;

    while (take_request(c, &valid)) {
        int r = valid ? ops[c->request.op].run(c) : -EINVAL;
        if (r < 0 && !c->done.code)
            (void)files_fail(c, -r, NULL, NULL);
        if (stream_put(c, FILES_DONE, &c->done, sizeof c->done) < 0)
            return;
        upload_drain(c);
    }
}

void files_converse(int in, int out, int root)
{
    struct conversation *c = calloc(1, sizeof *c);

    if (!c)
        return;
    c->in = in;
    c->out = out;
    c->root = root;
    c->buffer = malloc(FILES_BUFFER);
    if (c->buffer)
        converse(c);
    free(c->buffer);
    free(c);
}

void files_serve(int socket)
{
    sigset_t none;

    /* Requests carry exact modes. The front ends a slow helper by a signal. */
    umask(0);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    FD root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root >= 0)
        files_converse(socket, socket, root);
}
