#define _GNU_SOURCE
#include "front/fake_keeper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "proto/create.h"
#include "proto/names.h"
#include "unit/unit.h"

/* ---- the table ---- */

static void end_payload(struct fake_payload *p)
{
    fd_close(p->out);
    guest_free(p->guest);
    for (size_t i = 0; i < p->n_held; i++)
        fd_close(p->held[i]);
    *p = (struct fake_payload){ .out = -1 };
}

static void end_box(struct fake_box *b)
{
    for (int i = 0; i < FAKE_PAYLOADS; i++)
        end_payload(&b->payload[i]);
    b->there = false;
}

static void end_all(struct fake_keeper *k)
{
    for (int i = 0; i < FAKE_BOXES; i++)
        end_box(&k->box[i]);
    memset(k->family, 0, sizeof k->family);
}

static struct fake_box *by_slot(struct fake_keeper *k, uint32_t slot)
{
    for (int i = 0; i < FAKE_BOXES; i++)
        if (k->box[i].there && k->box[i].slot == slot)
            return &k->box[i];
    return NULL;
}

struct fake_box *fake_box_by_token(struct fake_keeper *k, uint64_t token)
{
    for (int i = 0; i < FAKE_BOXES; i++)
        if (k->box[i].there && k->box[i].token == token)
            return &k->box[i];
    return NULL;
}

unsigned fake_count_boxes(const struct fake_keeper *k)
{
    unsigned n = 0;

    for (int i = 0; i < FAKE_BOXES; i++)
        n += k->box[i].there;
    return n;
}

unsigned fake_count_flagged(const struct fake_keeper *k, uint32_t flags)
{
    unsigned n = 0;

    for (int i = 0; i < FAKE_BOXES; i++)
        n += k->box[i].there && (k->box[i].flags & flags) == flags;
    return n;
}

static void note_store(struct fake_keeper *k, uint64_t number, bool there)
{
    int place = -1;

    for (int i = 0; i < FAKE_STORES; i++)
        if (k->store[i] == number)
            place = i;
    for (int i = 0; i < FAKE_STORES && place < 0 && there; i++)
        if (!k->store[i])
            place = i;
    assert_true(place >= 0 || !there);
    if (place >= 0)
        k->store[place] = there ? number : 0;
}

/* ---- frames out ---- */

static void tell_with(struct fake_keeper *k, const void *event, size_t size, const int *fds, size_t n_fds)
{
    assert_true(k->n < FAKE_QUEUE && n_fds <= KEEPER_HELD && size <= sizeof(union event));
    size_t at = (k->first + k->n++) % FAKE_QUEUE;
    memcpy(&k->queue[at].event, event, size);
    k->queue[at].size = size;
    k->queue[at].n_fds = n_fds;
    for (size_t i = 0; i < n_fds; i++)
        k->queue[at].fds[i] = fds[i];
}

/* A frame of any type. */
#define tell(k, frame) tell_with(k, &(frame), sizeof(frame), NULL, 0)

static struct event_head answer_head(const struct request_head *q, enum event_type type)
{
    return (struct event_head){
        .type = (uint16_t)type, .payload = q->payload, .box = q->box, .serial = q->serial
    };
}

static void answer(struct fake_keeper *k, const struct request_head *q, int code)
{
    struct event_done done = { .head = answer_head(q, EVENT_DONE) };

    if (code)
        done.head.result = err_set(&done.err, code, STEP_USAGE, "the fake keeper refuses");
    tell(k, done);
}

static void tell_end(struct fake_keeper *k, const struct fake_payload *p)
{
    if (p->end.head.type == EVENT_ENDED)
        tell(k, p->end.ended);
    else
        tell(k, p->end.failed);
}

static void tell_payload(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, const struct fake_payload *p)
{
    struct event_payload event = { .head = { .type = EVENT_PAYLOAD, .box = b->slot, .payload = slot },
                                   .token = p->token,
                                   .has_ended = p->end.head.type != 0,
                                   .n_held = (uint32_t)p->n_held };

    tell_with(k, &event, sizeof event, p->held, p->n_held);
    if (event.has_ended)
        tell_end(k, p);
}

static void tell_box(struct fake_keeper *k, const struct fake_box *b)
{
    struct event_box event = { .head = { .type = EVENT_BOX, .box = b->slot },
                               .token = b->token,
                               .state = b->frozen ? BOX_FROZEN : BOX_READY,
                               .family = b->family };

    tell(k, event);
    for (uint16_t i = 0; i < FAKE_PAYLOADS; i++)
        if (b->payload[i].there)
            tell_payload(k, b, i, &b->payload[i]);
}

static void tell_family(struct fake_keeper *k, uint32_t slot, uint32_t serial)
{
    struct event_family event = { .head = { .type = EVENT_FAMILY, .serial = serial },
                                  .token = k->family[slot],
                                  .slot = slot };

    tell(k, event);
}

static void tell_all(struct fake_keeper *k)
{
    const struct event_hello hello = {
        .head.type = EVENT_HELLO, .version = KEEPER_VERSION, .n_templates = 1, .can_store = 1,
        .most_boxes = KEEPER_BOXES, .walls.can = 7
    };

    tell(k, hello);
    for (uint32_t i = 0; i < KEEPER_FAMILIES; i++)
        if (k->family[i])
            tell_family(k, i, 0);
    for (int i = 0; i < FAKE_STORES; i++)
        if (k->store[i])
            tell(k, ((struct event_store){ .head.type = EVENT_STORE, .store = k->store[i] }));
    for (int i = 0; i < FAKE_BOXES; i++)
        if (k->box[i].there)
            tell_box(k, &k->box[i]);
    tell(k, (struct event_head){ .type = EVENT_SYNCED });
}

void fake_disconnect(struct fake_keeper *k)
{
    k->link = fd_close(k->link);
    k->first = k->n = 0;
}

static void ended(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, struct fake_payload *p, int code,
                  int sig)
{
    p->out = fd_close(p->out);
    guest_free(p->guest);
    p->guest = NULL;
    p->end.ended = (struct event_ended){
        .head = { .type = EVENT_ENDED, .box = b->slot, .payload = slot },
        .token = p->token,
        .end = { .signal = sig, .code = sig ? -1 : code, .wall_us = 1000,
                 .outcome = sig ? OUTCOME_KILLED : code ? OUTCOME_ERROR : OUTCOME_OK },
    };
    tell_end(k, p);
}

/* A guest may have ended by itself. */
static void note_end(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, struct fake_payload *p)
{
    const struct fake_guest *g = p->guest;

    if (g && g->is_over)
        ended(k, b, slot, p, g->code, g->signal);
}

static void end_guests(struct fake_keeper *k)
{
    for (int i = 0; i < FAKE_BOXES; i++)
        for (uint16_t j = 0; k->box[i].there && j < FAKE_PAYLOADS; j++)
            if (k->box[i].payload[j].guest)
                ended(k, &k->box[i], j, &k->box[i].payload[j], -1, SIGSEGV);
}

static bool is_now(struct fake_keeper *k, enum frame_kind kind)
{
    assert_true(++k->frames < FAKE_FRAMES);
    k->kind[k->frames] = kind;
    if (k->frames != k->fault_at)
        return false;
    k->struck = true;
    return true;
}

/* True: this frame is not to be. */
static bool strikes(struct fake_keeper *k)
{
    if (!is_now(k, FRAME_OF_KEEPER))
        return false;
    if (k->fault == FAULT_KEEPER_DIES)
        end_all(k);
    if (k->fault == FAULT_GUESTS_DIE)
        end_guests(k);
    if (k->fault >= FAULT_GUESTS_DIE || k->fault == FAULT_CLIENT_GOES)
        return false;
    fake_disconnect(k);
    return true;
}

static void send_one(struct fake_keeper *k)
{
    ssize_t size = (ssize_t)k->queue[k->first].size;
    ssize_t n = fdpass_send(k->link, &k->queue[k->first].event, (size_t)size, k->queue[k->first].fds,
                            k->queue[k->first].n_fds, 0);

    assert_true(n == size || n == -EPIPE);
    k->first = (k->first + 1) % FAKE_QUEUE;
    k->n--;
}

/* ---- frames in ---- */

static void create(struct fake_keeper *k, const struct request_create *q)
{
    if (k->is_full || by_slot(k, q->head.box) || (q->family && !k->family[q->family - 1])) {
        answer(k, &q->head, k->is_full ? ENOSPC : EBUSY);
        return;
    }
    struct fake_box *b = k->box;
    while (b < k->box + FAKE_BOXES && b->there)
        b++;
    assert_true(b < k->box + FAKE_BOXES);
    uint64_t store = frame_mount_number(&q->mounts, MOUNT_STORE);
    *b = (struct fake_box){
        .there = true, .slot = q->head.box, .token = q->token, .store = store, .family = q->family,
        .flags = q->flags
    };
    for (int i = 0; i < FAKE_PAYLOADS; i++)
        b->payload[i].out = -1;
    if (store)
        note_store(k, store, true);
    const struct event_head ready = answer_head(&q->head, EVENT_READY);
    tell(k, ready);
}

static void failed(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, struct fake_payload *p)
{
    p->out = fd_close(p->out);
    p->end.failed = (struct event_failed){
        .head = { .type = EVENT_FAILED, .box = b->slot, .payload = slot }, .token = p->token
    };
    (void)err_set(&p->end.failed.err, EAGAIN, STEP_EXEC, "the fake zygote cannot");
    tell_end(k, p);
}

static bool is_socket(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* fds: the command, standard streams, and what is to be held. */
static void start(struct fake_keeper *k, const struct request_start *q, int *fds, size_t n_fds)
{
    struct fake_box *b = by_slot(k, q->head.box);
    size_t at = 1;

    if (!b || q->head.payload >= FAKE_PAYLOADS || b->payload[q->head.payload].there ||
        (q->way == START_FORK && !b->family)) {
        answer(k, &q->head, b ? EBUSY : ENOENT);
        return;
    }
    struct fake_payload *p = &b->payload[q->head.payload];
    *p = (struct fake_payload){ .there = true, .token = q->token, .out = -1 };
    int link = q->has_stdio[0] && is_socket(fds[at]) ? TAKE_FD(fds[at]) : -1;
    for (int i = 0; i < 3; i++)
        if (q->has_stdio[i]) {
            if (i == 1)
                p->out = TAKE_FD(fds[at]);
            at++;
        }
    for (; at < n_fds; at++)
        p->held[p->n_held++] = TAKE_FD(fds[at]);
    assert_int_equal(p->n_held, q->n_held);
    answer(k, &q->head, 0);
    if (q->way == START_FORK && k->cannot_fork) {
        fd_close(link);
        failed(k, b, q->head.payload, p);
        return;
    }
    const struct event_started started = {
        .head = { .type = EVENT_STARTED, .box = b->slot, .payload = q->head.payload },
        .token = p->token,
        .way = q->way == START_FORK ? WAY_FORKED : WAY_EXECUTED,
    };
    tell(k, started);
    if (link >= 0) {
        p->guest = guest_new(link, TAKE_FD(p->out));
        return;
    }
    if (p->out >= 0)
        assert_int_equal(write(p->out, "hi\n", 3), 3);
    if (!k->endless)
        ended(k, b, q->head.payload, p, 0, 0);
}

static void tell_gone(struct fake_keeper *k, struct fake_box *b, uint32_t serial)
{
    for (uint16_t i = 0; i < FAKE_PAYLOADS; i++)
        if (b->payload[i].there && !b->payload[i].end.head.type)
            ended(k, b, i, &b->payload[i], -1, SIGKILL);
    const struct event_gone gone = {
        .head = { .type = EVENT_GONE, .box = b->slot, .serial = serial }, .token = b->token
    };
    tell(k, gone);
    end_box(b);
}

static void destroy(struct fake_keeper *k, const struct request_head *q)
{
    struct fake_box *b = by_slot(k, q->box);

    if (b)
        tell_gone(k, b, q->serial);
    else
        answer(k, q, ENOENT);
}

void fake_box_dies(struct fake_keeper *k, struct fake_box *b)
{
    tell_gone(k, b, 0);
}

static void deliver(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, struct fake_payload *p, int sig)
{
    if (p->guest)
        guest_signal(p->guest, sig);
    if (sig == SIGKILL)
        ended(k, b, slot, p, -1, SIGKILL);
    else
        note_end(k, b, slot, p);
}

static void make_family(struct fake_keeper *k, const struct request_family *q)
{
    k->family[q->slot] = q->token;
    tell_family(k, q->slot, q->head.serial);
}

static void end_family(struct fake_keeper *k, const struct request_family_end *q)
{
    const struct event_family_gone gone = {
        .head.type = EVENT_FAMILY_GONE, .token = k->family[q->slot], .slot = q->slot
    };

    k->family[q->slot] = 0;
    tell(k, gone);
    answer(k, &q->head, 0);
}

static void take(struct fake_keeper *k, const void *frame, int *fds, size_t n_fds)
{
    const struct request_head *q = frame;
    struct fake_box *b = by_slot(k, q->box);
    struct fake_payload *p = b && q->payload < FAKE_PAYLOADS ? &b->payload[q->payload] : NULL;

    switch (q->type) {
    case REQUEST_CREATE:
        create(k, frame);
        break;
    case REQUEST_START:
        start(k, frame, fds, n_fds);
        break;
    case REQUEST_DESTROY:
        destroy(k, q);
        break;
    case REQUEST_FREEZE:
    case REQUEST_THAW:
        if (b)
            b->frozen = q->type == REQUEST_FREEZE;
        answer(k, q, b ? 0 : ENOENT);
        break;
    case REQUEST_SIGNAL:
        answer(k, q, p && p->there ? 0 : ESRCH);
        if (p && p->there && !p->end.head.type)
            deliver(k, b, q->payload, p, ((const struct request_signal *)frame)->signal);
        break;
    case REQUEST_FORGET:
        if (p && p->end.head.type)
            end_payload(p);
        answer(k, q, 0);
        break;
    case REQUEST_STORE_REMOVE:
        note_store(k, ((const struct request_store *)frame)->store, false);
        answer(k, q, 0);
        break;
    case REQUEST_FAMILY:
        make_family(k, frame);
        break;
    case REQUEST_FAMILY_END:
        end_family(k, frame);
        break;
    case REQUEST_USAGE:
        tell(k, ((struct event_usage){ .head = answer_head(q, EVENT_USAGE) }));
        break;
    default:
        answer(k, q, q->type == REQUEST_METER ? ENOTSUP : 0);
        break;
    }
}

static bool receive_one(struct fake_keeper *k)
{
    union {
        struct request_head   head;
        struct request_create create;
        char                  bytes[8192];
    } frame;
    struct fdpass passed = { 0 };

    ssize_t n = fdpass_receive(k->link, &frame, sizeof frame, MSG_DONTWAIT, &passed);
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        fake_disconnect(k);
        return true;
    }
    assert_true(n >= (ssize_t)sizeof frame.head && frame.head.serial != 0);
    if (!strikes(k))
        take(k, &frame, passed.fd, passed.n);
    (void)!fdpass_take(&passed, NULL, 0);
    return true;
}

/* ---- guests ---- */

/* True: this message is not to be; the guest may be gone. */
static bool strikes_message(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, struct fake_payload *p)
{
    switch (k->fault) {
    case FAULT_KEEPER_DIES:
        end_all(k);
        fake_disconnect(k);
        return true;
    case FAULT_LINK_BREAKS:
    case FAULT_FRONT_DIES:
        fake_disconnect(k);         /* it is said or heard later */
        return true;
    case FAULT_GUESTS_DIE:
        ended(k, b, slot, p, -1, SIGSEGV);
        return true;
    case FAULT_GUEST_HANGS:
        p->guest->hangs = true;
        return true;
    case FAULT_GUEST_CLOSES:
        guest_close_link(p->guest);
        return true;
    case FAULT_GUEST_LIES:
        guest_lie(p->guest);
        return true;
    default:
        return false;
    }
}

static bool turn_guest(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, struct fake_payload *p)
{
    unsigned times = 1;

    if (!p->guest || !guest_has_work(p->guest))
        return false;
    if (is_now(k, guest_will_say(p->guest) ? MESSAGE_SAID : MESSAGE_HEARD)) {
        if (strikes_message(k, b, slot, p))
            return true;
        times = k->fault == FAULT_MESSAGE_LOST ? 0 : k->fault == FAULT_MESSAGE_DOUBLED ? 2 : 1;
    }
    guest_turn(p->guest, times);
    note_end(k, b, slot, p);
    return true;
}

static bool turn_guests(struct fake_keeper *k)
{
    for (int i = 0; i < FAKE_BOXES; i++)
        for (uint16_t j = 0; k->box[i].there && !k->box[i].frozen && j < FAKE_PAYLOADS; j++)
            if (turn_guest(k, &k->box[i], j, &k->box[i].payload[j]))
                return true;
    return false;
}

/* ---- its life ---- */

static bool connect_front(struct fake_keeper *k)
{
    int code = 0, pair[2];
    char byte;

    if (k->helper < 0 || recv(k->helper, &byte, 1, MSG_DONTWAIT) != 1)
        return false;
    fake_disconnect(k);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(fdpass_send(k->helper, &code, sizeof code, &pair[1], 1, 0), sizeof code);
    fd_close(pair[1]);
    k->link = pair[0];
    tell_all(k);
    return true;
}

bool fake_turn(struct fake_keeper *k)
{
    if (connect_front(k))
        return true;
    if (k->guests_first && turn_guests(k))
        return true;
    if (k->link >= 0 && k->n) {
        if (!strikes(k))
            send_one(k);
        return true;
    }
    return (k->link >= 0 && receive_one(k)) || turn_guests(k);
}

bool fake_has_work(const struct fake_keeper *k)
{
    char byte;

    for (int i = 0; i < FAKE_BOXES; i++)
        for (int j = 0; j < FAKE_PAYLOADS; j++)
            if (!k->box[i].frozen && k->box[i].payload[j].guest && guest_has_work(k->box[i].payload[j].guest))
                return true;
    return k->n || (k->link >= 0 && recv(k->link, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0);
}

void fake_open(struct fake_keeper *k)
{
    *k = (struct fake_keeper){ .helper = -1, .link = -1 };
    for (int i = 0; i < FAKE_BOXES; i++)
        for (int j = 0; j < FAKE_PAYLOADS; j++)
            k->box[i].payload[j].out = -1;
}

int fake_dial(struct fake_keeper *k)
{
    int pair[2];

    fake_disconnect(k);
    fd_close(k->helper);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    k->helper = pair[0];
    return pair[1];
}

void fake_close(struct fake_keeper *k)
{
    end_all(k);
    fake_disconnect(k);
    k->helper = fd_close(k->helper);
}
