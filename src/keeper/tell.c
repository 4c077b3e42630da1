/* Events for a front that has just connected. */
#define _GNU_SOURCE
#include <string.h>

#include "keeper/egress.h"
#include "keeper/families.h"
#include "keeper/keeper.h"
#include "keeper/later.h"
#include "keeper/volumes.h"

static void tell_store(uint64_t number, uint64_t used_bytes, void *arg)
{
    const struct event_store event = { .head.type = EVENT_STORE, .store = number, .used_bytes = used_bytes };
    keeper_tell(arg, &event, sizeof event, NULL, 0);
}

/* With the descriptors that the last front left in our care. */
static void tell_payload(struct keeper *keeper, uint32_t box, uint16_t slot, const struct kept_payload *p)
{
    struct event_payload event = { .head = { .type = EVENT_PAYLOAD, .box = box, .payload = slot },
                                   .token = p->token, .way = p->way, .has_ended = p->ended && !p->untold,
                                   .n_held = (uint32_t)p->n_held };
    int fds[KEEPER_HELD + 1];
    size_t n = (size_t)p->n_held;

    memcpy(fds, p->held, n * sizeof(int));
    if (p->payload.terminal >= 0)
        fds[n++] = p->payload.terminal;
    keeper_tell(keeper, &event, sizeof event, fds, n);
    if (event.has_ended)
        keeper_tell_end(keeper, p);
}

static void tell_box(struct keeper *keeper, const struct kept_box *box)
{
    struct event_box event = { .head = { .type = EVENT_BOX, .box = box->slot }, .token = box->token,
                               .state = box->box.state, .has_network = box->box.has_network };

    if (box->family && keeper->family[box->family->slot] == box->family)
        event.family = box->family->slot + 1;
    else if (box->waiting && box->waiting->is_in_line)
        event.family = box->waiting->frame.family;
    keeper_tell(keeper, &event, sizeof event, &box->box.inlet, box->box.inlet >= 0);
    for (uint16_t i = 0; i < KEEPER_PAYLOADS; i++)
        if (box->payload[i])
            tell_payload(keeper, box->slot, i, box->payload[i]);
}

void keeper_tell_all(struct keeper *keeper)
{
    const struct event_hello hello = { .head.type = EVENT_HELLO,
                                       .version = KEEPER_VERSION,
                                       .n_templates = (uint32_t)keeper->n_templates,
                                       .can_store = keeper->stores.driver != NULL,
                                       .most_boxes = keeper->boxes_most,
                                       .walls = box_host_walls(&keeper->host),
                                       .volumes = keeper->volumes.dir < 0        ? VOLUMES_NONE
                                                  : keeper->volumes.are_folders ? VOLUMES_FREE
                                                                                : VOLUMES_LIMITED,
                                       .memory_bound = cgroup_memory_bound(&keeper->host.cgroups),
                                       .why_no_store = keeper->stores.why };
    const struct event_head synced = { .type = EVENT_SYNCED };

    keeper_tell(keeper, &hello, sizeof hello, NULL, 0);
    stores_each(&keeper->stores, tell_store, keeper);
    keeper_tell_volumes(keeper);
    keeper_tell_families(keeper);
    for (uint32_t i = 0; i < KEEPER_BOXES; i++) {
        struct kept_box *box = keeper->box[i];
        if (!box)
            continue;
        keeper_freeze_cancel(keeper, box, false);
        /* The last front's numbers mean nothing to this one. */
        box->create_serial = box->destroy_serial = box->net_serial = 0;
        if (!box->dying)
            tell_box(keeper, box);
    }
    keeper_tell(keeper, &synced, sizeof synced, NULL, 0);
    keeper_egress_introduce(keeper);
}
