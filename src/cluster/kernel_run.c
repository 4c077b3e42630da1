#include "cluster/controller.h"
static void run(struct work *w) { work_rest(w, 0); }
const struct reconciler kernel_reconciler = { .kind = KIND_KERNEL, .noun = "kernel", .api_version = "jupyter.org/v1", .kind_name = "Kernel", .run = run };
