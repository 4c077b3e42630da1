#define _GNU_SOURCE
#include "front/identity/caller.h"

#include <stdio.h>
#include <string.h>

#include "front/front.h"
#include "front/services/grants.h"

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

bool caller_admit(struct admitted *a, unsigned scopes, struct refusal *ret_why)
{
    const char *why = "";
    struct identity *who = &a->who;
    int status = auth_request(a->front->auth, a->r, who, &why);

    if (status == 401)
        (void)http_reply_header(a->r, "WWW-Authenticate", "Bearer realm=\"carrel\"");
    if (status)
        return refuse(ret_why, status,
                      status == 401   ? "unauthorized"
                      : status == 403 ? "forbidden"
                                      : "internal",
                      why, "");
    if (who->scopes & SCOPE_GRANT)
        a->holder.id = who->name + strlen("grant:");
    /* A grant's memory is charged to its owner: otherwise a thousand grants would have a thousand times as much. */
    const struct grant *grant = a->holder.id ? grant_find(a->front, NULL, a->holder.id) : NULL;
    if (!claim(a->front, a->r, grant ? grant->owner : who->name, ret_why))
        return false;
    if (who->scopes & SCOPE_ADMIN)
        who->scopes |= SCOPE_ALL;
    for (size_t i = 0; i < sizeof scope_names / sizeof *scope_names; i++)
        if (scopes & ~who->scopes & scope_names[i].bit) {
            char lacks[64];
            snprintf(lacks, sizeof lacks, " lacks the scope %s", scope_names[i].name);
            return refuse(ret_why, 403, "forbidden", who->name, lacks);
        }
    return true;
}

bool caller_admit_holder(struct admitted *a, struct refusal *ret_why)
{
    const struct box *box = a->holder.box;

    if (box) {
        /* Code in a box has the box's name as identity; its memory is charged to the box's owner. */
        a->who = (struct identity){ .uid = (uid_t)-1, .gid = (gid_t)-1 };
        snprintf(a->who.name, sizeof a->who.name, "box:%s", box->id);
        return claim(a->front, a->r, box->owner, ret_why);
    }
    if (!caller_admit(a, 0, ret_why))
        return false;
    if (a->holder.id)
        return true;
    return refuse(ret_why, 403, "forbidden",
                  "this is for holders of a grant: with its token, or from a box that has one", "");
}
