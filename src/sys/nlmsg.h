/* Netlink requests: messages with nested attributes, built in one buffer and sent at once. Async-signal-safe. */
#ifndef CARREL_SYS_NLMSG_H
#define CARREL_SYS_NLMSG_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct nlmsg {
    size_t   length, start;     /* of all messages; start of the open one */
    uint32_t serial;
    unsigned asked;             /* messages that the kernel acknowledges */
    bool     full;              /* something did not fit; sending fails */
    alignas(4) char data[8192];
};

void   nlmsg_init(struct nlmsg *m);

/* flags: added to NLM_F_REQUEST. With NLM_F_ACK the kernel answers. body: the header of the message's family. */
void   nlmsg_begin(struct nlmsg *m, uint16_t type, uint16_t flags, const void *body, size_t size);
void   nlmsg_end(struct nlmsg *m);

void   nlmsg_put(struct nlmsg *m, uint16_t type, const void *data, size_t size);
void   nlmsg_put_text(struct nlmsg *m, uint16_t type, const char *text);
void   nlmsg_put_u32(struct nlmsg *m, uint16_t type, uint32_t value);
void   nlmsg_put_be32(struct nlmsg *m, uint16_t type, uint32_t value);      /* big-endian, as netfilter wants it */
void   nlmsg_put_be16(struct nlmsg *m, uint16_t type, uint16_t value);
size_t nlmsg_nest(struct nlmsg *m, uint16_t type);
void   nlmsg_unnest(struct nlmsg *m, size_t nest);

/* Sends all and reads the answers. 0, or -errno of the first message that the kernel refused. */
MUST_CHECK int nlmsg_send(int fd, const struct nlmsg *m);

#endif
