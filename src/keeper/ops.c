/* The operation table, after OpenSSH's monitor: every request is a row with its exact size, its number of descriptors,
 * whether its box and its payload must exist, and the states of the box in which it is legal. A request that does not
 * fit its row costs the front its connection. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "files/serve.h"
#include "keeper/create.h"
#include "keeper/egress.h"
#include "keeper/families.h"
#include "keeper/later.h"
#include "keeper/memory.h"
#include "keeper/network.h"
#include "keeper/opener.h"
#include "keeper/volumes.h"
#include "proto/checks.h"

struct keeper_call {
    struct keeper      *keeper;
    struct kept_box    *box;
    const void         *frame;
    int                *fds;
    size_t              n_fds;
    int                 reply_fd;       /* owned: sent with the answer; -1: none */
    bool                later;          /* the answer comes, or has come, with an event of its own */
};

#define STATE(s) (1u << (s))
enum {
    NO_BOX = STATE(BOX_NONE),
    LIVE = STATE(BOX_READY) | STATE(BOX_FROZEN),
    ANY = LIVE | STATE(BOX_MAKING),
};

static struct event_head answer_head(const struct keeper_call *c, enum event_type type)
{
    const struct request_head *q = c->frame;

    return (struct event_head){
        .type = (uint16_t)type, .payload = q->payload, .box = q->box, .serial = q->serial
    };
}

static int do_create(struct keeper_call *c, struct err *e)
{
    int r = keeper_create(c->keeper, c->frame, c->fds, c->n_fds, e);

    c->later = r == 0;
    return r;
}

static int do_store_remove(struct keeper_call *c, struct err *e)
{
    const struct request_store *q = c->frame;
    int r = keeper_check_store(c->keeper, q->store, e);

    return r < 0 ? r : store_remove(&c->keeper->stores, q->store, e);
}

void keeper_arm(struct keeper *keeper, struct kept_payload *p)
{
    uint64_t timeout_ms = p->is_in_line ? 0 : p->forking ? FAMILY_FORK_MS : p->timeout_ms;

    p->started_us = clock_monotonic_us();
    /* A century is as good as none, and cannot overflow. */
    p->deadline_us =
        timeout_ms && timeout_ms < UINT64_C(100) * 365 * 86400 * 1000 ? p->started_us + timeout_ms * 1000 : 0;
    keeper_note_deadline(keeper, p->deadline_us);
}

int keeper_watch_end(struct keeper *keeper, struct kept_box *box, unsigned slot, struct err *e)
{
    int r = keeper_watch(keeper, box->payload[slot]->payload.process.pidfd, WATCH_PAYLOAD_END, box->slot, slot);
    return r < 0 ? err_at(e, -r, STEP_MEMORY, 0, "watching the payload") : 0;
}

/* Puts a running or forking payload into its slot and watches it. */
static int keep_payload(struct keeper_call *c, unsigned slot, struct kept_payload *p, struct err *e)
{
    keeper_arm(c->keeper, p);
    p->oom_kills_before = c->box->oom_kills;
    p->pids_refused_before = c->box->pids_refused;
    c->box->payload[slot] = p;
    int r = p->is_in_line ? 0 : keeper_watch(c->keeper, p->payload.link, WATCH_PAYLOAD_LINK, c->box->slot, slot);
    if (r < 0)
        r = err_at(e, -r, STEP_MEMORY, 0, "watching the payload");
    else if (!p->forking)
        r = keeper_watch_end(c->keeper, c->box, slot, e);
    if (r < 0 && !p->forking) {
        (void)!process_signal(&p->payload.process, SIGKILL);
        keeper_reap_later(c->keeper, &p->payload.process);
    }
    if (r < 0)
        keeper_free_payload(c->keeper, c->box, slot);
    return r;
}

static int do_start(struct keeper_call *c, struct err *e)
{
    const struct request_start *q = c->frame;
    size_t n = 1, stdio_fds = (size_t)(!!q->has_stdio[0] + !!q->has_stdio[1] + !!q->has_stdio[2]);

    if (q->n_held > KEEPER_HELD || c->n_fds != 1 + stdio_fds + q->n_held || c->box->payload[q->head.payload]
        || q->way > START_FORK || q->user > 65536 || q->group > 65536)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "start");
    struct kept_payload *p = calloc(1, sizeof *p);
    if (!p)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "payload");
    const struct engine_box *box = &c->box->box;
    struct start start = { .packed = c->fds[0],
                           .uid = q->user ? q->user - 1 : box->uid,
                           .gid = q->group ? q->group - 1 : box->gid,
                           .fresh = box->family && q->way == START_EXEC };
    start.other_user = start.uid != box->uid || start.gid != box->gid;
    for (int i = 0; i < 3; i++)
        start.stdio[i] = q->has_stdio[i] ? c->fds[n++] : -1;
    int r;
    if (q->way == START_EXEC)
        r = box_start_payload(&c->box->box, &start, &p->payload, e);
    else if (start.other_user)
        r = err_at(e, EINVAL, STEP_USAGE, 0, "a forked payload is of the box's own user");
    else
        r = keeper_fork(c->box, p, &start, e);
    keeper_reap_later(c->keeper, &c->box->box.abandoned);
    if (r < 0) {
        free(p);
        return r;
    }
    p->token = q->token;
    p->timeout_ms = q->timeout_ms;
    for (p->n_held = 0; p->n_held < q->n_held; p->n_held++)
        p->held[p->n_held] = TAKE_FD(c->fds[n + (size_t)p->n_held]);
    return keep_payload(c, q->head.payload, p, e);
}

static int do_signal(struct keeper_call *c, struct err *e)
{
    const struct request_signal *q = c->frame;
    const struct kept_payload *p = c->box->payload[q->head.payload];

    if (q->signal < 1 || q->signal > 64)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "signal");
    if (p->ended)
        return err_at(e, ESRCH, STEP_WAIT, 0, "the command has ended");
    if (p->forking)
        return err_at(e, EBUSY, STEP_WAIT, 0, "the command has not started yet");
    int r = q->group ? process_signal_group(&p->payload.process, q->signal)
                     : process_signal(&p->payload.process, q->signal);
    return r < 0 ? err_at(e, -r, STEP_WAIT, 0, "signal") : 0;
}

static int do_freeze(struct keeper_call *c, struct err *e)
{
    const struct request_head *q = c->frame;
    int r = keeper_freeze(c->keeper, c->box, q->serial, e);

    c->later = r == 0;
    return r < 0 ? r : 0;
}

static int do_thaw(struct keeper_call *c, struct err *e)
{
    return box_thaw(&c->box->box, e);
}

static int do_limits(struct keeper_call *c, struct err *e)
{
    const struct request_limits *q = c->frame;
    int r = box_check_limits(&c->keeper->host, &q->limits, e);

    return r < 0 ? r : box_update_limits(&c->keeper->host, &c->box->box, &q->limits, e);
}

static int do_usage(struct keeper_call *c, struct err *e)
{
    struct event_usage usage = { .head = answer_head(c, EVENT_USAGE) };
    struct box_usage full;

    (void)e;
    keeper_door_speaks(c->keeper, c->box);
    keeper_usage(&c->box->box, &usage.usage, &full);
    keeper_tell(c->keeper, &usage, sizeof usage, NULL, 0);
    c->later = true;
    return 0;
}

static int do_socket(struct keeper_call *c, struct err *e)
{
    c->reply_fd = keeper_make_socket(&c->box->box, c->frame, e);
    return c->reply_fd < 0 ? c->reply_fd : 0;
}

static int do_meter(struct keeper_call *c, struct err *e)
{
    struct event_meter meter = { .head = answer_head(c, EVENT_METER) };
    FD cpu = -1, peak = -1;
    bool is_ns = false;

    if (c->box->box.has_leaf)
        cgroup_open_meter(&c->box->box.leaf, &cpu, &is_ns, &peak);
    if (cpu < 0 && peak < 0)
        return err_at(e, EOPNOTSUPP, STEP_CGROUP, 0, "nothing counts what the box uses");
    if (cpu >= 0)
        meter.files |= is_ns ? METER_CPU_NS : METER_CPU_US;
    if (peak >= 0)
        meter.files |= METER_MEMORY_PEAK;
    const int fds[METER_FDS] = { cpu >= 0 ? cpu : peak, peak };
    keeper_tell(c->keeper, &meter, sizeof meter, fds, (size_t)(cpu >= 0) + (peak >= 0));
    c->later = true;
    return 0;
}

static int do_files(struct keeper_call *c, struct err *e)
{
    const struct request_head *q = c->frame;
    struct kept_payload *p = calloc(1, sizeof *p);

    if (!p)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "file helper");
    int r = box_help(&c->box->box, c->fds[0], files_serve, &p->payload, e);
    if (r < 0) {
        free(p);
        return r;
    }
    p->is_helper = true;
    return keep_payload(c, q->payload, p, e);
}

static int do_close_input(struct keeper_call *c, struct err *e)
{
    const struct request_head *q = c->frame;
    struct kept_payload *p = c->box->payload[q->payload];

    (void)e;
    /* If standard input is held, it comes first. */
    if (p->n_held == KEEPER_HELD) {
        fd_close(p->held[0]);
        memmove(p->held, p->held + 1, sizeof p->held - sizeof p->held[0]);
        p->n_held--;
    }
    return 0;
}

static int do_forget(struct keeper_call *c, struct err *e)
{
    const struct request_head *q = c->frame;

    if (!c->box->payload[q->payload]->ended)
        return err_at(e, EBUSY, STEP_WAIT, 0, "the command still runs");
    keeper_free_payload(c->keeper, c->box, q->payload);
    return 0;
}

static int do_family(struct keeper_call *c, struct err *e)
{
    c->later = true;
    return keeper_make_family(c->keeper, c->frame, c->fds, c->n_fds, e);
}

static int do_family_end(struct keeper_call *c, struct err *e)
{
    c->later = true;
    return keeper_end_family(c->keeper, c->frame, e);
}

static int do_net(struct keeper_call *c, struct err *e)
{
    c->later = true;
    return keeper_egress_change(c->keeper, c->box, c->frame, e);
}

static int do_names(struct keeper_call *c, struct err *e)
{
    (void)e;
    keeper_begin_command(c->keeper, c->box);
    return 0;
}

static int do_destroy(struct keeper_call *c, struct err *e)
{
    const struct request_head *q = c->frame;

    (void)e;
    if (c->box->destroy_serial)
        return err_at(e, EALREADY, STEP_WAIT, 0, "the box is being destroyed");
    c->box->destroy_serial = q->serial;
    c->later = true;
    keeper_end_box(c->keeper, c->box, NULL);
    return 0;
}

static int do_layer(struct keeper_call *c, struct err *e)
{
    const struct request_layer *q = c->frame;

    if (strnlen(q->owner, sizeof q->owner) == sizeof q->owner || !q->owner[0]
        || strspn(q->owner, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(q->owner)
        || q->operation >= LAYER_OPERATIONS || q->template > c->keeper->n_templates
        || (q->template == 0) != (q->operation != LAYER_BUILD))
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "layer");
    return clerk_order(&c->keeper->clerk, q, c->fds, e);
}

static int do_volume(struct keeper_call *c, struct err *e)
{
    int r = keeper_change_volume(c->keeper, c->frame, e);

    c->later = r > 0;
    return r < 0 ? r : 0;
}

enum { CREATE_FDS = (int)KEEPER_MOUNTS + (int)CREATE_TRUST_FDS };
enum { NEEDS_PAYLOAD = 1, FREE_PAYLOAD = 2, NO_SLOT = 4 };

static const struct keeper_op {
    size_t   size;
    unsigned states;
    unsigned payload;               /* NEEDS_PAYLOAD: the slot is in use; NO_SLOT: the request concerns no box */
    size_t   least_fds, most_fds;
    int    (*run)(struct keeper_call *, struct err *);
} ops[REQUEST_COUNT] = {
    [REQUEST_CREATE]  = { sizeof(struct request_create), NO_BOX, 0, 0, CREATE_FDS, do_create },
    [REQUEST_START]   = { sizeof(struct request_start), STATE(BOX_READY), FREE_PAYLOAD, 1, 4 + KEEPER_HELD, do_start },
    [REQUEST_SIGNAL]  = { sizeof(struct request_signal), LIVE, NEEDS_PAYLOAD, 0, 0, do_signal },
    [REQUEST_FREEZE]  = { sizeof(struct request_head), STATE(BOX_READY), 0, 0, 0, do_freeze },
    [REQUEST_THAW]    = { sizeof(struct request_head), STATE(BOX_FROZEN), 0, 0, 0, do_thaw },
    [REQUEST_LIMITS]  = { sizeof(struct request_limits), LIVE, 0, 0, 0, do_limits },
    [REQUEST_USAGE]   = { sizeof(struct request_head), LIVE, 0, 0, 0, do_usage },
    [REQUEST_SOCKET]  = { sizeof(struct request_socket), STATE(BOX_READY), 0, 0, 0, do_socket },
    [REQUEST_FILES]   = { sizeof(struct request_head), STATE(BOX_READY), FREE_PAYLOAD, 1, 1, do_files },
    [REQUEST_CLOSE_INPUT] = { sizeof(struct request_head), LIVE, NEEDS_PAYLOAD, 0, 0, do_close_input },
    [REQUEST_FORGET]  = { sizeof(struct request_head), ANY | STATE(BOX_DEAD), NEEDS_PAYLOAD, 0, 0, do_forget },
    [REQUEST_DESTROY] = { sizeof(struct request_head), ANY, 0, 0, 0, do_destroy },
    [REQUEST_STORE_REMOVE] = { sizeof(struct request_store), NO_BOX, NO_SLOT, 0, 0, do_store_remove },
    [REQUEST_FAMILY]  = { sizeof(struct request_family), NO_BOX, NO_SLOT, 1, 2, do_family },
    [REQUEST_NET]     = { sizeof(struct request_net), STATE(BOX_READY), 0, 0, 0, do_net },
    [REQUEST_NAMES]   = { sizeof(struct request_head), LIVE, 0, 0, 0, do_names },
    [REQUEST_METER]   = { sizeof(struct request_head), LIVE, 0, 0, 0, do_meter },
    [REQUEST_LAYER]   = { sizeof(struct request_layer), NO_BOX, NO_SLOT, 2, 2, do_layer },
    [REQUEST_VOLUME]  = { sizeof(struct request_volume), NO_BOX, NO_SLOT, 0, 0, do_volume },
    [REQUEST_FAMILY_END] = { sizeof(struct request_family_end), NO_BOX, NO_SLOT, 0, 0, do_family_end },
};

/* 0, or why this request cannot be executed now. *ret_illegal: a correct front would never have sent it. */
static int check(const struct keeper_op *op, const struct kept_box *box, const struct request_head *head, struct err *e)
{
    enum box_state state = box ? box->box.state : BOX_NONE;

    if (box && box->dying && op->run != do_forget)
        return err_at(e, ENOENT, STEP_PROTOCOL, 0, "the box is going");
    if (!(op->states & STATE(state)))
        return box ? err_at(e, EBUSY, STEP_PROTOCOL, 0, "the box is not in a state for this")
                   : err_at(e, ENOENT, STEP_PROTOCOL, 0, "there is no such box");
    if (!box)
        return 0;
    if (box->freeze_us && !(op->states & STATE(BOX_FROZEN)))
        return err_at(e, EBUSY, STEP_PROTOCOL, 0, "the box is being frozen");
    if (op->payload == NEEDS_PAYLOAD && !box->payload[head->payload])
        return err_at(e, ENOENT, STEP_PROTOCOL, 0, "there is no such command");
    if (op->payload == FREE_PAYLOAD && box->payload[head->payload])
        return err_at(e, EBUSY, STEP_PROTOCOL, 0, "this command's number is in use");
    return 0;
}

bool keeper_request(struct keeper *keeper, const void *frame, size_t size, int *fds, size_t n_fds)
{
    const struct request_head *head = frame;
    bool legal = size >= sizeof *head && head->type > 0 && head->type < REQUEST_COUNT && head->box < KEEPER_BOXES
              && head->payload < KEEPER_PAYLOADS && head->serial != 0;
    const struct keeper_op *op = legal ? &ops[head->type] : NULL;

    legal = legal && op->run && size == op->size && n_fds >= op->least_fds && n_fds <= op->most_fds;
    if (legal) {
        struct keeper_call call = { .keeper = keeper,
                             .box = op->payload == NO_SLOT ? NULL : keeper->box[head->box],
                             .frame = frame,
                             .fds = fds,
                             .n_fds = n_fds,
                             .reply_fd = -1 };
        struct event_done done = { .head = answer_head(&call, EVENT_DONE) };
        int r = check(op, call.box, head, &done.err);
        if (r == 0 && op->payload == FREE_PAYLOAD)
            r = keeper_hold(keeper, call.box, frame, size, fds, n_fds, &done.err);
        call.later = r > 0;
        if (r == 0)
            r = op->run(&call, &done.err);
        done.head.result = r < 0 ? r : 0;
        if (!call.later || r < 0)
            keeper_tell(keeper, &done, sizeof done, &call.reply_fd, call.reply_fd >= 0);
        fd_close(call.reply_fd);
    }
    for (size_t i = 0; i < n_fds; i++)
        fds[i] = fd_close(fds[i]);
    return legal;
}
