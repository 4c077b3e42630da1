/* What the parts of the file helper share. */
#ifndef CARREL_FILES_CONVERSATION_H
#define CARREL_FILES_CONVERSATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "proto/files.h"

enum { FILES_BUFFER = 256 << 10 };

struct conversation {
    int                  in, out;       /* borrowed */
    int                  root;          /* borrowed: where absolute paths start */
    bool                 broken;        /* out of step, or nobody listens: nothing more is said */
    bool                 no_sendfile;   /* the box's profile refuses it */
    /* The upload of the present request. */
    bool                 uploading;     /* its END has not been seen */
    uint32_t             left;          /* bytes of the present DATA frame that were not taken yet */
    /* The present request. */
    struct files_request request;
    char                 path[FILES_PATH_MAX + 1], other[FILES_PATH_MAX + 1];   /* absolute */
    struct files_done    done;
    char                *buffer;        /* FILES_BUFFER bytes, for whoever works just now */
};

/* --- stream.c: frames. 0 or -errno; a failure of the socket makes the conversation broken. --- */
MUST_CHECK int stream_get(struct conversation *c, void *data, size_t size);
MUST_CHECK int stream_put(struct conversation *c, enum files_frame type, const void *data, size_t size);

/* The next bytes of the upload, as many as there are: > 0, 0 at its END, -ECANCELED at its ABORT. */
MUST_CHECK ssize_t upload_read(struct conversation *c, void *data, size_t size);
/* All of them; -ENODATA if the upload ends before. */
MUST_CHECK int     upload_read_all(struct conversation *c, void *data, size_t size);
/* Takes what is left of it. */
void               upload_drain(struct conversation *c);

/* DATA frames with exactly size bytes of the file from offset on. -ESTALE if it became shorter meanwhile: zeros were
 * sent in their place. */
MUST_CHECK int stream_put_file(struct conversation *c, int fd, uint64_t offset, uint64_t size);
/* True if the other side has gone: a long work may then be given up. */
bool           stream_is_deserted(const struct conversation *c);

/* --- path.c: everything is opened through these, so that nothing outside of root is reached and nothing blocks. An fd
 * or -errno. --- */
MUST_CHECK int path_open(const struct conversation *c, const char *path, int flags, mode_t mode);
/* The folder that the path's last name is in (O_PATH), and that name. */
MUST_CHECK int path_open_parent(const struct conversation *c, const char *path, const char **ret_leaf);
/* Makes the folders that the path's last name is in. 0 or -errno. */
MUST_CHECK int path_make_parents(const struct conversation *c, const char *path);
/* Like openat2 relative to a folder, with RESOLVE_* flags. */
MUST_CHECK int path_open_at(int dir, const char *path, int flags, mode_t mode, uint64_t resolve);
/* A new empty file beside leaf, for writing; name has room for PATH_TEMPORARY bytes. */
enum { PATH_TEMPORARY = 32 };
MUST_CHECK int path_open_temporary(int dir, mode_t mode, char *ret_name);

/* --- folder.c: the entries of a folder, through a small buffer of one's own. --- */
struct folder {
    int  fd;                /* borrowed */
    long at, end;
    char buffer[4096];
};
struct folder_entry {
    const char   *name;     /* good until the next folder_next */
    unsigned char type;     /* DT_* */
    uint64_t      cursor;   /* to go on after it */
};
void           folder_init(struct folder *folder, int fd);
/* 1 with an entry ("." and ".." are left out), 0 at the end, -errno. */
MUST_CHECK int folder_next(struct folder *folder, struct folder_entry *ret);

/* --- the operations: 0, or what files_fail returned. --- */
int op_stat(struct conversation *c);
int op_list(struct conversation *c);
int op_read(struct conversation *c);
int op_write(struct conversation *c);
int op_mkdir(struct conversation *c);
int op_move(struct conversation *c);
int op_remove(struct conversation *c);
int op_chmod(struct conversation *c);
int op_pack(struct conversation *c);
int op_unpack(struct conversation *c);

/* Notes what failed for DONE and returns -code. name is what it failed on, made printable; NULL: the request's path. */
int files_fail(struct conversation *c, int code, const char *name, const char *why);

/* Short text of an errno that a file operation gives. */
const char *files_reason(int code);

#endif
