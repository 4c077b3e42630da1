/* The list of src/server/doors.c with one door more. */
#include "server/doors.h"

#include "bell.h"
#include "doors/jupyter/jupyter.h"
#include "doors/mcp/mcp.h"
#include "doors/native/native.h"

const struct door *const server_doors[] = {
    &bell_door,
    &mcp_door,
    &jupyter_door,
    &native_door,
    NULL
};
