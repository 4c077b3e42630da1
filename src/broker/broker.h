/* The process: its boxes, its links and its connections. Shared by the parts of src/broker that do the work.
 *
 *   link.c   frames of the owner and of egress      keybox.c  boxes, their keys, their certificates
 *   relay.c  one connection */
#ifndef CARREL_BROKER_BROKER_H
#define CARREL_BROKER_BROKER_H

#include "broker/authority.h"
#include "broker/message.h"
#include "broker/side.h"
#include "http/loop.h"

enum {
    BROKER_BOXES = 4096,
    BROKER_BUCKETS = 1024,
    BROKER_CONNECTIONS = 256,       /* of a box at a time */
    BROKER_CONNECTIONS_ALL = 2048,
    BROKER_FILE_MOST = 16 << 20,    /* of certificates */
};

struct broker_host {
    struct message_host rules;
    SSL_CTX            *tls;        /* with a certificate for it */
    uint64_t            issued_ms;
};

/* In the table under its number; or being described by KEY frames; or retired: replaced, and kept as long as it has
 * connections. */
struct keybox {
    struct broker     *broker;
    struct keybox  *next, **back;
    uint64_t           id;
    bool               is_retired;
    unsigned           owner;       /* which one sent it last, counted */
    struct authority   authority;
    size_t             n_keys, n_hosts;
    struct broker_host *host[BROKER_KEYS];
    struct broker_relay      *relays;
    unsigned           n_relays;
};

struct broker {
    struct loop      *loop;
    struct loop_fd    owner, egress;        /* fds are owned */
    unsigned          n_owners;             /* so far: a server's front may be restarted */
    bool              outlives_owner;
    char              why_unable[200];      /* "": it can. Else the owner gets this reason, and no box is taken */
    SSL_CTX          *outward;              /* for upstreams: verifies by the host's authorities */
    STACK_OF(X509)   *authorities;          /* of the host */
    struct keybox    *bucket[BROKER_BUCKETS], *retired;
    struct keybox    *draft;                /* owned: gets the KEY frames that come */
    unsigned          n_boxes, n_relays;
};

/* --- keybox.c--- */
/* The host's authorities, from a file of certificates. */
MUST_CHECK int    broker_read_authorities(struct broker *b, const char *path, struct err *e);
struct keybox *keybox_find(const struct broker *b, uint64_t id);
MUST_CHECK int    keybox_add_key(struct broker *b, const struct broker_key *frame, struct err *e);
/* The draft becomes the box, or replaces it. ret: two files for programs in the box, or -1, as the frame asks. */
MUST_CHECK int    keybox_make(struct broker *b, const struct broker_box *frame, int ret[2], struct err *e);
void              keybox_remove(struct broker *b, uint64_t id);
/* Those that the present owner has not sent. */
void              keybox_remove_others(struct broker *b);
void              keybox_remove_all(struct broker *b);
/* A retired one without connections is of no use. */
void              keybox_release(struct keybox *box);
/* NULL: the box has no key for it. */
struct broker_host *keybox_host(const struct keybox *box, const char *name);
/* A new TLS stream to the box or to the upstream; NULL: memory is short. */
SSL              *broker_tls_inward(struct keybox *box, struct broker_host *host);
SSL              *broker_tls_outward(struct broker *b, const char *host);

/* --- link.c --- */
/* Takes over fd. Replaces an earlier owner. */
MUST_CHECK int broker_link_owner(struct broker *b, int fd);
void           broker_links_close(struct broker *b);

/* --- relay.c --- */
/* Takes over both descriptors. */
void relay_open(struct keybox *box, struct broker_host *host, int from_box, int upstream);
/* The box may be freed with its last connection, if it is retired. */
void relay_end_all(struct keybox *box);

#endif
