/* For a process that has blocked its signals to take them in its own time: waits that do not outlast them. */
#ifndef CARREL_CLIENT_WIRE_HEED_H
#define CARREL_CLIENT_WIRE_HEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { HEED_SLICE_MS = 100 };       /* so often a wait looks up */

/* A signal that asks us to end, has come and waits, being blocked; 0: none. */
int            heed_pending(void);

/* Is asked between two pieces. stalled_us: so long nothing could be written. True: it shall be left at that. */
typedef bool   heed_stop(void *arg, uint64_t stalled_us);
/* Writes all, or stops: -EINTR. Our standard output is shared with whoever started us and stays in blocking mode. */
MUST_CHECK int heed_write(int fd, const char *data, size_t size, heed_stop *stop, void *arg);
/* One that stops for a signal while nobody reads. */
bool           heed_stop_for_signal(void *arg, uint64_t stalled_us);

#endif
