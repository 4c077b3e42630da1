/* The parts of `carrel cp`: a progress bar, and the local end of a copied tree. */
#ifndef CARREL_CLIENT_FILES_TRANSFER_H
#define CARREL_CLIENT_FILES_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/wire/exchange.h"

/* --- progress.c: on standard error, if that is a terminal and the copy takes long enough --- */
struct progress {
    const char *name;       /* borrowed */
    uint64_t    total;      /* 0: unknown */
    uint64_t    done, started_us, shown_us;
    bool        is_on, is_shown;
};
void progress_begin(struct progress *p, const char *name, uint64_t total);
void progress_add(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p);

/* --- tree.c: the folder at path (absolute), as tar --- */
/* Sends it as the body. 0; -EPIPE: the server wants no more; another -errno with e. */
MUST_CHECK int tree_send(const char *path, struct exchange *x, struct progress *p, struct err *e);
/* Unpacks the answer's body; makes the last folder of path if it is missing; it may not be a link. */
MUST_CHECK int tree_receive(const char *path, struct exchange *x, struct progress *p, struct err *e);

/* --- volume_box.c: a box for a copy into or out of a volume --- */
struct client;
struct volume_box {
    char *id, *path;        /* owned: the box, and the path in it */
    char  name[24];         /* of the box */
    int   end;              /* owned: the box is deleted when it closes; -1: none */
    int   deleter;          /* its pid */
};
/* Whether a word of `carrel cp` is volume:NAME/PATH. A box of the name "volume" is named by its id. */
bool           volume_is_named(const char *word);
/* 0, or the exit status after it reported why. volume_box_done() in both cases. */
MUST_CHECK int volume_box_make(struct volume_box *v, const struct client *c, const char *word, bool to_read);
void           volume_box_done(struct volume_box *v);

#endif
