/* The protocol between the front and the file helper, over one SOCK_STREAM socket.
 *
 * The front sends a request; the helper answers with any number of ENTRIES and DATA frames and then exactly one DONE
 * with the result. WRITE and UNPACK take bytes: after their request come DATA frames, then END (or ABORT). Their DONE
 * may come early after a failure; the front still ends its upload with END or ABORT, and the next request may follow.
 * Numbers have the machine's byte order. A frame that breaks these rules ends the conversation.
 *
 * Paths are the box's: absolute, or relative to BOX_HOME. They are bytes without NUL, in no particular encoding. */
#ifndef CARREL_PROTO_FILES_H
#define CARREL_PROTO_FILES_H

#include <stdint.h>

#include "proto/defaults.h"

enum {
    FILES_PATH_MAX = 4095,          /* bytes of a path, without NUL */
    FILES_DATA_MAX = 1 << 20,       /* bytes in one DATA frame */
    FILES_ENTRIES_MAX = 64 << 10,   /* bytes in one ENTRIES frame */
};

enum files_frame {
    FILES_REQUEST = 1,  /* struct files_request, path, other */
    FILES_DATA,         /* 1 to FILES_DATA_MAX bytes, both ways */
    FILES_END,          /* empty: the upload is complete */
    FILES_ABORT,        /* empty: the upload is cancelled; an atomic WRITE then changes nothing */
    FILES_ENTRIES,      /* one or more struct files_entry, each with its name and link, padded to 8 bytes */
    FILES_DONE,         /* struct files_done */
};

/* Before every frame. */
struct files_head {
    uint16_t type;          /* enum files_frame */
    uint16_t reserved;      /* 0 */
    uint32_t size;          /* bytes that follow */
};
_Static_assert(sizeof(struct files_head) == 8, "a frame has no hidden bytes");

enum files_op {
    FILES_STAT = 1, /* one ENTRIES frame with one entry. Flag NOFOLLOW */
    FILES_LIST,     /* ENTRIES, in the file system's order. limit: how many (0: all); offset: cursor of the last DONE */
    FILES_READ,     /* ENTRIES with the file itself, then DATA. offset; length: the most bytes. Regular files only */
    FILES_WRITE,    /* takes DATA. offset, mode. Flags CREATE, EXCLUSIVE, TRUNCATE, APPEND, ATOMIC, PARENTS */
    FILES_MKDIR,    /* mode. Flag PARENTS: an existing folder is no error */
    FILES_MOVE,     /* path -> other. Flags EXCLUSIVE (other must not exist), PARENTS */
    FILES_REMOVE,   /* Flag RECURSIVE. Never enters another mount */
    FILES_CHMOD,    /* mode */
    FILES_PACK,     /* DATA: a tar of the folder's contents, or of the one file. length: the most bytes (0: no bound) */
    /* Takes DATA: a tar, unpacked into the folder. length: the most bytes in all, limit: the most entries (0: no
     * bound). Flags PARENTS: makes the folder; NOFOLLOW: refuses a link. */
    FILES_UNPACK,
    FILES_OP_COUNT
};

enum files_flag {
    FILES_NOFOLLOW = 1,
    FILES_CREATE = 2,
    FILES_EXCLUSIVE = 4,
    FILES_TRUNCATE = 8,
    FILES_APPEND = 16,
    FILES_ATOMIC = 32,      /* all or nothing: written completely beside the file, then renamed over it */
    FILES_PARENTS = 64,     /* makes missing parent folders */
    FILES_RECURSIVE = 128,
};

struct files_request {
    uint16_t op;            /* enum files_op */
    uint16_t flags;
    uint32_t mode;          /* permission bits for new files */
    uint64_t offset;
    uint64_t length;
    uint32_t limit;
    uint16_t path_size;     /* bytes of the path, which follows; 0: BOX_HOME */
    uint16_t other_size;    /* of the second path, which follows the first */
};
_Static_assert(sizeof(struct files_request) == 32, "a frame has no hidden bytes");

/* One file. */
struct files_entry {
    uint64_t size;
    int64_t  mtime_ns;
    uint64_t inode;
    uint32_t mode;          /* with the type bits; only those if the others could not be read */
    uint32_t uid, gid;      /* as in the box */
    uint32_t links;
    uint16_t name_size;     /* bytes of the name, which follows */
    uint16_t link_size;     /* of a symbolic link's target, which follows the name */
    uint32_t reserved;
};
_Static_assert(sizeof(struct files_entry) == 48, "a frame has no hidden bytes");

struct files_done {
    int32_t  code;          /* 0 or an errno */
    uint32_t reserved;
    uint64_t entries;       /* listed, removed, packed, unpacked */
    uint64_t bytes;         /* read, written, packed, unpacked */
    uint64_t cursor;        /* of LIST: continue here; 0: that was all */
    char     text[128];     /* for a person, NUL-terminated, printable; "" if code is 0 */
};
_Static_assert(sizeof(struct files_done) == 160, "a frame has no hidden bytes");

#endif
