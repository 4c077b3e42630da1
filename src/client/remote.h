/* A foreground command, with our signals and standard input passed on. */
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
    uint64_t        eof_us;             /* the end of the input is not sent again before then */
    int             signals, caught;    /* caught: the first signal; 0: none */
    uint64_t        grace_us;           /* how long the command may take to end after a signal; 0: unlimited */
    uint64_t        kill_at_us;         /* 0: unset */
    bool            raw;
    struct termios  saved;
};

/* The one session of this process. */
struct remote_command *remote_new(const char *name, const char *usage);
/* Adds the flags to the body. -1: out of memory. */
MUST_CHECK int  remote_prepare(struct remote_command *s);
/* Runs the command until it has ended; then follow.end is set, or -1 after an error was reported. 1: cut off by a
 * signal (caught) or by our reader (follow.cut). */
MUST_CHECK int  remote_run(struct remote_command *s);
/* Frees everything and returns status. */
int             remote_finish(struct remote_command *s, int status);

#endif
