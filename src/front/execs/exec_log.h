/* What a command wrote, in one file: frames, each a struct exec_frame and then that many bytes. A frame whose bytes are
 * not all there yet is being written.
 *
 * A log with a bound keeps the first half of it (the head) and the last half (the tail). Between them is one frame of
 * the stream EXEC_GAP that says how many bytes were dropped there and where the tail begins in the file. Readers know
 * nothing of this: offsets only grow, and one that was dropped leads to the gap. */
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
    uint64_t offset;        /* of what is left of that frame, for readers */
    uint64_t cut;           /* the file is being cut to this length; 0: it is not */
    uint64_t dropped[2];    /* bytes of stdout and stderr */
    uint64_t reserved[2];
};

struct exec_log {
    int             dir;            /* borrowed */
    char            name[24];
    int             fd;             /* owned; -1: nothing was written yet, or it was closed */
    uint64_t        bound;          /* bytes of output that are kept; 0: all */
    uint64_t        end;            /* of the complete frames, in the file */
    uint64_t        at;             /* where the next byte goes */
    uint32_t        owed;           /* bytes of a frame whose header is written */
    uint8_t         owed_stream;
    uint64_t        bytes[2];       /* that were written to stdout and stderr, dropped ones included */
    uint64_t        weight;         /* of the tail, or of all while there is no gap; see weigh() */
    uint64_t        head_end;       /* where the gap's frame is */
    uint64_t        head_bytes[2];
    uint64_t        gap_at;         /* where the struct exec_gap is; 0: there is none */
    struct exec_gap gap;
};

/* Somebody who reads a log from an offset on. */
struct exec_reader {
    uint64_t at;                    /* offset of a frame */
    uint32_t part;                  /* bytes of that frame that were read */
    bool     is_counted;            /* seen is right: it began at 0 or has passed the gap */
    uint64_t seen[2];
    uint64_t missed[2];             /* bytes of stdout and stderr, after a frame of the stream EXEC_GAP; if it is not
                                     * counted, at most so many */
};

void           exec_log_init(struct exec_log *l, int dir, const char *id);
void           exec_log_close(struct exec_log *l);
void           exec_log_unlink(const struct exec_log *l);
/* Of an earlier front's command: finds where everything is. A log that is not there is empty. */
void           exec_log_open(struct exec_log *l);

/* Makes sure that a frame may begin. needed: the lowest offset that somebody still has to read. -EAGAIN: that one must
 * read on first; -errno: it cannot be written for now. */
MUST_CHECK int exec_log_room(struct exec_log *l, uint64_t needed);
/* How large that frame may be; 0 after -EAGAIN. */
uint64_t       exec_log_room_bytes(const struct exec_log *l);
/* Writes the header of a frame; then its bytes go to fd at l->at, and exec_log_paid() says so. */
MUST_CHECK int exec_log_begin(struct exec_log *l, uint8_t stream, uint32_t size, int64_t now_ms);
void           exec_log_paid(struct exec_log *l, size_t size);
/* The open frame gets no more: it is made as long as it is, or taken back if it is empty. 1: there is a frame; 0: there
 * was nothing in it; -errno. */
MUST_CHECK int exec_log_shorten(struct exec_log *l);
/* Makes sure that the file system has room for a frame of that many bytes. */
MUST_CHECK int exec_log_reserve(struct exec_log *l, uint32_t size);
/* The command has ended: drops what is beyond the bound, unless it is still needed. */
void           exec_log_finish(struct exec_log *l, uint64_t needed);

/* The offset behind the last complete frame. */
uint64_t       exec_log_offset(const struct exec_log *l);
/* Whether a reader may begin there. */
MUST_CHECK bool exec_log_has(const struct exec_log *l, uint64_t offset);
void           exec_reader_init(struct exec_reader *r, uint64_t offset);
/* Fills frame and up to size of its bytes, and moves the reader past them. Returns bytes, 0 if there is nothing (yet),
 * -errno. With frame->stream EXEC_GAP no byte was read, and r->missed says what the reader does not get. */
ssize_t        exec_log_read(const struct exec_log *l, struct exec_reader *r, struct exec_frame *frame, void *data,
                             size_t size);

#endif
