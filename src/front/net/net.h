/* The network of boxes: policies, the link to egress, what was refused. */
#ifndef CARREL_FRONT_NET_NET_H
#define CARREL_FRONT_NET_NET_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/net.h"

struct box;
struct front;
struct config;

/* ---- policies ---- */

/* The member "net" of a request: "none", "public", the name of a network of the configuration, or
 * {"allow": [...], "deny": [...], "public": true}. *ret: as it is stored and shown, a new reference; NULL: none. */
MUST_CHECK int net_take(const struct config *config, const char *name, json_t *value, json_t **ret, struct err *e);
/* What egress is told of it, with what the configuration denies to all. is_local: for a user of this machine, who may
 * reach the host's own addresses anyway. */
void           net_policy_of(const struct config *config, const json_t *net, bool is_local, struct net_policy *ret);

/* ---- egress ---- */

void           net_init(struct front *front);
void           net_free(struct front *front);
/* A new link, in the place of an earlier one. Takes over fd. */
void           net_on_link(struct front *front, int fd);
/* Reads all that egress has said so far. Before a command's end is told: what it was refused is there by then. */
void           net_hear(struct front *front);

/* ---- boxes ---- */

/* The box runs, or its policy has changed. */
void           net_box_tell(struct box *b);
void           net_box_free(struct box *b);
/* A program asked for this name, although the box has no network. */
void           net_box_name_refused(struct box *b, const char *name);
/* What the box was refused since then (loop_now_us): {"message": a line, "rule": what would allow the first}, a new
 * reference; NULL: nothing. Hears egress first, so it is whole once a command has ended. */
json_t        *net_box_refused(struct box *b, uint64_t since_us);
/* Live connections, counts and refusals. call comes later, with a new reference or the reason. */
typedef void net_shown(struct box *b, json_t *shown, const struct err *e, void *arg);
MUST_CHECK int net_box_show(struct box *b, net_shown *call, void *arg, struct err *e);
/* Forgets calls with this arg. */
void           net_cancel(struct front *front, void *arg);

#endif
