/* A message of a kernel in the layout of proto/kernel.h, with the fields that the front needs. */
#ifndef CARREL_FRONT_KERNELS_KERNEL_MESSAGE_H
#define CARREL_FRONT_KERNELS_KERNEL_MESSAGE_H

#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/jsonscan.h"
#include "front/links/guest_message.h"
#include "proto/kernel.h"

/* Shared by all its receivers; immutable. Each part is valid JSON. */
struct kernel_message {
    uint64_t             number;                /* counted up from 1 in its kernel */
    enum kernel_channel  channel;
    char                 type[48], id[96];      /* msg_type and msg_id of the header */
    char                 parent_type[48], parent_id[96], parent_session[96];    /* "" if missing */
    struct iovec         part[KERNEL_PARTS];    /* into raw.data */
    unsigned             n_buffers;
    struct guest_message raw;                   /* the message in v1 layout */
};
_Static_assert(offsetof(struct kernel_message, raw) % _Alignof(struct guest_message) == 0, "as the link allocates it");

/* The kernel_message of a link's message. */
struct kernel_message *kernel_message_of(struct guest_message *raw);
/* Room for a message of this size; NULL: no memory. */
struct kernel_message *kernel_message_new(size_t size);
void                   kernel_message_ref(struct kernel_message *m);
void                   kernel_message_unref(struct kernel_message *m);
/* Checks m->raw and fills in the rest. NULL if it is valid, else the error. */
const char            *kernel_message_read(struct kernel_message *m);
/* Builds one; it is checked, too. */
MUST_CHECK int         kernel_message_make(enum kernel_channel channel, const struct iovec part[KERNEL_PARTS],
                                           const struct iovec *buffer, unsigned n_buffers, struct kernel_message **ret,
                                           struct err *e);
struct jsonslice       kernel_message_part(const struct kernel_message *m, enum kernel_part part);
/* The i-th binary buffer. */
struct iovec           kernel_message_buffer(const struct kernel_message *m, unsigned i);

#endif
