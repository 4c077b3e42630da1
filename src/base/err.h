/* One value that says what failed, where and why. It has no heap and crosses a process boundary unchanged. */
#ifndef CARREL_BASE_ERR_H
#define CARREL_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* The step of making a box that failed. err.c has the names in the same order. */
enum step {
    STEP_NONE,
    STEP_USAGE,     /* the caller asked for something impossible */
    STEP_HOST,      /* this host lacks something */
    STEP_IDS,       /* choosing an id range */
    STEP_CGROUP,    /* making a cgroup, writing a limit, joining */
    STEP_TREE,      /* cloning a host tree */
    STEP_ROOT,      /* building the root filesystem */
    STEP_CLONE,     /* making a process with its namespaces */
    STEP_IDMAP,     /* writing id maps */
    STEP_MOUNT,     /* attaching a tree in the box */
    STEP_PIVOT,     /* leaving the host's root */
    STEP_NESTING,   /* forbidding nested user namespaces */
    STEP_NETWORK,   /* the box's network namespace */
    STEP_JOIN,      /* entering a box's namespaces */
    STEP_RIGHTS,    /* ids, capabilities, securebits, rlimits, keyring */
    STEP_LANDLOCK,
    STEP_SECCOMP,
    STEP_STDIO,     /* terminals and pipes of a payload */
    STEP_WORKDIR,
    STEP_EXEC,
    STEP_WAIT,
    STEP_PROTOCOL,  /* a frame that is not legal */
    STEP_MEMORY,    /* out of memory in carrel itself */
    STEP_SECRET,    /* writing the file of a secret in the box */
    STEP_COUNT
};

struct err {
    int      code;      /* errno value; 0 = none */
    uint16_t step;      /* enum step */
    uint16_t index;     /* which one, e.g. the third mount */
    char     what[232]; /* the noun the caller will recognise, or a whole sentence when code is 0-less */
};

/* Fills e and returns -code, so that `return err_at(...)` is the idiom. what may be NULL. */
int err_at(struct err *e, int code, enum step step, size_t index, const char *what);

/* Like err_at() with a formatted noun. */
int err_set(struct err *e, int code, enum step step, const char *format, ...) PRINTF_LIKE(4, 5);

/* For a file or a descriptor that the caller named: a usage error with the reason, "--requirements r.txt: No such file
 * or directory". A usage error of err_set() is a whole sentence, to which no reason is added. */
int err_file(struct err *e, int code, const char *format, ...) PRINTF_LIKE(3, 4);

#ifdef __clang_analyzer__ /* clang cannot see into err.c: the result is always negative */
static inline int err_is_negative(int code)
{
    return code < 0 ? code : -1;
}
#define err_at(...) err_is_negative((err_at)(__VA_ARGS__))
#define err_set(...) err_is_negative((err_set)(__VA_ARGS__))
#define err_file(...) err_is_negative((err_file)(__VA_ARGS__))
#endif

/* "mount" for STEP_MOUNT. */
const char *err_step_name(unsigned step);

/* One line for a person: "<step>: <what>: <reason>". Never fails; cuts what does not fit. */
void err_text(const struct err *e, char *text, size_t size);

#endif
