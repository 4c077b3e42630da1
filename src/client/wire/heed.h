/* For a process that blocks its signals and handles them itself: waits that notice pending signals. */
#ifndef CARREL_CLIENT_WIRE_HEED_H
#define CARREL_CLIENT_WIRE_HEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { HEED_SLICE_MS = 100 };       /* how often a wait checks */

/* A pending signal that asks us to end; 0: none. */
int            heed_pending(void);

/* Called between two pieces. stalled_us: how long nothing could be written. True: stop. */
typedef bool   heed_stop(void *arg, uint64_t stalled_us);
/* Writes all, or stops: -EINTR. Our standard output is shared with our parent and stays in blocking mode. */
MUST_CHECK int heed_write(int fd, const char *data, size_t size, heed_stop *stop, void *arg);
/* Stops for a signal while the reader is stalled. */
bool           heed_stop_for_signal(void *arg, uint64_t stalled_us);

#endif
