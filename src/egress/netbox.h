/* A box in egress: its sockets, its policy, its names and its connections. Shared by the parts of src/egress that do
 * the work.
 *
 *   link.c    frames from keeper and front           netbox.c  the table of boxes, reports about them
 *   answer.c  DNS queries                            carry.c   one connection, from its first packet to its end
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
#include "egress/fair.h"
#include "proto/egress.h"

enum {
    NETBOX_MOST = 4096,
    NETBOX_BUCKETS = 1024,
    NETBOX_SOCKETS = 7,             /* bits of enum egress_socket */
    NETBOX_CONNECTIONS = 1024,      /* of a policy without a number */
    NETBOX_CONNECTIONS_MOST = 65536,
    NETBOX_QUESTIONS = 1024,        /* queries and connections that wait for a lookup: cheap, many may wait for one
                                     * (lookups themselves: RESOLVE_BY_BOX) */
    NETBOX_TCP_QUESTIONERS = 16,    /* connections to the DNS socket */
    NETBOX_SHOWN = 1000,            /* connections in an answer to SHOW; its counts are of all */
    NETBOX_WAITING = 64,            /* buckets of connections that are not yet accepted */
};

struct link;
struct netbox;

/* The process. */
struct egress {
    struct loop      *loop;
    struct resolver  *resolver;
    struct pump_pipes pipes;
    struct fair_pool descriptors, lookups;
    struct netbox    *bucket[NETBOX_BUCKETS];
    unsigned          n_boxes;
    struct link      *links;
    struct link      *front;            /* for events; NULL: no front now */
    int               broker_fd;        /* owned: connections with a key go there; -1: no broker now */
    struct loop_timer tick;             /* once a second, while there is something to report */
    int               spare_fd;         /* closed so that a connection can be accepted and refused when descriptors are
                                         * short */
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
    struct net_policy   *policy;        /* allocated for its rules only; NULL: nothing is allowed */
    struct egress_brokered *brokered;   /* allocated for its names only; NULL: none */
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
    struct fair_share    descriptors;   /* of connections, dialling and questions; not its sockets */
    struct fair_share    lookups;       /* that it began and that have no answer yet */
    unsigned             n_questions;   /* queries, and connections that wait for a lookup */
    unsigned             n_clients;
    size_t               held_bytes;    /* of incomplete ClientHellos */
};

/* --- netbox.c --- */
struct netbox *netbox_find(struct egress *e, uint64_t id);
/* NULL: too many, or memory is short. */
struct netbox *netbox_get(struct egress *e, uint64_t id);
/* Takes over the sockets, also on failure. */
int            netbox_attach(struct netbox *b, struct link *keeper, const struct egress_box *frame, const int *fds,
                             size_t n);
int            netbox_set_policy(struct netbox *b, const struct egress_policy *frame);
int            netbox_set_brokered(struct netbox *b, const struct egress_brokered *frame);
/* Whether its connections to this name and port go through the broker. */
bool           netbox_is_brokered(const struct netbox *b, const char *name, uint16_t port);
/* Cuts its connections and forgets it. */
void           netbox_remove(struct netbox *b);
/* A command begins in it: its refusals are reported at once, also repeated ones. */
void           netbox_begin_command(struct netbox *b);
/* Records and reports it, before the program in the box is answered. other may be NULL. */
void           netbox_refuse(struct netbox *b, enum egress_why why, const char *what, uint16_t port, const char *other);
void           netbox_changed(struct netbox *b);
/* At once: the box may be gone before the next tick. */
void           netbox_tell_usage(struct netbox *b);
void           netbox_show(struct netbox *b, struct link *to, uint32_t serial);
/* A connection, or -errno. Without descriptors it resets the first connection in the queue, which would otherwise be
 * reported again and again. */
int            netbox_accept(struct egress *e, int listener);
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
    CARRY_READY,        /* EGRESS_HOLD: dialled; the box's packet was sent again, and its connection will be accepted */
    CARRY_FLOW,
    CARRY_PARTING,      /* refused in the program's protocol; waits until the program has read it */
};

struct carry {
    struct netbox      *box;
    struct carry       *next, **back;
    struct carry       *next_waiting, **back_waiting;   /* EGRESS_HOLD, until it is accepted */
    enum carry_state    state;
    struct packet_ends  ends;
    struct packet_syn  *syn;                            /* EGRESS_HOLD, until it is accepted */
    bool                has_share;                      /* two descriptors of its box's */
    char               *name;                           /* NULL: the program used the address directly */
    bool                is_brokered;                    /* its upstream is the broker's */
    enum net_reach      reach;
    struct net_address  address;                        /* the destination */
    bool                is_own;                         /* the destination is the host */
    int                 client, upstream;               /* until they are the pump's */
    struct resolve_wait lookup;
    bool                is_question;                    /* counted among the box's queries */
    struct dialing     *dialing;
    struct pump         pump;
    struct hello       *hello;                          /* while the first bytes are inspected */
    struct buf          held;
    struct loop_fd      parting;
    struct loop_timer   timer;
    uint64_t            since_ms;
};

/* Starts a connection, with its client (EGRESS_TPROXY) or its first packet. Takes over the client. */
void carry_open(struct netbox *b, const struct packet_ends *ends, int client, const struct packet_syn *syn);
void carry_on_accept(struct loop_fd *w, uint32_t events);
/* Ends connections that the present policy refuses. */
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
/* Passes a connection on: the broker gets both descriptors, which stay the caller's. 0 or -errno. */
MUST_CHECK int link_tell_broker(struct egress *e, uint64_t box, const char *host, const int fds[2]);
/* Takes over fd, also on failure. A link that is both is a run's own: the process ends with it. */
MUST_CHECK int link_open(struct egress *e, int fd, bool is_keeper, bool is_front);
/* Whether a frame waits to be read. NULL: none. */
bool           link_has_frame(const struct link *l);
/* False: no room now. */
bool link_tell(struct link *l, const void *frame, size_t size);
/* Whether usage is reported without a request. */
bool link_wants_usage(const struct link *l);
void link_close_all(struct egress *e);

#endif
