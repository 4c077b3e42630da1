/* The standard error of a zygote: the first lines have the reason why it could not start. */
#ifndef CARREL_FRONT_BOXES_ZYGOTE_LOG_H
#define CARREL_FRONT_BOXES_ZYGOTE_LOG_H

#include <stddef.h>

#include "http/loop.h"

enum { ZYGOTE_LINE_BYTES = 1024 };

struct zygote_log {
    struct loop   *loop;
    struct loop_fd pipe;                        /* fd owned; -1: none */
    char           line[ZYGOTE_LINE_BYTES];
    size_t         length;
    unsigned       lines;
    void         (*on_line)(struct zygote_log *log);    /* for each of the first lines, in log->line */
};

/* *ret: the end of a pipe that becomes the zygote's standard error; closes an earlier one. 0 or -errno. */
int  zygote_log_open(struct zygote_log *log, struct loop *loop, void (*on_line)(struct zygote_log *log), int *ret);
void zygote_log_close(struct zygote_log *log);

#endif
