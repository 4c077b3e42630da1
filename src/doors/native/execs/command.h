/* Shared by the files about commands: start, output. */
#ifndef CARREL_DOORS_NATIVE_EXECS_COMMAND_H
#define CARREL_DOORS_NATIVE_EXECS_COMMAND_H

#include "doors/native/door.h"
#include "front/execs/exec_io.h"
#include "front/execs/exec_request.h"

/* --- execs.c: {"rows":24,"cols":80} and {"signal":"TERM"} --- */
MUST_CHECK int command_resize(struct exec *x, json_t *root, struct err *e);
MUST_CHECK int command_signal(struct exec *x, json_t *root, struct err *e);

/* --- stream.c --- */
enum stream_flag {
    STREAM_FOLLOW = 1,      /* until the command ends; else only the present output */
    STREAM_STARTED = 2,     /* the first line names the command */
    STREAM_KILL = 4,        /* if the client goes away early, the command is killed */
};
/* Sends the output from offset on, as lines of JSON. */
void stream_output(struct ask *a, struct exec *x, uint64_t offset, unsigned flags);
/* Answers with the command and its output so far. */
void reply_result(struct ask *a, const struct exec *x);
/* Describes the gap that a reader has just met. Owned by the caller. */
char *stream_dropped_text(const struct exec_reader *reader, uint64_t from);
/* The last line of a stream, and the last message of a WebSocket. Owned by the caller. */
char *stream_exit_text(const struct exec *x);

#endif
