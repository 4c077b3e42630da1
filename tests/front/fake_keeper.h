/* A keeper that is a table: it speaks the real frames with a real front over a socket pair, has no boxes, and can die,
 * or lose its connection, instead of taking or sending any one frame. */
#ifndef CARREL_TESTS_FRONT_FAKE_KEEPER_H
#define CARREL_TESTS_FRONT_FAKE_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/keeper.h"

enum { FAKE_BOXES = 8, FAKE_PAYLOADS = 4, FAKE_STORES = 8, FAKE_QUEUE = 64 };

enum fault_kind {
    FAULT_NONE,
    FAULT_KEEPER_DIES,      /* with all its boxes; what is on disk stays */
    FAULT_LINK_BREAKS,      /* the frame is lost, the boxes live */
    FAULT_CLIENT_GOES,      /* nothing is lost, but nobody waits for the answer any more */
    FAULT_FRONT_DIES,       /* the frame is lost with it; the next front finds the boxes */
    FAULT_KINDS
};

struct fake_payload {
    bool         there;
    struct event end;           /* type 0: it still runs */
    uint64_t     token;
    int          out;           /* owned: its standard output; -1 */
    int          held[KEEPER_HELD]; /* owned: for the next front */
    size_t       n_held;
};

struct fake_box {
    bool                there, frozen;
    uint32_t            slot, family;
    uint64_t            token, store;
    struct fake_payload payload[FAKE_PAYLOADS];
};

struct fake_keeper {
    int              helper;            /* owned: who asks for connections; -1 while there is no front */
    int              link;              /* owned; -1: not connected */
    struct fake_box  box[FAKE_BOXES];
    uint64_t         store[FAKE_STORES];    /* 0: none */
    uint64_t         family[KEEPER_FAMILIES];   /* its token; 0: none */
    bool             endless;           /* commands run until they are killed; else they say "hi" and end */
    bool             is_full;           /* boxes cannot be made */
    unsigned         frames;            /* taken and sent, also those that were lost */
    unsigned         fault_at;          /* instead of this one; 0: never */
    enum fault_kind  fault;
    bool             struck;            /* the fault has been; of the last two kinds the test sees to the rest */
    struct {
        struct event event;
        int          fds[KEEPER_HELD];
        size_t       n_fds;
    } queue[FAKE_QUEUE];                /* of events that are to be sent; the descriptors are borrowed */
    size_t           first, n;
};

void fake_open(struct fake_keeper *k);
/* The front's end of the pair on which it asks for connections. The one before is gone. */
int  fake_dial(struct fake_keeper *k);
/* Does what there is to do, one frame at most. True: there was something. */
bool fake_turn(struct fake_keeper *k);
bool fake_has_work(const struct fake_keeper *k);
void fake_disconnect(struct fake_keeper *k);
void fake_close(struct fake_keeper *k);

struct fake_box *fake_box_by_token(struct fake_keeper *k, uint64_t token);
unsigned         fake_count_boxes(const struct fake_keeper *k);

#endif
