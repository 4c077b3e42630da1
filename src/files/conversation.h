/* Shared by the parts of the file helper. */
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
    bool                 broken;        /* out of step, or the other side is gone: no further answers */
    bool                 no_sendfile;   /* the box's profile refuses it */
    /* The upload of the present request. */
    bool                 uploading;     /* its END has not been seen */
    uint32_t             left;          /* bytes of the present DATA frame that were not read yet */
    /* The present request. */
    struct files_request request;
    char                 path[FILES_PATH_MAX + 1], other[FILES_PATH_MAX + 1];   /* absolute */
    struct files_done    done;
    char                *buffer;        /* FILES_BUFFER bytes of scratch, for the present operation */
};

/* --- stream.c: frames. 0 or -errno; a failure of the socket makes the conversation broken. --- */
MUST_CHECK int stream_get(struct conversation *c, void *data, size_t size);
MUST_CHECK int stream_put(struct conversation *c, enum files_frame type, const void *data, size_t size);

/* The next available bytes of the upload: > 0, 0 at its END, -ECANCELED at its ABORT. */
MUST_CHECK ssize_t upload_read(struct conversation *c, void *data, size_t size);
/* Reads exactly size bytes; -ENODATA if the upload ends before. */
MUST_CHECK int     upload_read_all(struct conversation *c, void *data, size_t size);
/* Discards the rest of the upload. */
void               upload_drain(struct conversation *c);

/* Sends DATA frames with exactly size bytes of the file from offset on. -ESTALE if the file became shorter meanwhile:
 * zeros were sent instead. */
MUST_CHECK int stream_put_file(struct conversation *c, int fd, uint64_t offset, uint64_t size);
/* True if the other side has gone, so that long work can be cancelled. */
bool           stream_is_deserted(const struct conversation *c);

/* --- path.c: every open goes through these, so that nothing outside of root is reached and nothing blocks. An fd or
 * -errno. --- */
MUST_CHECK int path_open(const struct conversation *c, const char *path, int flags, mode_t mode);
/* The folder of the path's last name (O_PATH), and that name. */
MUST_CHECK int path_open_parent(const struct conversation *c, const char *path, const char **ret_leaf);
/* Makes the folders above the path's last name. 0 or -errno. */
MUST_CHECK int path_make_parents(const struct conversation *c, const char *path);
/* Like openat2 relative to a folder, with RESOLVE_* flags. */
MUST_CHECK int path_open_at(int dir, const char *path, int flags, mode_t mode, uint64_t resolve);
/* A new empty file beside leaf, for writing; name has room for PATH_TEMPORARY bytes. */
enum { PATH_TEMPORARY = 32 };
MUST_CHECK int path_open_temporary(int dir, mode_t mode, char *ret_name);

/* --- folder.c: the entries of a folder, through a small buffer. --- */
struct folder {
    int  fd;                /* borrowed */
    long at, end;
    char buffer[4096];
};
struct folder_entry {
    const char   *name;     /* valid until the next folder_next */
    unsigned char type;     /* DT_* */
    uint64_t      cursor;   /* to continue after it */
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

/* Records the failure for DONE and returns -code. name is the file that failed, made printable; NULL: the request's
 * path. */
int files_fail(struct conversation *c, int code, const char *name, const char *why);

/* A short text for an errno of a file operation. */
const char *files_reason(int code);

#endif
