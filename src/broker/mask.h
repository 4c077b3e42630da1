/* Covers values in a stream of bytes that may cut them anywhere. Pure. Each byte of a value becomes '*', so that
 * lengths stay; bytes that may be the beginning of a value are held back until the next ones decide. */
#ifndef CARREL_BROKER_MASK_H
#define CARREL_BROKER_MASK_H

#include <stdint.h>

#include "base/buf.h"

/* A value with the table by which a search goes on after a mismatch. */
struct mask_value {
    uint8_t  *bytes;        /* owned */
    size_t    size;
    uint16_t *shorter;      /* owned: for a matched part of i + 1 bytes the longest shorter one that also ends there */
};

/* 1 to 65,535 bytes. 0 or -ENOMEM. */
MUST_CHECK int mask_value_init(struct mask_value *v, const void *bytes, size_t size);
/* Overwrites the value before its memory is given back. */
void           mask_value_done(struct mask_value *v);

enum { MASK_VALUES = 16 };

/* The longest value first, so that one that is the beginning of another does not uncover the rest of it. */
struct mask {
    size_t                   n;
    const struct mask_value *value[MASK_VALUES];    /* borrowed */
    size_t                   matched[MASK_VALUES];
};

void mask_init(struct mask *m);
void mask_add(struct mask *m, const struct mask_value *value);
/* Appends to out what is decided, masked. */
void mask_feed(struct mask *m, const void *data, size_t size, struct buf *out);
/* Appends what was held back: the stream is complete. The mask is as new. */
void mask_end(struct mask *m, struct buf *out);

#endif
