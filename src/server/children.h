/* The processes that `carrel serve` keeps running: a table, and one way to start, watch, restart and end them. */
#ifndef CARREL_SERVER_CHILDREN_H
#define CARREL_SERVER_CHILDREN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILD_WORDS = 512, CHILD_FDS = 16, CHILD_TEXT = 4096 };

/* A command line that is being built. */
struct child_command {
    char  *argv[CHILD_WORDS + 1];
    size_t argc;
    int    keep[CHILD_FDS];         /* borrowed: stays open across exec */
    size_t n_keep;
    char   text[CHILD_TEXT];        /* storage of formatted words */
    size_t text_used;
};

/* Adds a word, which must live until the child was started; or a formatted word; or a descriptor that the child
 * inherits. A command that became too long is not started; the child counts as one that exited at once. */
void child_word(struct child_command *c, const char *word);
void child_format(struct child_command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void child_keep(struct child_command *c, int fd);

struct child {
    const char *name;               /* for the log: "keeper" */
    /* Describes how to start it; called before each start. */
    void (*describe)(const void *owner, struct child_command *c);
    int         death_signal;       /* sent to it if this process dies */
    /* Used by children.c. */
    pid_t       pid;                /* 0: not running */
    unsigned    early_deaths;       /* in a row */
    uint64_t    started_us, start_at_us;
};

/* Starts them in order and restarts those that exit, with a longer pause after each early exit. Returns when a signal
 * asks for the end. */
void children_run(struct child *child, size_t n, const void *owner);
/* Ends them in reverse order, and waits for each. */
void children_end(struct child *child, size_t n);

#endif
