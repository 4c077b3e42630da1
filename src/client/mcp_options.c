#define _GNU_SOURCE
#include "client/mcp_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MOST = 128 };

const char mcp_usage[] =
    "usage: carrel mcp [--allow RULE] [--deny RULE] [--net NET] [--tools NAME,NAME] [--url URL]\n"
    "       carrel mcp --box BOX [--tools NAME,NAME] [--url URL]\n"
    "       carrel mcp --service NAME [--url URL]\n"
    "       carrel mcp config [the same]\n"
    "\n"
    "An MCP server on standard input and output: tools to run code and commands in boxes, and for their files. If no\n"
    "server is running, one is started for as long as this program runs. `config` prints the configuration for MCP\n"
    "clients.\n"
    "\n"
    "  --allow RULE     destinations of boxes: a name (index.example.org), names below one (*.example.org:443), "
    "addresses\n"
    "                   (10.1.0.0/16:5432); may be given often. Without it they have no network, and no tool changes "
    "that\n"
    "  --deny RULE      the same; overrides --allow\n"
    "  --net NET        none, public (every public address), or a network of the server's configuration\n"
    "  --box BOX        the tools of this box only, which is then named in no call\n"
    "  --tools NAMES    these tools only, like run_code,read_file\n"
    "  --service NAME   the functions of this service instead (with CARREL_TOKEN, those that its grant names)\n"
    "  --url URL\n";

static int set_service(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct mcp_options *)into)->service = value;
    return 0;
}

static int set_box(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct mcp_options *)into)->box = value;
    return 0;
}

static int set_tools(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct mcp_options *)into)->tools = value;
    return 0;
}

static int set_allow(void *into, const char *value, struct err *e)
{
    return take_net("--allow", value, ((struct mcp_options *)into)->boxes, e);
}

static int set_deny(void *into, const char *value, struct err *e)
{
    return take_net("--deny", value, ((struct mcp_options *)into)->boxes, e);
}

static int set_net(void *into, const char *value, struct err *e)
{
    return take_net("--net", value, ((struct mcp_options *)into)->boxes, e);
}

const struct flag mcp_flags[MCP_FLAGS] = { NET_FLAGS(set_net, set_allow, set_deny) { "service", 0, true, set_service },
                                     { "box", 0, true, set_box },
                                     { "tools", 0, true, set_tools } };

static void add_option(json_t *args, const char *name, const char *value)
{
    if (!value)
        return;
    (void)!json_array_append_new(args, json_string(name));
    (void)!json_array_append_new(args, json_string(value));
}

static void add_rules(json_t *args, const char *name, const json_t *list)
{
    size_t i;
    json_t *one;

    json_array_foreach(list, i, one)
        add_option(args, name, json_string_value(one));
}

/* A server on this machine knows its users, and a service its owner; other callers need a token. */
static void add_token(json_t *entry, const struct mcp_options *o, const char *url)
{
    static const char missing[] = "put the token here";
    const char *token = getenv("CARREL_TOKEN"), *named = url ? url : server_named();
    bool is_far = named && strncmp(named, "http", 4) == 0, is_there = token && token[0];

    if (is_there || is_far)
        json_object_set_new(entry, "env", json_pack("{s:s}", "CARREL_TOKEN", is_there ? token : missing));
    if (is_there || (!is_far && !o->service))
        return;
    fprintf(stderr, "carrel: %s CARREL_TOKEN: 'carrel %s %s' prints one\n",
            is_far ? "that server needs" : "callers other than the service's owner need",
            o->service ? "grant create" : "token create",
            o->service ? show_text(o->service) : "NAME");
}

int mcp_print_config(const struct mcp_options *o, const char *url)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    json_t *args = json_pack("[s]", "mcp");
    const char *name = o->service ? o->service : "carrel";

    self[n > 0 ? n : 0] = '\0';
    /* This program is carrel-server; users run carrel, beside it or in ../bin. */
    char *slash = strrchr(self, '/');
    char carrel[4200] = "carrel";
    for (int i = 0; slash && i < 2; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%.*s/%scarrel", (int)(slash - self), self, i ? "../bin/" : "");
        if (access(path, X_OK) == 0) {
            char *real = realpath(path, NULL);
            snprintf(carrel, sizeof carrel, "%s", real ? real : path);
            free(real);
            break;
        }
    }
    add_option(args, "--service", o->service);
    add_option(args, "--box", o->box);
    add_option(args, "--tools", o->tools);
    const json_t *net = json_object_get(o->boxes, "net");
    add_option(args, "--net", json_is_true(json_object_get(net, "public")) ? "public" : json_string_value(net));
    add_rules(args, "--allow", json_object_get(net, "allow"));
    add_rules(args, "--deny", json_object_get(net, "deny"));
    add_option(args, "--url", url);
    json_t *entry = json_pack("{s:s,s:s,s:o}", "type", "stdio", "command", carrel, "args", args);
    add_token(entry, o, url);
    json_t *config = json_pack("{s:{s:o}}", "mcpServers", name, entry);
    print_json(config);
    json_decref(config);
    return 0;
}

static bool is_name(const char *name)
{
    return !name || (name[0] && strlen(name) <= NAME_MOST);
}

/* ?net=public&allow=RULE,RULE&deny=RULE: for the boxes that the server makes for this client. */
static void add_net(struct buf *target, char before, const json_t *net)
{
    static const char *const keys[] = { "allow", "deny" };
    char literal[16];
    const char *name = json_is_true(json_object_get(net, "public")) ? "public" : json_string_value(net);

    if (name) {
        snprintf(literal, sizeof literal, "%cnet=", before);
        target_add(target, literal, name);
        before = '&';
    }
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        const json_t *list = json_object_get(net, keys[k]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            snprintf(literal, sizeof literal, "%c%s=", before, keys[k]);
            target_add(target, i ? "," : literal, json_string_value(json_array_get(list, i)));
        }
        before = json_array_size(list) ? '&' : before;
    }
}

const char *mcp_make_target(struct mcp_options *o)
{
    const json_t *net = json_object_get(o->boxes, "net");
    struct buf target;

    buf_init_fixed(&target, o->target, sizeof o->target);
    buf_add_text(&target, "/mcp");
    if (o->service && (o->box || o->tools))
        return "--service gives the functions of a service, and --box and --tools those of boxes";
    if (o->service)
        target_add(&target, "/services/", o->service);
    if (o->box)
        target_add(&target, "/boxes/", o->box);
    if (o->tools)
        target_add(&target, "?tools=", o->tools);
    if (net && (o->service || o->box))
        return "--allow, --deny and --net are for boxes that this command makes; for an existing box use "
               "'carrel net BOX --allow RULE'";
    size_t before_net = target.length;
    add_net(&target, o->tools ? '&' : '?', net);
    if (net && target.length > before_net && buf_error(&target) < 0)
        return "there are too many rules; name a network of the server's configuration instead";
    if (!is_name(o->service))
        return "--service takes the name of a service";
    if (!is_name(o->box))
        return "--box takes the name or id of a box";
    return buf_error(&target) < 0 || (o->tools && !o->tools[0]) ? "--tools takes names of tools" : NULL;
}
