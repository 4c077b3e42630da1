/* The parts with state in boxes, and the owners of execs: the only file that knows them all. */
#include "front/boxes/box_parts.h"
#include "front/execs/exec_owner.h"
#include "front/front.h"
#include "front/kernels/kernels.h"
#include "front/services/grants.h"
#include "front/services/inlets.h"
#include "front/services/services.h"

/* At a box's end services are called first, so that they do not take the end of their worker for a crash. */
static const struct box_part *const parts[] = { &services_part, &execs_part,  &kernels_part,
                                                &grants_part,   &inlets_part, NULL };
static const struct exec_owner *const owners[] = { &kernels_exec_owner, &services_exec_owner, NULL };

void front_init_parts(struct front *front)
{
    front->parts = parts;
    front->exec_owners = owners;
}
