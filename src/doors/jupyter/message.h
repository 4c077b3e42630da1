/* Messages of WebSocket clients, in both protocols, and our own. */
#ifndef CARREL_DOORS_JUPYTER_MESSAGE_H
#define CARREL_DOORS_JUPYTER_MESSAGE_H

#include "doors/jupyter/door.h"

struct client_message {
    enum kernel_channel channel;
    struct iovec        part[KERNEL_PARTS];     /* into the received bytes, or into header_text */
    struct iovec       *buffer;                 /* owned */
    unsigned            n_buffers;
    char               *header_text;            /* owned or NULL: the completed header */
    char                type[48], id[SESSION_SIZE], session[SESSION_SIZE];      /* of the header */
};
/* Parses a message. data must outlive it. 0, -EINVAL (e says what is wrong), -ENOMEM. */
MUST_CHECK int client_message_read_v1(struct client_message *p, const char *data, size_t size, struct err *e);
MUST_CHECK int client_message_read_text(struct client_message *p, const char *data, size_t size, struct err *e);
MUST_CHECK int client_message_read_binary(struct client_message *p, const char *data, size_t size, struct err *e);
/* Checks the header and adds what clients omit: version, date, session, user name. */
MUST_CHECK int client_message_complete(struct client_message *p, const char *session, const char *user,
                                       struct err *e);
void           client_message_done(struct client_message *p);

/* A message of the server itself; each part is JSON. NULL: out of memory. */
struct kernel_message *message_make(enum kernel_channel channel, const char *type, const char *parent, json_t *content);
/* A message in the default protocol's form: text, or binary if it has buffers. NULL: out of memory. */
char *message_default(const struct kernel_message *m, size_t *ret_size, bool *ret_is_text);

#endif
