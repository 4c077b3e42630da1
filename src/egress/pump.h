/* Bytes between a connection of a box and one to the outside, both ways, by splice. A pipe is borrowed only while bytes
 * are in it; the end of one direction is passed on, and the other continues. */
#ifndef CARREL_EGRESS_PUMP_H
#define CARREL_EGRESS_PUMP_H

#include "http/loop.h"

/* How many bytes may pass, of all connections of a box together: in a second, if there is a rate, and in a turn of the
 * loop, so that boxes with many busy connections leave others their turns. */
struct pump_bucket {
    struct loop      *loop;
    uint64_t          rate;             /* bytes per second; 0: as many as come */
    uint64_t          left, filled_us;
    uint64_t          used;             /* in this turn */
    struct loop_task  turn;             /* pending while used is not 0 */
    struct pump_side *thirsty, **last;  /* queue of waiting sides */
    struct loop_timer timer;
};

void     pump_bucket_set(struct pump_bucket *b, struct loop *l, uint64_t rate);
void     pump_bucket_done(struct pump_bucket *b);
/* Pure: how many bytes may pass now, at most a tenth of a second's worth. */
uint64_t pump_bucket_fill(struct pump_bucket *b, uint64_t now_us);

/* Unused pipes, for all pumps of a loop. */
struct pump_pipes {
    int      spare[16][2];
    unsigned n_spare;
    unsigned n_out;             /* with bytes in them */
    unsigned most_out;
};

void pump_pipes_done(struct pump_pipes *p);

/* resets: closing the socket, which the kernel does if this process dies, gives its peer an error instead of an end,
 * and drops unsent bytes. Set from the first moment and cleared once all bytes are the kernel's, so that no program
 * takes half of a transfer for all of it. */
void pump_close_resets(int fd, bool resets);

struct pump;

/* One end, and the bytes read from it. */
struct pump_side {
    struct loop_fd    watch;            /* owns the fd */
    struct pump      *pump;
    int               pipe[2];          /* -1: none */
    unsigned          stuck;            /* bytes in it */
    bool              is_held;          /* on_held reads it, until pump_release */
    bool              has_hung_up;
    bool              has_ended;        /* nothing more will be read */
    bool              end_is_told;      /* to the other side */
    bool              is_blocked;    /* the other side took nothing from a copy; wait for it */
    bool              is_thirsty;
    struct pump_side *next_thirsty;
    uint64_t          bytes;            /* passed on */
};

struct pump {
    struct loop        *loop;
    struct pump_pipes  *pipes;
    struct pump_bucket *bucket;
    struct pump_side    side[2];
    /* The first side is held and readable: its owner reads it, and calls pump_pass, pump_release or pump_stop. */
    void (*on_held)(struct pump *p);
    /* Both directions have ended (0), or one connection broke (-errno). The pump is stopped and may be freed. */
    void (*on_end)(struct pump *p, int code);
};

/* Takes over both descriptors, also on failure; until it stops, a death of this process resets both. held: on_held
 * reads the first. */
int  pump_start(struct pump *p, int first, int second, bool held);
/* From on_held: passes bytes read from the first side to the second; at most 64 KiB. */
int  pump_pass(struct pump *p, const void *data, size_t size);
void pump_release(struct pump *p);
/* Closes both ends. with_reset: each peer sees an error instead of an end. */
void pump_stop(struct pump *p, bool with_reset);

#endif
