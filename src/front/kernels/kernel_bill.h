/* The bill of a cell: the processor time of its box from the last bill to the cell's end, and the memory peak. It is
 * read from the box's meter; without one the keeper is asked, and the answer comes later. A box without cgroups counts
 * neither, and its bill is empty. */
#ifndef CARREL_FRONT_KERNELS_KERNEL_BILL_H
#define CARREL_FRONT_KERNELS_KERNEL_BILL_H

#include <stdbool.h>
#include <stdint.h>

struct box;

/* Embedded in its owner. */
struct kernel_bill {
    struct box *box;
    bool        is_asked, is_there;
    bool        is_counted;                 /* the numbers below are known */
    uint64_t    baseline_us;                /* the box's processor time at the last bill */
    uint64_t    cpu_us, peak_bytes;         /* valid once it is complete */
    void (*on_there)(struct kernel_bill *b);    /* from the loop, if it was not complete at once; also without an
                                                 * answer */
};

/* The cell begins: requests a meter for the box. */
void kernel_bill_open(struct kernel_bill *b, struct box *box, void (*on_there)(struct kernel_bill *b));
/* Reads the usage now, once. True: the bill is complete; otherwise on_there() follows. asks_keeper: does not use the
 * meter; the keeper's earlier events about the box come before its answer. */
bool kernel_bill_close(struct kernel_bill *b, bool asks_keeper);
/* Closing it will need the keeper: better begin early. */
bool kernel_bill_takes_time(const struct kernel_bill *b);
/* Drops a pending answer. */
void kernel_bill_cancel(struct kernel_bill *b);

#endif
