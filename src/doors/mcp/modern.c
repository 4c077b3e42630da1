/* Reports to the client what envelope.c found wrong with its request. */
#define _GNU_SOURCE
#include <string.h>

#include "doors/mcp/door.h"

#define META "io.modelcontextprotocol/"

json_t *mcp_versions_json(void)
{
    json_t *list = json_array();

    for (size_t i = 0; mcp_versions[i]; i++)
        (void)!json_array_append_new(list, json_string(mcp_versions[i]));
    return list;
}

static json_t *meta(const struct mcp_call *c, const char *member)
{
    return json_object_get(json_object_get(c->m.params, "_meta"), member);
}

bool mcp_check(struct mcp_call *c)
{
    struct mcp_fault why;

    if (mcp_fields_check(&c->r->head, &c->m, &why))
        return true;
    mcp_error_data(c, why.code, why.text,
                   why.code == MCP_UNSUPPORTED_VERSION
                       ? json_pack("{s:o,s:O}", "supported", mcp_versions_json(), "requested",
                                   meta(c, META "protocolVersion"))
                       : NULL);
    return false;
}

bool mcp_modern_arguments(struct mcp_call *c, const char *schema, const json_t *arguments)
{
    struct mcp_fault why;

    if (mcp_arguments_check(&c->r->head, schema, arguments, &why))
        return true;
    mcp_error_data(c, why.code, why.text, NULL);
    return false;
}

bool mcp_needs(struct mcp_call *c, const char *capability)
{
    if (json_object_get(meta(c, META "clientCapabilities"), capability))
        return true;
    mcp_error_data(c, MCP_MISSING_CAPABILITY, "this needs a capability that the client did not declare",
                   json_pack("{s:{s:{}}}", "requiredCapabilities", capability));
    return false;
}
