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

/* Whether a reader of the log may begin there. */
MUST_CHECK bool exec_io_offset_is_valid(const struct exec *x, uint64_t offset);
/* What there is of stdout and stderr, as much of each as its buffer takes and at most so many bytes of both; *ret_cut:
 * there was more. False: some of the log cannot be read. */
bool            exec_io_collect(const struct exec *x, struct buf out[2], size_t most_bytes, bool *ret_cut);

#endif
