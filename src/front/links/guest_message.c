#include "front/links/guest_message.h"

#include <stdlib.h>
#include <string.h>

struct guest_message *guest_message_new(size_t before, size_t size)
{
    char *block = malloc(before + sizeof(struct guest_message) + size + 1);

    if (!block)
        return NULL;
    memset(block, 0, before);
    struct guest_message *m = (struct guest_message *)(void *)(block + before);
    *m = (struct guest_message){ .refs = 1, .before = before, .size = size };
    m->data[size] = '\0';
    return m;
}

void guest_message_ref(struct guest_message *m)
{
    m->refs++;
}

void guest_message_unref(struct guest_message *m)
{
    if (m && --m->refs == 0)
        free(guest_message_block(m));
}
