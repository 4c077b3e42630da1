/* The table of Carrel's own tools. A wrong argument, a refusal and a failure are results, which the model reads and can
 * correct; only an unknown tool is an error of the protocol. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doors/mcp/door.h"

#define BOX_ARGUMENT                                                                                                   \
    "\"box\":{\"type\":\"string\",\"description\":\"Name or id of a box. Without it: the box of your earlier "        \
    "calls, or a new one.\"}"
#define OLD_BOX                                                                                                        \
    "\"box\":{\"type\":\"string\",\"description\":\"Name or id of a box. Without it: the box of your earlier calls.\"}"
#define TIMEOUT "\"timeout\":{\"type\":\"number\",\"exclusiveMinimum\":0,\"description\":\"Seconds (60).\"}"
#define OBJECT(properties, required) \
    "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required "],\"additionalProperties\":false}"
/* A refused connection of the box: a line, the rule that would allow it, whether that is for the index of packages. */
#define REFUSED                                                                                                        \
    "\"refused\":{\"type\":\"object\",\"properties\":{\"message\":{\"type\":\"string\"},\"rule\":"                     \
    "{\"type\":[\"string\",\"null\"]},\"is_index\":{\"type\":\"boolean\"}}}"
#define RESULT(properties, required) "{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required "]}"
#define TEXT "{\"type\":\"string\"}"
#define NUMBER "{\"type\":\"number\"}"
#define BOX_SHOWN                                                                                                      \
    "{\"type\":\"object\",\"properties\":{\"id\":" TEXT ",\"phase\":" TEXT "},\"required\":[\"id\",\"phase\"]}"

static const struct mcp_tool own[] = {
    { "run_code", "Run Python",
      "Runs Python code in a live IPython kernel in an isolated box and returns what it printed, "
      "its last value, images and errors. Variables stay for the next call in the same box.",
      OBJECT("\"code\":{\"type\":\"string\",\"description\":\"Python; the value of the last expression is "
             "returned.\"}," BOX_ARGUMENT "," TIMEOUT,
             "\"code\""),
      RESULT("\"box\":" TEXT ",\"outcome\":" TEXT ",\"stdout\":" TEXT ",\"stderr\":" TEXT
             ",\"value\":{\"type\":[\"string\",\"null\"]},\"reason\":" TEXT ",\"error\":" TEXT
             ",\"restarted\":{\"type\":\"boolean\"},"
             "\"images\":{\"type\":\"integer\"}," REFUSED ",\"wall_ms\":" NUMBER,
             "\"box\",\"outcome\",\"stdout\",\"stderr\""),
      SCOPE_EXEC, MCP_IN_BOX | MCP_RUNS, mcp_run_code },
    { "run_command", "Run a command",
      "Runs a line with the shell in an isolated box and returns its output and exit code. "
      "Files stay for the next call in the same box.",
      OBJECT("\"command\":{\"type\":\"string\",\"description\":\"A line for /bin/sh.\"},\"cwd\":{\"type\":\"string\","
             "\"description\":\"Working directory (/home/box).\"}," BOX_ARGUMENT "," TIMEOUT,
             "\"command\""),
      RESULT("\"box\":" TEXT ",\"outcome\":" TEXT ",\"exit_code\":{\"type\":[\"integer\",\"null\"]},\"stdout\":" TEXT
             ",\"stderr\":" TEXT ",\"truncated\":{\"type\":\"boolean\"},\"stdout_dropped_bytes\":" NUMBER
             ",\"stderr_dropped_bytes\":" NUMBER ",\"remark\":" TEXT "," REFUSED ",\"wall_ms\":" NUMBER,
             "\"box\",\"outcome\",\"stdout\",\"stderr\",\"truncated\""),
      SCOPE_EXEC, MCP_IN_BOX | MCP_RUNS, mcp_run_command },
    { "read_file", "Read a file",
      "Returns a file of a box: text as text, an image as an image, anything else as base64.",
      OBJECT("\"path\":{\"type\":\"string\",\"description\":\"Absolute, or relative to /home/box.\"}," OLD_BOX,
             "\"path\""),
      NULL, SCOPE_FILES, MCP_READ_ONLY | MCP_IDEMPOTENT | MCP_IN_BOX, mcp_read_file },
    { "write_file", "Write a file", "Writes a file of a box; missing folders are made.",
      OBJECT("\"path\":{\"type\":\"string\",\"description\":\"Absolute, or relative to "
             "/home/box.\"},\"content\":{\"type\":"
             "\"string\",\"description\":\"Text.\"},\"content_base64\":{\"type\":\"string\",\"description\":\"Bytes, "
             "instead of content.\"}," BOX_ARGUMENT,
             "\"path\""),
      RESULT("\"box\":" TEXT ",\"path\":" TEXT ",\"bytes\":{\"type\":\"integer\"}", "\"box\",\"path\",\"bytes\""),
      SCOPE_FILES, MCP_DESTRUCTIVE | MCP_IDEMPOTENT | MCP_IN_BOX, mcp_write_file },
    { "list_files", "List files", "Lists a folder of a box.",
      OBJECT("\"path\":{\"type\":\"string\",\"description\":\"Absolute, or relative to /home/box (.).\"}," OLD_BOX, ""),
      RESULT("\"entries\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}},\"complete\":{\"type\":\"boolean\"}",
             "\"entries\""),
      SCOPE_FILES, MCP_READ_ONLY | MCP_IDEMPOTENT | MCP_IN_BOX, mcp_list_files },
    { "create_box", "Make a box",
      "Makes an isolated box with limits of its own. It lives until it is deleted, or its ttl is over.",
      OBJECT("\"name\":" TEXT ",\"memory\":{\"type\":\"string\",\"description\":\"Like 512M or 2G.\"},\"cpus\":" NUMBER
             ",\"disk\":{\"type\":\"string\"},\"ttl\":{\"type\":\"string\",\"description\":\"Like 30m or 2h.\"}",
             ""),
      BOX_SHOWN, SCOPE_WRITE, 0, mcp_create_box },
    { "list_boxes", "List boxes", "Lists your boxes.", OBJECT("", ""),
      RESULT("\"boxes\":{\"type\":\"array\",\"items\":" BOX_SHOWN "}", "\"boxes\""), SCOPE_READ,
      MCP_READ_ONLY | MCP_IDEMPOTENT, mcp_list_boxes },
    { "delete_box", "Delete a box", "Ends everything in a box and forgets its files.", OBJECT(OLD_BOX, ""),
      RESULT("\"deleted\":" TEXT, "\"deleted\""), SCOPE_WRITE, MCP_DESTRUCTIVE | MCP_IDEMPOTENT, mcp_delete_box },
    { .name = NULL },
};

/* At an address with one box the argument `box` is not needed. */
static json_t *without_box(json_t *schema)
{
    json_t *required = json_object_get(schema, "required"), *name;
    size_t i;

    (void)!json_object_del(json_object_get(schema, "properties"), "box");
    json_array_foreach(required, i, name) {
        if (strcmp(json_string_value(name), "box") == 0) {
            (void)!json_array_remove(required, i);
            break;
        }
    }
    return schema;
}

static void add_tool(json_t *list, const struct mcp_tool *tool, const struct mcp_call *c, bool in_one_box)
{
    json_t *input = json_loads(tool->input, 0, NULL);
    struct buf description;

    buf_init(&description, MCP_TEXT_MOST);
    buf_add_text(&description, tool->description);
    if (tool->hints & MCP_RUNS) {
        buf_add_char(&description, ' ');
        mcp_add_reach(&description, c);
    }
    json_t *one = json_pack(
        "{s:s,s:s,s:s,s:o,s:{s:b,s:b,s:b,s:b}}", "name", tool->name, "title", tool->title, "description",
        buf_string(&description), "inputSchema", in_one_box ? without_box(input) : input, "annotations", "readOnlyHint",
        !!(tool->hints & MCP_READ_ONLY), "destructiveHint", !!(tool->hints & MCP_DESTRUCTIVE), "idempotentHint",
        !!(tool->hints & MCP_IDEMPOTENT), "openWorldHint", !!(tool->hints & MCP_OPEN_WORLD));

    if (one && tool->output)
        (void)!json_object_set_new(one, "outputSchema", json_loads(tool->output, 0, NULL));
    (void)!json_array_append_new(list, one);
    buf_done(&description);
}

/* Whether this address offers the tool, to any caller. */
static bool is_here(const struct mcp_call *c, const struct mcp_tool *tool)
{
    size_t n = strlen(tool->name);

    if (c->box && !(tool->hints & MCP_IN_BOX))
        return false;
    for (const char *at = c->only; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, tool->name, n) == 0 && (at[n] == ',' || !at[n]))
            return true;
    }
    return !c->only;
}

static const struct mcp_tool *find(const struct mcp_call *c, const char *name)
{
    for (const struct mcp_tool *t = own; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return is_here(c, t) ? t : NULL;
    for (const struct mcp_tool *t = mcp_test_tools; t && t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

bool mcp_only_check(struct mcp_call *c)
{
    for (const char *at = c->only; at; at = strchr(at, ',')) {
        at += *at == ',';
        char name[32], why[160];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (find(c, name))
            continue;
        snprintf(why, sizeof why, "tools=%s: there is no such tool here", name);
        mcp_refuse(c->r, 400, MCP_INVALID_REQUEST, why, NULL);
        return false;
    }
    return true;
}

/* All fit on one page, so every cursor is invalid. */
static bool is_first_page(struct mcp_call *c)
{
    if (!json_object_get(c->m.params, "cursor"))
        return true;
    mcp_error(c, MCP_INVALID_PARAMS, "there is no page at this cursor");
    return false;
}

void mcp_tools_list(struct mcp_call *c)
{
    if (!is_first_page(c))
        return;
    if (c->service) {
        mcp_service_list(c);
        return;
    }
    json_t *list = json_array();
    for (const struct mcp_tool *t = own; t->name; t++)
        if ((c->who.scopes & t->scopes) == t->scopes && is_here(c, t))
            add_tool(list, t, c, c->box);
    for (const struct mcp_tool *t = mcp_test_tools; t && t->name; t++)
        add_tool(list, t, c, false);
    mcp_list_result(c, "tools", list);
}

void mcp_list_result(struct mcp_call *c, const char *name, json_t *list)
{
    json_t *result = json_pack("{s:o}", name, list);

    if (result && c->m.is_modern) {
        (void)!json_object_set_new(result, "ttlMs", json_integer(MCP_FRESH_MS));
        (void)!json_object_set_new(result, "cacheScope", json_string("private"));
    }
    mcp_result_json(c, result);
}

static bool tool_is_test(const struct mcp_tool *tool)
{
    return tool < own || tool >= own + sizeof own / sizeof *own;
}

/* Many clients send null for omitted arguments. */
static void drop_nulls(json_t *arguments)
{
    const char *key;
    void *next;
    json_t *value;

    json_object_foreach_safe(arguments, next, key, value)
        if (json_is_null(value))
            (void)!json_object_del(arguments, key);
}

void mcp_tools_call(struct mcp_call *c)
{
    const char *name = json_string_value(json_object_get(c->m.params, "name"));
    json_t *arguments = json_object_get(c->m.params, "arguments");

    if (!name) {
        mcp_error(c, MCP_INVALID_PARAMS, "params.name must be a string");
        return;
    }
    if (arguments && !json_is_object(arguments)) {
        mcp_error(c, MCP_INVALID_PARAMS, "params.arguments must be an object");
        return;
    }
    if (c->service) {
        mcp_service_call(c, name, arguments);
        return;
    }
    const struct mcp_tool *tool = find(c, name);
    if (!tool) {
        mcp_error(c, MCP_INVALID_PARAMS, "there is no tool %.100s; tools/list names those that there are", name);
        return;
    }
    if ((c->who.scopes & tool->scopes) != tool->scopes) {
        mcp_tool_fail(c, "%s may not use %s: its token lacks a scope", c->who.name, name);
        return;
    }
    if (c->m.is_modern && strstr(tool->input, "x-mcp-header") && !mcp_modern_arguments(c, tool->input, arguments))
        return;
    json_t *none = arguments ? NULL : json_object();
    if (!tool_is_test(tool))
        drop_nulls(arguments);
    tool->call(c, arguments ? arguments : none);
    json_decref(none);
}
