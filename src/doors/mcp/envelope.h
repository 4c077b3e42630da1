/* A JSON-RPC message and the HTTP fields that describe it. Needs no request and no server, so any bytes can be
 * tried. */
#ifndef CARREL_DOORS_MCP_ENVELOPE_H
#define CARREL_DOORS_MCP_ENVELOPE_H

#include <jansson.h>
#include <stdbool.h>

#include "http/parse.h"

/* JSON-RPC's numbers, and those that MCP has reserved. */
enum mcp_code {
    MCP_PARSE = -32700,
    MCP_INVALID_REQUEST = -32600,
    MCP_NO_METHOD = -32601,
    MCP_INVALID_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_HEADER_MISMATCH = -32020,
    MCP_MISSING_CAPABILITY = -32021,
    MCP_UNSUPPORTED_VERSION = -32022,
    MCP_REFUSED = 1,        /* ours: the caller may not do this */
};

extern const char *const mcp_versions[];    /* newest first; NULL at the end */
bool mcp_is_handshake_version(const char *version, size_t size);

enum mcp_kind { MCP_BAD, MCP_REQUEST, MCP_NOTIFICATION, MCP_ANSWER };

struct mcp_envelope {
    json_t     *root;           /* owned, also if it is bad; may be NULL */
    json_t     *id, *params;    /* borrowed; NULL: none */
    const char *method;         /* borrowed */
    json_t     *progress_token; /* borrowed; NULL: none */
    bool        is_modern;      /* 2026-07-28 or later: stateless */
};

struct mcp_fault {
    int  code;                  /* enum mcp_code */
    char text[512];
};

/* Always writes *ret; for an invalid message *ret_why says why, and ret->id is an id for the answer, or NULL. */
enum mcp_kind mcp_envelope_read(const struct http_head *head, const char *data, size_t size, struct mcp_envelope *ret,
                                struct mcp_fault *ret_why);

/* For a request: whether the fields agree with the body, in the order in which the stateless revision checks. Older
 * revisions lack these fields; where they are present a proxy may have routed by them, so they must be true. */
bool mcp_fields_check(const struct http_head *head, const struct mcp_envelope *m, struct mcp_fault *ret_why);

/* Arguments that the tool's schema wants repeated in fields (x-mcp-header). arguments may be NULL. */
bool mcp_arguments_check(const struct http_head *head, const char *schema, const json_t *arguments,
                         struct mcp_fault *ret_why);

/* Whether a field has this media type, with any parameters. */
bool mcp_is_media_type(struct http_text field, const char *type);

#endif
