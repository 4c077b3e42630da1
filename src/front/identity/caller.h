/* The one gate for requests of all doors: identifies the caller, checks its bounds of connections and memory, and its
 * scopes. A caller's objects are found by its name (boxes_find and others), so other identities' objects do not exist
 * for it. */
#ifndef CARREL_FRONT_IDENTITY_CALLER_H
#define CARREL_FRONT_IDENTITY_CALLER_H

#include <stdbool.h>

#include "front/request/admitted.h"

/* The reason of a refusal. Header fields (WWW-Authenticate, Retry-After) are in the answer already; the door adds
 * status and text in its own shape. */
struct refusal {
    int         status;     /* 401, 403, 429, 500 */
    const char *code;       /* for programs: unauthorized, forbidden, too_many, internal */
    char        why[200];
};

/* a: front and request must be set; fills in the identity and, for a grant's token, its id. scopes: all are required
 * (enum scope); 0: none. */
bool caller_admit(struct admitted *a, unsigned scopes, struct refusal *ret_why);

/* The same for routes of grant holders: code in a box, if the door has put the inlet's box into a->holder, or a caller
 * with the token of a grant. */
bool caller_admit_holder(struct admitted *a, struct refusal *ret_why);

#endif
