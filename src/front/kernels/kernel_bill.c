#include "front/kernels/kernel_bill.h"

#include "front/boxes/boxes.h"

void kernel_bill_open(struct kernel_bill *b, struct box *box, void (*on_there)(struct kernel_bill *b))
{
    *b = (struct kernel_bill){ .box = box, .baseline_us = box->billed_us, .on_there = on_there };
}

static void charge(struct kernel_bill *b, uint64_t cpu_us, uint64_t peak_bytes)
{
    uint64_t before_us = b->baseline_us > b->box->unbilled_us ? b->baseline_us : b->box->unbilled_us;

    b->is_counted = cpu_us > 0;         /* a box in which a cell ran has used some, if it is counted */
    b->cpu_us = cpu_us > before_us ? cpu_us - before_us : 0;
    b->peak_bytes = peak_bytes;
    b->box->billed_us = cpu_us;
}

static void on_usage(struct box *box, const struct frame_usage *u, const struct err *e, void *arg)
{
    struct kernel_bill *b = arg;

    (void)box;
    b->is_there = true;
    if (!e)
        charge(b, u->cpu_us, u->memory_peak_bytes);
    b->on_there(b);
}

bool kernel_bill_close(struct kernel_bill *b, bool asks_keeper)
{
    uint64_t cpu_us, peak_bytes;
    struct err ignored;

    if (b->is_asked)
        return b->is_there;
    b->is_asked = true;
    if (!asks_keeper && box_meter_read(b->box, &cpu_us, &peak_bytes)) {
        charge(b, cpu_us, peak_bytes);
        b->is_there = true;
    } else {
        b->is_there = box_usage(b->box, on_usage, b, &ignored) < 0;
    }
    return b->is_there;
}

bool kernel_bill_takes_time(const struct kernel_bill *b)
{
    return b->box->meter.cpu < 0;
}

void kernel_bill_cancel(struct kernel_bill *b)
{
    if (b->is_asked && !b->is_there)
        boxes_cancel(b->box->front, b);
}
