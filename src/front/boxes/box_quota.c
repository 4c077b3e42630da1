/* Quotas of an identity over all its boxes. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "front/boxes/box_private.h"
#include "front/front.h"

/* A stopped box counts as a box, but uses neither memory nor processors. */
int box_check_quota(struct front *front, const char *owner, const struct box_settings *s, const struct box *self,
                       struct err *e)
{
    const struct config_quota *quota = &front->config.quota;
    uint64_t boxes = 1, memory = s->limits.memory_bytes, cpu = s->limits.cpu_milli;

    int r = box_check_request_quota(front, owner, s, self, e);

    if (r < 0 || (!quota->boxes && !quota->memory_bytes && !quota->cpu_milli))
        return r;
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (box_is_alive(b) && b != self && strcmp(b->owner, owner) == 0) {
            boxes++;
            if (b->phase == PHASE_STOPPED)
                continue;
            struct limits theirs = box_limits_to_come(b);
            memory += theirs.memory_bytes;
            cpu += theirs.cpu_milli;
        }
    if (quota->boxes && boxes > quota->boxes)
        return err_set(e, EDQUOT, STEP_USAGE, "%s may have %u boxes and has them all; delete one first", owner,
                       quota->boxes);
    if (quota->memory_bytes && memory > quota->memory_bytes)
        return err_set(e, EDQUOT, STEP_USAGE,
                       "%s may have boxes with %s of memory in all; with this one it would be %s", owner,
                       parse_show_size(quota->memory_bytes).text, parse_show_size(memory).text);
    if (quota->cpu_milli && cpu > quota->cpu_milli)
        return err_set(e, EDQUOT, STEP_USAGE,
                       "%s may have boxes with %u.%03u processors in all; with this one it would be %llu.%03u", owner,
                       quota->cpu_milli / 1000, quota->cpu_milli % 1000, (unsigned long long)cpu / 1000,
                       (unsigned)(cpu % 1000));
    return 0;
}

int box_check_growth(struct box *b, const struct limits *limits, struct err *e)
{
    const struct limits *now = &b->settings.limits;
    struct box_settings wanted = { .limits = *now };

    if (limits->memory_bytes)
        wanted.limits.memory_bytes = limits->memory_bytes;
    if (limits->cpu_milli)
        wanted.limits.cpu_milli = limits->cpu_milli;
    const struct limits *requests = &b->settings.requests;
    if (requests->memory_bytes > wanted.limits.memory_bytes && wanted.limits.memory_bytes)
        return err_set(e, EINVAL, STEP_USAGE, "limits.memory cannot be less than the box's requests.memory, which is "
                       "%s", parse_show_size(requests->memory_bytes).text);
    if (requests->cpu_milli > wanted.limits.cpu_milli && wanted.limits.cpu_milli)
        return err_set(e, EINVAL, STEP_USAGE, "limits.cpus cannot be less than the box's requests.cpus, which is %g",
                       requests->cpu_milli / 1000.0);
    if (wanted.limits.memory_bytes <= now->memory_bytes && wanted.limits.cpu_milli <= now->cpu_milli)
        return 0;
    int r = box_check_quota(b->front, b->owner, &wanted, b, e);
    if (r == 0 && wanted.limits.memory_bytes > now->memory_bytes)
        r = box_check_host(b->front, b->owner, &wanted, b, e);
    return r;
}
