/* Messages of WebSocket clients, in both protocols, and our own. */
#ifndef CARREL_DOORS_JUPYTER_MESSAGE_H
#define CARREL_DOORS_JUPYTER_MESSAGE_H

#include "doors/jupyter/door.h"

struct client_message {
    enum kernel_channel channel;
    struct iovec        part[KERNEL_PARTS];     /* into what came, or into header_text */
    struct iovec       *buffer;                 /* owned */
    unsigned            n_buffers;
    char               *header_text;            /* owned or NULL: the header with what was missing */
    char                type[48], id[SESSION_SIZE], session[SESSION_SIZE];      /* of the header */
};
/* Takes a message apart. data must outlive it. 0, -EINVAL (e says what is wrong), -ENOMEM. */
MUST_CHECK int client_message_read_v1(struct client_message *p, const char *data, size_t size, struct err *e);
MUST_CHECK int client_message_read_text(struct client_message *p, const char *data, size_t size, struct err *e);
MUST_CHECK int client_message_read_binary(struct client_message *p, const char *data, size_t size, struct err *e);
/* Checks the header and puts in what clients leave out: version, date, session, user name. */
MUST_CHECK int client_message_complete(struct client_message *p, const char *session, const char *user,
                                       struct err *e);
void           client_message_done(struct client_message *p);

/* A message of our own; each part is JSON. NULL: out of memory. */
struct kernel_message *message_make(enum kernel_channel channel, const char *type, const char *parent, json_t *content);
/* The default protocol's form of a message: text, or binary if it has buffers. NULL: out of memory. */
char *message_default(const struct kernel_message *m, size_t *ret_size, bool *ret_is_text);

#endif
