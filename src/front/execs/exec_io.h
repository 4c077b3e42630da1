/* A command's input and output for doors: bytes for its standard input, and its output. */
#ifndef CARREL_FRONT_EXECS_EXEC_IO_H
#define CARREL_FRONT_EXECS_EXEC_IO_H

#include "base/budget.h"
#include "base/buf.h"
#include "front/execs/execs.h"

/* Bytes for a command's standard input. Embedded in its owner. One at a time per command. */
struct exec_input {
    struct exec         *exec;
    struct exec_follower follower;      /* until the terminal exists */
    char                *data;          /* owned: bytes not written yet */
    size_t               at, size;
    struct share         share;         /* in the budget of the box's owner */
    bool                 busy;
    void (*on_room)(struct exec_input *f);  /* everything was written, or the command no longer reads */
};

/* -EBUSY: another request is writing. */
MUST_CHECK int  exec_input_init(struct exec_input *f, struct exec *x, void (*on_room)(struct exec_input *f));
void            exec_input_done(struct exec_input *f);
/* Takes all of it: 0 if it was written, -EAGAIN if on_room() will follow, -EPIPE if the command does not read, -ENOMEM,
 * -EDQUOT if over budget. Not while it is busy. */
MUST_CHECK int  exec_input_write(struct exec_input *f, const char *data, size_t size);
/* Sends all of it and then closes standard input, also if the client goes away meanwhile. */
MUST_CHECK int  exec_io_feed(struct exec *x, const char *data, size_t size);

/* A command's output on one stream: all, or the beginning and the end. */
struct exec_text {
    struct buf text;            /* owned */
    uint64_t   missing;         /* bytes that are left out; 0: none */
    size_t     missing_at;      /* where in text */
};

/* Collects at most so many bytes of both streams, once the command has ended. False: the log cannot be read completely,
 * or memory is short. */
bool           exec_io_collect(const struct exec *x, size_t most_bytes, struct exec_text ret[2]);
void           exec_text_done(struct exec_text text[2]);

#endif
