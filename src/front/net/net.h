/* The network of boxes: policies, the link to egress, refusals. */
#ifndef CARREL_FRONT_NET_NET_H
#define CARREL_FRONT_NET_NET_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/jsonout.h"
#include "proto/net.h"
#include "proto/walls.h"

struct box;
struct front;
struct config;

/* ---- policies ---- */

/* The member "net" of a request: "none", "public", the name of a network of the configuration, or {"allow": [...],
 * "deny": [...], "public": true}. *ret: in the stored form, a new reference; NULL: none. */
MUST_CHECK int net_take(const struct config *config, const char *name, json_t *value, json_t **ret, struct err *e);
/* Whether the stored form allows something, so that the box has a network: it may be NULL, or only deny. */
bool           net_allows(const json_t *net);
/* The policy for egress, including the configuration's rules that deny for all, and those by which keys allow their
 * hosts. is_local: for a user of this machine,
 * who can reach the host's own addresses anyway. */
void           net_policy_of(const struct config *config, const json_t *net, const json_t *keys, bool is_local,
                             struct net_policy *ret);
/* Refuses keys (front/keys) whose hosts this network denies, or a network that this server would not allow. */
MUST_CHECK int net_check_keys(const struct config *config, const json_t *net, const json_t *keys, struct err *e);

/* The smaller of the request's bounds and the configuration's. */
void           net_bounds_of(const struct config *config, const json_t *net, struct net_bounds *ret);

/* ---- egress ---- */

void           net_init(struct front *front);
void           net_free(struct front *front);
/* A new link, which replaces an earlier one. Takes over fd. */
void           net_on_link(struct front *front, int fd);
/* Egress's end of a link to the broker, for egress; taken over. A no-op without egress: a new one is given another. */
void           net_give_broker(struct front *front, int fd);
/* Reads all that egress has sent so far. Call it before a command's end is reported: its refusals are then complete. */
void           net_hear(struct front *front);

/* ---- boxes ---- */

/* The box runs, or its policy has changed: sends the policy. */
void           net_box_tell(struct box *b);
/* The keeper has made its network, or failed: then it has none, as before. */
void           net_box_changed(struct box *b, int result);
void           net_box_free(struct box *b);
/* A program in a box without network looked up this name; "": tried addresses. */
void           net_box_name_refused(struct box *b, const char *name);
/* A command, cell or call begins in the box: what it is refused is reported at once, also if an earlier one was refused
 * the same a moment ago. Call it when its start is recorded. */
void           net_box_begin_command(struct box *b);
/* The box's refusals since then (loop_now_us): {"message": a line, "rule": would allow the first}, a new reference;
 * NULL: none. Calls net_hear() first, so it is complete once a command has ended. */
json_t        *net_box_refused(struct box *b, uint64_t since_us);
/* Live connections, counts and refusals. call comes later, with a new reference or an error. */
typedef void net_shown(struct box *b, json_t *shown, const struct err *e, void *arg);
MUST_CHECK int net_box_show(struct box *b, net_shown *call, void *arg, struct err *e);
/* Writes the member "net" of its usage: bytes and connections, from egress's last report. */
void           net_box_usage(const struct box *b, struct jsonout *j);
/* How its rules are enforced, from egress's last report. */
enum wall_network net_box_wall(const struct box *b);
/* Cancels calls with this arg. */
void           net_cancel(struct front *front, void *arg);

#endif
