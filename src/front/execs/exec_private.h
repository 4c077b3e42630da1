/* What the files about execs share. */
#ifndef CARREL_FRONT_EXECS_EXEC_PRIVATE_H
#define CARREL_FRONT_EXECS_EXEC_PRIVATE_H

#include "front/execs/execs.h"

/* exec_stream.c: the pipes (or the terminal) and the way from them into the log. */
void           exec_streams_init(struct exec *x);
MUST_CHECK int exec_streams_open(struct exec *x, const struct exec_options *o, int ret_theirs[3], struct err *e);
/* Takes over what the keeper held (n_held: in the order in, out, err as they were given), or the terminal's master. */
void           exec_streams_adopt(struct exec *x, int *fds, size_t n_fds, size_t n_held);
/* Takes all that is there now; what cannot be stored is lost. */
void           exec_streams_drain(struct exec *x);
/* The command has ended. True: some of its output cannot be stored for now; exec_ended() comes when it can, or when
 * that takes too long. */
bool           exec_streams_wait(struct exec *x);
void           exec_streams_close(struct exec *x);
/* Of a kernel: what it printed so far is told now; nothing is read while it is held. */
void           exec_streams_pull(struct exec *x);
void           exec_streams_hold(struct exec *x, bool hold);

/* exec_body.c: as it is stored, and the other way round. */
void           exec_show_argument(struct exec *x, const char *text);    /* the next one; cut if they are too long */
json_t        *exec_row_json(const struct exec *x);
void           exec_from_json(struct exec *x, json_t *body);

/* execs.c */
void           exec_release_input(struct exec *x);
void           exec_save(struct exec *x);
void           exec_end(struct exec *x);
void           exec_ended(struct exec *x);
void           exec_changed(struct exec *x);

#endif
