/* Parts that several bodies share. */
#include "cluster/body.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

struct jsonslice body_slice(const char *text)
{
    return (struct jsonslice){ text, text ? strlen(text) : 0 };
}

bool body_is_reserved(const char *key)
{
    return !strncmp(key, "agents.x-k8s.io/", 16) || !strncmp(key, "extensions.agents.x-k8s.io/", 27);
}

void body_finish(struct jsonout *j, struct buf *out)
{
    if (jsonout_finish(j) < 0)
        out->failure = out->failure ? out->failure : EINVAL;
}

void body_version(struct jsonout *j, const struct object *o)
{
    char version[32];

    snprintf(version, sizeof version, "%llu", (unsigned long long)o->version);
    jsonout_string(j, "resourceVersion", version);
}

void body_owner(struct jsonout *j, const struct object *owner)
{
    jsonout_open_object(j, NULL);
    jsonout_string(j, "apiVersion", kind_info[owner->kind].api_version);
    jsonout_string(j, "kind", kind_info[owner->kind].name);
    jsonout_string(j, "name", owner->name);
    jsonout_string(j, "uid", owner->uid);
    jsonout_bool(j, "controller", true);
    jsonout_bool(j, "blockOwnerDeletion", true);
    jsonout_close(j);
}

void body_condition(struct jsonout *j, const char *type, const struct condition *c)
{
    static const char *const words[] = { "", "False", "True", "Unknown" };
    char since[24];

    time_write(c->since, since);
    jsonout_open_object(j, NULL);
    jsonout_string(j, "type", type);
    jsonout_string(j, "status", words[c->status]);
    jsonout_signed(j, "observedGeneration", c->generation);
    jsonout_string(j, "lastTransitionTime", since);
    jsonout_string(j, "reason", c->reason ? c->reason : "Unknown");
    jsonout_string(j, "message", c->message ? c->message : "");
    jsonout_close(j);
}

void body_ips(struct jsonout *j, const char *ips)
{
    if (!ips) {
        jsonout_null(j, "podIPs");
        return;
    }
    jsonout_open_array(j, "podIPs");
    for (const char *at = ips; *at;) {
        size_t n = strcspn(at, ",");
        jsonout_bytes(j, NULL, at, n);
        at += n + (at[n] == ',');
    }
    jsonout_close(j);
}
