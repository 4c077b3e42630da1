/* The options of `carrel mcp`: which tools, of which service or box, and the network of the boxes that it makes. */
#ifndef CARREL_CLIENT_MCP_OPTIONS_H
#define CARREL_CLIENT_MCP_OPTIONS_H

#include "client/client.h"
#include "proto/net.h"

enum { MCP_FLAGS = 6 };

struct mcp_options {
    const char *service, *box, *tools;      /* NULL: not given */
    json_t     *boxes;                      /* owned: {"net": …}, as for a new box */
    char        target[6144];               /* of every request, by mcp_make_target() */
};

extern const char        mcp_usage[];
extern const struct flag mcp_flags[MCP_FLAGS];     /* into a struct mcp_options with an object in boxes */

/* NULL, or the error. */
const char *mcp_make_target(struct mcp_options *o);
/* Prints the configuration for MCP clients. Returns the exit status. */
int         mcp_print_config(const struct mcp_options *o, const char *url);

#endif
