/* The one gate that a request passes, through whichever door it came: who asks, whether its connections and its memory
 * are within its bounds, and whether it may do this. What a caller owns is found by its name (boxes_find and others),
 * so that what is not its own does not exist for it. */
#ifndef CARREL_FRONT_IDENTITY_CALLER_H
#define CARREL_FRONT_IDENTITY_CALLER_H

#include <stdbool.h>

#include "front/identity/auth.h"

struct box;
struct front;
struct http_request;

/* Why not. The fields that go with it (WWW-Authenticate, Retry-After) are in the answer already; the door adds status
 * and words in its own shape. */
struct refusal {
    int         status;     /* 401, 403, 429, 500 */
    const char *code;       /* for programs: unauthorized, forbidden, too_many, internal */
    char        why[200];
};

/* scopes: all of them are needed (enum scope); 0: none. */
bool caller_admit(struct front *front, struct http_request *r, unsigned scopes, struct identity *ret,
                  struct refusal *ret_why);

/* Somebody who holds a grant: a box's code, over its inlet (*ret_box is the box), or whoever has the grant's token
 * (*ret_box is NULL). False with status 0: the box is gone, so the connection is to be cut. */
bool caller_admit_holder(struct front *front, struct http_request *r, struct identity *ret, struct box **ret_box,
                         struct refusal *ret_why);

/* The id of the grant that a token's identity is of; NULL: it is of none. */
const char *caller_grant(const struct identity *who);

#endif
