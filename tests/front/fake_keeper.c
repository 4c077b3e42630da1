#define _GNU_SOURCE
#include "front/fake_keeper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
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

static void tell(struct fake_keeper *k, struct event event, const int *fds, size_t n_fds)
{
    assert_true(k->n < FAKE_QUEUE && n_fds <= KEEPER_HELD);
    size_t at = (k->first + k->n++) % FAKE_QUEUE;
    k->queue[at].event = event;
    k->queue[at].n_fds = n_fds;
    for (size_t i = 0; i < n_fds; i++)
        k->queue[at].fds[i] = fds[i];
}

static void answer(struct fake_keeper *k, const struct request_head *q, int code)
{
    struct event done = { .type = EVENT_DONE, .box = q->box, .payload = q->payload, .serial = q->serial };

    if (code)
        done.result = err_set(&done.err, code, STEP_USAGE, "the fake keeper refuses");
    tell(k, done, NULL, 0);
}

static void tell_all(struct fake_keeper *k)
{
    tell(k, (struct event){ .type = EVENT_HELLO, .result = KEEPER_VERSION, .state = 1, .code = 7, .n_held = 1 }, NULL,
         0);
    for (uint32_t i = 0; i < KEEPER_FAMILIES; i++)
        if (k->family[i])
            tell(k, (struct event){ .type = EVENT_FAMILY, .box = i, .token = k->family[i] }, NULL, 0);
    for (int i = 0; i < FAKE_STORES; i++)
        if (k->store[i])
            tell(k, (struct event){ .type = EVENT_STORE, .token = k->store[i] }, NULL, 0);
    for (int i = 0; i < FAKE_BOXES; i++) {
        struct fake_box *b = &k->box[i];
        if (!b->there)
            continue;
        tell(k, (struct event){ .type = EVENT_BOX, .box = b->slot, .token = b->token, .state = b->frozen ? 3 : 2,
                                .code = (int32_t)b->family }, NULL, 0);
        for (uint16_t j = 0; j < FAKE_PAYLOADS; j++) {
            struct fake_payload *p = &b->payload[j];
            struct event event = p->end;
            if (!p->there)
                continue;
            event.type = EVENT_PAYLOAD;
            event.box = b->slot;
            event.payload = j;
            event.token = p->token;
            event.state = p->end.type != 0;
            event.n_held = (uint32_t)p->n_held;
            tell(k, event, p->held, p->n_held);
        }
    }
    tell(k, (struct event){ .type = EVENT_SYNCED }, NULL, 0);
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
    p->end = (struct event){ .type = EVENT_ENDED, .box = b->slot, .payload = slot, .token = p->token,
                             .signal = sig, .code = sig ? -1 : code, .wall_us = 1000,
                             .outcome = sig ? OUTCOME_KILLED : code ? OUTCOME_ERROR : OUTCOME_OK };
    tell(k, p->end, NULL, 0);
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
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(KEEPER_HELD * sizeof(int))];
    } control = { 0 };
    struct event *event = &k->queue[k->first].event;
    size_t n_fds = k->queue[k->first].n_fds;
    struct iovec part = { .iov_base = event, .iov_len = sizeof *event };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (n_fds) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), k->queue[k->first].fds, n_fds * sizeof(int));
    }
    ssize_t n = sendmsg(k->link, &message, MSG_NOSIGNAL);
    assert_true(n == sizeof *event || (n < 0 && errno == EPIPE));
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
    uint64_t store = frame_mount_number(q, MOUNT_STORE);
    *b = (struct fake_box){
        .there = true, .slot = q->head.box, .token = q->token, .store = store, .family = q->family
    };
    for (int i = 0; i < FAKE_PAYLOADS; i++)
        b->payload[i].out = -1;
    if (store)
        note_store(k, store, true);
    tell(k, (struct event){ .type = EVENT_READY, .box = b->slot, .token = b->token, .serial = q->head.serial }, NULL,
         0);
}

static void failed(struct fake_keeper *k, const struct fake_box *b, uint16_t slot, struct fake_payload *p)
{
    p->out = fd_close(p->out);
    p->end = (struct event){ .type = EVENT_FAILED, .box = b->slot, .payload = slot, .token = p->token };
    p->end.result = err_set(&p->end.err, EAGAIN, STEP_EXEC, "the fake zygote cannot");
    tell(k, p->end, NULL, 0);
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
    tell(k, (struct event){ .type = EVENT_STARTED, .box = b->slot, .payload = q->head.payload, .token = p->token,
                            .code = q->way == START_FORK }, NULL, 0);
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
        if (b->payload[i].there && !b->payload[i].end.type)
            ended(k, b, i, &b->payload[i], -1, SIGKILL);
    tell(k, (struct event){ .type = EVENT_GONE, .box = b->slot, .token = b->token, .serial = serial }, NULL, 0);
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
        if (p && p->there && !p->end.type)
            deliver(k, b, q->payload, p, ((const struct request_signal *)frame)->signal);
        break;
    case REQUEST_FORGET:
        if (p && p->end.type)
            end_payload(p);
        answer(k, q, 0);
        break;
    case REQUEST_STORE_REMOVE:
        note_store(k, ((const struct request_store *)frame)->store, false);
        answer(k, q, 0);
        break;
    case REQUEST_FAMILY:
        k->family[q->box] = ((const struct request_family *)frame)->token;
        tell(k, (struct event){ .type = EVENT_FAMILY, .box = q->box, .token = k->family[q->box], .serial = q->serial },
             NULL, 0);
        break;
    case REQUEST_FAMILY_END:
        answer(k, q, 0);
        tell(k, (struct event){ .type = EVENT_FAMILY_GONE, .box = q->box, .token = k->family[q->box] }, NULL, 0);
        k->family[q->box] = 0;
        break;
    default:
        answer(k, q, q->type == REQUEST_METER ? ENOTSUP : 0);
        break;
    }
}

static bool receive_one(struct fake_keeper *k)
{
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(KEEPER_FDS * sizeof(int))];
    } control;
    union {
        struct request_head   head;
        struct request_create create;
        char                  bytes[8192];
    } frame;
    struct iovec part = { .iov_base = &frame, .iov_len = sizeof frame };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    int fds[KEEPER_FDS];
    size_t n_fds = 0;

    ssize_t n = recvmsg(k->link, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        fake_disconnect(k);
        return true;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS) {
        n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(header), n_fds * sizeof(int));
    }
    assert_true(n >= (ssize_t)sizeof frame.head && frame.head.serial != 0);
    if (!strikes(k))
        take(k, &frame, fds, n_fds);
    for (size_t i = 0; i < n_fds; i++)
        fd_close(fds[i]);
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
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    int code = 0, pair[2];
    char byte;
    struct iovec part = { .iov_base = &code, .iov_len = sizeof code };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space
    };

    if (k->helper < 0 || recv(k->helper, &byte, 1, MSG_DONTWAIT) != 1)
        return false;
    fake_disconnect(k);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &pair[1], sizeof(int));
    assert_int_equal(sendmsg(k->helper, &message, MSG_NOSIGNAL), sizeof code);
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
