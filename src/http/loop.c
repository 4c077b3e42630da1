/* One turn: deferred tasks, epoll_wait, events, timers.
 *
 * A removed watcher may still have an event further on in the batch being handled, and its memory may be gone by then;
 * loop_fd_remove() therefore blanks such events. Timers are a pairing heap threaded through the timers themselves: no
 * allocation, so arming cannot fail. A connection pushes its deadline back on every request; that only changes
 * deadline_ms, and the heap is corrected when the old key comes up. */
#include "http/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define BATCH 256

struct loop {
    int epoll;
    bool stopping;
    int n_batch, at_batch;
    struct epoll_event batch[BATCH];
    struct loop_timer *timers;          /* root of the heap: the earliest key */
    struct loop_task tasks;             /* head of a ring */
};

uint64_t loop_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t loop_now_ms(void)
{
    return loop_now_us() / 1000;
}

int loop_new(struct loop **ret)
{
    struct loop *l = calloc(1, sizeof *l);
    if (!l)
        return -ENOMEM;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (l->epoll < 0) {
        int r = -errno;
        free(l);
        return r;
    }
    l->tasks.next = l->tasks.back = &l->tasks;
    *ret = l;
    return 0;
}

void loop_free(struct loop *l)
{
    if (!l)
        return;
    fd_close(l->epoll);
    free(l);
}

/* ---- file descriptors ---- */

static int fd_control(struct loop *l, int operation, struct loop_fd *w, uint32_t events)
{
    struct epoll_event event = { .events = events, .data.ptr = w };
    if (epoll_ctl(l->epoll, operation, w->fd, &event) < 0)
        return -errno;
    w->events = events;
    return 0;
}

int loop_fd_add(struct loop *l, struct loop_fd *w, int fd, uint32_t events)
{
    w->fd = fd;
    int r = fd_control(l, EPOLL_CTL_ADD, w, events);
    w->watching = r == 0;
    return r;
}

int loop_fd_set(struct loop *l, struct loop_fd *w, uint32_t events)
{
    return w->events == events ? 0 : fd_control(l, EPOLL_CTL_MOD, w, events);
}

void loop_fd_remove(struct loop *l, struct loop_fd *w)
{
    if (!w->watching)
        return;
    w->watching = false;
    (void)fd_control(l, EPOLL_CTL_DEL, w, 0);
    for (int i = l->at_batch; i < l->n_batch; i++)
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
}

/* ---- timers ---- */

static struct loop_timer *heap_join(struct loop_timer *a, struct loop_timer *b)
{
    if (!a || !b)
        return a ? a : b;
    if (b->key_ms < a->key_ms) {
        struct loop_timer *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->child;
    if (b->next)
        b->next->back = b;
    b->back = a;            /* the first child points back at its parent, the others at their left neighbour */
    a->child = b;
    a->next = a->back = NULL;
    return a;
}

/* Joins a list of siblings: in pairs from the left, then the pairs from the right. */
static struct loop_timer *heap_join_list(struct loop_timer *t)
{
    struct loop_timer *pairs = NULL;
    while (t) {
        struct loop_timer *a = t, *b = t->next;
        t = b ? b->next : NULL;
        a->next = a->back = NULL;
        if (b)
            b->next = b->back = NULL;
        a = heap_join(a, b);
        a->next = pairs;
        pairs = a;
    }
    struct loop_timer *all = NULL;
    while (pairs) {
        struct loop_timer *next = pairs->next;
        pairs->next = NULL;
        all = heap_join(all, pairs);
        pairs = next;
    }
    return all;
}

static void heap_insert(struct loop *l, struct loop_timer *t)
{
    t->key_ms = t->deadline_ms;
    t->child = t->next = t->back = NULL;
    t->armed = true;
    l->timers = heap_join(l->timers, t);
}

static void heap_remove(struct loop *l, struct loop_timer *t)
{
    struct loop_timer *children = heap_join_list(t->child);
    if (l->timers == t) {
        l->timers = children;
    } else {
        if (t->back->child == t)
            t->back->child = t->next;
        else
            t->back->next = t->next;
        if (t->next)
            t->next->back = t->back;
        l->timers = heap_join(l->timers, children);
    }
    t->child = t->next = t->back = NULL;
    t->armed = false;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms)
{
    t->deadline_ms = loop_now_ms() + delay_ms;
    if (t->armed && t->deadline_ms >= t->key_ms)
        return;
    if (t->armed)
        heap_remove(l, t);
    heap_insert(l, t);
}

void loop_timer_cancel(struct loop *l, struct loop_timer *t)
{
    if (t->armed)
        heap_remove(l, t);
}

static void run_timers(struct loop *l)
{
    if (!l->timers)
        return;
    uint64_t now = loop_now_ms();
    while (l->timers && l->timers->key_ms <= now) {
        struct loop_timer *t = l->timers;
        heap_remove(l, t);
        if (t->deadline_ms > t->key_ms)     /* it was moved; also if it is due, or it would overtake others */
            heap_insert(l, t);
        else
            t->on_expire(t);
    }
}

static int wait_for_timers(const struct loop *l, int wait_ms)
{
    if (!l->timers)
        return wait_ms;
    uint64_t now = loop_now_ms();
    uint64_t left = l->timers->key_ms > now ? l->timers->key_ms - now : 0;
    if (left > 60000)
        left = 60000;
    return wait_ms < 0 || left < (uint64_t)wait_ms ? (int)left : wait_ms;
}

/* ---- deferred calls ---- */

void loop_task_add(struct loop *l, struct loop_task *t)
{
    if (t->pending)
        return;
    t->pending = true;
    t->next = &l->tasks;
    t->back = l->tasks.back;
    t->back->next = t;
    l->tasks.back = t;
}

void loop_task_cancel(struct loop *l, struct loop_task *t)
{
    (void)l;
    if (!t->pending)
        return;
    t->pending = false;
    t->back->next = t->next;
    t->next->back = t->back;
}

/* Runs only the tasks that are pending now: a task that adds itself again must not starve the fds. */
static void run_tasks(struct loop *l)
{
    struct loop_task now;
    if (l->tasks.next == &l->tasks)
        return;
    now.next = l->tasks.next;
    now.back = l->tasks.back;
    now.next->back = now.back->next = &now;
    l->tasks.next = l->tasks.back = &l->tasks;
    while (now.next != &now) {
        struct loop_task *t = now.next;
        loop_task_cancel(l, t);
        t->on_run(t);
    }
}

/* ---- signals ---- */

static void on_signal_readable(struct loop_fd *w, uint32_t events)
{
    struct loop_signal *s = (struct loop_signal *)w;    /* its first member */
    struct signalfd_siginfo info;
    (void)events;
    if (read(w->fd, &info, sizeof info) == (ssize_t)sizeof info)
        s->on_signal(s, &info);
}

int loop_signal_open(struct loop *l, struct loop_signal *s, const sigset_t *signals)
{
    if (sigprocmask(SIG_BLOCK, signals, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    s->watch.on_event = on_signal_readable;
    int r = loop_fd_add(l, &s->watch, fd, EPOLLIN);
    if (r < 0)
        fd_close(fd);
    return r;
}

void loop_signal_close(struct loop *l, struct loop_signal *s)
{
    if (!s->watch.watching)
        return;
    loop_fd_remove(l, &s->watch);
    s->watch.fd = fd_close(s->watch.fd);
}

/* ---- turning ---- */

int loop_turn(struct loop *l, int wait_ms)
{
    run_tasks(l);
    if (l->tasks.next != &l->tasks || l->stopping)
        wait_ms = 0;
    int n = epoll_wait(l->epoll, l->batch, BATCH, wait_for_timers(l, wait_ms));
    if (n < 0 && errno != EINTR)
        return -errno;
    l->n_batch = n < 0 ? 0 : n;
    for (l->at_batch = 0; l->at_batch < l->n_batch;) {
        struct epoll_event *event = &l->batch[l->at_batch++];
        struct loop_fd *w = event->data.ptr;
        if (w)
            w->on_event(w, event->events);
    }
    l->n_batch = l->at_batch = 0;
    run_timers(l);
    return 0;
}

int loop_run(struct loop *l)
{
    int r = 0;
    while (r == 0 && !l->stopping)
        r = loop_turn(l, -1);
    l->stopping = false;
    return r;
}

void loop_stop(struct loop *l)
{
    l->stopping = true;
}
