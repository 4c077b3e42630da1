/* The ZeroMQ side of `carrel kernel`: the five sockets of a connection file. */
#ifndef CARREL_CLIENT_KERNEL_KERNEL_ZMQ_H
#define CARREL_CLIENT_KERNEL_KERNEL_ZMQ_H

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>

#include "base/err.h"
#include "zmtp/wire.h"

enum zmq_channel { ZMQ_SHELL, ZMQ_CONTROL, ZMQ_STDIN, ZMQ_IOPUB, ZMQ_HEARTBEAT, ZMQ_CHANNELS };
enum { ZMQ_PEERS = 128, ZMQ_ASKED = 4096, ZMQ_POLLS = ZMQ_CHANNELS + ZMQ_PEERS, ZMQ_ID = 128 };

struct zmq_peer {
    int              fd;            /* owned; -1: free */
    enum zmq_channel channel;
    uint64_t         number;        /* never reused */
    struct zmtp      zmtp;
};

struct zmq_side {
    struct wire_key key;
    int             listener[ZMQ_CHANNELS];     /* owned */
    char            path[ZMQ_CHANNELS][108];    /* of unix sockets; "" otherwise */
    struct zmq_peer peer[ZMQ_PEERS];
    uint64_t        next_number;
    struct {
        char     id[ZMQ_ID];
        uint64_t peer;
    } asked[ZMQ_ASKED];             /* requests waiting for an answer; the oldest are forgotten */
    unsigned        next_asked;
    /* A client's request with the right signature. header: parsed. */
    void          (*on_message)(const struct wire *w, enum kernel_channel channel, json_t *header, void *arg);
    void           *arg;
};

/* Reads the connection file and listens. */
MUST_CHECK int zmq_open(struct zmq_side *z, const char *connection_file, struct err *e);
void           zmq_close(struct zmq_side *z);

/* Fills in ZMQ_POLLS entries; then, after poll(2), handles them. */
void           zmq_poll(struct zmq_side *z, struct pollfd *fds);
void           zmq_work(struct zmq_side *z, const struct pollfd *fds);

/* Sends a message of the kernel on w->channel: to all subscribers, or to the client of the request. */
void           zmq_tell(struct zmq_side *z, const struct wire *w, const char *kernel_id);
/* Whether all messages have left this process. */
bool           zmq_is_flushed(const struct zmq_side *z);

#endif
