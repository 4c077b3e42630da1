#define _GNU_SOURCE
#include "front/services/inlets.h"

#include <errno.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/box_parts.h"
#include "front/front.h"
#include "front/keeper_link.h"

struct inlet_opening {
    struct inlet_opening *next, **back;
    struct front   *front;
    uint64_t        box;            /* its number: it may be forgotten meanwhile */
    inlet_callback *call;           /* NULL: cancelled */
    void           *arg;
};

static void serve(struct box *box, int *fd)
{
    if (box->has_inlet)
        return;
    box->has_inlet = http_server_listen_inlet(box->front->http, TAKE_FD(*fd), INLET_TAG + box->slot) == 0;
    if (!box->has_inlet)
        front_log("error", "a box's inlet cannot be served", "box", box->id, NULL);
}

static void on_answer(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct inlet_opening *o = arg;
    struct box *box = box_by_slot(o->front, event->head.box);
    struct err e = event_failure(event) ? *event_failure(event) : (struct err){ 0 };

    LIST_REMOVE(o);
    if (box && box->number != o->box)
        box = NULL;
    if (box && n_fds > 0)
        serve(box, &fds[0]);
    if (!box || !box->has_inlet) {
        if (!e.code)
            (void)err_set(&e, ECONNRESET, STEP_NETWORK, "the box's port for its grants");
        if (e.code == EADDRINUSE)
            (void)err_set(&e, EEXIST, STEP_USAGE, "port %d of the box is taken, which its grants need",
                          KEEPER_INLET_PORT);
    }
    if (o->call)
        o->call(box, box && box->has_inlet ? NULL : &e, o->arg);
    free(o);
}

int inlet_open(struct box *box, inlet_callback *call, void *arg)
{
    struct request_socket q = { .head = { .type = REQUEST_SOCKET, .box = box->slot },
                                .use = SOCKET_LISTEN,
                                .port = KEEPER_INLET_PORT };

    if (box->has_inlet)
        return 1;
    struct inlet_opening *o = malloc(sizeof *o);
    if (!o)
        abort();
    *o = (struct inlet_opening){ .front = box->front, .box = box->number, .call = call, .arg = arg };
    LIST_ADD(box->front->inlet_openings, o);
    keeper_link_request(box->front->keeper, &q, sizeof q, NULL, 0, on_answer, o);
    return 0;
}

void inlets_cancel(struct front *front, void *arg)
{
    for (struct inlet_opening *o = front->inlet_openings; o; o = o->next)
        if (o->arg == arg)
            o->call = NULL;
}

static void on_release(struct box *box)
{
    if (!box->has_inlet)
        return;
    box->has_inlet = false;
    http_server_unlisten(box->front->http, INLET_TAG + box->slot);
}

/* Takes over an inlet that an earlier front opened. */
static void adopt(struct front *front, uint32_t slot, int *fd)
{
    struct box *box = box_by_slot(front, slot);

    if (box)
        serve(box, fd);
}

struct box *inlet_box(struct front *front, const struct http_peer *peer)
{
    return box_by_slot(front, peer->tag - INLET_TAG);
}

const struct box_part inlets_part = { .on_inlet = adopt, .on_release = on_release };
