/* Bodies of writes for a Kernel. The client's values in the environment win; missing ones are added, so that the
 * program in the Pod and the annotations always agree. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "cluster/body.h"
#include "cluster/kernel.h"

enum { KEY_SIZE = 320 };

static const struct { const char *env, *member, *name; unsigned port;
} ports[KERNEL_PORTS] = {
    { "KERNEL_SHELL_PORT", "shell_port", "shell", 52317 }, { "KERNEL_IOPUB_PORT", "iopub_port", "iopub", 52318 },
    { "KERNEL_HB_PORT", "hb_port", "hb", 52319 },          { "KERNEL_CONTROL_PORT", "control_port", "control", 52320 },
    { "KERNEL_STDIN_PORT", "stdin_port", "stdin", 52321 },
};

void guest_link_read(const struct kernel *k, struct guest_link *ret)
{
    struct jsonwalk containers = jsonscan_walk(jsonscan_find(body_slice(k->pod_spec), "containers"));
    char text[32];

    *ret = (struct guest_link){ 0 };
    for (size_t i = 0; i < KERNEL_PORTS; i++)
        ret->port[i] = ports[i].port;
    snprintf(ret->id, sizeof ret->id, "%s", k->o.uid);
    if (!jsonscan_next(&containers))
        return;
    struct jsonwalk w = jsonscan_walk(jsonscan_find(containers.value, "env"));
    while (jsonscan_next(&w)) {
        struct jsonslice name = jsonscan_find(w.value, "name"), value = jsonscan_find(w.value, "value");
        char id[sizeof ret->id];
        if (jsonscan_is(name, "KERNEL_ID") && jsonscan_text(value, id, sizeof id) && id[0])
            memcpy(ret->id, id, sizeof id);
        else if (jsonscan_is(name, "KERNEL_KEY") || jsonscan_is(name, "KERNEL_KEY_FILE"))
            ret->has_key = true;
        for (size_t i = 0; i < KERNEL_PORTS; i++)
            if (jsonscan_is(name, ports[i].env) && jsonscan_text(value, text, sizeof text)) {
                unsigned long n = strtoul(text, NULL, 10);
                if (n > 0 && n < 65536)
                    ret->port[i] = (unsigned)n;
            }
    }
}

void kernel_write_notes(const struct kernel *k, const struct policy *p, struct buf *out)
{
    struct guest_link link;
    struct jsonout j;
    struct buf info;
    char host[1024];

    guest_link_read(k, &link);
    snprintf(host, sizeof host, "%s.%s.svc.%s", k->o.name, k->o.namespace, p->cluster_domain);
    buf_init(&info, 8192);
    jsonout_init(&j, &info);
    jsonout_open_object(&j, NULL);
    for (size_t i = 0; i < KERNEL_PORTS; i++)
        jsonout_unsigned(&j, ports[i].member, link.port[i]);
    jsonout_string(&j, "ip", host);
    jsonout_string(&j, "key", link.has_key ? "" : link.id);
    jsonout_string(&j, "transport", "tcp");
    jsonout_string(&j, "signature_scheme", "hmac-sha256");
    jsonout_string(&j, "kernel_name", "");
    jsonout_close(&j);
    body_finish(&j, &info);

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    jsonout_open_object(&j, "annotations");
    jsonout_string(&j, "jupyter.org/kernel-id", link.id);
    jsonout_string(&j, "jupyter.org/kernel-connection-info", buf_string(&info));
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
    if (buf_error(&info) < 0)
        out->failure = info.failure;
    buf_done(&info);
}

/* ---- the Pod ---- */

static void write_env(struct jsonout *j, struct jsonslice env, const struct guest_link *link)
{
    struct jsonwalk w = jsonscan_walk(env);
    bool has_id = false, has_port[KERNEL_PORTS] = { false };
    char number[16];

    jsonout_open_array(j, "env");
    while (jsonscan_next(&w)) {
        struct jsonslice name = jsonscan_find(w.value, "name");
        has_id = has_id || jsonscan_is(name, "KERNEL_ID");
        for (size_t i = 0; i < KERNEL_PORTS; i++)
            has_port[i] = has_port[i] || jsonscan_is(name, ports[i].env);
        jsonout_raw(j, NULL, w.value.data, w.value.size);
    }
    for (size_t i = 0; i < KERNEL_PORTS + 1; i++) {
        if (i < KERNEL_PORTS ? has_port[i] : has_id)
            continue;
        snprintf(number, sizeof number, "%u", i < KERNEL_PORTS ? link->port[i] : 0);
        jsonout_open_object(j, NULL);
        jsonout_string(j, "name", i < KERNEL_PORTS ? ports[i].env : "KERNEL_ID");
        jsonout_string(j, "value", i < KERNEL_PORTS ? number : link->id);
        jsonout_close(j);
    }
    jsonout_close(j);
}

/* The first container is the kernel. */
static void write_containers(struct jsonout *j, struct jsonslice containers, const struct guest_link *link)
{
    struct jsonwalk w = jsonscan_walk(containers);
    char key[KEY_SIZE];

    jsonout_open_array(j, "containers");
    for (size_t i = 0; jsonscan_next(&w); i++) {
        if (i > 0) {
            jsonout_raw(j, NULL, w.value.data, w.value.size);
            continue;
        }
        struct jsonwalk m = jsonscan_walk(w.value);
        jsonout_open_object(j, NULL);
        if (jsonscan_inside(jsonscan_find(w.value, "name")).size == 0)
            jsonout_string(j, "name", "kernel");
        while (jsonscan_next(&m))
            if (jsonscan_text(m.key, key, sizeof key) && strcmp(key, "env") != 0 &&
                (strcmp(key, "name") != 0 || jsonscan_inside(m.value).size > 0))
                jsonout_raw(j, key, m.value.data, m.value.size);
        write_env(j, jsonscan_find(w.value, "env"), link);
        jsonout_close(j);
    }
    jsonout_close(j);
}

static void write_metadata(struct jsonout *j, const struct kernel *k, bool for_pod)
{
    struct jsonwalk w = jsonscan_walk(body_slice(for_pod ? k->labels : NULL));
    char key[KEY_SIZE];

    jsonout_open_object(j, "metadata");
    jsonout_string(j, "name", k->o.name);
    jsonout_string(j, "namespace", k->o.namespace);
    jsonout_open_object(j, "labels");
    while (jsonscan_next(&w))
        if (jsonscan_text(w.key, key, sizeof key) && strcmp(key, LABEL_KERNEL) != 0)
            jsonout_raw(j, key, w.value.data, w.value.size);
    jsonout_string(j, LABEL_KERNEL, k->o.name);
    jsonout_close(j);
    if (for_pod && k->notes && *k->notes == '{')
        jsonout_raw(j, "annotations", k->notes, strlen(k->notes));
    jsonout_open_array(j, "ownerReferences");
    body_owner(j, &k->o);
    jsonout_close(j);
    jsonout_close(j);
}

void kernel_write_pod(const struct kernel *k, const struct policy *p, struct buf *out)
{
    struct jsonslice spec = body_slice(k->pod_spec), account = jsonscan_find(spec, "serviceAccountName");
    struct jsonwalk w = jsonscan_walk(spec);
    bool asks = jsonscan_find(spec, "automountServiceAccountToken").data ||
                (jsonscan_inside(account).size > 0 && !jsonscan_is(account, "default"));
    struct guest_link link;
    struct jsonout j;
    char key[KEY_SIZE];

    guest_link_read(k, &link);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "Pod");
    write_metadata(&j, k, true);
    jsonout_open_object(&j, "spec");
    while (jsonscan_next(&w)) {
        if (!jsonscan_text(w.key, key, sizeof key))
            continue;
        if (strcmp(key, "containers") == 0)
            write_containers(&j, w.value, &link);
        else
            jsonout_raw(&j, key, w.value.data, w.value.size);
    }
    if (!jsonscan_find(spec, "restartPolicy").data)
        jsonout_string(&j, "restartPolicy", "Never");
    if (p->secure_defaults && !asks)
        jsonout_bool(&j, "automountServiceAccountToken", false);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void kernel_write_service(const struct kernel *k, struct buf *out)
{
    struct guest_link link;
    struct jsonout j;

    guest_link_read(k, &link);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "Service");
    write_metadata(&j, k, false);
    jsonout_open_object(&j, "spec");
    jsonout_open_object(&j, "selector");
    jsonout_string(&j, LABEL_KERNEL, k->o.name);
    jsonout_close(&j);
    jsonout_open_array(&j, "ports");
    for (size_t i = 0; i < KERNEL_PORTS; i++) {
        jsonout_open_object(&j, NULL);
        jsonout_string(&j, "name", ports[i].name);
        jsonout_unsigned(&j, "port", link.port[i]);
        jsonout_unsigned(&j, "targetPort", link.port[i]);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void kernel_write_status(const struct kernel_plan *plan, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "status");
    jsonout_raw(&j, "conditions", plan->conditions, strlen(plan->conditions));
    jsonout_unsigned(&j, "readyReplicas", 1);
    /* A merge patch would mix the members of both states: first all old ones are removed by name. */
    if (plan->state) {
        struct jsonwalk w = jsonscan_walk(body_slice(plan->state));
        static const char *const kinds[] = { "waiting", "running", "terminated" };
        jsonout_open_object(&j, "containerState");
        for (size_t i = 0; i < 3; i++)
            if (!jsonscan_find(body_slice(plan->state), kinds[i]).data)
                jsonout_null(&j, kinds[i]);
        while (jsonscan_next(&w)) {
            char key[KEY_SIZE];
            if (jsonscan_text(w.key, key, sizeof key))
                jsonout_raw(&j, key, w.value.data, w.value.size);
        }
        jsonout_close(&j);
    } else {
        jsonout_null(&j, "containerState");
    }
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}
