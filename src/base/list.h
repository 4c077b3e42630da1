/* Lists of structs that carry their own links, and the way back from a member to its struct.
 *
 *     struct thing { struct thing *next, **back; ... };
 *
 * back is the pointer that leads to the thing: the head of the list or its neighbour's next. NULL: in no list. */
#ifndef CARREL_BASE_LIST_H
#define CARREL_BASE_LIST_H

#include <stddef.h>

/* The struct of this type that contains this member. */
#define container_of(pointer, type, member)                                                              \
    __extension__({                                                                                      \
        __typeof__(((type *)0)->member) *member_ = (pointer);                                            \
        (type *)(void *)((char *)member_ - offsetof(type, member));                                      \
    })

/* At the front of the list; head is the variable itself. */
#define LIST_ADD(head, thing)                                                                            \
    do {                                                                                                 \
        __typeof__(thing) added_ = (thing);                                                              \
        added_->next = (head);                                                                           \
        added_->back = &(head);                                                                          \
        if (added_->next)                                                                                \
            added_->next->back = &added_->next;                                                          \
        (head) = added_;                                                                                 \
    } while (0)

/* A thing that is in no list is left alone. */
#define LIST_REMOVE(thing)                                                                               \
    do {                                                                                                 \
        __typeof__(thing) gone_ = (thing);                                                               \
        if (!gone_->back)                                                                                \
            break;                                                                                       \
        *gone_->back = gone_->next;                                                                      \
        if (gone_->next)                                                                                 \
            gone_->next->back = gone_->back;                                                             \
        gone_->back = NULL;                                                                              \
    } while (0)

#endif
