/* One direction of a command's stdio, moved without ever blocking the loop that owns it. */
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
    size_t      begin, end;     /* of what waits in data */
    uint64_t    moved;          /* bytes read from `from` */
    bool        refused;        /* `to` takes no more */
    char        data[STREAM_BYTES];
};

void stream_init(struct stream *s, int from, bool owns_from, int to, bool owns_to, struct buf *capture);
void stream_done(struct stream *s);

/* Nothing can come any more and nothing waits. */
bool stream_is_over(const struct stream *s);

/* Fills at most two entries to poll; the returned number is what stream_move wants back. */
size_t stream_poll(const struct stream *s, struct pollfd *list);

/* Moves what can be moved. At most `room` bytes are read (the rest of an output limit). Returns false if room was too
 * small. */
bool stream_move(struct stream *s, const struct pollfd *list, size_t n, uint64_t room);

/* Reads no more; what waits can still be moved. */
void stream_stop(struct stream *s);

#endif
