#include "server/doors.h"

#include "doors/jupyter/jupyter.h"
#include "doors/mcp/mcp.h"
#include "doors/native/native.h"

/* Tried in this order. */
const struct door *const server_doors[] = {
    &mcp_door,
    &jupyter_door,
    &native_door,       /* last, because it takes every remaining path */
    NULL
};
