/* What a front that has just connected must know. */
#define _GNU_SOURCE
#include <string.h>

#include "keeper/egress.h"
#include "keeper/families.h"
#include "keeper/keeper.h"
#include "keeper/later.h"

static void tell_store(uint64_t number, uint64_t used_bytes, void *arg)
{
    struct event event = { .type = EVENT_STORE, .token = number, .usage.disk_bytes = used_bytes };
    keeper_tell(arg, &event, NULL, 0);
}

/* What a new front must know: every box and every payload, with the descriptors that the last one left in our care. */
void keeper_tell_all(struct keeper *keeper)
{
    struct event hello = { .type = EVENT_HELLO, .result = KEEPER_VERSION, .state = keeper->stores.driver != NULL,
                           .err = keeper->stores.why };

    hello.n_held = (uint32_t)keeper->n_templates;
    hello.walls = box_host_walls(&keeper->host);
    keeper_tell(keeper, &hello, NULL, 0);
    stores_each(&keeper->stores, tell_store, keeper);
    keeper_tell_families(keeper);
    for (uint32_t i = 0; i < KEEPER_BOXES; i++) {
        struct kept_box *box = keeper->box[i];
        if (!box)
            continue;
        keeper_freeze_cancel(keeper, box, false);
        box->create_serial = box->destroy_serial = 0;   /* the last front's numbers mean nothing to this one */
        if (box->dying)
            continue;
        struct event event = { .type = EVENT_BOX, .box = i, .token = box->token, .state = (uint32_t)box->box.state,
                               .outcome = box->box.has_network };
        if (box->family && keeper->family[box->family->slot] == box->family)
            event.code = (int32_t)box->family->slot + 1;
        else if (box->waiting && box->waiting->is_in_line)
            event.code = (int32_t)box->waiting->frame.family;
        keeper_tell(keeper, &event, &box->box.inlet, box->box.inlet >= 0);
        for (unsigned k = 0; k < KEEPER_PAYLOADS; k++) {
            struct kept_payload *p = box->payload[k];
            if (!p)
                continue;
            bool over = p->ended && !p->untold;
            struct event told = over ? p->end
                                     : (struct event){ .box = i, .payload = (uint16_t)k, .token = p->token,
                                                           .code = (int32_t)p->way };
            int fds[KEEPER_HELD + 1];
            size_t n = (size_t)p->n_held;
            memcpy(fds, p->held, n * sizeof(int));
            told.type = EVENT_PAYLOAD;
            told.state = over;
            told.n_held = (uint32_t)n;
            if (p->payload.terminal >= 0)
                fds[n++] = p->payload.terminal;
            keeper_tell(keeper, &told, fds, n);
        }
    }
    struct event synced = { .type = EVENT_SYNCED };
    keeper_tell(keeper, &synced, NULL, 0);
    keeper_egress_introduce(keeper);
}
