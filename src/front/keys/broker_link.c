/* The front's end of the broker's socket. A helper makes the connection (dial.h), also to a broker that was restarted.
 * Over each new connection all living boxes with keys are sent again: a broker that lived on compares them with what it
 * has, and one that is new makes the same authorities from their seeds. Then it and egress get a link to each other.
 *
 * What is to be sent waits in a queue of box numbers. The values of a box are read when its turn comes, and wiped when
 * its frames are sent or dropped. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/list.h"
#include "front/boxes/box_parts.h"
#include "front/dial.h"
#include "front/front.h"
#include "front/keys/keys_private.h"
#include "front/net/net.h"

enum { RETRY_MS = 50, ANSWER_MS = 20000, NO_BROKER_MS = 10000 };

/* What to send: about a box BOX or GONE, else ALL or EGRESS. */
struct key_word {
    struct key_word *next;
    uint32_t         type;
    uint64_t         token;
};

struct front_keys {
    struct front     *front;
    const char       *why_none;
    char              why_unable[200];  /* what the present broker said, or the last one; "": nothing */
    struct loop_fd    helper;           /* owned; fd -1: there is no broker */
    bool              asked;            /* the helper is connecting */
    struct loop_fd    link;             /* owned; fd -1: not connected */
    struct loop_timer retry;
    struct key_word  *words, **last;
    /* Of the first word, if it is about a box: */
    struct broker_key *frames;          /* owned; NULL: not read yet */
    size_t            n_frames, n_sent;
};

const char *keys_why_none(const struct front *front)
{
    if (!front->keys)
        return "memory is short";
    return front->keys->why_unable[0] ? front->keys->why_unable : front->keys->why_none;
}

/* ---- the queue ---- */

static void wipe_frames(struct front_keys *keys)
{
    if (keys->frames)
        explicit_bzero(keys->frames, BROKER_KEYS * sizeof *keys->frames);
    free(keys->frames);
    keys->frames = NULL;
    keys->n_frames = keys->n_sent = 0;
}

static void drop_first(struct front_keys *keys)
{
    struct key_word *w = keys->words;

    wipe_frames(keys);
    keys->words = w->next;
    if (!keys->words)
        keys->last = &keys->words;
    free(w);
}

static void lose_link(struct front_keys *keys)
{
    while (keys->words)
        drop_first(keys);
    loop_fd_remove(keys->front->loop, &keys->link);
    keys->link.fd = fd_close(keys->link.fd);
    loop_timer_set(keys->front->loop, &keys->retry, RETRY_MS);
}

static struct box *find_box(const struct front *front, uint64_t token)
{
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (b->settings.keys && box_token(b) == token)
            return b;
    return NULL;
}

/* Whether it should have its keys in the broker now. */
static bool has_use(const struct box *b)
{
    return b && b->settings.keys && box_is_alive(b) && b->phase != PHASE_STOPPED && b->phase != PHASE_DELETING;
}

static void fail_box(struct box *b, struct err *e)
{
    b->keys.awaits = false;
    loop_timer_cancel(b->front->loop, &b->keys.late);
    box_keys_came(b, e);
}

/* A key whose secret cannot be used any more is left out: requests to its host then fail. False: the word is done. */
static bool read_frames(struct front_keys *keys, struct box *b)
{
    struct err e = { 0 };
    size_t i;
    json_t *key;

    keys->frames = calloc(BROKER_KEYS, sizeof *keys->frames);
    if (!keys->frames)
        return false;
    json_array_foreach(b->settings.keys, i, key) {
        struct broker_key *frame = &keys->frames[keys->n_frames];
        char what[32];
        snprintf(what, sizeof what, "keys[%zu]", i);
        frame->head = (struct broker_head){ .type = BROKER_KEY, .box = box_token(b) };
        if (key_fill(keys->front, b->owner, what, key, frame, &e) == 0) {
            key_placeholder(b, json_string_value(json_object_get(key, "name")), frame->placeholder);
            keys->n_frames++;
            continue;
        }
        explicit_bzero(frame, sizeof *frame);
        if (b->keys.awaits) {
            fail_box(b, &e);
            return false;
        }
        front_log("warning", "a box has lost a key", "box", b->id, "why", e.what, NULL);
    }
    return true;
}

static int send_frame(struct front_keys *keys, const void *frame, size_t size, const int *fd)
{
    ssize_t n = fdpass_send(keys->link.fd, frame, size, fd, fd ? 1 : 0, MSG_DONTWAIT);

    return n < 0 ? (int)n : 0;
}

static int send_box(struct front_keys *keys, struct box *b)
{
    struct broker_box frame = { .head = { .type = BROKER_BOX, .box = box_token(b) }, .wants_files = b->keys.awaits };
    int r = 0;

    if (!keys->frames && !read_frames(keys, b))
        return 0;
    if (keys->n_frames == 0) {
        const struct broker_head gone = { .type = BROKER_GONE, .box = box_token(b) };
        return send_frame(keys, &gone, sizeof gone, NULL);
    }
    for (; keys->n_sent < keys->n_frames && r == 0; keys->n_sent += r == 0)
        r = send_frame(keys, &keys->frames[keys->n_sent], sizeof *keys->frames, NULL);
    if (r < 0)
        return r;
    memcpy(frame.seed, b->keys.seed, sizeof frame.seed);
    r = send_frame(keys, &frame, sizeof frame, NULL);
    explicit_bzero(&frame, sizeof frame);
    return r;
}

static int send_link(struct front_keys *keys)
{
    const struct broker_head frame = { .type = BROKER_EGRESS };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    FD its = pair[0], others = pair[1];
    int r = send_frame(keys, &frame, sizeof frame, &its);
    if (r == 0)
        net_give_broker(keys->front, TAKE_FD(others));
    return r;
}

/* 0: done, or there is nothing to send any more; or -errno. */
static int send_word(struct front_keys *keys, const struct key_word *w)
{
    const struct broker_head frame = { .type = w->type, .box = w->token };
    struct box *b = w->type == BROKER_BOX ? find_box(keys->front, w->token) : NULL;

    if (w->type == BROKER_EGRESS)
        return send_link(keys);
    if (w->type == BROKER_BOX)
        return has_use(b) ? send_box(keys, b) : 0;
    return send_frame(keys, &frame, sizeof frame, NULL);
}

static void send_words(struct front_keys *keys)
{
    int r = 0;

    while (keys->words && (r = send_word(keys, keys->words)) == 0 && keys->link.fd >= 0)
        drop_first(keys);
    if (keys->link.fd < 0)
        return;         /* a box that failed has changed it */
    if (r == 0 || r == -EAGAIN)
        r = loop_fd_set(keys->front->loop, &keys->link, keys->words ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (r == 0)
        return;
    if (r != -EPIPE && r != -ECONNRESET)
        front_log("error", "the link to the broker has failed", "why", strerror(-r), NULL);
    lose_link(keys);
}

/* Sent from the loop: a value's frames must not fail a box inside its own creation. */
static void tell(struct front_keys *keys, uint32_t type, uint64_t token)
{
    if (!keys || keys->link.fd < 0)
        return;
    struct key_word *w = malloc(sizeof *w);
    if (!w)
        return;         /* a waiting box fails in time */
    *w = (struct key_word){ .type = type, .token = token };
    *keys->last = w;
    keys->last = &w->next;
    if (loop_fd_set(keys->front->loop, &keys->link, EPOLLIN | EPOLLOUT) < 0)
        lose_link(keys);
}

/* ---- answers ---- */

static void on_ready(struct box *b, int pem, int java)
{
    b->keys.awaits = false;
    loop_timer_cancel(b->front->loop, &b->keys.late);
    b->keys.trust[0] = pem;
    b->keys.trust[1] = java;
    box_keys_came(b, NULL);
}

static void on_failed(struct box *b, const struct broker_failed *failed)
{
    struct err e;

    (void)err_set(&e, EINVAL, STEP_NETWORK, "the broker: %.200s", failed->why);
    if (b->keys.awaits)
        fail_box(b, &e);
    else
        front_log("error", "a box has lost its keys", "box", b->id, "why", e.what, NULL);
}

/* Boxes that wait are refused as new ones will be; by their timers, because a box that fails may end others. */
static void on_unable(struct front_keys *keys, const char *why)
{
    snprintf(keys->why_unable, sizeof keys->why_unable, "carrel-broker: %.180s", why);
    for (struct box *b = keys->front->boxes.first; b; b = b->next)
        if (b->settings.keys && b->keys.awaits)
            loop_timer_set(keys->front->loop, &b->keys.late, 0);
}

/* False: nothing more to read, or the link is gone. */
static bool hear_one(struct front_keys *keys)
{
    struct broker_failed answer = { .head.type = 0 };
    struct fdpass passed = { 0 };
    int fds[2] = { -1, -1 };

    if (keys->link.fd < 0)
        return false;
    ssize_t n = fdpass_receive(keys->link.fd, &answer, sizeof answer, MSG_DONTWAIT, &passed);
    if (n == -EAGAIN || n == -EINTR)
        return false;
    size_t n_fds = n > 0 ? fdpass_take(&passed, fds, 2) : 0;
    FD pem = fds[0], java = fds[1];
    struct box *b = n >= (ssize_t)sizeof answer.head ? find_box(keys->front, answer.head.box) : NULL;
    answer.why[sizeof answer.why - 1] = '\0';
    front_make_utf8(answer.why);
    if (n <= 0)
        lose_link(keys);
    else if (b && b->keys.awaits && answer.head.type == BROKER_READY && n_fds == 2)
        on_ready(b, TAKE_FD(pem), TAKE_FD(java));
    else if (b && n == sizeof answer && answer.head.type == BROKER_FAILED)
        on_failed(b, &answer);
    else if (n == sizeof answer && answer.head.type == BROKER_UNABLE)
        on_unable(keys, answer.why);
    return n > 0;
}

static void on_link(struct loop_fd *w, uint32_t events)
{
    struct front_keys *keys = container_of(w, struct front_keys, link);

    if (events & EPOLLOUT)
        send_words(keys);
    while (hear_one(keys))
        ;
}

/* ---- the connection ---- */

static void adopt(struct front_keys *keys, int socket)
{
    struct front *front = keys->front;
    struct ucred peer;
    socklen_t size = sizeof peer;
    FD fd = socket;

    /* It gets the values of secrets. The listener was made by the supervisor, whatever process accepts. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || (peer.uid != 0 && peer.uid != front->owner_uid)) {
        front_log("error", "the broker's socket is served by another user", NULL);
        loop_timer_set(front->loop, &keys->retry, NO_BROKER_MS);
        return;
    }
    if (loop_fd_add(front->loop, &keys->link, fd, EPOLLIN) < 0) {
        loop_timer_set(front->loop, &keys->retry, RETRY_MS);
        return;
    }
    keys->link.fd = TAKE_FD(fd);
    keys->why_unable[0] = '\0';
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (has_use(b))
            tell(keys, BROKER_BOX, box_token(b));
    tell(keys, BROKER_ALL, 0);
    tell(keys, BROKER_EGRESS, 0);
}

static void on_helper(struct loop_fd *w, uint32_t events)
{
    struct front_keys *keys = container_of(w, struct front_keys, helper);
    int code = 0, socket = -1;

    (void)events;
    int r = dial_answer(keys->helper.fd, &code, &socket);
    if (r == -EAGAIN)
        return;
    keys->asked = false;
    if (r < 0) {
        front_log("error", "the process that connects to the broker is gone; so this one ends", NULL);
        _exit(125);
    }
    if (code == 0 && socket >= 0 && keys->link.fd < 0)
        adopt(keys, socket);
    else
        loop_timer_set(keys->front->loop, &keys->retry, RETRY_MS);
}

static void on_retry(struct loop_timer *t)
{
    struct front_keys *keys = container_of(t, struct front_keys, retry);

    if (!keys->asked && keys->link.fd < 0)
        keys->asked = dial_ask(keys->helper.fd) == 0;
}

void keys_introduce(struct front *front)
{
    tell(front->keys, BROKER_EGRESS, 0);
}

/* ---- boxes ---- */

static void on_late(struct loop_timer *t)
{
    struct box *b = container_of(t, struct box, keys.late);
    const struct front_keys *keys = b->front->keys;
    struct err e;

    if (keys && keys->why_unable[0])
        (void)err_set(&e, ENOTSUP, STEP_USAGE, "keys: %s", keys->why_unable);
    else
        (void)err_set(&e, ECONNREFUSED, STEP_NETWORK, keys && keys->link.fd >= 0
                          ? "carrel-broker has not answered for %d seconds; the server's log says why if it has ended; "
                            "if it hangs, end it: the server starts another"
                          : "carrel-broker, which has the keys of boxes, has not been there for %d seconds; the "
                            "server's log says why", ANSWER_MS / 1000);
    fail_box(b, &e);
}

void keys_want(struct box *b)
{
    const struct front_keys *keys = b->front->keys;

    b->keys.awaits = true;
    b->keys.late.on_expire = on_late;
    loop_timer_set(b->front->loop, &b->keys.late, keys && keys->why_unable[0] ? 0 : ANSWER_MS);
    tell(b->front->keys, BROKER_BOX, box_token(b));
}

void keys_box_gone(struct box *b)
{
    if (!b->settings.keys)
        return;
    b->keys.awaits = false;
    loop_timer_cancel(b->front->loop, &b->keys.late);
    keys_close_trust(b);
    tell(b->front->keys, BROKER_GONE, box_token(b));
}

void keys_close_trust(struct box *b)
{
    for (size_t i = 0; i < 2; i++)
        b->keys.trust[i] = fd_close(b->keys.trust[i]);
}

void keys_secret_changed(struct front *front, const char *owner, const char *name)
{
    size_t i;
    json_t *key;

    for (struct box *b = front->boxes.first; b; b = b->next) {
        bool uses = false;
        json_array_foreach(b->settings.keys, i, key)
            uses |= strcmp(json_string_value(json_object_get(key, "secret")), name) == 0;
        if (uses && has_use(b) && strcmp(b->owner, owner) == 0)
            tell(front->keys, BROKER_BOX, box_token(b));
    }
}

/* ---- the whole ---- */

int keys_init(struct front *front, int helper, const char *why_none, struct err *e)
{
    FD theirs = helper;
    struct front_keys *keys = calloc(1, sizeof *keys);

    if (!keys)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "broker link");
    front->keys = keys;
    keys->front = front;
    keys->helper.fd = -1;
    keys->link = (struct loop_fd){ .fd = -1, .on_event = on_link };
    keys->last = &keys->words;
    keys->retry.on_expire = on_retry;
    if (theirs < 0) {
        keys->why_none = why_none ? why_none : "this server has no carrel-broker, which has the keys of boxes";
        return 0;
    }
    keys->helper.on_event = on_helper;
    int r = loop_fd_add(front->loop, &keys->helper, theirs, EPOLLIN);
    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "broker link");
    keys->helper.fd = TAKE_FD(theirs);
    on_retry(&keys->retry);
    return 0;
}

void keys_free(struct front *front)
{
    struct front_keys *keys = front->keys;

    if (!keys)
        return;
    while (keys->words)
        drop_first(keys);
    loop_timer_cancel(front->loop, &keys->retry);
    loop_fd_remove(front->loop, &keys->link);
    fd_close(keys->link.fd);
    loop_fd_remove(front->loop, &keys->helper);
    fd_close(keys->helper.fd);
    free(keys);
    front->keys = NULL;
}
