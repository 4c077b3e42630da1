/* The event loop: file descriptors, timers and deferred calls of one thread. No globals; several loops may exist.
 * Watchers are embedded in their owners' structs, so adding one allocates nothing and cancelling cannot fail.
 * A callback may add, change, remove and free any watcher, its own included. */
#ifndef CARREL_HTTP_LOOP_H
#define CARREL_HTTP_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "base/err.h"

struct loop;

/* A watched fd: socket, pipe, pidfd (EPOLLIN when the process has exited), signalfd, eventfd. Zeroed = not watching. */
struct loop_fd {
    int fd;
    uint32_t events;    /* armed events; EPOLLERR and EPOLLHUP always are */
    bool watching;
    void (*on_event)(struct loop_fd *w, uint32_t events);
};

/* One shot. Zeroed = not armed. */
struct loop_timer {
    void (*on_expire)(struct loop_timer *t);
    uint64_t deadline_ms;
    bool armed;
    uint64_t key_ms;                            /* position in the heap; never later than the deadline */
    struct loop_timer *child, *next, *back;
};

/* One deferred call, made from the loop and not from the caller's stack. Zeroed = not pending. */
struct loop_task {
    void (*on_run)(struct loop_task *t);
    bool pending;
    struct loop_task *next, *back;
};

struct loop_signal {
    struct loop_fd watch;
    void (*on_signal)(struct loop_signal *s, const struct signalfd_siginfo *info);
};

int  loop_new(struct loop **ret) MUST_CHECK;
void loop_free(struct loop *l);

/* Turns until loop_stop(). 0 or -errno. */
int  loop_run(struct loop *l) MUST_CHECK;
void loop_stop(struct loop *l);

/* One turn that waits at most wait_ms (-1: until something happens). Returns 0 or -errno. */
int  loop_turn(struct loop *l, int wait_ms) MUST_CHECK;

/* The loop does not own fd; remove the watcher before closing it. */
int  loop_fd_add(struct loop *l, struct loop_fd *w, int fd, uint32_t events) MUST_CHECK;
int  loop_fd_set(struct loop *l, struct loop_fd *w, uint32_t events) MUST_CHECK;
void loop_fd_remove(struct loop *l, struct loop_fd *w);

/* Arms or re-arms; moving a deadline later costs nothing. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms);
void loop_timer_cancel(struct loop *l, struct loop_timer *t);

/* A pending task keeps its place. */
void loop_task_add(struct loop *l, struct loop_task *t);
void loop_task_cancel(struct loop *l, struct loop_task *t);

/* Blocks the signals in this thread and reports them through the loop. */
int  loop_signal_open(struct loop *l, struct loop_signal *s, const sigset_t *signals) MUST_CHECK;
void loop_signal_close(struct loop *l, struct loop_signal *s);

/* CLOCK_MONOTONIC. */
uint64_t loop_now_ms(void);
uint64_t loop_now_us(void);

#endif
