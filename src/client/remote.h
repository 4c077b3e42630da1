/* A command in the foreground, with our signals and our standard input handed on. */
#ifndef CARREL_CLIENT_REMOTE_H
#define CARREL_CLIENT_REMOTE_H

#include <termios.h>

#include "client/follow.h"

enum { SESSION_PIECE = 32768 };

struct remote_command {
    struct client   client;
    struct follow   follow;
    json_t         *body, *env;
    bool            interactive, terminal, background;
    struct exchange *input;             /* owned; its fd is -1 while there is none */
    char            piece[SESSION_PIECE + 32];  /* framed, on its way */
    size_t          piece_at, piece_size;
    bool            stdin_over, input_over;
    uint64_t        eof_us;             /* before that the end of the input is not handed on again */
    int             signals, caught;    /* the first signal that came; 0: none */
    uint64_t        grace_us;           /* after a signal the command has so long to end; 0: for ever */
    uint64_t        kill_at_us;         /* 0: not yet */
    bool            raw;
    struct termios  saved;
};

/* The one session of this process. */
struct remote_command *remote_new(const char *name, const char *usage);
/* What the flags mean for the body. -1: out of memory. */
MUST_CHECK int  remote_prepare(struct remote_command *s);
/* Starts the command and stays until it has ended; then follow.end is set, or the reason was told and the result is -1.
 * 1: we were cut off, by a signal (caught) or by our reader (follow.cut). */
MUST_CHECK int  remote_run(struct remote_command *s);
/* Frees all and hands status on. */
int             remote_finish(struct remote_command *s, int status);

#endif
