/* The network of a client's boxes: ?net=, ?allow= and ?deny= of the client's address. The user chose that address; the
 * model only sees tools and results and cannot change it. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "doors/mcp/door.h"
#include "front/boxes/boxes.h"
#include "front/net/net.h"

/* Adds a comma-separated list as a member. text may be NULL. -1: it is not UTF-8. */
static int add_list(json_t *net, const char *key, const char *text)
{
    json_t *list = json_array();
    int r = 0;

    for (const char *at = text; at && r == 0; at = strchr(at, ',')) {
        at += at != text;
        r = json_array_append_new(list, json_stringn(at, strcspn(at, ",")));
    }
    return json_object_set_new(net, key, list) < 0 ? -1 : r;
}

/* *ret: NULL if it is absent. False: it is malformed. */
static bool query(struct mcp_call *c, const char *name, const char **ret)
{
    struct http_text value = { 0 };
    int r = c->r->head.query.data ? http_query_get(&c->r->arena, c->r->head.query, name, &value) : -ENOENT;

    *ret = r == 0 ? arena_copy(&c->r->arena, value.data, value.size) : NULL;
    return r == -ENOENT || (*ret && strlen(*ret) == value.size);
}

static int read_net(struct mcp_call *c, json_t **ret, struct err *e)
{
    const char *net, *allow, *deny;

    *ret = NULL;
    if (!query(c, "net", &net) || !query(c, "allow", &allow) || !query(c, "deny", &deny))
        return err_set(e, EINVAL, STEP_USAGE, "net=, allow= or deny= cannot be read");
    if (!net && !allow && !deny)
        return 0;
    if (c->service || c->box)
        return err_set(e, EINVAL, STEP_USAGE, "net=, allow= and deny= are for boxes that this client makes; this "
                       "address is that of a %s that is there already", c->service ? "service" : "box");
    if ((allow || deny) && net && strcmp(net, "public") != 0)
        return err_set(e, EINVAL, STEP_USAGE, "allow= and deny= go with net=public, or without net=");
    *ret = allow || deny ? json_pack("{s:b}", "public", net != NULL) : json_string(net);
    if (!*ret || ((allow || deny) && (add_list(*ret, "allow", allow) < 0 || add_list(*ret, "deny", deny) < 0)))
        return err_set(e, EINVAL, STEP_USAGE, "net=, allow= or deny= is not UTF-8");
    return 0;
}

bool mcp_net_read(struct mcp_call *c)
{
    struct err e = { 0 };
    json_t *asked, *taken = NULL;
    int r = read_net(c, &asked, &e);

    if (r == 0 && asked) {
        r = net_take(&c->front->config, "net", asked, &taken, &e);
        c->net = r < 0 ? NULL : taken ? taken : json_string("none");
    }
    json_decref(asked);
    if (r < 0)
        mcp_refuse(c->r, r == -EPERM ? 403 : 400, MCP_INVALID_REQUEST, e.what, NULL);
    return r == 0;
}

/* The network of the box that the call works in or makes; NULL: none. */
static json_t *reach(const struct mcp_call *c)
{
    const struct config *config = &c->front->config;
    const struct box *box = c->box ? boxes_find(c->front, c->who.name, c->box) : NULL;
    json_t *net = NULL;

    if (box)
        net = json_incref(box->settings.net);
    else if (c->net)
        net = json_incref(c->net);
    else if (!c->box && config->n_templates && config->template[0].net[0])
        net = json_string(config->template[0].net);
    if (!net_allows(net) || (json_is_string(net) && strcmp(json_string_value(net), "none") == 0)) {
        json_decref(net);
        net = NULL;
    }
    return net;
}

void mcp_add_reach(struct buf *out, const struct mcp_call *c)
{
    json_t *net = reach(c), *allow = json_object_get(net, "allow"), *one;
    bool is_public = json_is_string(net) ? strcmp(json_string_value(net), "public") == 0
                                         : json_is_true(json_object_get(net, "public"));
    size_t i;

    if (!net)
        buf_add_text(out, "No network.");
    else if (is_public)
        buf_add_text(out, "Network: public addresses.");
    else if (json_is_string(net))
        buf_printf(out, "Network: the rules that its user named %s.", json_string_value(net));
    else {
        buf_add_text(out, "Network: only ");
        json_array_foreach(allow, i, one)
            buf_printf(out, "%s%s", i ? ", " : "", json_string_value(one));
        buf_add_text(out, ".");
    }
    json_decref(net);
}

/* If `carrel mcp` runs its own server, it is the only way to its boxes; it says so in a field. */
static bool is_relay_alone(const struct mcp_call *c)
{
    struct http_text relay = http_head_get(&c->r->head, "Carrel-Relay");

    return relay.data && http_text_is(relay, "private") && !c->box;
}

void mcp_add_refused(struct buf *out, const struct mcp_call *c, const char *box_id, const json_t *refused)
{
    /* The box of a function that was granted is not its caller's to change. */
    const char *rule = admitted_is_holder(&c->in) ? NULL : json_string_value(json_object_get(refused, "rule"));

    if (!refused)
        return;
    buf_printf(out, "[%s", json_string_value(json_object_get(refused, "message")));
    if (rule && rule[0] && is_relay_alone(c))
        buf_printf(out, "; you cannot allow it, your user can: by adding --allow %s to the arguments of carrel mcp in "
                   "the configuration of this client", rule);
    else if (rule && rule[0])
        buf_printf(out, "; you cannot allow it, your user can: carrel net %s --allow %s", box_id, rule);
    buf_add_text(out, "]\n");
}
