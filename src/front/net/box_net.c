#define _GNU_SOURCE
#include "front/net/box_net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_parts.h"
#include "front/front.h"
#include "front/keeper_link.h"

/* Before a rule of the box's own, in answers of the API. */
#define DENY "its rule deny "

enum { EVENT_EVERY_US = 1000000, LINE_MOST = 2048 };

struct box_net *box_net_of(struct box *b)
{
    if (!b->net)
        b->net = calloc(1, sizeof *b->net);
    return b->net;
}

void net_box_changed(struct box *b, int result)
{
    if (result == 0)
        net_box_tell(b);
    if (result == 0 || result == -EALREADY)
        return;
    json_decref(b->settings.net);
    b->settings.net = NULL;
    b->has_network = b->settings.keys != NULL;
    box_save(b);
}

/* A counter that began again counts completely. Egress is trusted here, but cannot make a total smaller. */
static void count(uint64_t now, uint64_t before, uint64_t *total, uint64_t *metric)
{
    uint64_t more = now > before ? now - before : 0;

    *total += more;
    *metric += more;
}

void box_net_took(struct box *b, const struct egress_usage *usage)
{
    static const struct egress_usage none;
    struct metrics *m = &b->front->metrics;
    struct box_net *net = box_net_of(b);

    if (!net)
        return;
    const struct egress_usage *before = net->usage.since_ms == usage->since_ms ? &net->usage : &none;
    count(usage->sent, before->sent, &net->total.sent, &m->net_sent);
    count(usage->received, before->received, &net->total.received, &m->net_received);
    count(usage->connections, before->connections, &net->total.connections, &m->net_connections);
    count(usage->refusals, before->refusals, &net->total.refusals, &m->net_refusals);
    net->usage = *usage;
    net->total.live = usage->live;
}

void net_box_usage(const struct box *b, struct jsonout *j)
{
    static const struct egress_usage none;
    const struct egress_usage *usage = b->net ? &b->net->total : &none;

    jsonout_open_object(j, "net");
    jsonout_unsigned(j, "bytes_sent", usage->sent);
    jsonout_unsigned(j, "bytes_received", usage->received);
    jsonout_unsigned(j, "connections", usage->live);
    jsonout_unsigned(j, "connections_made", usage->connections);
    jsonout_unsigned(j, "refusals", usage->refusals);
    jsonout_close(j);
}

/* Its rules, without those of keys: with these alone a box has no network. */
static const struct net_policy *policy_of(const struct box *b)
{
    static struct net_policy policy;

    net_policy_of(&b->front->config, b->settings.net, NULL, b->owner_uid != (uid_t)-1, &policy);
    return &policy;
}

static json_t *refusal_json(const struct net_refusal *one, const struct net_policy *policy)
{
    char rule[NET_RULE_TEXT];
    struct buf denial;

    buf_init(&denial, LINE_MOST);
    bool is_denied = net_refusal_denial(one, policy, DENY, &denial);
    net_refusal_rule(one, policy, rule);
    json_t *shown = json_pack("{s:s,s:i,s:I,s:s,s:s?}", "name", one->what, "port", (int)one->port, "count",
                              (json_int_t)one->count, "why",
                              is_denied ? buf_string(&denial) : net_refusal_why(one->why), "rule",
                              rule[0] ? rule : NULL);
    buf_done(&denial);
    return shown;
}

void box_net_refused(struct box *b, const struct egress_refused *word)
{
    struct box_net *net = box_net_of(b);
    uint64_t now = loop_now_us();
    size_t before = net ? net->refusals.n : 0;

    if (!net)
        return;
    net->has_heard = true;
    const struct net_refusal *one =
        word ? refusals_add(&net->refusals, word, now) : refusals_add_unrouted(&net->refusals, now);
    /* The first of each kind at once, while the table has room; a program that retries again and again, or tries ever
     * other names, must not fill a log. */
    if (net->refusals.n == before && now - net->told_us < EVENT_EVERY_US)
        return;
    net->told_us = now;
    box_event(b, "net", refusal_json(one, policy_of(b)));
}

static void ignore_answer(const union event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;
    (void)fds;
    (void)n_fds;
    (void)arg;
}

/* Nothing is sent unless something was refused since the last command: the usual command costs nothing here. */
void net_box_begin_command(struct box *b)
{
    struct request_head q = { .type = REQUEST_NAMES, .box = b->slot };

    if (b->has_network)
        net_hear(b->front);
    if (!b->net || !b->net->has_heard)
        return;
    b->net->has_heard = false;
    if (b->has_network)
        box_net_renew(b);
    else
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, ignore_answer, NULL);
}

void net_box_name_refused(struct box *b, const char *name)
{
    struct egress_refused word = { .why = EGRESS_NOT_ALLOWED, .count = 1, .last_us = loop_now_us() };

    if (name[0] && !net_name_clean(name, strnlen(name, sizeof word.what - 1), word.what))
        return;
    for (size_t i = 0; b->net && i < b->net->refusals.n; i++)
        if (strcmp(b->net->refusals.list[i].what, word.what) == 0 && b->net->refusals.list[i].port == 0)
            word.count = b->net->refusals.list[i].count + 1;
    box_net_refused(b, name[0] ? &word : NULL);
    if (b->net) {
        b->net->total.refusals++;
        b->front->metrics.net_refusals++;
    }
}

json_t *net_box_refused(struct box *b, uint64_t since_us)
{
    char rule[NET_RULE_TEXT];
    json_t *told = NULL;
    struct buf line;

    net_hear(b->front);
    if (!b->net)
        return NULL;
    buf_init(&line, LINE_MOST);
    if (refusals_write(&b->net->refusals, since_us, policy_of(b), DENY, &line, rule))
        told = json_pack("{s:s,s:s?,s:b}", "message", buf_string(&line), "rule", rule[0] ? rule : NULL, "is_index",
                         refusals_are_of_index(rule));
    buf_done(&line);
    return told;
}

json_t *box_net_json(const struct box *b, json_t *connections)
{
    const struct net_policy *policy = policy_of(b);
    json_t *refused = json_array();
    const struct egress_usage *usage = b->net ? &b->net->total : &(struct egress_usage){ .live = 0 };

    for (size_t i = 0; b->net && i < b->net->refusals.n; i++)
        json_array_append_new(refused, refusal_json(&b->net->refusals.list[i], policy));
    return json_pack("{s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I}", "net",
                     b->settings.net ? json_incref(b->settings.net) : json_string("none"), "connections", connections,
                     "refused", refused, "refused_more", (json_int_t)(b->net ? b->net->refusals.more : 0), "bytes_sent",
                     (json_int_t)usage->sent, "bytes_received", (json_int_t)usage->received, "connections_made",
                     (json_int_t)usage->connections, "refusals", (json_int_t)usage->refusals);
}

enum wall_network net_box_wall(const struct box *b)
{
    uint32_t way = b->net ? b->net->usage.way : 0;

    return !box_settings_have_net(&b->settings)                ? WALL_NET_NONE
           : way == 0 || way > WALL_NET_TPROXY - WALL_NET_NONE ? WALL_NET_UNKNOWN
                                                               : (enum wall_network)way;
}
