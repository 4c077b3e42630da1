/* A command's output in one file: frames, each a struct exec_frame and then that many bytes. A frame with fewer bytes
 * is still being written.
 *
 * A log with a bound keeps the first half of it (the head) and the last half (the tail). Between them is one frame of
 * the stream EXEC_GAP with the number of dropped bytes and the place of the tail in the file. Readers do not see this:
 * offsets only grow, and a dropped one leads to the gap. */
#ifndef CARREL_FRONT_EXECS_EXEC_LOG_H
#define CARREL_FRONT_EXECS_EXEC_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum exec_stream { EXEC_GAP, EXEC_STDOUT /* also of a terminal */, EXEC_STDERR };

struct exec_frame {
    uint32_t size;
    uint8_t  stream;        /* enum exec_stream */
    uint8_t  reserved[3];
    int64_t  time_ms;
};

/* The last 64 bytes of the frame between head and tail, aligned so that one write replaces all of it or nothing. */
struct exec_gap {
    uint64_t start;         /* position in the file of the tail's first frame */
    uint64_t skip;          /* bytes of that frame that were dropped */
    uint64_t offset;        /* of the rest of that frame, for readers */
    uint64_t cut;           /* the file is being cut to this length; 0: no cut is due */
    uint64_t dropped[2];    /* bytes of stdout and stderr */
    uint64_t reserved[2];
};

struct exec_log {
    int             dir;            /* borrowed */
    char            name[24];
    int             fd;             /* owned; -1: no output yet, or closed */
    uint64_t        bound;          /* bytes of output to keep; 0: all */
    uint64_t        end;            /* of the complete frames, in the file */
    uint64_t        at;             /* the place of the next byte */
    uint32_t        owed;           /* bytes of a frame whose header is written */
    uint8_t         owed_stream;
    uint64_t        bytes[2];       /* written to stdout and stderr, including dropped ones */
    uint64_t        weight;         /* of the tail, or of everything while there is no gap; see weigh() */
    uint64_t        head_end;       /* the place of the gap's frame */
    uint64_t        head_bytes[2];
    uint64_t        gap_at;         /* the place of the struct exec_gap; 0: none */
    struct exec_gap gap;
};

/* A reader of a log, from an offset on. */
struct exec_reader {
    uint64_t at;                    /* offset of a frame */
    uint32_t part;                  /* bytes of that frame that were read */
    bool     is_counted;            /* seen is right: it began at 0 or has passed the gap */
    uint64_t seen[2];
    uint64_t missed[2];             /* bytes of stdout and stderr, after a frame of the stream EXEC_GAP; if it is not
                                     * counted, an upper bound */
};

void           exec_log_init(struct exec_log *l, int dir, const char *id);
void           exec_log_close(struct exec_log *l);
void           exec_log_unlink(const struct exec_log *l);
/* For an earlier front's command: finds all positions. A missing log is empty. */
void           exec_log_open(struct exec_log *l);

/* The approximate size on disk. */
uint64_t       exec_log_kept_bytes(const struct exec_log *l);

/* Makes room for a frame. needed: the lowest offset that a reader still needs. -EAGAIN: that reader must read on first;
 * -errno: it cannot be written for now. */
MUST_CHECK int exec_log_room(struct exec_log *l, uint64_t needed);
/* The largest size of that frame; 0 after -EAGAIN. */
uint64_t       exec_log_room_bytes(const struct exec_log *l);
/* Writes the header of a frame; its bytes then go to fd at l->at, each followed by exec_log_paid(). */
MUST_CHECK int exec_log_begin(struct exec_log *l, uint8_t stream, uint32_t size, int64_t now_ms);
void           exec_log_paid(struct exec_log *l, size_t size);
/* The open frame gets no more bytes: its length is corrected, or it is removed if it is empty. 1: there is a frame; 0:
 * it was empty; -errno. */
MUST_CHECK int exec_log_shorten(struct exec_log *l);
/* Reserves room for a frame of that many bytes in the file system. */
MUST_CHECK int exec_log_reserve(struct exec_log *l, uint32_t size);
/* The command has ended: drops what exceeds the bound, unless it is still needed. */
void           exec_log_finish(struct exec_log *l, uint64_t needed);

/* The offset after the last complete frame. */
uint64_t       exec_log_offset(const struct exec_log *l);
/* Whether a reader may begin there. */
MUST_CHECK bool exec_log_has(const struct exec_log *l, uint64_t offset);
void           exec_reader_init(struct exec_reader *r, uint64_t offset);
/* Fills frame and up to size of its bytes, and moves the reader past them. Returns bytes, 0 if there is nothing (yet),
 * -errno. With frame->stream EXEC_GAP no byte was read, and r->missed has the missing amounts. */
ssize_t        exec_log_read(const struct exec_log *l, struct exec_reader *r, struct exec_frame *frame, void *data,
                             size_t size);

#endif
