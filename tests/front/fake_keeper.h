/* A keeper that is a table: it speaks the real frames with a real front over a socket pair, has no boxes, and can die,
 * or lose its connection, instead of taking or sending any one frame. Payloads that have a link are guests
 * (fake_guest.h), whose messages count as frames do: the same can happen instead of each of them, and more. */
#ifndef CARREL_TESTS_FRONT_FAKE_KEEPER_H
#define CARREL_TESTS_FRONT_FAKE_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "front/fake_guest.h"
#include "proto/events.h"

enum { FAKE_BOXES = 8, FAKE_PAYLOADS = 4, FAKE_STORES = 8, FAKE_QUEUE = 64, FAKE_FRAMES = 4096 };

enum frame_kind { FRAME_OF_KEEPER, MESSAGE_HEARD, MESSAGE_SAID };    /* by a guest */

enum fault_kind {
    FAULT_NONE,
    FAULT_KEEPER_DIES,      /* with all its boxes; what is on disk stays */
    FAULT_LINK_BREAKS,      /* the frame is lost, the boxes live */
    FAULT_CLIENT_GOES,      /* nothing is lost, but the client is gone before the answer */
    FAULT_FRONT_DIES,       /* the frame is lost with it; the next front finds the boxes */
    FAULT_GUESTS_DIE,       /* all of them; nothing else is lost */
    /* Instead of a message only: */
    FAULT_GUEST_HANGS,      /* until it is killed */
    FAULT_GUEST_CLOSES,     /* its link, and lives on */
    FAULT_GUEST_LIES,
    FAULT_MESSAGE_LOST,     /* the guest did not say or hear it */
    FAULT_MESSAGE_DOUBLED,  /* the guest said it twice */
    FAULT_KINDS
};

struct fake_payload {
    bool         there;
    union event  end;           /* ENDED or FAILED; type 0: it still runs */
    uint64_t     token;
    int          out;           /* owned: its standard output, if it is no guest; -1 */
    struct fake_guest *guest;   /* owned; NULL: it has no link */
    int          held[KEEPER_HELD]; /* owned: for the next front */
    size_t       n_held;
};

struct fake_box {
    bool                there, frozen;
    uint32_t            slot, family, flags;
    uint64_t            token, store;
    struct fake_payload payload[FAKE_PAYLOADS];
};

struct fake_keeper {
    int              helper;            /* owned: requests connections; -1 while there is no front */
    int              link;              /* owned; -1: not connected */
    struct fake_box  box[FAKE_BOXES];
    uint64_t         store[FAKE_STORES];    /* 0: none */
    uint64_t         family[KEEPER_FAMILIES];   /* its token; 0: none */
    bool             endless;           /* commands run until they are killed; else they say "hi" and end */
    bool             is_full;           /* boxes cannot be made */
    bool             cannot_fork;       /* zygotes */
    bool             guests_first;      /* what they say overtakes what the keeper says; else it is the other way */
    unsigned         frames;            /* taken and sent, also those that were lost; messages are among them */
    enum frame_kind  kind[FAKE_FRAMES]; /* of each, by its number */
    unsigned         fault_at;          /* instead of this one; 0: never */
    enum fault_kind  fault;
    bool             struck;            /* the fault has been; to clients and fronts the test sees */
    struct {
        union event event;
        size_t      size;
        int         fds[KEEPER_HELD];
        size_t      n_fds;
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
/* Those that were requested with all of these flags. */
unsigned         fake_count_flagged(const struct fake_keeper *k, uint32_t flags);
/* It ends by itself, and the front gets an event. */
void             fake_box_dies(struct fake_keeper *k, struct fake_box *b);

#endif
