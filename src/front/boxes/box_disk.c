#define _GNU_SOURCE
#include "front/boxes/box_disk.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "front/boxes/box_private.h"
#include "front/front.h"
#include "front/volumes/volumes.h"

/* Not counted: otherwise an identity that has promised all of its disk to volumes could start no command. */
#define OUTPUT_FREE (UINT64_C(64) << 20)

struct disk_use box_disk_use(const struct front *front, const char *owner)
{
    struct disk_use use = { .volumes = volumes_promised(front, owner, NULL) };

    for (const struct box *b = front->boxes.first; b; b = b->next) {
        if (!box_is_alive(b) || (owner && strcmp(b->owner, owner) != 0))
            continue;
        if (box_mounts_on_disk(&b->settings.mounts))
            use.boxes += b->settings.limits.disk_bytes;
        FOR_PARTS(front, part, disk_bytes)
            use.output += part->disk_bytes(b);
    }
    return use;
}

uint64_t box_disk_sum(const struct disk_use *use)
{
    return use->volumes + use->boxes + (use->output > OUTPUT_FREE ? use->output - OUTPUT_FREE : 0);
}

int box_disk_check(const struct front *front, const char *owner, uint64_t more, struct err *e)
{
    uint64_t most = front->config.quota.disk_bytes;

    if (!most)
        return 0;
    struct disk_use use = box_disk_use(front, owner);
    bool is_command = more == 0;
    if (is_command ? use.output <= OUTPUT_FREE || box_disk_sum(&use) <= most : box_disk_sum(&use) + more <= most)
        return 0;
    return err_set(e, EDQUOT, STEP_USAGE, "%s may use %s of disk; volumes have %s of it, boxes on disk %s, kept output "
                   "%s: %s%s", owner, parse_show_size(most).text, parse_show_size(use.volumes).text,
                   parse_show_size(use.boxes).text, parse_show_size(use.output).text,
                   is_command ? "remove a box, and its output goes" : parse_show_size(more).text,
                   is_command ? "" : use.volumes > use.boxes ? " more do not fit; remove a volume"
                   : use.boxes + use.output          ? " more do not fit; remove a box" : " more do not fit");
}
