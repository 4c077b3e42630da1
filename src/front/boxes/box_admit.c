/* Whether a box may be made, or started again: its defaults, a slot of the keeper, quotas, secrets and keys. */
#include <errno.h>
#include <string.h>

#include "front/boxes/box_disk.h"
#include "front/boxes/box_private.h"
#include "front/boxes/pool.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/secrets/secret_uses.h"
#include "front/volumes/volumes.h"

/* Not the slot freed last: the keeper may still be ending a box there that an earlier front abandoned. */
uint32_t box_free_slot(const struct boxes *all)
{
    uint32_t used = 0;

    for (size_t i = 0; i < KEEPER_BOXES / 64; i++)
        used += (uint32_t)__builtin_popcountll(all->slot_used[i]);
    for (uint32_t k = 0; k < KEEPER_BOXES && used < all->most + pool_slots(all); k++) {
        uint32_t i = (all->next_slot + k) % KEEPER_BOXES;
        if (!(all->slot_used[i / 64] >> i % 64 & 1))
            return i;
    }
    return BOX_NO_SLOT;
}

int boxes_full(const struct boxes *all, struct err *e)
{
    return err_set(e, ENOSPC, STEP_USAGE,
                   all->most < KEEPER_BOXES
                       ? "this server holds %u boxes: for more it needs more open files (ulimit -n, LimitNOFILE)"
                       : "this server holds %u boxes and that is all it can", all->most);
}

static void fill_defaults(const struct config *config, struct box_settings *s)
{
    struct err ignored;         /* the configuration was checked at the start */

    limits_fill(&s->limits, &config->defaults);
    const struct config_template *template = config_template(config, box_mounts_template(&s->mounts));
    if (!s->net && !s->net_said && template && template->net[0])
        s->net = json_string(template->net);
    if (!s->keys && !s->keys_said && template && template->keys[0])
        (void)!keys_read("keys", template->keys, &s->keys, &ignored);
    if (!s->ttl_s)
        s->ttl_s = config->ttl_s;
    if (!s->idle_s)
        s->idle_s = config->idle_s;
    if (!s->env)
        s->env = json_object();
    if (!s->labels)
        s->labels = json_object();
}

int box_no_keeper(struct err *e)
{
    return err_set(e, ECONNREFUSED, STEP_HOST, "the server cannot reach its boxes now; try again in a moment");
}

int box_admit(struct front *front, const char *owner, const char *name, struct box_settings *s, struct err *e)
{
    int r = box_shares_settle(&front->config, s, e);

    if (r < 0)
        return r;
    fill_defaults(&front->config, s);
    if (!keeper_link_is_up(front->keeper))
        return box_no_keeper(e);
    r = box_volumes_default(front, owner, s, e);
    if (r < 0)
        return r;
    bool on_disk = box_mounts_on_disk(&s->mounts);
    if (on_disk && !front->boxes.can_store)
        return err_set(e, ENOTSUP, STEP_USAGE, "%s", front->boxes.why_no_store.what);
    if (!on_disk && s->limits.disk_bytes > s->limits.memory_bytes && s->limits.memory_bytes)
        return err_set(
            e, EINVAL, STEP_USAGE,
            "limits.disk is larger than limits.memory: a box keeps its files in its memory, so request less disk, "
            "for more memory, or for \"store\": \"disk\"");
    if (name) {
        struct box *other = boxes_find(front, owner, name);
        if (other && box_is_alive(other))
            return err_set(e, EEXIST, STEP_USAGE, "a box called %s exists already", name);
    }
    r = box_check_quota(front, owner, s, NULL, e);
    if (r == 0 && on_disk)
        r = box_disk_check(front, owner, s->limits.disk_bytes, e);
    if (r == 0)
        r = volumes_admit(front, owner, &s->mounts, NULL, e);
    if (r == 0)
        r = box_secrets_admit(front, owner, s, e);
    if (r == 0)
        r = keys_admit(front, owner, s, e);
    return r < 0 ? r : box_check_host(front, owner, s, NULL, e);
}

int box_admit_again(struct box *b, uint32_t *ret_slot, struct err *e)
{
    struct front *front = b->front;

    if (!keeper_link_is_up(front->keeper))
        return box_no_keeper(e);
    *ret_slot = box_free_slot(&front->boxes);
    if (*ret_slot == BOX_NO_SLOT)
        return boxes_full(&front->boxes, e);
    int r = box_check_quota(front, b->owner, &b->settings, b, e);
    if (r == 0)
        r = volumes_admit(front, b->owner, &b->settings.mounts, b, e);
    if (r == 0)
        r = secret_uses_admit(front, b->owner, b->settings.secrets, e);
    if (r == 0)
        r = keys_admit(front, b->owner, &b->settings, e);
    return r < 0 ? r : box_check_host(front, b->owner, &b->settings, b, e);
}

