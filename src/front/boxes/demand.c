/* A burst counts as many boxes as it has creates, but not more than it has boxes alive at a time: a client that creates
 * and destroys one after the other needs no more than one ahead, however fast it is. */
#include "front/boxes/demand.h"

void demand_note(struct demand *d, unsigned alive, uint64_t now_ms)
{
    if (!d->creates || now_ms - d->last_ms > DEMAND_GAP_MS) {
        d->creates = 0;
        d->least = alive;
    }
    d->last_ms = now_ms;
    d->creates++;
    if (alive < d->least)
        d->least = alive;
    unsigned together = alive + 1 - d->least;
    unsigned burst = d->creates < together ? d->creates : together;
    if (burst >= demand_now(d, now_ms)) {
        d->peak = burst;
        d->peak_ms = now_ms;
    }
}

unsigned demand_now(const struct demand *d, uint64_t now_ms)
{
    uint64_t halvings = (now_ms - d->peak_ms) / DEMAND_HALF_MS;

    return halvings < 32 ? d->peak >> halvings : 0;
}
