/* Which boxes have a volume, and which may. One box writes to a volume, or several if it was made for that; any number
 * reads. A stopped box does not keep others away: it is checked again when it starts. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "front/boxes/box_parts.h"
#include "front/front.h"
#include "front/volumes/volume_private.h"

static const struct box_mount *mount_of(const struct box *b, uint64_t number)
{
    const struct box_mounts *list = &b->settings.mounts;

    for (uint32_t i = 0; i < list->n; i++)
        if (list->at[i].kind == MOUNT_VOLUME && list->at[i].number == number)
            return &list->at[i];
    return NULL;
}

const struct box *volume_user(const struct volume *v, const struct box *self, bool writers_only, bool also_stopped)
{
    for (const struct box *b = v->front->boxes.first; b; b = b->next) {
        const struct box_mount *m = box_is_alive(b) && b != self ? mount_of(b, v->number) : NULL;
        if (m && (m->writable || !writers_only) && (also_stopped || b->phase != PHASE_STOPPED))
            return b;
    }
    return NULL;
}

/* Boxes of others are not named. */
static int in_use(const struct box *b, const char *owner, const char *what, const char *fix, struct err *e)
{
    bool is_own = strcmp(b->owner, owner) == 0;

    return err_set(e, ETXTBSY, STEP_USAGE, "%s%s%s%s%s%s; %s", is_own ? "the box " : "a box of ",
                   is_own ? b->id : b->owner, is_own && b->name ? " (" : "", is_own && b->name ? b->name : "",
                   is_own && b->name ? ")" : "", what, fix);
}

int volume_check_unused(const struct volume *v, const char *what, struct err *e)
{
    char text[96];
    const struct box *b = volume_user(v, NULL, false, true);

    snprintf(text, sizeof text, "delete it before the volume %s", what);
    const char *has = b && b->phase == PHASE_STOPPED ? " is stopped and has the volume" : " has the volume";
    return b ? in_use(b, v->owner, has, text, e) : 0;
}

bool volume_state_allows(const struct volume *v, struct err *e)
{
    static const char *const why[VOLUME_STATES] = {
        [VOLUME_MAKING] = "is being made; try again in a moment",
        [VOLUME_GROWING] = "is growing; try again in a moment",
        [VOLUME_REMOVING] = "is being removed",
        [VOLUME_LOST] = "has lost its files: this server's disk does not have them",
    };

    if (why[v->state])
        (void)err_set(e, EBUSY, STEP_USAGE, "the volume %s %s", v->name, why[v->state]);
    return !why[v->state];
}

static int admit_one(struct front *front, const char *owner, const struct box_mount *m, const struct box *self,
                     struct err *e)
{
    char room[VOLUME_NAME_SIZE];
    const struct volume *v = volume_by_number(front, m->number);
    bool is_own = v && strcmp(v->owner, owner) == 0;

    if (!v || (!is_own && !volume_is_shared_with(v, owner)))
        return err_set(e, ENOENT, STEP_USAGE, "volumes: there is no volume '%.80s' for %s any more",
                       m->source ? m->source : "", owner);
    const char *name = volume_name_for(v, owner, room);
    if (!volume_state_allows(v, e))
        return -e->code;
    if (!is_own && m->writable)
        return err_set(e, EPERM, STEP_USAGE, "the volume %s is shared for reading; ask for it with \"read_only\": true "
                       "(--volume %s:%.60s:ro)", name, name, m->target);
    const struct box *writer = m->writable && !v->many ? volume_user(v, self, true, false) : NULL;
    return writer ? in_use(writer, owner, " writes to the volume", "a volume made with --many has many writers; "
                           "read-only works at any time", e)
                  : 0;
}

int volumes_admit(struct front *front, const char *owner, const struct box_mounts *mounts, const struct box *self,
                  struct err *e)
{
    int r = 0;

    for (uint32_t i = 0; i < mounts->n && r == 0; i++)
        if (mounts->at[i].kind == MOUNT_VOLUME)
            r = admit_one(front, owner, &mounts->at[i], self, e);
    return r;
}
