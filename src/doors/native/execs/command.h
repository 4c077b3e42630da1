/* What the files about commands share: starting one, following its output, feeding its standard input. */
#ifndef CARREL_DOORS_NATIVE_COMMAND_H
#define CARREL_DOORS_NATIVE_COMMAND_H

#include "doors/native/door.h"

/* --- command.c: what to run --- */
struct command {
    struct ask         *ask;
    struct exec_options options;
    json_t             *argv;           /* borrowed: list of strings */
    json_t             *env;            /* borrowed or NULL */
    const char         *shell;          /* instead of argv */
    const char         *input;          /* to send to standard input, then close it; NULL: none */
    size_t              input_size;
    uint32_t            rows, columns;
};

MUST_CHECK int command_read(struct command *c, json_t *root, struct err *e);
MUST_CHECK int command_read_query(struct command *c, struct err *e);
MUST_CHECK int command_start(struct command *c, struct exec **ret, struct err *e);

/* --- execs.c: {"rows":24,"cols":80} and {"signal":"TERM"} --- */
MUST_CHECK int command_resize(struct exec *x, json_t *root, struct err *e);
MUST_CHECK int command_signal(struct exec *x, json_t *root, struct err *e);

/* --- feed.c: bytes on their way to a command's standard input. Embedded in its owner. One at a time per command --- */
struct feed {
    struct exec         *exec;
    struct exec_follower follower;      /* until a terminal is there */
    char                *data;          /* owned: what was not taken yet */
    size_t               at, size;
    struct share         share;         /* of what the box's owner may have kept */
    bool                 busy;
    void (*on_room)(struct feed *f);    /* all was taken, or nobody takes it any more */
};

/* -EBUSY: somebody else is writing. */
MUST_CHECK int feed_init(struct feed *f, struct exec *x, void (*on_room)(struct feed *f));
void           feed_done(struct feed *f);
/* Takes all of it: 0 if it is gone, -EAGAIN if on_room() will come, -EPIPE if nobody reads, -ENOMEM, -EDQUOT
 * if no more may be kept. Not while it is busy. */
MUST_CHECK int feed_write(struct feed *f, const char *data, size_t size);
/* Sends it all and closes standard input then, whoever else goes away meanwhile. */
MUST_CHECK int feed_all(struct exec *x, const char *data, size_t size);

/* --- stream.c --- */
enum stream_flag {
    STREAM_FOLLOW = 1,      /* until the command ends; else what there is */
    STREAM_STARTED = 2,     /* with a first line that names the command */
    STREAM_KILL = 4,        /* if the client goes away before, the command is killed */
};
/* Sends the output from offset on, as lines of JSON. */
void stream_output(struct ask *a, struct exec *x, uint64_t offset, unsigned flags);
/* The command as it is now, with what it wrote. */
void reply_result(struct ask *a, const struct exec *x);
/* The last line of a stream, and what a WebSocket says at the end. Owned by the caller. */
char *stream_exit_text(const struct exec *x);
MUST_CHECK bool stream_offset_is_valid(const struct exec *x, uint64_t offset);

#endif
