/* A connection is in one of three states: down (a timer retries), syncing (the keeper reports what it has), up.
 * Requests are accepted at all times; while the link is not up they fail from the loop, so that a caller sees one kind
 * of failure. */
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
    bool            unsent;     /* not even queued */
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
    struct loop_fd         helper;      /* owned; makes connections */
    bool                   asked;       /* the helper is connecting */
    uid_t                  owner;       /* the user who runs the server */
    struct loop_fd         socket;
    bool                   greeted, synced;
    bool                   told_foreign, told_refused;     /* logged already */
    bool                   telling;     /* a handler of on_event runs: its requests are allowed, even before sync */
    struct loop_timer      retry;
    struct loop_task       fail;        /* fails requests that cannot be sent */
    uint32_t               serial;
    struct pending        *pending, **pending_end;
    struct pending        *failing;     /* are being failed because the keeper is gone */
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

static void fail_one(const struct pending *p, int code, const char *what)
{
    union event event = { .head = { .type = EVENT_DONE, .serial = p->serial } };

    event.head.result = err_set(&event.done.err, code, STEP_USAGE, "%s", what);
    p->answer(&event, NULL, 0, p->arg);
}

/* Fails requests that will not be answered: all, or only those that could not be queued. */
static void fail_pending(struct keeper_link *link, bool only_unsent)
{
    struct pending **end = &link->failing;

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
        if (p->answer)
            fail_one(p, ECONNRESET, "the server cannot reach its boxes; its log says why");
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

/* Takes it out of the list; NULL: no request waits for this answer. */
static struct pending *take_pending(struct keeper_link *link, uint32_t serial)
{
    for (struct pending **at = &link->pending; *at; at = &(*at)->next) {
        struct pending *p = *at;
        if (p->serial != serial)
            continue;
        *at = p->next;
        if (!*at)
            link->pending_end = at;
        return p;
    }
    return NULL;
}

/* The kernel refuses a request's descriptors now: too many of this user are in flight. The connection remains
 * usable. */
static void refuse(struct keeper_link *link, const struct outgoing *o)
{
    struct request_head head;

    memcpy(&head, o->frame, sizeof head);
    struct pending *p = take_pending(link, head.serial);
    if (p && p->answer)
        fail_one(p, ETOOMANYREFS, "too many files are on their way to boxes; try again in a moment");
    free(p);
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

static void take_event(struct keeper_link *link, const union event *event, int *fds, size_t n)
{
    if (event->head.type == EVENT_SYNCED) {
        link->synced = true;
        link->handlers.on_synced(link->handlers.arg);
        return;
    }
    /* State changes first, so that an answer finds the state that it tells of. */
    link->telling = true;
    link->handlers.on_event(event, fds, n, link->handlers.arg);
    link->telling = false;
    struct pending *p = event->head.serial ? take_pending(link, event->head.serial) : NULL;
    if (p && p->answer)
        p->answer(event, fds, n, p->arg);
    free(p);
}

/* The exact size of each event, and its maximum of descriptors. An event that does not fit its row, comes before HELLO,
 * or reports the failure of anything but a request, costs the keeper its connection. */
static const struct {
    size_t size, most_fds;
} event_row[EVENT_COUNT] = {
    [EVENT_HELLO]       = { sizeof(struct event_hello), 0 },
    [EVENT_STORE]       = { sizeof(struct event_store), 0 },
    [EVENT_FAMILY]      = { sizeof(struct event_family), 0 },
    [EVENT_BOX]         = { sizeof(struct event_box), 1 },
    [EVENT_PAYLOAD]     = { sizeof(struct event_payload), KEEPER_HELD + 1 },
    [EVENT_SYNCED]      = { sizeof(struct event_head), 0 },
    [EVENT_DONE]        = { sizeof(struct event_done), 1 },
    [EVENT_USAGE]       = { sizeof(struct event_usage), 0 },
    [EVENT_METER]       = { sizeof(struct event_meter), METER_FDS },
    [EVENT_READY]       = { sizeof(struct event_head), 0 },
    [EVENT_STARTED]     = { sizeof(struct event_started), 1 },
    [EVENT_FAILED]      = { sizeof(struct event_failed), 0 },
    [EVENT_ENDED]       = { sizeof(struct event_ended), 0 },
    [EVENT_GONE]        = { sizeof(struct event_gone), 0 },
    [EVENT_FAMILY_GONE] = { sizeof(struct event_family_gone), 0 },
    [EVENT_REFUSED]     = { sizeof(struct event_refused), 0 },
    [EVENT_VOLUME]      = { sizeof(struct event_volume), 0 },
    [EVENT_EGRESS]      = { sizeof(struct event_head), 1 },
};

static bool is_legal(const struct keeper_link *link, const union event *event, size_t size, size_t n_fds)
{
    const struct event_head *head = &event->head;

    return size >= sizeof *head && head->type > 0 && head->type < EVENT_COUNT && size == event_row[head->type].size
        && n_fds <= event_row[head->type].most_fds && head->box < KEEPER_BOXES && head->payload < KEEPER_PAYLOADS
        && (head->result == 0 || (head->result < 0 && head->type == EVENT_DONE))
        && (head->type == EVENT_HELLO) != link->greeted;
}

/* In the log, once until the next greeting. */
static void log_refused(struct keeper_link *link, const char *text)
{
    if (!link->told_refused)
        front_log("warning", text, "socket", link->path, NULL);
    link->told_refused = true;
}

/* False: nothing more to read, or the connection is gone. */
static bool receive_one(struct keeper_link *link)
{
    struct fdpass passed = { 0 };
    union {
        union event event;
        char        longer[sizeof(union event) + 1];
    } frame;

    ssize_t n = fdpass_receive(link->socket.fd, &frame, sizeof frame, MSG_DONTWAIT, &passed);
    if (n == -EAGAIN)
        return false;
    bool good = n > 0 && is_legal(link, &frame.event, (size_t)n, passed.n)
             && (frame.event.head.type != EVENT_HELLO || frame.event.hello.version == KEEPER_VERSION);
    if (good && frame.event.head.type == EVENT_HELLO) {
        link->greeted = true;
        link->told_refused = false;
    }
    if (good)
        take_event(link, &frame.event, passed.fd, passed.n);
    (void)!fdpass_take(&passed, NULL, 0);
    if (!good && n > 0)
        log_refused(link, "the keeper does not speak as this program does: one of them is of another version");
    else if (!good && !link->greeted)
        log_refused(link, "the keeper hangs up without a word: it has another server, or is about to end");
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
    /* The keeper is authoritative for boxes, and gets callers' files. */
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
        abort();        /* no request could be answered any more */
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
    /* If it is stopped, the loop notices. */
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
