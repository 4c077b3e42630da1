/* STARTING/BUSY ── answered in order ──> IDLE ── next request ──> BUSY
 *       └── broken, cancelled ───┐          └── unused for a while ──┐
 *                                └────────> ENDING ── the keeper has forgotten it ──> freed
 *
 * A helper uses one of the box's payload slots from its start until the keeper has reaped and forgotten it. The keeper
 * refuses to forget it while the process still ends, so the request is retried until it succeeds. The box may be gone
 * by then: it is looked up by its number each time. */
#define _GNU_SOURCE
#include "front/files/box_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/keeper_link.h"

enum {
    HELPERS_PER_BOX = 8,
    IDLE_MS = 5000,
    PIECE_BYTES = 1 << 18,
    TURN_PIECES = 8,
    FRAME_MAX = FILES_ENTRIES_MAX,
    RETRY_MAX_MS = 1000,
    SOCKET_BYTES = 1 << 20
};

enum files_phase { BUSY, IDLE, ENDING };

struct box_files {
    struct box_files      *next;
    struct front       *front;
    struct box_files_user *user;           /* NULL unless BUSY */
    uint64_t            box;            /* number */
    uint32_t            box_slot;
    int64_t             box_ready_ms;   /* a restarted box may get the same slot */
    unsigned            slot;
    enum files_phase    state;
    int                 fd;             /* owned; -1 when ENDING */
    int                 theirs;         /* owned; the helper's end until it has started */
    unsigned            tries;
    uint32_t            serial;         /* of a request to the keeper; 0: none */
    struct loop_fd      watch;
    struct loop_timer   timer;
    uint32_t            retry_ms;
    bool                held, lost;
    /* Input: */
    struct files_head   head;
    size_t              head_size;      /* bytes of it that were read */
    uint32_t            left;           /* of the frame */
    char               *frame;          /* owned: of ENTRIES and DONE, which are read completely */
    size_t              frame_size;
    /* Output that was not taken yet: */
    char               *rest;           /* owned */
    size_t              rest_at, rest_size;
};

static char piece[PIECE_BYTES];     /* of the present frame; not used across calls */

/* ---- ending ---- */

/* The box from the helper's start; NULL if it is gone or was restarted. */
static struct box *helper_box(const struct box_files *h)
{
    struct box *box = boxes_by_number(h->front, h->box);

    return box && box->slot != BOX_NO_SLOT && box->slot == h->box_slot && box->ready_ms == h->box_ready_ms ? box : NULL;
}

static void helper_free(struct box_files *h)
{
    struct box_files **at = &h->front->files;
    struct box *box = helper_box(h);

    if (box)
        box->slots_used &= ~(UINT64_C(1) << h->slot);
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    loop_timer_cancel(h->front->loop, &h->timer);
    free(h->frame);
    free(h->rest);
    free(h);
}

static void on_forgotten(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_files *h = arg;

    (void)fds;
    (void)n_fds;
    h->serial = 0;
    if (event->head.result != -EBUSY) {
        helper_free(h);
        return;
    }
    h->retry_ms = h->retry_ms * 2 < RETRY_MAX_MS ? h->retry_ms * 2 : RETRY_MAX_MS;
    loop_timer_set(h->front->loop, &h->timer, h->retry_ms);
}

static void helper_end(struct box_files *h)
{
    loop_fd_remove(h->front->loop, &h->watch);
    h->fd = fd_close(h->fd);
    h->theirs = fd_close(h->theirs);
    h->state = ENDING;
    h->user = NULL;
    if (h->serial)
        keeper_link_cancel(h->front->keeper, h->serial);
    h->serial = 0;
    h->retry_ms = 1;
    loop_timer_set(h->front->loop, &h->timer, 1);
}

static void on_timer(struct loop_timer *t)
{
    struct box_files *h = container_of(t, struct box_files, timer);

    if (h->state == IDLE) {
        helper_end(h);
        return;
    }
    if (!helper_box(h)) {
        helper_free(h);
        return;
    }
    struct request_head q = { .type = REQUEST_FORGET, .box = h->box_slot, .payload = (uint16_t)h->slot };
    h->serial = keeper_link_request(h->front->keeper, &q, sizeof q, NULL, 0, on_forgotten, h);
}

static void lose(struct box_files *h, const struct err *e)
{
    struct box_files_user *u = h->user;

    helper_end(h);
    if (u) {
        u->files = NULL;
        u->on_lost(u, e);
    }
}

static void broken(struct box_files *h)
{
    struct err e = { 0 };
    struct box *box = boxes_by_number(h->front, h->box);

    if (!box || box->phase != PHASE_RUNNING)
        (void)err_set(&e, EBUSY, STEP_USAGE, "the box ended meanwhile");
    else
        (void)err_set(&e, ENOSPC, STEP_WAIT, "the file helper was ended; the box may be out of memory");
    lose(h, &e);
}

/* ---- input ---- */

/* Reads the frame's data, and the next head behind it in the same call. Returns bytes of data, or -1 when nothing can
 * be done now. */
static ssize_t receive(struct box_files *h, char *data, size_t size)
{
    struct iovec v[2] = { { data, size }, { (char *)&h->head + h->head_size, sizeof h->head - h->head_size } };
    bool whole = size == h->left;
    struct msghdr message = { .msg_iov = size ? v : v + 1, .msg_iovlen = size ? (whole ? 2 : 1) : 1 };
    ssize_t n;

    do
        n = recvmsg(h->fd, &message, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return -1;
    if (n <= 0) {
        broken(h);
        return -1;
    }
    size_t data_size = (size_t)n < size ? (size_t)n : size;
    h->head_size += (size_t)n - data_size;
    return (ssize_t)data_size;
}

/* A frame that is read completely is there. */
static void take_frame(struct box_files *h)
{
    struct box_files_user *u = h->user;
    struct files_done done;

    if (!u)
        return;
    if (h->head.type == FILES_ENTRIES) {
        u->on_entries(u, h->frame, h->frame_size);
        return;
    }
    memcpy(&done, h->frame, sizeof done);
    done.text[sizeof done.text - 1] = 0;
    u->on_done(u, &done);
}

static bool head_is_legal(const struct box_files *h)
{
    switch (h->head.type) {
    case FILES_DATA:
        return h->head.size > 0 && h->head.size <= FILES_DATA_MAX;
    case FILES_ENTRIES:
        return h->head.size > 0 && h->head.size <= FRAME_MAX;
    case FILES_DONE:
        return h->head.size == sizeof(struct files_done);
    default:
        return false;
    }
}

/* One step. False: nothing more now. The callbacks may end the helper. */
static bool step(struct box_files *h, bool *in_frame)
{
    if (!*in_frame) {
        if (h->head_size < sizeof h->head && receive(h, NULL, 0) < 0)
            return false;
        if (h->head_size < sizeof h->head)
            return true;
        if (!head_is_legal(h)) {
            broken(h);
            return false;
        }
        h->left = h->head.size;
        h->frame_size = 0;
        *in_frame = true;
    }
    if (h->head.type == FILES_DATA) {
        /* The head is used up: the next one may be read over it. */
        h->head_size = 0;
        ssize_t n = receive(h, piece, h->left < sizeof piece ? h->left : sizeof piece);
        if (n < 0)
            return false;
        h->left -= (uint32_t)n;
        *in_frame = h->left > 0;
        if (h->user)
            h->user->on_data(h->user, piece, (size_t)n);
        return true;
    }
    if (!h->frame && !(h->frame = malloc(FRAME_MAX))) {
        broken(h);
        return false;
    }
    ssize_t n;
    do
        n = recv(h->fd, h->frame + h->frame_size, h->left, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        broken(h);
        return false;
    }
    h->frame_size += (size_t)n;
    h->left -= (uint32_t)n;
    if (h->left == 0) {
        h->head_size = 0;
        *in_frame = false;
        take_frame(h);
    }
    return true;
}

static void take(struct box_files *h)
{
    bool in_frame = h->left > 0;

    for (int i = 0; i < TURN_PIECES && h->state == BUSY && !h->held; i++)
        if (!step(h, &in_frame))
            break;
}

static void arm(struct box_files *h)
{
    uint32_t events = (h->held ? 0 : EPOLLIN) | (h->rest ? EPOLLOUT : 0);

    if (h->state != ENDING && h->watch.watching && loop_fd_set(h->front->loop, &h->watch, events) < 0)
        broken(h);
}

/* ---- output ---- */

static void push_rest(struct box_files *h)
{
    ssize_t n = send(h->fd, h->rest + h->rest_at, h->rest_size - h->rest_at, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        /* It may have sent a reason before it ended: reading will find it. */
        n = (ssize_t)(h->rest_size - h->rest_at);
        h->lost = true;
    }
    h->rest_at += n > 0 ? (size_t)n : 0;
    if (h->rest_at < h->rest_size)
        return;
    free(h->rest);
    h->rest = NULL;
    if (h->user && h->user->on_room && !h->lost)
        h->user->on_room(h->user);
}

static void push(struct box_files *h, const char *data, size_t size)
{
    ssize_t n = h->rest || h->lost ? 0 : send(h->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0 && errno != EAGAIN && errno != EINTR)
        h->lost = true;
    size_t sent = n > 0 ? (size_t)n : 0;
    if (h->lost || sent == size)
        return;
    size_t kept = h->rest ? h->rest_size - h->rest_at : 0;
    char *rest = malloc(kept + size - sent);
    if (!rest) {
        h->lost = true;         /* reported as broken when the helper ends */
        (void)shutdown(h->fd, SHUT_RDWR);
        return;
    }
    if (kept)
        memcpy(rest, h->rest + h->rest_at, kept);
    memcpy(rest + kept, data + sent, size - sent);
    free(h->rest);
    h->rest = rest;
    h->rest_at = 0;
    h->rest_size = kept + size - sent;
    arm(h);
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct box_files *h = container_of(w, struct box_files, watch);

    if (h->state == IDLE) {
        helper_end(h);          /* it can only end now */
        return;
    }
    if ((events & EPOLLOUT) && h->rest)
        push_rest(h);
    if (h->state == BUSY && h->held && (events & (EPOLLHUP | EPOLLERR)))
        loop_fd_remove(h->front->loop, w);      /* EPOLLHUP cannot be masked; the rest is read later */
    if (h->state == BUSY && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        take(h);
    arm(h);
}

/* ---- the interface ---- */

/* Commands take slots from the other end. */
static int free_slot(const struct box *box, int below)
{
    for (int i = below - 1; i >= 0; i--)
        if (!(box->slots_used >> i & 1))
            return i;
    return -1;
}

static void on_started(const union event *event, int *fds, size_t n_fds, void *arg);

static void ask_keeper(struct box_files *h)
{
    struct request_head q = { .type = REQUEST_FILES, .box = h->box_slot, .payload = (uint16_t)h->slot };

    h->serial = keeper_link_request(h->front->keeper, &q, sizeof q, &h->theirs, 1, on_started, h);
}

static void nothing(const union event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;
    (void)fds;
    (void)n_fds;
    (void)arg;
}

/* The slot has a helper of an earlier front, which has ended and was not forgotten, or is about to end. */
static bool try_again(struct box_files *h)
{
    struct box *box = helper_box(h);
    struct request_head q = { .type = REQUEST_FORGET, .box = h->box_slot, .payload = (uint16_t)h->slot };

    if (!box || box->phase != PHASE_RUNNING || h->tries++ == KEEPER_PAYLOADS)
        return false;
    if (h->tries % 2) {
        keeper_link_request(h->front->keeper, &q, sizeof q, NULL, 0, nothing, NULL);
    } else {
        int slot = free_slot(box, (int)h->slot);
        if (slot < 0)
            return false;
        box->slots_used &= ~(UINT64_C(1) << h->slot);
        h->slot = (unsigned)slot;
        box->slots_used |= UINT64_C(1) << h->slot;
    }
    ask_keeper(h);
    return true;
}

static void on_started(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_files *h = arg;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    h->serial = 0;
    if (e && e->code == EBUSY && try_again(h))
        return;
    h->theirs = fd_close(h->theirs);
    if (e)
        lose(h, e);
}

static int start(struct box *box, unsigned slot, struct box_files **ret, struct err *e)
{
    struct box_files *h = calloc(1, sizeof *h);
    int pair[2], size = SOCKET_BYTES;

    if (!h || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        int code = errno;
        free(h);
        return err_at(e, code, STEP_MEMORY, 0, "file helper");
    }
    FD theirs = pair[1];
    *h = (struct box_files){ .front = box->front, .box = box->number, .box_slot = box->slot,
                          .box_ready_ms = box->ready_ms, .slot = slot, .fd = pair[0], .theirs = -1,
                          .watch.on_event = on_event, .timer.on_expire = on_timer };
    (void)setsockopt(h->fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    (void)setsockopt(theirs, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    int r = loop_fd_add(box->front->loop, &h->watch, h->fd, EPOLLIN);
    if (r < 0) {
        fd_close(h->fd);
        free(h);
        return err_at(e, -r, STEP_MEMORY, 0, "file helper");
    }
    box->slots_used |= UINT64_C(1) << slot;
    h->next = box->front->files;
    box->front->files = h;
    h->theirs = TAKE_FD(theirs);
    ask_keeper(h);
    *ret = h;
    return 0;
}

int box_files_open(struct box *box, struct box_files_user *u, struct err *e)
{
    unsigned n = 0;
    struct box_files *found = NULL;

    if (box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s; files can be reached only while it runs",
                       phase_names[box->phase]);
    for (struct box_files *h = box->front->files; h; h = h->next)
        if (h->box == box->number && helper_box(h)) {
            n++;
            if (h->state == IDLE)
                found = h;
        }
    box_touch(box);
    if (!found) {
        int slot = free_slot(box, KEEPER_PAYLOADS);
        if (n >= HELPERS_PER_BOX || slot < 0)
            return err_set(e, EAGAIN, STEP_USAGE, "%u transfers are under way in this box already", n);
        int r = start(box, (unsigned)slot, &found, e);
        if (r < 0)
            return r;
    }
    loop_timer_cancel(box->front->loop, &found->timer);
    found->state = BUSY;
    found->held = false;
    found->user = u;
    u->files = found;
    return 0;
}

void box_files_close(struct box_files_user *u, bool in_order)
{
    struct box_files *h = u->files;

    if (!h)
        return;
    u->files = NULL;
    h->user = NULL;
    if (!in_order || h->lost || h->rest || h->left > 0) {
        helper_end(h);
        return;
    }
    h->state = IDLE;
    h->held = false;
    arm(h);
    loop_timer_set(h->front->loop, &h->timer, IDLE_MS);
}

int box_files_ask(struct box_files_user *u, struct files_request *q, const char *path, const char *other, struct err *e)
{
    char frame[sizeof(struct files_head) + sizeof *q + 2 * FILES_PATH_MAX];
    size_t path_size = strlen(path), other_size = other ? strlen(other) : 0;

    if (path_size > FILES_PATH_MAX || other_size > FILES_PATH_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "a path may have %d bytes", FILES_PATH_MAX);
    q->path_size = (uint16_t)path_size;
    q->other_size = (uint16_t)other_size;
    struct files_head head = { .type = FILES_REQUEST, .size = (uint32_t)(sizeof *q + path_size + other_size) };
    memcpy(frame, &head, sizeof head);
    memcpy(frame + sizeof head, q, sizeof *q);
    memcpy(frame + sizeof head + sizeof *q, path, path_size);
    if (other_size)
        memcpy(frame + sizeof head + sizeof *q + path_size, other, other_size);
    push(u->files, frame, sizeof head + head.size);
    return 0;
}

void box_files_send(struct box_files_user *u, enum files_frame type, char *data, size_t size)
{
    struct files_head head = { .type = (uint16_t)type, .size = (uint32_t)size };

    memcpy(data - sizeof head, &head, sizeof head);
    push(u->files, data - sizeof head, sizeof head + size);
}

bool box_files_has_room(const struct box_files_user *u)
{
    return u->files && !u->files->rest && !u->files->lost;
}

void box_files_hold(struct box_files_user *u, bool hold)
{
    struct box_files *h = u->files;

    if (!h || h->held == hold)
        return;
    h->held = hold;
    if (!hold && !h->watch.watching && loop_fd_add(h->front->loop, &h->watch, h->fd, EPOLLIN) < 0)
        broken(h);
    else
        arm(h);
}
