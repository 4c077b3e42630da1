/* A message of a link, of any kind. */
#ifndef CARREL_FRONT_LINKS_GUEST_MESSAGE_H
#define CARREL_FRONT_LINKS_GUEST_MESSAGE_H

#include <stddef.h>

/* Shared by all its receivers; immutable. A NUL follows its bytes. */
struct guest_message {
    unsigned refs;
    size_t   before;            /* the owner's bytes before this struct, in the same allocation */
    size_t   size;
    char     data[];
};
/* The owner's bytes are zeroed. NULL: no memory. */
struct guest_message *guest_message_new(size_t before, size_t size);
void                  guest_message_ref(struct guest_message *m);
void                  guest_message_unref(struct guest_message *m);

/* The allocation that contains it. */
static inline void *guest_message_block(struct guest_message *m)
{
    return (char *)m - m->before;
}

#endif
