/* What `carrel cp` is made of: a bar that shows how far it is, and the local end of a copied tree. */
#ifndef CARREL_CLIENT_FILES_TRANSFER_H
#define CARREL_CLIENT_FILES_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "client/wire/exchange.h"

/* --- progress.c: on standard error, if that is a terminal and it takes long enough to be worth it --- */
struct progress {
    const char *name;       /* borrowed */
    uint64_t    total;      /* 0: not known */
    uint64_t    done, started_us, shown_us;
    bool        is_on, is_shown;
};
void progress_begin(struct progress *p, const char *name, uint64_t total);
void progress_add(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p);

/* --- tree.c: the folder at path (absolute), as tar --- */
/* Sends it as the body. 0; -EPIPE: the server wants no more; another -errno with e. */
MUST_CHECK int tree_send(const char *path, struct exchange *x, struct progress *p, struct err *e);
/* Makes it of the answer's body; the last folder of path is made if it is missing, and may not be a link. */
MUST_CHECK int tree_receive(const char *path, struct exchange *x, struct progress *p, struct err *e);

#endif
