/* The MCP door: /mcp for Carrel's own tools, /mcp/services/NAME for the functions of a service. */
#ifndef CARREL_DOORS_MCP_MCP_H
#define CARREL_DOORS_MCP_MCP_H

#include "front/door.h"

extern const struct door mcp_door;

#endif
