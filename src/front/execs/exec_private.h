/* Shared by the files about execs. */
#ifndef CARREL_FRONT_EXECS_EXEC_PRIVATE_H
#define CARREL_FRONT_EXECS_EXEC_PRIVATE_H

#include "front/execs/exec_owner.h"
#include "front/execs/execs.h"

/* exec_stream.c: the pipes (or the terminal) and the way from them into the log. */
void           exec_streams_init(struct exec *x);
MUST_CHECK int exec_streams_open(struct exec *x, const struct exec_options *o, int ret_theirs[3], struct err *e);
/* Takes over the descriptors that the keeper held (n_held: in the order in, out, err), or the terminal's master. */
void           exec_streams_adopt(struct exec *x, int *fds, size_t n_fds, size_t n_held);
/* Reads everything that is there now; output that cannot be stored is lost. */
void           exec_streams_drain(struct exec *x);
/* The command has ended. True: some of its output cannot be stored for now; exec_ended() follows when it can, or when
 * that takes too long. */
bool           exec_streams_wait(struct exec *x);
/* Closes all but a link. */
void           exec_streams_close(struct exec *x);
void           exec_link_close(struct exec *x);

/* exec_body.c: conversion to and from the stored form. */
void           exec_show_argument(struct exec *x, const char *text);    /* the next one; cut if they are too long */
json_t        *exec_row_json(const struct exec *x);
void           exec_from_json(struct exec *x, json_t *body);

/* execs.c */
enum { EXECS_KEPT = 256 };              /* ended execs, in one box */
struct exec   *exec_new(struct box *box);
void           exec_free(struct exec *x);
/* Call it once id and limit are known. */
void           exec_open_log(struct exec *x);
/* Ended execs beyond EXECS_KEPT are forgotten, with their rows and their logs. */
void           execs_forget_oldest(struct box *box);
/* The keeper may forget the payload's end. */
void           exec_forget_slot(struct box *box, unsigned slot);
void           exec_release_input(struct exec *x);
void           exec_save(struct exec *x);
void           exec_end(struct exec *x);
void           exec_ended(struct exec *x);
void           exec_changed(struct exec *x);

#endif
