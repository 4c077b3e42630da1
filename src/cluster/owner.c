/* `kubectl delete namespace agent-sandbox-system` is how people remove the controller. What is cluster-scoped would
 * stay behind, so the Namespace is made its owner, and the garbage collector does the rest. The Sandbox CRD is not
 * among these: people delete it by name. Best effort: a right that is missing is told in the log and costs nothing
 * else.
 *
 * GET the Namespace -> for each object: GET -> PATCH, unless it is owned already. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "base/list.h"
#include "cluster/controller.h"

static const char *const targets[] = {
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/agent-sandbox-controller",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/agent-sandbox-controller",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/kernels.jupyter.org",
};
enum { TARGETS = sizeof targets / sizeof *targets };

static char   namespace_uid[64];
static size_t at;

static void on_got(struct kube_call *call);

static void get(struct controller *c, char *path, void (*on_done)(struct kube_call *))
{
    struct kube_call *call = &c->owner_call;

    free(call->path);
    call->path = path;
    call->method = "GET";
    call->type = NULL;
    call->on_done = on_done;
    buf_done(&call->body);
    if (path)
        kube_call_start(c->client, call);
}

static struct controller *controller_of(struct kube_call *call)
{
    return container_of(call, struct controller, owner_call);
}

static void next(struct controller *c)
{
    if (++at < TARGETS)
        get(c, kube_path("%r", targets[at]), on_got);
}

static void on_patched(struct kube_call *call)
{
    char text[200];

    if (call->status != 200) {
        kube_call_text(call, text, sizeof text);
        log_line(LOG_DEBUG, "%s stays when the namespace is deleted: %s", targets[at], text);
    }
    next(controller_of(call));
}

static void write_owner_patch(struct controller *c, struct jsonslice meta, struct buf *out)
{
    struct jsonwalk w = jsonscan_walk(jsonscan_find(meta, "ownerReferences"));
    struct jsonslice version = jsonscan_find(meta, "resourceVersion");
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    if (version.data)
        jsonout_raw(&j, "resourceVersion", version.data, version.size);
    jsonout_open_array(&j, "ownerReferences");
    while (jsonscan_next(&w))
        if (!jsonscan_is(jsonscan_find(w.value, "kind"), "Namespace"))      /* an earlier one of that name */
            jsonout_raw(&j, NULL, w.value.data, w.value.size);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "Namespace");
    jsonout_string(&j, "name", c->own_namespace);
    jsonout_string(&j, "uid", namespace_uid);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out->failure = out->failure ? out->failure : EINVAL;
}

static void on_got(struct kube_call *call)
{
    struct controller *c = controller_of(call);
    struct jsonslice whole = { buf_string(&call->answer), call->answer.length };
    char text[200];

    if (call->status != 200 || !jsonscan_is_object(whole.data, whole.size)) {
        kube_call_text(call, text, sizeof text);
        log_line(LOG_DEBUG, "%s: %s", targets[at], text);
        next(c);
        return;
    }
    struct jsonslice meta = jsonscan_find(whole, "metadata");
    struct jsonwalk w = jsonscan_walk(jsonscan_find(meta, "ownerReferences"));
    while (jsonscan_next(&w))
        if (jsonscan_is(jsonscan_find(w.value, "uid"), namespace_uid)) {
            next(c);
            return;
        }
    struct buf body;
    buf_init(&body, 65536);
    write_owner_patch(c, meta, &body);
    buf_done(&call->body);
    call->body = body;
    call->method = "PATCH";
    call->type = KUBE_MERGE_PATCH;
    call->on_done = on_patched;
    kube_call_start(c->client, call);
}

static void on_namespace(struct kube_call *call)
{
    struct jsonslice whole = { buf_string(&call->answer), call->answer.length };

    if (call->status != 200 || !jsonscan_is_object(whole.data, whole.size) ||
        !jsonscan_text(jsonscan_find(jsonscan_find(whole, "metadata"), "uid"), namespace_uid, sizeof namespace_uid)) {
        char text[200];
        kube_call_text(call, text, sizeof text);
        log_line(LOG_DEBUG, "our namespace cannot be read, so nothing is made to go with it: %s", text);
        return;
    }
    at = 0;
    get(controller_of(call), kube_path("%r", targets[0]), on_got);
}

void owner_start(struct controller *c)
{
    if (c->own_namespace && !c->owner_call.running)
        get(c, kube_path("/api/v1/namespaces/%s", c->own_namespace), on_namespace);
}
