/* What ps and /proc/PID/cmdline show of this process. A copy of the keeper that lives in a box must not show the
 * keeper's arguments there. */
#ifndef CARREL_BASE_TITLE_H
#define CARREL_BASE_TITLE_H

/* Remembers where the kernel finds the arguments. Call it first in main; title_set does nothing without it. */
void title_remember(int argc, char **argv);

/* Overwrites them in this process. Async-signal-safe. */
void title_set(const char *title);

#endif
