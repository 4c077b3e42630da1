#define _GNU_SOURCE
#include "front/identity/caller.h"

#include <stdio.h>
#include <string.h>

#include "front/front.h"
#include "front/services/grants.h"
#include "front/services/inlets.h"

static const struct {
    unsigned    bit;
    const char *name;
} scope_names[] = {
    { SCOPE_READ, "boxes:read" }, { SCOPE_WRITE, "boxes:write" }, { SCOPE_EXEC, "exec" },
    { SCOPE_FILES, "files" },     { SCOPE_PORTS, "ports" },       { SCOPE_ADMIN, "admin" },
};

static bool refuse(struct refusal *ret, int status, const char *code, const char *what, const char *why)
{
    *ret = (struct refusal){ .status = status, .code = code };
    snprintf(ret->why, sizeof ret->why, "%s%s", what, why);
    return false;
}

static bool claim(struct front *front, struct http_request *r, const char *owner, struct refusal *ret)
{
    if (http_request_claim(r, &front->memory, owner))
        return true;
    (void)http_reply_header(r, "Retry-After", "1");
    return refuse(ret, 429, "too_many", owner, " has too many connections; close some");
}

bool caller_admit(struct front *front, struct http_request *r, unsigned scopes, struct identity *ret,
                  struct refusal *ret_why)
{
    const char *why = "";
    int status = auth_request(front->auth, r, ret, &why);

    if (status == 401)
        (void)http_reply_header(r, "WWW-Authenticate", "Bearer realm=\"carrel\"");
    if (status)
        return refuse(ret_why, status,
                      status == 401   ? "unauthorized"
                      : status == 403 ? "forbidden"
                                      : "internal",
                      why, "");
    /* What is kept for a grant is its owner's: else who makes a thousand grants has a thousand times as much. */
    const struct grant *grant = caller_grant(ret) ? grant_find(front, NULL, caller_grant(ret)) : NULL;
    if (!claim(front, r, grant ? grant->owner : ret->name, ret_why))
        return false;
    if (ret->scopes & SCOPE_ADMIN)
        ret->scopes |= SCOPE_ALL;
    for (size_t i = 0; i < sizeof scope_names / sizeof *scope_names; i++)
        if (scopes & ~ret->scopes & scope_names[i].bit) {
            char lacks[64];
            snprintf(lacks, sizeof lacks, " lacks the scope %s", scope_names[i].name);
            return refuse(ret_why, 403, "forbidden", ret->name, lacks);
        }
    return true;
}

bool caller_admit_holder(struct front *front, struct http_request *r, struct identity *ret, struct box **ret_box,
                         struct refusal *ret_why)
{
    bool is_inlet;
    struct box *box = inlet_box(front, r->peer, &is_inlet);

    *ret_box = box;
    if (is_inlet && !box) {
        *ret_why = (struct refusal){ 0 };
        return false;
    }
    if (box) {
        /* A box's code has no name but its box's; what is kept for it is its owner's. */
        *ret = (struct identity){ .uid = (uid_t)-1, .gid = (gid_t)-1 };
        snprintf(ret->name, sizeof ret->name, "box:%s", box->id);
        return claim(front, r, box->owner, ret_why);
    }
    if (!caller_admit(front, r, 0, ret, ret_why))
        return false;
    if (caller_grant(ret))
        return true;
    return refuse(ret_why, 403, "forbidden",
                  "this is for holders of a grant: with its token, or from a box that has one", "");
}

const char *caller_grant(const struct identity *who)
{
    return who->scopes & SCOPE_GRANT ? who->name + strlen("grant:") : NULL;
}
