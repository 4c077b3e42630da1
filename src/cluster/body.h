/* Parts that the bodies of several writes have in common. */
#ifndef CARREL_CLUSTER_BODY_H
#define CARREL_CLUSTER_BODY_H

#include "base/jsonout.h"
#include "cluster/object.h"

struct jsonslice body_slice(const char *text);      /* NULL: there is none */

/* The end of a body; a wrong call is the buffer's failure. */
void body_finish(struct jsonout *j, struct buf *out);
/* The write is refused if the object has changed meanwhile. */
void body_version(struct jsonout *j, const struct object *o);
/* One owner reference, as a member of an array. */
void body_owner(struct jsonout *j, const struct object *owner);
void body_condition(struct jsonout *j, const char *type, const struct condition *c);
/* Of labels and annotations: only controllers set it, and what a template says of it is not heard. */
bool body_is_reserved(const char *key);
/* "podIPs" from addresses with commas between; null if there are none. */
void body_ips(struct jsonout *j, const char *ips);

#endif
