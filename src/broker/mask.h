/* Covers values in a stream of bytes that may cut them anywhere. Pure. Each byte of a value becomes '*', so that
 * lengths stay. The last bytes of the stream, one less than the longest value has, are always held back, whatever they
 * are: if only those were held that begin a value, a box could send guesses, watch the lengths of what comes back, and
 * find a value out character by character. */
#ifndef CARREL_BROKER_MASK_H
#define CARREL_BROKER_MASK_H

#include <stdint.h>

#include "base/buf.h"

enum { MASK_VALUES = 16, MASK_VALUE_MOST = 4096 };

struct mask_value {
    uint8_t *bytes;         /* owned */
    size_t   size;
    uint64_t end, counts;   /* its last eight bytes, as memory has them; ones for those that there are */
};

/* 1 to MASK_VALUE_MOST bytes. 0 or -ENOMEM. */
MUST_CHECK int mask_value_init(struct mask_value *v, const void *bytes, size_t size);
/* Overwrites the value before its memory is given back. */
void           mask_value_done(struct mask_value *v);

struct mask {
    size_t                   n;
    const struct mask_value *value[MASK_VALUES];    /* borrowed */
    size_t                   longest;
    size_t                   n_seen, n_held;
    char                     seen[MASK_VALUE_MOST]; /* the last bytes that came, in which a value may have begun */
    char                     held[MASK_VALUE_MOST]; /* the last ones of them, masked, that were not passed on yet */
};

void mask_init(struct mask *m);
void mask_add(struct mask *m, const struct mask_value *value);
/* Takes the next bytes. Appends, masked, all but those that are held back: how many depends on sizes alone. */
void mask_feed(struct mask *m, const void *data, size_t size, struct buf *out);
/* Appends what is held back. Of a value that goes on after this only the rest will be covered. */
void mask_release(struct mask *m, struct buf *out);
/* The stream is complete: appends what is held back. The mask is as new. */
void mask_end(struct mask *m, struct buf *out);
/* Overwrites what is held back. */
void mask_done(struct mask *m);

#endif
