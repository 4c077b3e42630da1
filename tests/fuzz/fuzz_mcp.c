/* What a client of the MCP door may send: an HTTP head and a body of any bytes. Whatever they are, nothing is read
 * beyond them; a message is of one kind, and a bad one has a code and a sentence; if the fields are found to agree with
 * a request of the stateless revision, each of them is there once and means what the body says; the memory that a body
 * takes as a tree is not more than what was charged for it. The input is a head, an empty line, and a body. */
#include "fuzz.h"

#include "base/jsonscan.h"
#include "doors/mcp/envelope.c"
#include "base/arena.c"
#include "http/fault.c"
#include "http/parse.c"
#include "http/text.c"

static size_t taken;            /* by jansson, as malloc rounds it */

static size_t *room_of(void *p)
{
    return (size_t *)p - 2;
}

static void *take(size_t size)
{
    size_t *p = malloc(size + 16);

    HOLDS(p);
    p[0] = (size + 15) / 16 * 16 + 8;
    taken += p[0];
    return p + 2;
}

static void give(void *p)
{
    if (!p)
        return;
    taken -= *room_of(p);
    free(room_of(p));
}

/* ---- */

static void check_agreement(const struct http_head *head, const struct mcp_envelope *m)
{
    static const char version[] = "io.modelcontextprotocol/protocolVersion";
    const char *spoken = json_string_value(json_object_get(json_object_get(m->params, "_meta"), version));

    HOLDS(count_field(head, "MCP-Protocol-Version") <= 1 && count_field(head, "Mcp-Method") <= 1);
    if (!m->is_modern) {
        HOLDS(!spoken);
        return;
    }
    HOLDS(spoken && strcmp(spoken, mcp_versions[0]) == 0);
    HOLDS(count_field(head, "MCP-Protocol-Version") == 1 && count_field(head, "Mcp-Method") == 1);
    HOLDS(http_text_is(http_head_get(head, "MCP-Protocol-Version"), spoken)
          || memmem(head->base, HTTP_HEAD_MAX_BYTES, "=?base64?", 9));
}

static void check_fault(const struct mcp_fault *why)
{
    HOLDS(why->code < 0 && why->text[0] && memchr(why->text, 0, sizeof why->text));
}

static void check_request(const struct http_head *head, const struct mcp_envelope *m)
{
    static const char schema[] = "{\"properties\":{\"a\":{\"x-mcp-header\":\"A\"},\"b\":{\"x-mcp-header\":\"b\"}}}";
    struct mcp_fault why = { 0 };

    HOLDS(json_is_object(m->root) && m->id && m->method && (!m->params || json_is_object(m->params)));
    if (mcp_fields_check(head, m, &why))
        check_agreement(head, m);
    else
        check_fault(&why);
    why = (struct mcp_fault){ 0 };
    if (!mcp_arguments_check(head, schema, json_object_get(m->params, "arguments"), &why))
        check_fault(&why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[HTTP_HEAD_MAX_BYTES + 1];
    struct http_head head;
    struct mcp_envelope m;
    struct mcp_fault why = { 0 };

    json_set_alloc_funcs(take, give);
    http_head_init(&head, false);
    memset(text, 0, sizeof text);
    memcpy(text, data, size < sizeof text - 1 ? size : sizeof text - 1);
    ssize_t n = http_head_parse(&head, text, size < sizeof text - 1 ? size : sizeof text - 1);
    if (n <= 0)
        return 0;
    (void)mcp_is_media_type(http_head_get(&head, "Content-Type"), "application/json");
    size_t rest = size - (size_t)n;
    char *body = fuzz_string(data + n, rest);
    size_t weight = jsonscan_weight(body, rest);
    taken = 0;
    enum mcp_kind kind = mcp_envelope_read(&head, body, rest, &m, &why);
    free(body);             /* nothing of it is borrowed */
    HOLDS(taken <= weight);
    if (kind == MCP_BAD)
        check_fault(&why);
    else if (kind == MCP_REQUEST)
        check_request(&head, &m);
    else
        HOLDS(json_is_object(m.root) && (kind == MCP_ANSWER || (m.method && !m.id)));
    json_decref(m.root);
    HOLDS(taken == 0);
    return 0;
}
