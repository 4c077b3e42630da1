/* How programs report the end of a command: one line for a person, the exit status, the report. */
#ifndef CARREL_PROTO_ENDING_H
#define CARREL_PROTO_ENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/jsonout.h"
#include "proto/limits.h"
#include "proto/names.h"

enum { EXIT_TIMEOUT = 124, EXIT_CARREL = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

/* In the place of an outcome: the command never ran. */
#define ENDING_NOT_STARTED "not_started"

struct ending {
    enum outcome outcome;
    int          code, signal;              /* signal 0: it ended by itself, with this code */
    uint64_t     limit;                     /* the limit of the outcome, see ending_limit(); 0: none */
    uint64_t     wall_us, cpu_us, memory_peak_bytes, disk_bytes;
    uint32_t     pids_peak;                 /* 0: unknown */
};

/* The limit that a command with this outcome hit: bytes of memory, disk or output, processes, or milliseconds. 0: no
 * limit, or the outcome has none. */
uint64_t       ending_limit(enum outcome outcome, const struct limits *limits, uint64_t timeout_ms,
                            uint64_t output_bytes);
/* The API's name of that limit: "memory", "disk", "pids", "timeout", "output_limit". NULL: the outcome has none. */
const char    *ending_limit_name(enum outcome outcome);

struct ending_text { char text[128]; };
/* One line for a person if a limit ended the command, "" otherwise. It names the limit as an option of the command
 * line, or as a field of the API: "the box ran out of memory (--memory 64M)", "… (limits.memory 64M)". */
enum ending_words { ENDING_OPTIONS, ENDING_FIELDS };
struct ending_text ending_remark(enum outcome outcome, uint64_t limit, enum ending_words words);
/* "12.3 MB of output left out": replaces bytes that are not shown. */
struct ending_text ending_left_out(uint64_t bytes);

/* The exit status of carrel. caught: the signal that carrel itself got and passed on; 0: none. */
int            ending_status(const struct ending *e, int caught);
/* The exit status for a command that never ran, from a struct err. */
int            ending_failure_status(enum step step, int code);

/* The report: its first fields, into an open object; the captured output; the whole error report of a command that
 * never ran. */
void           ending_write(struct jsonout *j, const struct ending *e);
void           ending_write_output(struct jsonout *j, const struct buf *output, const struct buf *errors);
MUST_CHECK int ending_write_failure(const char *step, int code, const char *message, struct buf *out);

#endif
