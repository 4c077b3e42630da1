#include "proto/mounts.h"

#include <string.h>

#define MOUNT_ROW(name, most, flags) { #name, most, flags },
const struct mount_row mount_table[MOUNT_KINDS] = { MOUNT_ROWS(MOUNT_ROW) };
#undef MOUNT_ROW

struct frame_mount *frame_mount_add(struct frame_mounts *list, enum mount_kind kind, uint64_t number)
{
    struct frame_mount *mount = &list->at[list->n++];

    mount->kind = (uint8_t)kind;
    mount->number = number;
    return mount;
}

/* The list may come from another program. */
static size_t length(const struct frame_mounts *list)
{
    return list->n < KEEPER_LIST ? list->n : KEEPER_LIST;
}

const struct frame_mount *frame_mount_find(const struct frame_mounts *list, enum mount_kind kind)
{
    for (size_t i = 0; i < length(list); i++)
        if (list->at[i].kind == kind)
            return &list->at[i];
    return NULL;
}

uint64_t frame_mount_number(const struct frame_mounts *list, enum mount_kind kind)
{
    const struct frame_mount *mount = frame_mount_find(list, kind);

    return mount ? mount->number : 0;
}

static bool has_flag(const struct frame_mount *mount, unsigned flags)
{
    return mount->kind < MOUNT_KINDS && mount_table[mount->kind].flags & flags;
}

size_t frame_mount_flagged(const struct frame_mounts *list, unsigned flags)
{
    size_t n = 0;

    for (size_t i = 0; i < length(list); i++)
        n += has_flag(&list->at[i], flags);
    return n;
}

size_t frame_mount_count(const struct frame_mounts *list, enum mount_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < length(list); i++)
        n += list->at[i].kind == kind;
    return n;
}

bool frame_mounts_are_sane(const struct frame_mounts *list)
{
    if (list->n > KEEPER_LIST || frame_mount_flagged(list, MOUNT_IS_PLACE) > 1)
        return false;
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].kind >= MOUNT_KINDS)
            return false;
    for (int kind = 0; kind < MOUNT_KINDS; kind++)
        if (frame_mount_count(list, (enum mount_kind)kind) > mount_table[kind].most)
            return false;
    return true;
}

bool frame_mounts_equal(const struct frame_mounts *a, const struct frame_mounts *b, unsigned flags)
{
    size_t k = 0;

    if (frame_mount_flagged(a, flags) != frame_mount_flagged(b, flags))
        return false;
    for (size_t i = 0; i < length(a); i++) {
        if (!has_flag(&a->at[i], flags))
            continue;
        while (!has_flag(&b->at[k], flags))
            k++;
        if (memcmp(&a->at[i], &b->at[k++], sizeof a->at[i]) != 0)
            return false;
    }
    return true;
}
