/* Revision 2026-07-28: no session and no handshake. Each request says in its _meta which revision it speaks and what
 * its client can do, and repeats in HTTP fields what a proxy may route by; the two must agree, because somebody on the
 * way may have decided by the one what the other then does. */
#define _GNU_SOURCE
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doors/mcp/door.h"

#define META "io.modelcontextprotocol/"

const char *const mcp_versions[] = { "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", NULL };

bool mcp_is_handshake_version(const char *version, size_t size)
{
    for (size_t i = 1; mcp_versions[i]; i++)
        if (strlen(mcp_versions[i]) == size && memcmp(mcp_versions[i], version, size) == 0)
            return true;
    return false;
}

static json_t *versions(void)
{
    json_t *list = json_array();

    for (size_t i = 0; mcp_versions[i]; i++)
        (void)!json_array_append_new(list, json_string(mcp_versions[i]));
    return list;
}

static unsigned count_field(const struct http_request *r, const char *name)
{
    struct http_text field, value;
    unsigned n = 0;

    for (unsigned i = 0; i < r->head.n_fields; i++) {
        http_head_field(&r->head, i, &field, &value);
        n += http_text_is_nocase(field, name);
    }
    return n;
}

/* "=?base64?…?=" is how a name that no field could hold is written; only the canonical form counts. */
static bool field_equals(struct http_text field, const char *text)
{
    static const char begin[] = "=?base64?", end[] = "?=";
    size_t n = strlen(text), inner = sizeof begin - 1 + sizeof end - 1;

    if (field.size < inner || memcmp(field.data, begin, sizeof begin - 1) != 0
        || memcmp(field.data + field.size - 2, end, 2) != 0)
        return field.size == n && memcmp(field.data, text, n) == 0;
    char *coded = malloc(4 * (n + 2) / 3 + 5);
    if (!coded)
        return false;
    int size = EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)text, (int)n);
    bool is_same =
        (size_t)size == field.size - inner && memcmp(coded, field.data + sizeof begin - 1, (size_t)size) == 0;
    free(coded);
    return is_same;
}

static bool field_matches(struct mcp_call *c, const char *field, const char *wanted)
{
    struct http_text value = http_head_get(&c->r->head, field);

    if (count_field(c->r, field) > 1) {
        mcp_error(c, MCP_HEADER_MISMATCH, "the field %s is there more than once", field);
        return false;
    }
    if (!value.data) {
        mcp_error(c, MCP_HEADER_MISMATCH, "the field %s is missing; the body says %.100s", field, wanted);
        return false;
    }
    if (field_equals(value, wanted))
        return true;
    mcp_error(c, MCP_HEADER_MISMATCH, "the field %s says %.*s, the body %.100s", field,
              (int)(value.size < 100 ? value.size : 100), value.data, wanted);
    return false;
}

bool mcp_modern_check(struct mcp_call *c)
{
    json_t *meta = json_object_get(c->params, "_meta");
    json_t *version = json_object_get(meta, META "protocolVersion");
    json_t *capabilities = json_object_get(meta, META "clientCapabilities");

    if (!json_is_string(version) || !json_is_object(capabilities)) {
        mcp_error(c, MCP_INVALID_PARAMS, "params._meta must have " META "protocolVersion (a string) and "
                  META "clientCapabilities (an object)");
        return false;
    }
    const char *spoken = json_string_value(version);
    if (!field_matches(c, "MCP-Protocol-Version", spoken) || !field_matches(c, "Mcp-Method", c->method))
        return false;
    const char *named = strcmp(c->method, "tools/call") == 0 || strcmp(c->method, "prompts/get") == 0 ? "name"
                        : strcmp(c->method, "resources/read") == 0                                    ? "uri" : NULL;
    json_t *name = named ? json_object_get(c->params, named) : NULL;
    if (json_is_string(name) && !field_matches(c, "Mcp-Name", json_string_value(name)))
        return false;
    if (strcmp(spoken, mcp_versions[0]) == 0)
        return true;
    mcp_error_data(c, MCP_UNSUPPORTED_VERSION, "this server does not speak that revision without a handshake",
                   json_pack("{s:o,s:s}", "supported", versions(), "requested", spoken));
    return false;
}

/* A value as a field says it; NULL: it is of a kind that no field can say. */
static const char *plain_text(const json_t *value, char *room, size_t size)
{
    if (json_is_integer(value))
        snprintf(room, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        snprintf(room, size, "%s", json_is_true(value) ? "true" : "false");
    else
        return json_string_value(value);
    return room;
}

bool mcp_modern_arguments(struct mcp_call *c, const char *schema, json_t *arguments)
{
    json_t *root = json_loads(schema, 0, NULL), *property;
    const char *key;
    bool is_good = true;

    json_object_foreach(json_object_get(root, "properties"), key, property) {
        const char *header = json_string_value(json_object_get(property, "x-mcp-header"));
        char field[128], room[32];
        if (!header || !is_good)
            continue;
        snprintf(field, sizeof field, "Mcp-Param-%s", header);
        const json_t *value = json_object_get(arguments, key);
        const char *text = value ? plain_text(value, room, sizeof room) : NULL;
        if (text) {
            is_good = field_matches(c, field, text);
        } else if (http_head_get(&c->r->head, field).data) {
            mcp_error(c, MCP_HEADER_MISMATCH, "the field %s is there, the argument %.100s is not", field, key);
            is_good = false;
        }
    }
    json_decref(root);
    return is_good;
}

bool mcp_needs(struct mcp_call *c, const char *capability)
{
    json_t *declared = json_object_get(json_object_get(c->params, "_meta"), META "clientCapabilities");

    if (json_object_get(declared, capability))
        return true;
    mcp_error_data(c, MCP_MISSING_CAPABILITY, "this needs a capability that the client did not declare",
                   json_pack("{s:{s:{}}}", "requiredCapabilities", capability));
    return false;
}
