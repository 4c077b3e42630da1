/* One direction of a command's stdio, moved without blocking the loop that owns it. */
#ifndef CARREL_CLI_STREAM_H
#define CARREL_CLI_STREAM_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { STREAM_BYTES = 65536 };

struct stream {
    int         from, to;       /* -1: that side is closed; owned if the flag says so */
    bool        owns_from, owns_to;
    struct buf *capture;        /* instead of `to`, if not NULL */
    size_t      begin, end;     /* of the unsent part of data */
    uint64_t    moved;          /* bytes read from `from` */
    bool        refused;        /* `to` takes no more */
    char        data[STREAM_BYTES];
};

void stream_init(struct stream *s, int from, bool owns_from, int to, bool owns_to, struct buf *capture);
void stream_done(struct stream *s);

/* The source has ended and everything was written. */
bool stream_is_over(const struct stream *s);

/* Fills at most two entries to poll; pass the returned number to stream_move. */
size_t stream_poll(const struct stream *s, struct pollfd *list);

/* Moves as much as possible. Reads at most `room` bytes (the rest of an output limit). Returns false if room was too
 * small. */
bool stream_move(struct stream *s, const struct pollfd *list, size_t n, uint64_t room);

/* Stops reading; buffered bytes are still written. */
void stream_stop(struct stream *s);

#endif
