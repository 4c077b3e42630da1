/* Parts that several bodies share. */
#ifndef CARREL_CLUSTER_BODY_H
#define CARREL_CLUSTER_BODY_H

#include "base/jsonout.h"
#include "cluster/object.h"

struct jsonslice body_slice(const char *text);      /* NULL: empty */

/* Ends a body; a wrong call becomes the buffer's failure. */
void body_finish(struct jsonout *j, struct buf *out);
/* Makes the server refuse the write if the object has changed meanwhile. */
void body_version(struct jsonout *j, const struct object *o);
/* One owner reference, as a member of an array. */
void body_owner(struct jsonout *j, const struct object *owner);
void body_condition(struct jsonout *j, const char *type, const struct condition *c);
/* Labels and annotations that only controllers set; a template's values for them are ignored. */
bool body_is_reserved(const char *key);
/* "podIPs" from comma-separated addresses; null if there are none. */
void body_ips(struct jsonout *j, const char *ips);

#endif
