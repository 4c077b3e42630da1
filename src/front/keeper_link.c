/* A connection has three moments: down (a timer has it tried), syncing (the keeper tells what it has), up. Requests
 * are taken at all times; while the link is not up they fail from the loop, so that a caller sees one way of failing
 * only. */
#define _GNU_SOURCE
#include "front/keeper_link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/list.h"
#include "front/dial.h"
#include "front/front.h"

enum { RETRY_MS = 50 };

struct pending {
    struct pending *next;
    uint32_t        serial;
    keeper_answer  *answer;     /* NULL: cancelled */
    void           *arg;
    bool            unsent;     /* could not even be queued */
};

struct outgoing {
    struct outgoing *next;
    size_t           size, n_fds;
    int              fds[FDPASS_MAX];      /* owned */
    char             frame[];
};

struct keeper_link {
    struct loop           *loop;
    struct keeper_handlers handlers;
    const char            *path;        /* borrowed */
    struct loop_fd         helper;      /* owned; who connects */
    bool                   asked;       /* the helper was */
    uid_t                  owner;       /* who runs the server */
    struct loop_fd         socket;
    bool                   greeted, synced;
    bool                   told_foreign, told_refused;     /* in the log; once */
    bool                   telling;     /* a handler of on_event runs: it knows what it asks for, even before sync */
    struct loop_timer      retry;
    struct loop_task       fail;        /* answers what cannot be sent */
    uint32_t               serial;
    struct pending        *pending, **pending_end;
    struct pending        *failing;     /* are being answered that the keeper is not there */
    struct outgoing       *queue, **queue_end;
};

static void free_outgoing(struct outgoing *o)
{
    for (size_t i = 0; i < o->n_fds; i++)
        fd_close(o->fds[i]);
    free(o);
}

bool keeper_link_is_up(const struct keeper_link *link)
{
    return link->socket.fd >= 0 && link->synced;
}

/* Answers what will never be answered: all, or only what could not be queued. */
static void fail_pending(struct keeper_link *link, bool only_unsent)
{
    struct event lost = { .type = EVENT_DONE, .result = -ECONNRESET };
    struct pending **end = &link->failing;

    err_set(&lost.err, ECONNRESET, STEP_PROTOCOL, "the keeper is not there");
    while (*end)
        end = &(*end)->next;
    for (struct pending **at = &link->pending; *at;) {
        struct pending *p = *at;
        if (only_unsent && !p->unsent) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        *end = p;
        end = &p->next;
    }
    *end = NULL;
    for (link->pending_end = &link->pending; *link->pending_end; link->pending_end = &(*link->pending_end)->next)
        ;
    while (link->failing) {
        struct pending *p = link->failing;
        link->failing = p->next;
        lost.serial = p->serial;
        if (p->answer)
            p->answer(&lost, NULL, 0, p->arg);
        free(p);
    }
}

static void on_fail(struct loop_task *task)
{
    fail_pending(container_of(task, struct keeper_link, fail), true);
}

static void disconnect(struct keeper_link *link)
{
    loop_fd_remove(link->loop, &link->socket);
    link->socket.fd = fd_close(link->socket.fd);
    link->greeted = link->synced = false;
    while (link->queue) {
        struct outgoing *o = link->queue;
        link->queue = o->next;
        free_outgoing(o);
    }
    link->queue_end = &link->queue;
    loop_timer_set(link->loop, &link->retry, RETRY_MS);
    link->handlers.on_lost(link->handlers.arg);
    fail_pending(link, false);
}

/* 0, -EAGAIN, or -errno: the connection is broken. */
static int send_one(int socket, const void *frame, size_t size, const int *fds, size_t n_fds)
{
    ssize_t n = fdpass_send(socket, frame, size, fds, n_fds, MSG_DONTWAIT);
    return n < 0 ? (int)n : 0;
}

static void answer_pending(struct keeper_link *link, const struct event *event, int *fds, size_t n);

/* The kernel does not take a request's descriptors now: too many of this user are on their way. The connection is none
 * the worse for that. */
static void refuse(struct keeper_link *link, const struct outgoing *o)
{
    struct event refused = { .type = EVENT_DONE };
    struct request_head head;

    memcpy(&head, o->frame, sizeof head);
    refused.serial = head.serial;
    refused.result = err_set(&refused.err, ETOOMANYREFS, STEP_PROTOCOL, "descriptors for the keeper");
    answer_pending(link, &refused, NULL, 0);
}

static void flush(struct keeper_link *link)
{
    while (link->queue) {
        struct outgoing *o = link->queue;
        int r = send_one(link->socket.fd, o->frame, o->size, o->fds, o->n_fds);
        if (r == -EAGAIN || r == -EINTR) {
            if (loop_fd_set(link->loop, &link->socket, EPOLLIN | EPOLLOUT) < 0)
                disconnect(link);
            return;
        }
        if (r < 0 && r != -ETOOMANYREFS) {
            disconnect(link);
            return;
        }
        link->queue = o->next;
        if (!link->queue)
            link->queue_end = &link->queue;
        if (r < 0)
            refuse(link, o);
        free_outgoing(o);
    }
    if (link->socket.events & EPOLLOUT && loop_fd_set(link->loop, &link->socket, EPOLLIN) < 0)
        disconnect(link);
}

static void answer_pending(struct keeper_link *link, const struct event *event, int *fds, size_t n)
{
    for (struct pending **at = &link->pending; *at; at = &(*at)->next) {
        struct pending *p = *at;
        if (p->serial != event->serial)
            continue;
        *at = p->next;
        if (!*at)
            link->pending_end = at;
        if (p->answer)
            p->answer(event, fds, n, p->arg);
        free(p);
        return;
    }
}

static void take_event(struct keeper_link *link, const struct event *event, int *fds, size_t n)
{
    if (event->type == EVENT_HELLO) {
        link->greeted = true;
        link->told_refused = false;
        if (event->result != KEEPER_VERSION)
            disconnect(link);
        else
            link->handlers.on_event(event, fds, n, link->handlers.arg);
    } else if (event->type == EVENT_SYNCED) {
        link->synced = true;
        link->handlers.on_synced(link->handlers.arg);
    } else {
        /* State changes first, so that an answer finds the state that it tells of. */
        link->telling = true;
        link->handlers.on_event(event, fds, n, link->handlers.arg);
        link->telling = false;
        if (event->serial)
            answer_pending(link, event, fds, n);
    }
}

/* False: nothing more is there, or the connection is gone. */
static bool receive_one(struct keeper_link *link)
{
    struct fdpass passed = { 0 };
    struct event event;

    ssize_t n = fdpass_receive(link->socket.fd, &event, sizeof event, MSG_DONTWAIT, &passed);
    if (n == -EAGAIN)
        return false;
    bool good = n == (ssize_t)sizeof event;
    if (good)
        take_event(link, &event, passed.fd, passed.n);
    (void)!fdpass_take(&passed, NULL, 0);
    if (!good && !link->greeted && !link->told_refused) {
        front_log("warning", "the keeper hangs up without a word: it has another server, or is about to end", "socket",
                  link->path, NULL);
        link->told_refused = true;
    }
    if (!good)
        disconnect(link);
    return good && link->socket.fd >= 0;
}

static void on_socket(struct loop_fd *w, uint32_t events)
{
    struct keeper_link *link = container_of(w, struct keeper_link, socket);

    if (events & EPOLLOUT)
        flush(link);
    if (link->socket.fd >= 0 && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        while (receive_one(link))
            ;
}

static int adopt(struct keeper_link *link, int socket)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    FD fd = socket;

    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -EBADF;
    /* What boxes are and do, the keeper says; callers' files go to it. */
    if (peer.uid != 0 && peer.uid != link->owner) {
        if (!link->told_foreign)
            front_log("error", "the keeper's socket is served by another user", "socket", link->path, NULL);
        link->told_foreign = true;
        return -EPERM;
    }
    int r = loop_fd_add(link->loop, &link->socket, fd, EPOLLIN);
    link->socket.fd = r < 0 ? -1 : TAKE_FD(fd);
    return r;
}

/* Without it the keeper can never be reached again; the next front has another one. */
static _Noreturn void helper_is_gone(void)
{
    front_log("error", "the process that connects to the keeper is gone; so this one ends", NULL);
    _exit(125);
}

static void on_helper(struct loop_fd *w, uint32_t events)
{
    struct keeper_link *link = container_of(w, struct keeper_link, helper);
    int code = 0, socket = -1;
    (void)events;

    int r = dial_answer(link->helper.fd, &code, &socket);
    if (r == -EAGAIN)
        return;
    if (r < 0)
        helper_is_gone();
    link->asked = false;
    if (code || link->socket.fd >= 0 || adopt(link, socket) < 0)
        loop_timer_set(link->loop, &link->retry, RETRY_MS);
}

static void on_retry(struct loop_timer *timer)
{
    struct keeper_link *link = container_of(timer, struct keeper_link, retry);

    if (link->asked || link->socket.fd >= 0)
        return;
    if (dial_ask(link->helper.fd) < 0)
        helper_is_gone();
    link->asked = true;
}

int keeper_link_new(struct loop *loop, int helper, const char *path, uid_t owner,
                    const struct keeper_handlers *handlers, struct keeper_link **ret, struct err *e)
{
    struct keeper_link *link = calloc(1, sizeof *link);
    FD theirs = helper;

    if (!link)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "keeper link");
    link->helper.on_event = on_helper;
    int r = loop_fd_add(loop, &link->helper, theirs, EPOLLIN);
    if (r < 0) {
        free(link);
        return err_at(e, -r, STEP_HOST, 0, "keeper link");
    }
    link->helper.fd = TAKE_FD(theirs);
    link->path = path;
    link->loop = loop;
    link->owner = owner;
    link->handlers = *handlers;
    link->socket = (struct loop_fd){ .fd = -1, .on_event = on_socket };
    link->retry.on_expire = on_retry;
    link->fail.on_run = on_fail;
    link->pending_end = &link->pending;
    link->queue_end = &link->queue;
    on_retry(&link->retry);
    *ret = link;
    return 0;
}

void keeper_link_free(struct keeper_link *link)
{
    if (!link)
        return;
    loop_timer_cancel(link->loop, &link->retry);
    loop_task_cancel(link->loop, &link->fail);
    loop_fd_remove(link->loop, &link->socket);
    fd_close(link->socket.fd);
    loop_fd_remove(link->loop, &link->helper);
    fd_close(link->helper.fd);
    while (link->queue) {
        struct outgoing *o = link->queue;
        link->queue = o->next;
        free_outgoing(o);
    }
    while (link->pending) {
        struct pending *p = link->pending;
        link->pending = p->next;
        free(p);
    }
    free(link);
}

static struct outgoing *make_outgoing(const void *frame, size_t size, const int *fds, size_t n_fds)
{
    struct outgoing *o = n_fds <= FDPASS_MAX ? malloc(sizeof *o + size) : NULL;

    if (!o)
        return NULL;
    *o = (struct outgoing){ .size = size };
    memcpy(o->frame, frame, size);
    for (size_t i = 0; i < n_fds; i++) {
        o->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (o->fds[i] < 0) {
            free_outgoing(o);
            return NULL;
        }
        o->n_fds = i + 1;
    }
    return o;
}

uint32_t keeper_link_request(struct keeper_link *link, void *frame, size_t size, const int *fds, size_t n_fds,
                             keeper_answer *answer, void *arg)
{
    struct request_head *head = frame;
    struct pending *p = malloc(sizeof *p);

    if (!p)
        abort();        /* nothing could be answered any more */
    if (++link->serial == 0)
        link->serial = 1;
    head->serial = link->serial;
    *p = (struct pending){ .serial = head->serial, .answer = answer, .arg = arg };
    *link->pending_end = p;
    link->pending_end = &p->next;

    bool may_ask = link->socket.fd >= 0 && (link->synced || link->telling);
    if (may_ask && !link->queue && send_one(link->socket.fd, frame, size, fds, n_fds) == 0)
        return head->serial;
    struct outgoing *o = may_ask ? make_outgoing(frame, size, fds, n_fds) : NULL;
    if (!o) {
        p->unsent = true;
        loop_task_add(link->loop, &link->fail);
        return head->serial;
    }
    /* Whatever stopped it, the loop will find out. */
    *link->queue_end = o;
    link->queue_end = &o->next;
    if (loop_fd_set(link->loop, &link->socket, EPOLLIN | EPOLLOUT) < 0)
        abort();
    return head->serial;
}

void keeper_link_cancel(struct keeper_link *link, uint32_t serial)
{
    struct pending *const lists[] = { link->pending, link->failing };

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (struct pending *p = lists[i]; p; p = p->next)
            if (p->serial == serial)
                p->answer = NULL;
}
