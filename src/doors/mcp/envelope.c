/* One endpoint serves two eras. The field MCP-Protocol-Version or the _meta in the body decides which era a request
 * belongs to; if either names a stateless revision, both must.
 *
 * Revision 2026-07-28 has no session and no handshake: each request has in its _meta its revision and the client's
 * capabilities, and repeats in HTTP fields the values by which a proxy may route. Fields and body must agree: otherwise
 * a proxy decides by one value and the server acts on the other. */
#define _GNU_SOURCE
#include "doors/mcp/envelope.h"

#include <openssl/evp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#define META "io.modelcontextprotocol/"

const char *const mcp_versions[] = { "2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", NULL };

bool mcp_is_handshake_version(const char *version, size_t size)
{
    for (size_t i = 1; mcp_versions[i]; i++)
        if (strlen(mcp_versions[i]) == size && memcmp(mcp_versions[i], version, size) == 0)
            return true;
    return false;
}

static bool PRINTF_LIKE(3, 4) fail(struct mcp_fault *ret, int code, const char *format, ...)
{
    va_list args;

    ret->code = code;
    va_start(args, format);
    vsnprintf(ret->text, sizeof ret->text, format, args);
    va_end(args);
    return false;
}

/* ---- the body ---- */

static bool has_id(const json_t *id)
{
    return json_is_string(id) || json_is_integer(id);
}

static bool is_modern(const struct http_head *head, const json_t *params)
{
    struct http_text version = http_head_get(head, "MCP-Protocol-Version");

    if (version.data && !mcp_is_handshake_version(version.data, version.size))
        return true;
    return json_object_get(json_object_get(params, "_meta"), META "protocolVersion") != NULL;
}

static enum mcp_kind kind_of(struct mcp_envelope *m, struct mcp_fault *ret_why)
{
    const char *version = json_string_value(json_object_get(m->root, "jsonrpc"));
    json_t *method = json_object_get(m->root, "method"), *id = json_object_get(m->root, "id");

    m->id = has_id(id) ? id : NULL;
    m->method = json_string_value(method);
    m->params = json_object_get(m->root, "params");
    if (!json_is_object(m->root)) {
        (void)fail(ret_why, MCP_INVALID_REQUEST, "a request is one JSON object");
    } else if (!version || strcmp(version, "2.0") != 0) {
        (void)fail(ret_why, MCP_INVALID_REQUEST, "jsonrpc must be \"2.0\"");
    } else if (!method && (json_object_get(m->root, "result") || json_object_get(m->root, "error"))) {
        return MCP_ANSWER;
    } else if (!m->method) {
        (void)fail(ret_why, MCP_INVALID_REQUEST, "method is missing");
    } else if (id && !m->id) {
        (void)fail(ret_why, MCP_INVALID_REQUEST, "id must be a string or a whole number");
    } else if (m->params && !json_is_object(m->params)) {
        (void)fail(ret_why, MCP_INVALID_PARAMS, "params must be an object");
    } else {
        return id ? MCP_REQUEST : MCP_NOTIFICATION;
    }
    return MCP_BAD;
}

enum mcp_kind mcp_envelope_read(const struct http_head *head, const char *data, size_t size, struct mcp_envelope *ret,
                                struct mcp_fault *ret_why)
{
    json_error_t where = { 0 };

    *ret = (struct mcp_envelope){ .root = json_loadb(data, size, JSON_REJECT_DUPLICATES, &where) };
    if (!ret->root) {
        (void)fail(ret_why, MCP_PARSE, "%s", where.text);
        return MCP_BAD;
    }
    enum mcp_kind kind = kind_of(ret, ret_why);
    json_t *token = json_object_get(json_object_get(ret->params, "_meta"), "progressToken");
    ret->progress_token = has_id(token) ? token : NULL;
    ret->is_modern = is_modern(head, ret->params);
    return kind;
}

/* ---- the fields ---- */

static unsigned count_field(const struct http_head *head, const char *name)
{
    struct http_text field, value;
    unsigned n = 0;

    for (unsigned i = 0; i < head->n_fields; i++) {
        http_head_field(head, i, &field, &value);
        n += http_text_is_nocase(field, name);
    }
    return n;
}

/* A value that no field can hold is written as "=?base64?…?="; only the canonical form is accepted. */
static bool field_equals(struct http_text field, const char *text)
{
    static const char begin[] = "=?base64?", end[] = "?=";
    size_t n = strlen(text), inner = sizeof begin - 1 + sizeof end - 1;

    if (field.size < inner || memcmp(field.data, begin, sizeof begin - 1) != 0
        || memcmp(field.data + field.size - 2, end, 2) != 0)
        return field.size == n && memcmp(field.data, text, n) == 0;
    size_t size = 4 * ((n + 2) / 3);
    char *coded = size == field.size - inner ? malloc(size + 1) : NULL;
    if (!coded)
        return false;
    (void)EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)text, (int)n);
    bool is_same = memcmp(coded, field.data + sizeof begin - 1, size) == 0;
    free(coded);
    return is_same;
}

static bool field_matches(const struct http_head *head, const char *field, const char *wanted,
                          struct mcp_fault *ret_why)
{
    struct http_text value = http_head_get(head, field);

    if (count_field(head, field) > 1)
        return fail(ret_why, MCP_HEADER_MISMATCH, "the field %s is there more than once", field);
    if (!value.data)
        return fail(ret_why, MCP_HEADER_MISMATCH, "the field %s is missing; the body says %.100s", field, wanted);
    if (field_equals(value, wanted))
        return true;
    return fail(ret_why, MCP_HEADER_MISMATCH, "the field %s says %.*s, the body %.100s", field,
                (int)(value.size < 100 ? value.size : 100), value.data, wanted);
}

/* The name or uri of the request's object; NULL: it has none. */
static const char *name_of(const struct mcp_envelope *m)
{
    const char *member = strcmp(m->method, "tools/call") == 0 || strcmp(m->method, "prompts/get") == 0 ? "name"
                         : strcmp(m->method, "resources/read") == 0                                    ? "uri" : NULL;

    return member ? json_string_value(json_object_get(m->params, member)) : NULL;
}

bool mcp_fields_check(const struct http_head *head, const struct mcp_envelope *m, struct mcp_fault *ret_why)
{
    json_t *meta = json_object_get(m->params, "_meta");
    const char *spoken = json_string_value(json_object_get(meta, META "protocolVersion")), *name = name_of(m);

    if (count_field(head, "MCP-Protocol-Version") > 1)
        return fail(ret_why, MCP_HEADER_MISMATCH, "the field MCP-Protocol-Version is there more than once");
    if (!m->is_modern)
        return (!count_field(head, "Mcp-Method") || field_matches(head, "Mcp-Method", m->method, ret_why))
               && (!count_field(head, "Mcp-Name") || field_matches(head, "Mcp-Name", name ? name : "", ret_why));
    if (!spoken || !json_is_object(json_object_get(meta, META "clientCapabilities")))
        return fail(ret_why, MCP_INVALID_PARAMS, "params._meta must have " META "protocolVersion (a string) and "
                    META "clientCapabilities (an object)");
    if (!field_matches(head, "MCP-Protocol-Version", spoken, ret_why)
        || !field_matches(head, "Mcp-Method", m->method, ret_why)
        || (name && !field_matches(head, "Mcp-Name", name, ret_why)))
        return false;
    return strcmp(spoken, mcp_versions[0]) == 0
           || fail(ret_why, MCP_UNSUPPORTED_VERSION, "this server does not speak that revision without a handshake");
}

/* A value in the form of a field; NULL: no field can express it. */
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

bool mcp_arguments_check(const struct http_head *head, const char *schema, const json_t *arguments,
                         struct mcp_fault *ret_why)
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
        if (text)
            is_good = field_matches(head, field, text, ret_why);
        else if (http_head_get(head, field).data)
            is_good = fail(ret_why, MCP_HEADER_MISMATCH, "the field %s is there, the argument %.100s is not", field,
                           key);
    }
    json_decref(root);
    return is_good;
}

bool mcp_is_media_type(struct http_text field, const char *type)
{
    const char *end = field.data ? memchr(field.data, ';', field.size) : NULL;

    if (end)
        field.size = (size_t)(end - field.data);
    return field.data && http_text_is_nocase(http_text_trim(field), type);
}
