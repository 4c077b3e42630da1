#define _GNU_SOURCE
#include "front/net/box_net.h"

#include <stdlib.h>
#include <string.h>

#include "front/front.h"

enum { EVENT_EVERY_US = 1000000, LINE_MOST = 2048 };

struct box_net *box_net_of(struct box *b)
{
    if (!b->net)
        b->net = calloc(1, sizeof *b->net);
    return b->net;
}

void net_box_free(struct box *b)
{
    free(b->net);
    b->net = NULL;
}

static json_t *refusal_json(const struct net_refusal *one)
{
    static const char *const why[] = { "not allowed", "its address is not allowed", "another TLS server name",
                                       "too many connections" };
    char rule[NET_RULE_TEXT];

    net_refusal_rule(one, rule);
    return json_pack("{s:s,s:i,s:I,s:s,s:s}", "name", one->what, "port", (int)one->port, "count",
                     (json_int_t)one->count, "why", why[one->why < 4 ? one->why : 0], "rule", rule);
}

void box_net_refused(struct box *b, const struct egress_refused *word)
{
    struct box_net *net = box_net_of(b);
    uint64_t now = loop_now_us();
    size_t before = net ? net->refusals.n : 0;

    if (!net)
        return;
    refusals_add(&net->refusals, word, now);
    /* The first of each kind at once; a program that asks again and again fills no log. */
    if (net->refusals.n == before && now - net->told_us < EVENT_EVERY_US)
        return;
    net->told_us = now;
    for (size_t i = 0; i < net->refusals.n; i++)
        if (net->refusals.list[i].last_us == now)
            box_event(b, "net", refusal_json(&net->refusals.list[i]));
}

void net_box_name_refused(struct box *b, const char *name)
{
    struct egress_refused word = { .why = EGRESS_NOT_ALLOWED, .count = 1 };

    if (!net_name_clean(name, strnlen(name, sizeof word.what - 1), word.what))
        return;
    for (size_t i = 0; b->net && i < b->net->refusals.n; i++)
        if (strcmp(b->net->refusals.list[i].what, word.what) == 0 && b->net->refusals.list[i].port == 0)
            word.count = b->net->refusals.list[i].count + 1;
    box_net_refused(b, &word);
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
    if (refusals_write(&b->net->refusals, since_us, b->settings.net != NULL, &line, rule))
        told = json_pack("{s:s,s:s?}", "message", buf_string(&line), "rule", rule[0] ? rule : NULL);
    buf_done(&line);
    return told;
}

json_t *box_net_json(const struct box *b, json_t *connections)
{
    json_t *refused = json_array();
    const struct egress_usage *usage = b->net ? &b->net->usage : &(struct egress_usage){ .live = 0 };

    for (size_t i = 0; b->net && i < b->net->refusals.n; i++)
        json_array_append_new(refused, refusal_json(&b->net->refusals.list[i]));
    return json_pack("{s:o,s:o,s:o,s:I,s:I,s:I,s:I}", "net",
                     b->settings.net ? json_incref(b->settings.net) : json_string("none"), "connections", connections,
                     "refused", refused, "bytes_sent", (json_int_t)usage->sent, "bytes_received",
                     (json_int_t)usage->received, "connections_made", (json_int_t)usage->connections, "refusals",
                     (json_int_t)usage->refusals);
}
