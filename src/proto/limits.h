/* The limits of a box: one table for all programs. A row is a field of struct limits and so of the frames,
 * `limits.NAME` in the API and in a box's row of the database, `--NAME` of `carrel run` and `carrel create`, and
 * `defaults.NAME` and `limits.NAME` of the server's configuration. tools/limits writes them into openapi.json and the
 * documentation. docs/recipes.md says how to add one. */
#ifndef CARREL_PROTO_LIMITS_H
#define CARREL_PROTO_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    LIMIT_REQUEST = 1,  /* may be guaranteed: requests.NAME */
    LIMIT_LIVE = 2,     /* may change while the box exists */
    LIMIT_ALL = 4,      /* "max" means all that the server may give to one box */
    LIMIT_AUTO = 8,     /* a server may have no default: the limit is then not set */
};

/* ROW(field, type, name, kind, least, most,
 *     usual of carrel run, usual of a server's box, most that a server gives, flags, example,
 *     the bounded resource, the effect at the bound)
 * kind: SIZE in bytes, CPUS in thousandths, COUNT. 0 as most or usual: none. */
/* clang-format off */
#define LIMIT_ROWS(ROW) \
    ROW(memory_bytes, uint64_t, "memory", SIZE, 1 << 20, 0, \
        0, 512 << 20, UINT64_C(8) << 30, LIMIT_REQUEST | LIMIT_LIVE | LIMIT_ALL, "512M", \
        "memory, swap included", \
        "the kernel kills inside the box; outcome `oom`, exit status 137. Swap, files in the scratch space, pipes " \
        "and sockets count") \
    ROW(disk_bytes, uint64_t, "disk", SIZE, 64 << 10, 0, \
        512 << 20, 1 << 30, UINT64_C(32) << 30, 0, "1G", \
        "files that the box writes outside of mounts", \
        "ENOSPC; outcome `disk` if the command then fails. It is memory: a tmpfs, counted in `--memory`, too; of a " \
        "box with `--store disk` it is disk") \
    ROW(pids, uint32_t, "pids", COUNT, 1, 4 << 20, \
        1024, 256, 4096, LIMIT_LIVE, "128", \
        "processes and threads", \
        "fork fails with EAGAIN; outcome `pids` if the command then fails. Threads count") \
    ROW(cpu_milli, uint32_t, "cpus", CPUS, 10, 10000000, \
        0, 1000, 0, LIMIT_REQUEST | LIMIT_LIVE, "1.5", \
        "processors", \
        "the box is slowed down. The number of processors that `nproc` shows does not change") \
    ROW(nofile, uint32_t, "nofile", COUNT, 16, 1 << 20, \
        0, 0, 0, LIMIT_AUTO, "4096", \
        "descriptors that one process may have open", \
        "open fails with EMFILE. Without it: 1024, up to 4096 if a process asks for them; 512 where the box's user " \
        "is the caller's own")
/* clang-format on */

/* 0 means: not set. */
#define LIMIT_FIELD(field, type, ...) type field;
#define LIMIT_BYTES(field, type, ...) +sizeof(type)
struct limits {
    LIMIT_ROWS(LIMIT_FIELD)
    uint32_t cpu_request_milli; /* requests.cpus, a weight of the cgroup; not a row, because it bounds nothing */
};
_Static_assert(sizeof(struct limits) == LIMIT_ROWS(LIMIT_BYTES) + sizeof(uint32_t), "a frame has no hidden bytes");
#undef LIMIT_FIELD
#undef LIMIT_BYTES

#define LIMIT_ONE(...) +1
enum { LIMITS = 0 LIMIT_ROWS(LIMIT_ONE) };
#undef LIMIT_ONE

enum limit_kind { LIMIT_SIZE, LIMIT_CPUS, LIMIT_COUNT };

struct limit {
    const char     *name;
    enum limit_kind kind;
    size_t          offset, size;
    uint64_t        least, most;                        /* most 0: none */
    uint64_t        run_usual, server_usual, server_most;   /* the same */
    unsigned        flags;
    const char     *example, *what;
};

extern const struct limit limit_table[LIMITS];

/* NULL: no such name. */
const struct limit *limit_find(const char *name, size_t length);

uint64_t       limit_get(const struct limits *limits, const struct limit *limit);
void           limit_set(struct limits *limits, const struct limit *limit, uint64_t value);
bool           limits_equal(const struct limits *a, const struct limits *b);
/* Values of more that are not 0 replace those of limits. */
void           limits_update(struct limits *limits, const struct limits *more);
/* Fills in defaults where limits is 0. */
void           limits_fill(struct limits *limits, const struct limits *defaults);

/* Parses a person's value; option is its name in messages. */
MUST_CHECK int limit_parse(const struct limit *limit, const char *option, const char *text, struct limits *into,
                           struct err *e);
/* "536870912 bytes", "1.500", "128". */
struct limit_text { char text[48]; };
struct limit_text limit_show(const struct limit *limit, uint64_t value);

#endif
