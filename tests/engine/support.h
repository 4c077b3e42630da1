/* A front for tests: speaks the keeper's frames, waits for every event with a deadline, and looks at the host from
 * outside. */
#ifndef CARREL_TESTS_ENGINE_SUPPORT_H
#define CARREL_TESTS_ENGINE_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "box/spec.h"
#include "proto/create.h"
#include "proto/events.h"

enum { DEADLINE_MS = 60000, QUEUE = 1024 };    /* waiting for what must come: a slow machine takes its time */

/* An event with what came with it. */
struct told {
    union event event;
    int          fds[KEEPER_FDS];
    size_t       n_fds;
};

struct front {
    int         socket;         /* -1: none */
    pid_t       keeper;         /* 0: not ours */
    char        path[64];       /* where it listens, or "" */
    uint32_t    serial;
    size_t      n_queued;
    struct told queue[QUEUE];   /* received, but not consumed yet */
};

extern struct front front;

/* Waits for the condition, at most the deadline. */
#define wait_for(condition) wait_for_ms(condition, DEADLINE_MS)
#define wait_for_ms(condition, ms) \
    do { \
        uint64_t end_ = clock_monotonic_us() + (ms) * 1000ull; \
        while (!(condition)) { \
            if (clock_monotonic_us() > end_) \
                fail_msg("waited %d ms in vain for: %s", (int)(ms), #condition); \
            usleep(500); \
        } \
    } while (0)

/* --- the keeper --- */
int   setup_private(void **state);      /* a keeper of our own, connected */
int   setup_listening(void **state);    /* one that listens; not connected yet */
extern void (*keeper_companion)(void);  /* runs as a child that the next keeper does not know of, or NULL */
extern const char *keeper_template;     /* for the next of them: NAME=DIR:DIR, or NULL */
int   teardown(void **state);           /* it must have ended or end cleanly, and leave nothing */
void  front_connect(void);              /* and take HELLO */
int   front_connect_as(uid_t uid);      /* returns a socket or -errno */
void  front_close(void);
/* Reaps the keeper; its status as wait gives it. */
int   keeper_wait(void);

/* --- frames --- */
uint32_t front_send(void *frame, size_t size, const int *fds, size_t n_fds);    /* fills in the serial */
struct told front_next(void);
/* The next event of this kind about this box (or family) and payload; others are kept. */
struct told front_expect(enum event_type type, uint32_t slot, int payload);
struct told front_answer(uint32_t serial);      /* DONE, READY or GONE with this serial */
bool  front_is_dropped(void);
void  told_close(struct told *told);

/* --- requests; they wait for the answer --- */
struct request_create create_frame(uint32_t box);
void        box_make(uint32_t box, const struct limits *limits);
struct told box_ask(enum request_type type, uint32_t box, unsigned payload);
void        box_end(uint32_t box);
struct run {
    const char *script;         /* for sh -c; or else argv */
    char      **argv;
    bool        terminal;
    uint64_t    timeout_ms, token;
    int         in, out;        /* 0: none */
    const int  *held;
    size_t      n_held;
    enum start_way way;
    uint32_t    user, group;    /* as in the frame */
};
/* Waits for nothing; the serial. */
uint32_t    box_order(uint32_t box, unsigned payload, struct run run);
/* Waits for DONE only. */
struct told box_run(uint32_t box, unsigned payload, struct run run);
/* Starts sh -c, waits for its end, returns it; out (may be NULL) gets its output as a string. */
/* The same with a command and a way; its output is waited for, its end is in the event. *ret_way: as STARTED tells it.
 */
struct frame_end box_do(uint32_t box, unsigned payload, struct run run, char *out, size_t size, int *ret_way);
struct frame_end box_sh(uint32_t box, unsigned payload, const char *script, char *out, size_t size);

/* --- the host --- */
int    keeper_fds(void);                /* open descriptors of the keeper */
long   keeper_anonymous_kb(void);
size_t keeper_children(pid_t *ret, size_t room);        /* its descendants that are not dead */
pid_t  keeper_init(void);               /* pid of the (only) box's init */
int    cgroups_of(pid_t keeper);        /* leaves that it made and that exist */
pid_t  payload_pid(const char *name);   /* test_life.c: of a payload of the keeper's; 0: there is none */
bool   is_running(pid_t pid);           /* and no zombie */
/* Reads until the deadline, the end, or `size` bytes. */
size_t read_some(int fd, char *text, size_t size, int ms);
void   read_until(int fd, const char *wanted);

/* --- families (test_families.c) --- */
enum { TOKEN = 77 };
int      setup_family(void **state);            /* a keeper of our own, with a template of zygotes */
int      setup_family_listening(void **state);
int      teardown_family(void **state);
void     family_make(uint32_t slot, const char *name);
void     family_end(uint32_t slot);
uint32_t family_order_box(uint32_t box, uint32_t slot);     /* waits for nothing; the serial */
uint32_t ahead_order(uint32_t box, uint32_t slot, uint32_t flags);  /* the same, with flags (test_ahead.c) */
void     must_make(uint32_t box, uint32_t slot);            /* a box in the family */
pid_t    find_zygote(void);
void     assert_keeper_serves(uint32_t box);                /* a plain box, from its making to its end */

extern const struct limits usual;
extern const struct CMUnitTest box_tests[], life_tests[], memory_tests[], front_tests[], files_tests[], family_tests[],
    birth_tests[], ahead_tests[];
extern const size_t n_box_tests, n_life_tests, n_memory_tests, n_front_tests, n_files_tests, n_family_tests,
    n_birth_tests, n_ahead_tests;

#endif
