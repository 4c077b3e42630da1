/* The tools that the conformance suite calls, in a server that only tests have. */
#define _GNU_SOURCE
#include <string.h>

#include "base/list.h"
#include "doors/mcp/door.h"

#define NO_ARGUMENTS "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
#define PNG "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
#define WAV "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
#define IMAGE "{\"type\":\"image\",\"data\":\"" PNG "\",\"mimeType\":\"image/png\"}"

static void say(struct mcp_call *c, const char *content, bool is_error)
{
    struct buf out;

    buf_init(&out, 65536);
    buf_printf(&out, "\"content\":[%s],\"isError\":%s", content, is_error ? "true" : "false");
    mcp_result(c, out.data, out.length);
    buf_done(&out);
}

static void simple_text(struct mcp_call *c, json_t *arguments)
{
    (void)arguments;
    say(c, "{\"type\":\"text\",\"text\":\"This is a simple text response for testing.\"}", false);
}

static void image(struct mcp_call *c, json_t *arguments)
{
    (void)arguments;
    say(c, IMAGE, false);
}

static void audio(struct mcp_call *c, json_t *arguments)
{
    (void)arguments;
    say(c, "{\"type\":\"audio\",\"data\":\"" WAV "\",\"mimeType\":\"audio/wav\"}", false);
}

static void embedded(struct mcp_call *c, json_t *arguments)
{
    (void)arguments;
    say(c, "{\"type\":\"resource\",\"resource\":{\"uri\":\"test://embedded-resource\",\"mimeType\":\"text/plain\","
           "\"text\":\"This is an embedded resource content.\"}}", false);
}

static void several(struct mcp_call *c, json_t *arguments)
{
    (void)arguments;
    say(c,
        "{\"type\":\"text\",\"text\":\"Multiple content types test:\"}," IMAGE
        ",{\"type\":\"resource\",\"resource\":{\"uri\":"
        "\"test://mixed-content-resource\",\"mimeType\":\"application/"
        "json\",\"text\":\"{\\\"test\\\":\\\"data\\\",\\\"value\\\":123}\"}}",
        false);
}

static void failing(struct mcp_call *c, json_t *arguments)
{
    (void)arguments;
    mcp_tool_fail(c, "This tool intentionally returns an error for testing");
}

/* ---- progress, over some turns of the loop ---- */

struct waiting {
    struct mcp_call  *call;
    struct loop_timer timer;
    int               turns;
};

static void on_turn(struct loop_timer *t)
{
    struct waiting *w = container_of(t, struct waiting, timer);

    if (w->turns++ < 3) {
        mcp_progress(w->call, "\"on its way\"", 12);
        loop_timer_set(w->call->front->loop, t, 50);
        return;
    }
    w->call->on_gone = NULL;
    say(w->call, "{\"type\":\"text\",\"text\":\"done\"}", false);
}

static void on_gone(struct mcp_call *c)
{
    loop_timer_cancel(c->front->loop, &((struct waiting *)c->work)->timer);
}

static void progress(struct mcp_call *c, json_t *arguments)
{
    struct waiting *w = arena_alloc(&c->r->arena, sizeof *w);

    (void)arguments;
    if (!w) {
        mcp_error(c, MCP_INTERNAL, "out of memory");
        return;
    }
    *w = (struct waiting){ .call = c, .timer.on_expire = on_turn };
    c->work = w;
    c->on_gone = on_gone;
    loop_timer_set(c->front->loop, &w->timer, 10);
}

static void wants_sampling(struct mcp_call *c, json_t *arguments)
{
    if (mcp_needs(c, "sampling"))
        simple_text(c, arguments);
}

#define ROUTED "{\"type\":\"object\",\"properties\":{\"region\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"}}," \
               "\"required\":[\"region\"],\"additionalProperties\":false}"
#define SCHEMA_2020                                                                                                    \
    "{\"$schema\":\"https://json-schema.org/draft/2020-12/"                                                            \
    "schema\",\"type\":\"object\",\"$defs\":{\"address\":{\"$anchor\":"                                                \
    "\"addressDef\",\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"city\":{\"type\":"          \
    "\"string\"}}}},"                                                                                                  \
    "\"properties\":{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":\"#/$defs/"                                  \
    "address\"},\"contactMethod\":{\"type\":"                                                                          \
    "\"string\",\"enum\":[\"phone\",\"email\"]},\"phone\":{\"type\":\"string\"},\"email\":{\"type\":\"string\"}},"     \
    "\"allOf\":[{"                                                                                                     \
    "\"anyOf\":[{\"required\":[\"phone\"]},{\"required\":[\"email\"]}]}],\"if\":{\"properties\":{\"contactMethod\":{"  \
    "\"const\":"                                                                                                       \
    "\"phone\"}},\"required\":[\"contactMethod\"]},\"then\":{\"required\":[\"phone\"]},\"else\":{\"required\":["       \
    "\"email\"]},"                                                                                                     \
    "\"additionalProperties\":false}"

#define TOOL(name, call) { name, name, "For the conformance suite.", NO_ARGUMENTS, NULL, 0, 0, call }

const struct mcp_tool mcp_test_tools[] = {
    TOOL("test_simple_text", simple_text),
    TOOL("test_image_content", image),
    TOOL("test_audio_content", audio),
    TOOL("test_embedded_resource", embedded),
    TOOL("test_multiple_content_types", several),
    TOOL("test_error_handling", failing),
    TOOL("test_tool_with_progress", progress),
    TOOL("test_streaming_elicitation", progress),
    TOOL("test_logging_tool", simple_text),
    TOOL("test_missing_capability", wants_sampling),
    { "test_routed", "test_routed", "For the conformance suite.", ROUTED, NULL, 0, 0, simple_text },
    { "json_schema_2020_12_tool", "2020-12", "For the conformance suite.", SCHEMA_2020, NULL, 0, 0, simple_text },
    { .name = NULL },
};
