/* A command's input and output, as doors need them: bytes on their way to its standard input, and what it wrote. */
#ifndef CARREL_FRONT_EXECS_EXEC_IO_H
#define CARREL_FRONT_EXECS_EXEC_IO_H

#include "base/budget.h"
#include "base/buf.h"
#include "front/execs/execs.h"

/* Bytes on their way to a command's standard input. Embedded in its owner. One at a time per command. */
struct exec_input {
    struct exec         *exec;
    struct exec_follower follower;      /* until a terminal is there */
    char                *data;          /* owned: what was not taken yet */
    size_t               at, size;
    struct share         share;         /* of what the box's owner may have kept */
    bool                 busy;
    void (*on_room)(struct exec_input *f);  /* all was taken, or nobody takes it any more */
};

/* -EBUSY: somebody else is writing. */
MUST_CHECK int  exec_input_init(struct exec_input *f, struct exec *x, void (*on_room)(struct exec_input *f));
void            exec_input_done(struct exec_input *f);
/* Takes all of it: 0 if it is gone, -EAGAIN if on_room() will come, -EPIPE if nobody reads, -ENOMEM, -EDQUOT
 * if no more may be kept. Not while it is busy. */
MUST_CHECK int  exec_input_write(struct exec_input *f, const char *data, size_t size);
/* Sends it all and closes standard input then, whoever else goes away meanwhile. */
MUST_CHECK int  exec_io_feed(struct exec *x, const char *data, size_t size);

/* What a command wrote to one stream: all, or the beginning and the end. */
struct exec_text {
    struct buf text;            /* owned */
    uint64_t   missing;         /* bytes that are left out; 0: none */
    size_t     missing_at;      /* where in text */
};

/* Collects at most so many bytes of both streams, once the command has ended. False: some of the log cannot be read, or
 * there is no memory. */
bool           exec_io_collect(const struct exec *x, size_t most_bytes, struct exec_text ret[2]);
void           exec_text_done(struct exec_text text[2]);

#endif
