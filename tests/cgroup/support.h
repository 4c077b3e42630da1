/* What the cgroup tests share: a process inside a leaf, waiting with a deadline, and looking at the hierarchies from
 * outside. */
#ifndef CARREL_TESTS_CGROUP_SUPPORT_H
#define CARREL_TESTS_CGROUP_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "sys/cgroup.h"
#include "sys/process.h"

enum { DEADLINE_US = 60000000 };

extern struct cgroup_host host;

/* A struct err that fails the test with its text. */
#define assert_ok(call) \
    do { \
        struct err err_ = { 0 }, *e = &err_; \
        int result_ = (call); \
        if (result_ < 0) { \
            char text_[300]; \
            err_text(e, text_, sizeof text_); \
            fail_msg("%s: %d %s", #call, result_, text_); \
        } \
    } while (0)

/* Waits for the condition, at most DEADLINE_US. */
#define wait_for(condition) \
    do { \
        uint64_t end_ = clock_monotonic_us() + DEADLINE_US; \
        while (!(condition)) { \
            assert_true(clock_monotonic_us() < end_); \
            usleep(500); \
        } \
    } while (0)

/* Starts a child inside the leaf that does work(argument) and leaves with what it returns. */
struct process enter(const struct cgroup *leaf, int (*work)(volatile uint64_t *shared), volatile uint64_t *shared);
/* Reaps with a deadline. */
struct process_end reap(struct process *process);

/* In how many of the host's hierarchies a directory of this name exists. */
int  places(const char *name);
/* Makes or removes a directory of this name in every hierarchy. */
void make_places(const char *name);
void remove_places(const char *name);

/* The whole text of a file of the leaf, without the newline at its end. */
const char *leaf_text(int dir, const char *file);

volatile uint64_t *shared_new(void);
int open_fds(void);

/* Work. */
int work_count(volatile uint64_t *shared);      /* counts up for ever */
int work_fork_bomb(volatile uint64_t *shared);  /* shared[0]: how many were made */
int work_pause(volatile uint64_t *shared);      /* shared[0] = 1, then sleeps for ever */

/* The parts of the suite. */
extern const struct CMUnitTest leaf_tests[], sweep_tests[], v2_tests[], cpu_tests[];
extern const size_t n_leaf_tests, n_sweep_tests, n_v2_tests, n_cpu_tests;

#endif
