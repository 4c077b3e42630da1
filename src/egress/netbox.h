/* A box as egress knows it: its sockets, its policy, its names and its connections. The parts of src/egress that do the
 * work share this header.
 *
 *   link.c    frames from keeper and front           netbox.c  the table of boxes, what they are told of
 *   answer.c  questions for names                    carry.c   one connection, from its first packet to its end
 *   hold.c    first packets, and answers to them */
#ifndef CARREL_EGRESS_NETBOX_H
#define CARREL_EGRESS_NETBOX_H

#include "egress/dial.h"
#include "egress/hello.h"
#include "egress/nametable.h"
#include "egress/packet.h"
#include "egress/pump.h"
#include "egress/refusallog.h"
#include "egress/resolve.h"
#include "proto/egress.h"

enum {
    NETBOX_MOST = 4096,
    NETBOX_BUCKETS = 1024,
    NETBOX_SOCKETS = 7,             /* bits of enum egress_socket */
    NETBOX_CONNECTIONS = 1024,      /* of a policy that does not say how many */
    NETBOX_CONNECTIONS_MOST = 65536,
    NETBOX_QUESTIONS = 64,          /* for names, under way at a time */
    NETBOX_TCP_QUESTIONERS = 16,    /* connections to the DNS socket */
    NETBOX_WAITING = 64,            /* buckets of connections that are not accepted yet */
};

struct link;
struct netbox;

/* The process. */
struct egress {
    struct loop      *loop;
    struct resolver  *resolver;
    struct pump_pipes pipes;
    struct netbox    *bucket[NETBOX_BUCKETS];
    unsigned          n_boxes;
    struct link      *links;
    struct link      *front;            /* where events go; NULL: there is none now */
    struct loop_timer tick;             /* once a second, while there is something to tell */
    int               spare_fd;         /* closed to accept, and refuse, when descriptors are short */
};

struct netbox_socket {
    struct loop_fd watch;
    struct netbox *box;
};

struct netbox {
    struct egress       *egress;
    struct netbox       *next, **back;
    uint64_t             id;
    struct link         *keeper;        /* over which its sockets came; NULL: it has none */
    uint32_t             way, has;
    struct netbox_socket socket[NETBOX_SOCKETS];
    struct net_policy   *policy;        /* only as many rules as it has; NULL: nothing is allowed */
    uint32_t             connections;
    struct pump_bucket   rate;
    struct nametable    *names;
    struct refusallog    refused;
    struct egress_usage  usage;
    bool                 usage_changed;
    struct carry        *carried;
    struct carry        *waiting[NETBOX_WAITING];
    struct answer_wait  *questions;
    struct answer_client *clients;
    unsigned             n_questions;   /* those, and connections whose name is being looked up */
    unsigned             n_clients;
};

/* --- netbox.c --- */
struct netbox *netbox_find(struct egress *e, uint64_t id);
/* NULL: there are too many, or memory is short. */
struct netbox *netbox_get(struct egress *e, uint64_t id);
/* Takes the sockets, also if it fails. */
int            netbox_attach(struct netbox *b, struct link *keeper, const struct egress_box *frame, const int *fds,
                             size_t n);
int            netbox_set_policy(struct netbox *b, const struct egress_policy *frame);
/* Cuts its connections and forgets it. */
void           netbox_remove(struct netbox *b);
/* Notes it and tells it, before the program in the box is answered. other may be NULL. */
void           netbox_refuse(struct netbox *b, enum egress_why why, const char *what, uint16_t port, const char *other);
void           netbox_changed(struct netbox *b);
void           netbox_show(struct netbox *b, struct link *to, uint32_t serial);
/* -1: the box has no such socket. */
int            netbox_fd(const struct netbox *b, enum egress_socket which);
void           netbox_on_tick(struct loop_timer *t);

/* --- answer.c --- */
void answer_on_udp(struct loop_fd *w, uint32_t events);
void answer_on_tcp(struct loop_fd *w, uint32_t events);
void answer_end_all(struct netbox *b);

/* --- carry.c --- */
enum carry_state {
    CARRY_LOOKUP,
    CARRY_DIAL,
    CARRY_READY,        /* EGRESS_HOLD: dialled; the box's packet was sent on, its connection is to be accepted */
    CARRY_FLOW,
    CARRY_PARTING,      /* refused with words; waits until the program has read them */
};

struct carry {
    struct netbox      *box;
    struct carry       *next, **back;
    struct carry       *next_waiting, **back_waiting;   /* EGRESS_HOLD, until it is accepted */
    enum carry_state    state;
    struct packet_ends  ends;
    struct packet_syn  *syn;                            /* EGRESS_HOLD, until it is accepted */
    char               *name;                           /* NULL: the program named the address */
    enum net_reach      reach;
    struct net_address  address;                        /* where it went */
    bool                is_own;                         /* that is the host */
    int                 client, upstream;               /* until they are the pump's */
    struct resolve_wait lookup;
    bool                is_question;                    /* it counts among the box's questions */
    struct dialing     *dialing;
    struct pump         pump;
    struct hello       *hello;                          /* while the first bytes are inspected */
    struct buf          held;
    struct loop_fd      parting;
    struct loop_timer   timer;
    uint64_t            since_ms;
};

/* A connection: with its client (EGRESS_TPROXY, EGRESS_LISTEN) or its first packet. Takes the client. */
void carry_open(struct netbox *b, const struct packet_ends *ends, int client, const struct packet_syn *syn);
void carry_on_accept(struct loop_fd *w, uint32_t events);
/* Ends what the present policy does not allow. */
void carry_judge_all(struct netbox *b);
void carry_end_all(struct netbox *b);
/* Ends it without an answer to the program. */
void carry_drop(struct carry *c);
void carry_show(const struct carry *c, struct egress_flow *ret);

/* --- hold.c --- */
void          hold_on_syn(struct loop_fd *w, uint32_t events);
struct carry *hold_find(const struct netbox *b, const struct packet_ends *ends);
void          hold_add(struct carry *c);
void          hold_remove(struct carry *c);
enum hold_answer { HOLD_GO_ON, HOLD_REFUSED, HOLD_UNREACHABLE, HOLD_PROHIBITED };
void          hold_answer(struct netbox *b, const struct packet_syn *syn, enum hold_answer answer);

/* --- link.c --- */
/* Takes fd, also if it fails. A link that is both is a run's own: the process ends with it. */
MUST_CHECK int link_open(struct egress *e, int fd, bool is_keeper, bool is_front);
/* False: there is no room now. */
bool link_tell(struct link *l, const void *frame, size_t size);
/* May it be told of usage by itself? */
bool link_wants_usage(const struct link *l);
void link_close_all(struct egress *e);

#endif
