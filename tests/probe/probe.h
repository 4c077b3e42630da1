/* The guest attacker: one static binary, one table of attacks per topic. Each attack runs in a forked child and says
 * what it found. */
#ifndef CARREL_TESTS_PROBE_H
#define CARREL_TESTS_PROBE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct attack {
    const char *name; /* the sentence that holds if the box is tight, with underscores */
    void (*run)(void);
};

struct bomb {
    const char *name;
    int (*run)(int argc, char **argv); /* the exit status; runs in a box of its own, as the box's command itself */
};

struct topic {
    const char *name;
    const struct attack *attacks;
    size_t count;
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

extern const struct topic topic_process, topic_identity, topic_procfs, topic_files, topic_mounts, topic_network,
    topic_kernel, topic_cpu, topic_memory, topic_misc;
extern const struct bomb bombs[], more_bombs[], socket_bombs[], scenes[];
extern const size_t bombs_count, more_bombs_count, socket_bombs_count, scenes_count;

/* An argument KEY=VALUE of the command line, or NULL. */
const char *arg_get(const char *key);

/* The attack is over. Both report and end the process. */
_Noreturn void held(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Cannot be tried here, e.g. because the kernel is built without it. */
_Noreturn void skipped(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds a remark to the verdict. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Ends the attack as broken unless the call failed with one of the listed errnos (0-terminated). */
void expect_failure(const char *what, int error, const int *accepted);

/* The call must return -1 with one of the errnos. */
#define MUST_FAIL(call, ...)                                                                                           \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(call);                                                                                   \
        expect_failure(#call, result_ == -1 ? errno : 0, (const int[]){ __VA_ARGS__, 0 });                             \
    } while (0)
/* The same with a name that tells one turn of a loop from the next. */
#define MUST_FAIL_AS(what, call, ...)                                                                                  \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(call);                                                                                   \
        expect_failure(what, result_ == -1 ? errno : 0, (const int[]){ __VA_ARGS__, 0 });                              \
    } while (0)
/* What a filter answers. */
#define MUST_BE_REFUSED(call) MUST_FAIL(call, EPERM, ENOSYS)

/* "EPERM" or "errno 5000". */
const char *errno_name(int error);

/* The beginning of a file. Returns the length or -errno; always NUL-terminated. */
ssize_t read_text(const char *path, char *text, size_t size);
/* open for writing + write. 0 or -1 with errno. */
int write_text(const char *path, const char *text);
/* Value of a line of /proc/self/status, e.g. "CapEff:"; ends the attack as broken if there is none. */
void read_status(const char *key, char *text, size_t size);

/* Forks and runs; returns the wait status. */
int in_child(void (*run)(void *data), void *data);
/* Writes one line to standard output at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
uint64_t now_ms(void);

#endif
