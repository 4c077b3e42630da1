/* Reconcilers as tables: a state of the cluster, and what is to be done, or what the status says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/kernel.h"
#include "cluster/sandbox.h"
#include "controller/decoding.h"

#define UID "11111111-0000-0000-0000-000000000001"
#define OURS "\"ownerReferences\":[{\"controller\":true,\"kind\":\"Sandbox\",\"name\":\"box\",\"uid\":\"" UID "\"}]"
#define OTHERS "\"ownerReferences\":[{\"controller\":true,\"kind\":\"Job\",\"name\":\"j\",\"uid\":\"u-9\"}]"
#define LABELS "\"labels\":{\"" LABEL_HASH "\":\"70c67e32\"}"
#define ENDING "\"deletionTimestamp\":\"2026-01-01T00:00:00Z\""
#define SPEC "\"podTemplate\":{\"spec\":{\"containers\":[{\"name\":\"c\",\"ports\":[{\"containerPort\":80}]}]}}"
#define VOLUME "\"volumeClaimTemplates\":[{\"metadata\":{\"name\":\"d\"},\"spec\":{}}]"
#define MODELS                                                                                                         \
    "\"podTemplate\":{\"spec\":{\"containers\":[],\"volumes\":[{\"name\":\"m\",\"persistentVolumeClaim\":"             \
    "{\"claimName\":\"models\"}}]}}"
#define RUNNING(ready, ips)                                                                                            \
    "\"phase\":\"Running\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"},{\"type\":\"Ready\","       \
    "\"status\":\"" ready "\"}]" ips
#define IPS ",\"podIPs\":[{\"ip\":\"10.0.0.1\"}]"
#define READY RUNNING("True", IPS)
#define SUSPENDED SPEC ",\"operatingMode\":\"Suspended\""
#define EXPIRED_STATUS                                                                                                 \
    "\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\",\"reason\":\"SandboxExpired\","                          \
    "\"message\":\"Sandbox has expired\",\"observedGeneration\":1,\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}]"
#define PAST ",\"shutdownTime\":\"2026-01-01T00:00:00Z\""
#define NOW 1767312000 /* 2026-01-02 */

struct row {
    const char *name;
    const char *spec, *notes, *status;      /* of the Sandbox */
    const char *pod_meta, *pod_status;      /* NULL: there is no Pod */
    const char *service;                    /* metadata and spec */
    const char *claim;                      /* metadata, of the first claim */
    const char *errors[3];                  /* claim, pod, service */
    const char *does;                       /* actions */
    const char *ready, *suspended, *scheduled, *finished;   /* "STATUS REASON: MESSAGE" */
    bool        second_pod;
};

#define UNSCHEDULABLE(since)                                                                                           \
    "\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\",\"reason\":"                \
    "\"Unschedulable\",\"message\":\"0/1 nodes\",\"lastTransitionTime\":\"" since "\"}]"
#define PENDING "False DependenciesNotReady: Pod exists with phase: Pending"
#define SERVICE_OK                                                                                                     \
    "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"s\",\"resourceVersion\":\"5\"," LABELS "," OURS     \
    "},\"spec\":{\"clusterIP\":\"None\",\"selector\":{\"" LABEL_HASH "\":\"70c67e32\"},\"ports\":[{\"name\":"          \
    "\"p-80-tcp\",\"port\":80,\"protocol\":\"TCP\",\"targetPort\":80}]}}"
#define SERVICE_OF(meta)                                                                                               \
    "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"s\",\"resourceVersion\":\"5\"" meta                 \
    "},\"spec\":{\"clusterIP\":\"10.0.0.9\"}}"
#define NOT_SUSPENDED "False NotSuspended: Sandbox is not suspended"
#define SCHEDULED "True PodScheduled: "
#define UNKNOWN_POD "Unknown PodSchedulingUnknown: Pod state is unknown. Pod scheduling cannot be determined"

static const struct row rows[] = {
    { "nothing is there yet", SPEC, .does = "create-pod" },
    { "no Pod, and a Service is wanted", SPEC ",\"service\":true", .does = "create-pod create-service" },
    { "claims come first", SPEC "," VOLUME ",\"service\":true", .does = "create-claim" },
    { "then the Pod", SPEC "," VOLUME, .claim = OURS, .does = "create-pod" },
    { "a claim without owner and label", SPEC "," VOLUME, .claim = "\"labels\":{}",
      .ready =
          "False ReconcilerError: Error seen: cannot adopt unowned PVC \"d-box\": missing required pool authorization "
          "label (\"agents.x-k8s.io/adoptable\") or sandbox tracking label (\"agents.x-k8s.io/sandbox-name-hash\")",
      .suspended = NOT_SUSPENDED },
    { "a claim with our label is adopted", SPEC "," VOLUME, .claim = LABELS, .does = "adopt-claim" },
    { "and stays free if it is to be retained", SPEC "," VOLUME, "\"carrel.dev/retain-volumes\":\"true\"",
      .claim = LABELS, .does = "create-pod" },
    { "and is let go if it is ours", SPEC "," VOLUME, "\"carrel.dev/retain-volumes\":\"true\"", .claim = OURS,
      .does = "disown-claim" },
    { "somebody else's claim", SPEC "," VOLUME, .claim = OTHERS,
      .ready = "False ReconcilerError: Error seen: PVC \"d-box\" is owned by Job/j (UID: u-9), not by sandbox \"box\"",
      .suspended = NOT_SUSPENDED },
    { "a claim that is being deleted", SPEC "," VOLUME, .claim = OURS "," ENDING,
      .ready = "False DependenciesNotReady: Pod does not exist; PersistentVolumeClaim \"d-box\" is being deleted",
      .suspended = NOT_SUSPENDED },
    { "a Pod on a claim that is being deleted stays", SPEC "," VOLUME, .pod_meta = OURS "," LABELS, .pod_status = READY,
      .claim = OURS "," ENDING, .does = "note" },
    { "and the Sandbox says so once", SPEC "," VOLUME,
      "\"carrel.dev/waiting\":\"PersistentVolumeClaim \\\"d-box\\\" is being deleted, and goes when the Pod ends "
      "(carrel.dev/release-volumes would end it)\"",
      .pod_meta = OURS "," LABELS, .pod_status = READY, .claim = OURS "," ENDING,
      .ready = "True DependenciesReady: Pod is Ready", .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "until there is nothing to wait for", SPEC, "\"carrel.dev/waiting\":\"x\"", .pod_meta = OURS "," LABELS,
      .pod_status = READY, .does = "note" },
    { "or no Pod to wait for", SUSPENDED, "\"carrel.dev/waiting\":\"x\",\"carrel.dev/last-trouble\":\"y\"",
      .does = "note" },
    { "unless volumes are released", SPEC "," VOLUME, "\"carrel.dev/release-volumes\":\"true\"",
      .pod_meta = OURS "," LABELS, .pod_status = READY, .claim = OURS "," ENDING, .does = "delete-pod" },
    { "then the Pod ends", SPEC "," VOLUME, "\"carrel.dev/release-volumes\":\"true\"",
      .pod_meta = OURS "," LABELS "," ENDING, .pod_status = READY, .claim = OURS "," ENDING,
      .ready = "False DependenciesNotReady: Pod is terminating; PersistentVolumeClaim \"d-box\" is being deleted",
      .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "a claim by name that is not there: the original makes the Pod", MODELS, .does = "create-pod" },
    { "with released volumes it waits", MODELS, "\"carrel.dev/release-volumes\":\"true\"",
      .ready = "False DependenciesNotReady: Pod does not exist; PersistentVolumeClaim \"models\" does not exist",
      .suspended = NOT_SUSPENDED },

    { "a new Pod", SPEC, .pod_meta = OURS "," LABELS, .pod_status = "\"phase\":\"Pending\"",
      .ready = "False DependenciesNotReady: Pod exists with phase: Pending", .suspended = NOT_SUSPENDED,
      .scheduled = "Unknown PodSchedulingUnknown: Pod has not reported a PodScheduled condition yet" },
    { "a Pod that cannot be scheduled is told of", SPEC, .pod_meta = OURS "," LABELS,
      .pod_status = UNSCHEDULABLE("2026-01-01T23:59:00Z"), .does = "note" },
    { "not when it has only just been said", SPEC, .pod_meta = OURS "," LABELS,
      .pod_status = UNSCHEDULABLE("2026-01-01T23:59:59Z"), .ready = PENDING, .suspended = NOT_SUSPENDED,
      .scheduled = "False Unschedulable: 0/1 nodes" },
    { "and once", SPEC, "\"carrel.dev/last-trouble\":\"Pod: Unschedulable: 0/1 nodes\"", .pod_meta = OURS "," LABELS,
      .pod_status = UNSCHEDULABLE("2026-01-01T23:59:00Z"), .ready = PENDING, .suspended = NOT_SUSPENDED,
      .scheduled = "False Unschedulable: 0/1 nodes" },
    { "a Pod that is well again", SPEC, "\"carrel.dev/last-trouble\":\"x\"", .pod_meta = OURS "," LABELS,
      .pod_status = READY, .does = "note" },
    { "the last word on a Pod that is gone stays", SUSPENDED, "\"carrel.dev/last-trouble\":\"x\"",
      .ready = "False SandboxSuspended: Sandbox is suspended",
      .suspended = "True PodTerminated: Pod has been terminated. Sandbox is suspended" },
    { "a Pod that runs", SPEC, .pod_meta = OURS "," LABELS, .pod_status = RUNNING("False", IPS),
      .ready = "False DependenciesNotReady: Pod is Running but not Ready", .suspended = NOT_SUSPENDED,
      .scheduled = SCHEDULED },
    { "a Pod without address", SPEC, .pod_meta = OURS "," LABELS, .pod_status = RUNNING("True", ""),
      .ready = "False DependenciesNotReady: Pod is Ready but has no podIPs yet", .suspended = NOT_SUSPENDED,
      .scheduled = SCHEDULED },
    { "a Pod that is ready", SPEC, .pod_meta = OURS "," LABELS, .pod_status = READY,
      .ready = "True DependenciesReady: Pod is Ready", .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "Pod and Service", SPEC ",\"service\":true", .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OK, .ready = "True DependenciesReady: Pod is Ready; Service Exists",
      .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "a Service that nobody asks about stays", SPEC, .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OK, .ready = "True DependenciesReady: Pod is Ready; Service Exists",
      .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "a Service that is not wanted goes", SPEC ",\"service\":false", .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OK, .does = "delete-service" },
    { "somebody else's Service of that name is left alone", SPEC, .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OF(""), .ready = "True DependenciesReady: Pod is Ready", .suspended = NOT_SUSPENDED,
      .scheduled = SCHEDULED },
    { "and refused if one is wanted", SPEC ",\"service\":true", .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OF(""),
      .ready = "False ReconcilerError: Error seen: cannot adopt unowned service \"box\": missing required pool "
               "authorization label (\"agents.x-k8s.io/adoptable\") or sandbox tracking label "
               "(\"agents.x-k8s.io/sandbox-name-hash\")",
      .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "one with an address cannot be adopted", SPEC ",\"service\":true", .pod_meta = OURS "," LABELS,
      .pod_status = READY, .service = SERVICE_OF("," LABELS),
      .ready = "False ReconcilerError: Error seen: cannot adopt service \"box\": ClusterIP is \"10.0.0.9\" (expected "
               "\"None\", field is immutable)",
      .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "a Service of another controller", SPEC, .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OF("," OTHERS),
      .ready =
          "False ReconcilerError: Error seen: service \"box\" is owned by Job/j (UID: u-9), not by sandbox \"box\"",
      .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "a Service of ours with other ports", SPEC ",\"service\":true", .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OF("," LABELS "," OURS), .does = "patch-service" },
    { "the label is missing on the Pod", SPEC, .pod_meta = OURS, .pod_status = READY, .does = "patch-pod" },
    { "a Pod that ended well", SPEC, .pod_meta = OURS "," LABELS, .pod_status = "\"phase\":\"Succeeded\"",
      .ready = "False PodSucceeded: Pod completed successfully", .suspended = NOT_SUSPENDED,
      .scheduled = "Unknown PodSchedulingUnknown: Pod has not reported a PodScheduled condition yet",
      .finished = "True PodSucceeded: Pod completed successfully" },
    { "a Pod that failed", SPEC, .pod_meta = OURS "," LABELS, .pod_status = "\"phase\":\"Failed\"",
      .ready = "False PodFailed: Pod failed", .suspended = NOT_SUSPENDED,
      .scheduled = "Unknown PodSchedulingUnknown: Pod has not reported a PodScheduled condition yet",
      .finished = "True PodFailed: Pod failed" },
    { "a Pod that is being deleted is waited for", SPEC, .pod_meta = OURS "," LABELS "," ENDING, .pod_status = READY,
      .ready = "True DependenciesReady: Pod is Ready", .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "a Pod of another controller", SPEC, .pod_meta = OTHERS, .pod_status = READY,
      .ready = "False ReconcilerError: Error seen: pod \"box\" is owned by Job/j (UID: u-9), not by sandbox \"box\"",
      .suspended = NOT_SUSPENDED, .scheduled = UNKNOWN_POD },
    { "a Pod of nobody with our label is adopted", SPEC, .pod_meta = LABELS, .pod_status = READY, .does = "adopt-pod" },
    { "the Pod cannot be created", SPEC, .errors = { NULL, "pods \"box\" is forbidden: exceeded quota" },
      .ready = "False ReconcilerError: Error seen: pods \"box\" is forbidden: exceeded quota",
      .suspended = NOT_SUSPENDED, .scheduled = UNKNOWN_POD },
    { "two things fail", SPEC ",\"service\":true", .errors = { NULL, "no Pod", "no Service" },
      .ready = "False ReconcilerError: Error seen: no Pod\nno Service", .suspended = NOT_SUSPENDED,
      .scheduled = UNKNOWN_POD },
    { "two Pods", SPEC, .pod_meta = OURS "," LABELS, .pod_status = READY, .second_pod = true,
      .ready =
          "False MultiplePods: multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod",
      .suspended = NOT_SUSPENDED, .scheduled = UNKNOWN_POD },
    { "the annotation leads nowhere", SPEC, "\"agents.x-k8s.io/pod-name\":\"other\"", .does = "forget-name" },
    { "the template has changed: the Pod stays, and the Sandbox says so", SPEC,
      .pod_meta = OURS "," LABELS ",\"annotations\":{\"carrel.dev/template-hash\":\"1\"}", .pod_status = READY,
      .does = "note" },
    { "once", SPEC,
      "\"carrel.dev/waiting\":\"podTemplate.spec has changed, and the Pod is of the former one until it is replaced "
      "(kubectl delete pod box; carrel.dev/recreate-on-change would do it)\"",
      .pod_meta = OURS "," LABELS ",\"annotations\":{\"carrel.dev/template-hash\":\"1\"}", .pod_status = READY,
      .ready = "True DependenciesReady: Pod is Ready", .suspended = NOT_SUSPENDED, .scheduled = SCHEDULED },
    { "unless it is asked for", SPEC, "\"carrel.dev/recreate-on-change\":\"true\"",
      .pod_meta = OURS "," LABELS ",\"annotations\":{\"carrel.dev/template-hash\":\"1\"}", .pod_status = READY,
      .does = "delete-pod" },
    { "a Pod from before is taken to be of this template", SPEC, "\"carrel.dev/recreate-on-change\":\"true\"",
      .pod_meta = OURS "," LABELS, .pod_status = READY, .does = "patch-pod" },

    { "suspending", SUSPENDED, .pod_meta = OURS "," LABELS, .pod_status = READY, .does = "delete-pod" },
    { "the Pod is ending", SUSPENDED, .pod_meta = OURS "," LABELS "," ENDING, .pod_status = READY,
      .ready = "False SandboxSuspended: Sandbox is suspending",
      .suspended = "False PodTerminating: Pod is terminating. Sandbox is suspending", .scheduled = SCHEDULED },
    { "suspended", SUSPENDED, .ready = "False SandboxSuspended: Sandbox is suspended",
      .suspended = "True PodTerminated: Pod has been terminated. Sandbox is suspended" },
    { "suspended, and somebody else's Pod", SUSPENDED, .pod_meta = "\"labels\":{}", .pod_status = READY,
      .ready = "False SandboxSuspended: Sandbox is suspending",
      .suspended = "False PodNotOwned: Refused to delete pod because it is not owned by this sandbox" },
    { "suspended with two Pods", SUSPENDED, .pod_meta = OURS "," LABELS, .pod_status = READY, .second_pod = true,
      .ready =
          "False MultiplePods: multiple Pods (2) are controlled by this Sandbox; refusing to choose or create a Pod",
      .suspended = "Unknown PodStateUnknown: Pod state is unknown. Sandbox suspension cannot be confirmed",
      .scheduled = UNKNOWN_POD },
    { "replicas 0", SPEC ",\"replicas\":0", .pod_meta = OURS "," LABELS, .pod_status = READY, .does = "suspend" },
    { "replicas 0 again beside Running", SPEC ",\"replicas\":0", "\"carrel.dev/suspended-by-scale\":\"true\"",
      .does = "suspend" },
    { "replicas 1 again", SUSPENDED ",\"replicas\":1", "\"carrel.dev/suspended-by-scale\":\"true\"", .does = "resume" },
    { "suspended by hand with replicas 1", SUSPENDED ",\"replicas\":1",
      .ready = "False SandboxSuspended: Sandbox is suspended",
      .suspended = "True PodTerminated: Pod has been terminated. Sandbox is suspended" },

    { "its time is over: first it is told", SPEC PAST, .pod_meta = OURS "," LABELS, .pod_status = READY,
      .ready = "False SandboxExpired: Sandbox has expired" },
    { "then Pod and Service go", SPEC PAST, .status = EXPIRED_STATUS, .pod_meta = OURS "," LABELS, .pod_status = READY,
      .service = SERVICE_OK, .does = "delete-pod delete-service" },
    { "somebody else's are left", SPEC PAST, .status = EXPIRED_STATUS, .pod_meta = OTHERS, .pod_status = READY,
      .service = SERVICE_OF(""), .ready = "False SandboxExpired: Sandbox has expired" },
    { "then the Sandbox, by its policy", SPEC PAST ",\"shutdownPolicy\":\"Delete\"", .status = EXPIRED_STATUS,
      .does = "delete-sandbox" },
    { "or it stays", SPEC PAST, .status = EXPIRED_STATUS, .ready = "False SandboxExpired: Sandbox has expired" },
    { "a spec without a template", "\"podTemplate\":{}",
      .ready = "False ReconcilerError: Error seen: spec.podTemplate.spec is missing or is no object; nothing can be "
               "started from it",
      .suspended = NOT_SUSPENDED, .scheduled = UNKNOWN_POD },
};

static struct object *pod_of(const struct row *r, const char *name)
{
    char text[4096];

    if (!r->pod_meta)
        return NULL;
    snprintf(text, sizeof text,
             "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"uid\":\"p\",\"resourceVersion\":\"7\",%s},"
             "\"spec\":{\"nodeName\":\"node\"},\"status\":{%s}}",
             name, r->pod_meta, r->pod_status);
    return decode(KIND_POD, text);
}

static void name_actions(const struct plan *plan, char *text, size_t size)
{
    static const char *const names[] = { "fetch",          "create-claim",  "adopt-claim",   "disown-claim",
                                         "create-pod",     "adopt-pod",     "patch-pod",     "delete-pod",
                                         "create-service", "adopt-service", "patch-service", "delete-service",
                                         "forget-name",    "suspend",       "resume",        "delete-sandbox",
                                         "note" };

    text[0] = '\0';
    for (size_t i = 0; i < plan->n_actions; i++)
        snprintf(text + strlen(text), size - strlen(text), "%s%s", i ? " " : "", names[plan->action[i].act]);
}

static void check_condition(const struct row *r, const struct status *s, enum condition_kind kind, const char *wanted)
{
    static const char *const words[] = { "", "False", "True", "Unknown" };
    const struct condition *c = &s->condition[kind];
    char text[1024] = "";

    if (c->status != COND_ABSENT)
        snprintf(text, sizeof text, "%s %s: %s", words[c->status], c->reason, c->message);
    if (strcmp(text, wanted ? wanted : "") != 0)
        fail_msg("%s: condition %d is\n  \"%s\", not\n  \"%s\"", r->name, kind, text, wanted ? wanted : "");
}

static void check_row(const struct row *r)
{
    static const struct policy policy = { .cluster_domain = "cluster.local" };
    static struct plan plan;
    char text[4096], done[256];

    snprintf(text, sizeof text,
             "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"" UID "\",\"resourceVersion\":\"9\","
             "\"generation\":1,\"annotations\":{%s}},\"spec\":{%s},\"status\":{%s}}",
             r->notes ? r->notes : "", r->spec, r->status ? r->status : "");
    struct sandbox *box = (struct sandbox *)decode(KIND_SANDBOX, text);
    struct pod *pod = (struct pod *)pod_of(r, "box");
    struct service *service = r->service ? (struct service *)decode(KIND_SERVICE, r->service) : NULL;
    struct claim *claim = NULL;
    if (r->claim) {
        snprintf(text, sizeof text,
                 "{\"metadata\":{\"name\":\"d-box\",\"namespace\":\"n\",\"uid\":\"c\",\"resourceVersion\":\"3\",%s}}",
                 r->claim);
        claim = (struct claim *)decode(KIND_CLAIM, text);
    }
    bool ours = pod && object_is_owned_by(&pod->o, &box->o);
    struct view v = { .box = box,
                      .named = box->pod_name ? NULL : pod,
                      .owned = ours ? pod : NULL,
                      .n_owned = ours ? (r->second_pod ? 2 : 1) : 0,
                      .service = service,
                      .claim = { claim },
                      .policy = &policy,
                      .now = NOW,
                      .claim_error = r->errors[0],
                      .pod_error = r->errors[1],
                      .service_error = r->errors[2] };
    sandbox_plan(&v, &plan);
    name_actions(&plan, done, sizeof done);
    if (strcmp(done, r->does ? r->does : "") != 0)
        fail_msg("%s: it does \"%s\", not \"%s\"", r->name, done, r->does ? r->does : "");
    if (!r->does) {
        check_condition(r, &plan.status, COND_READY, r->ready);
        if (r->suspended || !strstr(r->ready, "SandboxExpired"))
            check_condition(r, &plan.status, COND_SUSPENDED, r->suspended);
        check_condition(r, &plan.status, COND_SCHEDULED, r->scheduled);
        check_condition(r, &plan.status, COND_FINISHED, r->finished);
        /* Told and read back, it does not differ from itself. */
        struct buf out;
        buf_init(&out, 65536);
        sandbox_write_status(box, &plan.status, &out);
        assert_int_equal(buf_error(&out), 0);
        assert_true(jsonscan_is_object(out.data, out.length));
        buf_done(&out);
    }
    object_free(&box->o);
    object_free(pod ? &pod->o : NULL);
    object_free(service ? &service->o : NULL);
    object_free(claim ? &claim->o : NULL);
}

static void test_each_state_has_its_actions_or_its_conditions(void **state)
{
    char hash[9];

    (void)state;
    hash_name("box", hash);
    assert_string_equal(hash, "70c67e32");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

static void test_a_transition_time_moves_only_when_the_status_flips(void **state)
{
    static const struct policy policy = { .cluster_domain = "x" };
    static struct plan plan;

    (void)state;
    for (int ready = 0; ready < 2; ready++) {
        char text[2048];
        snprintf(
            text, sizeof text,
            "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"" UID "\",\"resourceVersion\":\"9\","
            "\"generation\":4},\"spec\":{" SUSPENDED
            "},\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"%s\","
            "\"reason\":\"r\",\"message\":\"m\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"},{\"type\":\"Mine\","
            "\"status\":\"True\"}]}}",
            ready ? "True" : "False");
        struct sandbox *box = (struct sandbox *)decode(KIND_SANDBOX, text);
        struct view v = { .box = box, .policy = &policy, .now = NOW };
        sandbox_plan(&v, &plan);
        assert_int_equal(plan.status.condition[COND_READY].since, ready ? NOW : 1767225600);
        assert_int_equal(plan.status.condition[COND_SUSPENDED].since, NOW);
        assert_int_equal(plan.status.condition[COND_READY].generation, 4);
        struct buf out;
        buf_init(&out, 65536);
        sandbox_write_status(box, &plan.status, &out);
        assert_non_null(
            strstr(buf_string(&out), "{\"type\":\"Mine\",\"status\":\"True\"}")); /* others' conditions stay */
        buf_done(&out);
        object_free(&box->o);
    }
}

/* A status is written with all conditions of others, however many there are: those left out would be deleted. */
static void test_a_hundred_thousand_bytes_of_conditions_of_others_stay(void **state)
{
    enum { MANY = 100, EACH = 1000 };
    static const struct policy policy = { .cluster_domain = "x" };
    static struct plan plan;
    struct buf text, out;

    (void)state;
    buf_init(&text, 1 << 20);
    buf_add_text(&text, "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"" UID
                        "\",\"resourceVersion\":\"9\"},\"spec\":{" SPEC "},\"status\":{\"conditions\":[");
    for (int i = 0; i < MANY; i++)
        buf_printf(&text, "%s{\"type\":\"Mine%d\",\"status\":\"True\",\"message\":\"%0*d\"}", i ? "," : "", i, EACH,
                   i);
    buf_add_text(&text, "]}}");
    struct sandbox *box = (struct sandbox *)decode(KIND_SANDBOX, buf_string(&text));
    struct view v = { .box = box, .policy = &policy, .now = NOW };
    sandbox_plan(&v, &plan);
    buf_init(&out, 1 << 20);
    sandbox_write_status(box, &plan.status, &out);
    assert_int_equal(buf_error(&out), 0);
    assert_true(jsonscan_is_object(out.data, out.length));
    struct jsonslice status = jsonscan_find((struct jsonslice){ out.data, out.length }, "status");
    struct jsonwalk w = jsonscan_walk(jsonscan_find(status, "conditions"));
    int n = 0;
    while (jsonscan_next(&w))
        n += jsonscan_inside(jsonscan_find(w.value, "message")).size == EACH;
    assert_int_equal(n, MANY);
    buf_done(&out);
    buf_done(&text);
    object_free(&box->o);
}

/* The annotations that name propagated keys go when there are none any more; an empty one of the original stays. */
static void test_no_empty_list_of_keys_is_left_behind(void **state)
{
    static const struct { const char *has, *patch; } all[] = {
        { "\"a\":\"b\",\"" NOTE_NOTES "\":\"a\"", "\"annotations\":{\"a\":null,\"" NOTE_NOTES "\":null}" },
        { "\"" NOTE_LABELS "\":\"gone\"", "\"annotations\":{\"" NOTE_LABELS "\":null}" },
        { "\"" NOTE_NOTES "\":\"\"", NULL },
    };
    static const struct policy policy = { .cluster_domain = "x" };

    (void)state;
    struct object *box = decode(KIND_SANDBOX, "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"" UID
                                "\",\"resourceVersion\":\"9\"},\"spec\":{" SPEC "}}");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct object *pod = decode_format(
            KIND_POD, "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"p\",\"resourceVersion\":\"7\","
            OURS "," LABELS ",\"annotations\":{%s}}}", all[i].has);
        struct buf out;
        buf_init(&out, 65536);
        bool needs = sandbox_write_pod_patch((struct sandbox *)box, &policy, (struct pod *)pod, false, &out);
        assert_int_equal(needs, all[i].patch != NULL);
        if (all[i].patch && !strstr(buf_string(&out), all[i].patch))
            fail_msg("row %zu: %s", i, buf_string(&out));
        buf_done(&out);
        object_free(pod);
    }
    object_free(box);
}

static void test_a_template_that_was_dropped_is_fetched_first(void **state)
{
    static const struct policy policy = { .cluster_domain = "x" };
    static struct plan plan;
    char done[64];

    (void)state;
    struct sandbox *box =
        (struct sandbox *)decode(KIND_SANDBOX, "{\"metadata\":{\"name\":\"box\",\"namespace\":\"n\",\"uid\":\"u\","
                                               "\"resourceVersion\":\"9\"},\"spec\":{" SPEC "}}");
    object_drop_template(&box->o);
    struct view v = { .box = box, .policy = &policy, .now = NOW };
    sandbox_plan(&v, &plan);
    name_actions(&plan, done, sizeof done);
    assert_string_equal(done, "fetch");
    object_free(&box->o);
}

static void test_times_and_ports(void **state)
{
    static const struct { const char *text; int64_t at; } times[] = {
        { "1970-01-01T00:00:00Z", 0 }, { "2026-01-02T00:00:00Z", NOW }, { "2026-01-02T01:30:00.5+01:30", NOW },
        { "2026-01-01T22:00:00-02:00", NOW } };
    static const char *const bad[] = { "", "2026-01-02", "2026-01-02T00:00:00", "2026-13-02T00:00:00Z",
                                       "2026-01-02T00:00:00ZZ" };
    int64_t at;
    struct buf out;

    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        assert_true(time_parse(times[i].text, &at));
        assert_int_equal(at, times[i].at);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(time_parse(bad[i], &at));
    static const char spec[] =
        "{\"containers\":[{\"ports\":[{\"containerPort\":90},{\"containerPort\":80,\"name\":\"p-90-tcp\"}]},"
        "{\"ports\":[{\"containerPort\":80,\"name\":\"web\"}]}],\"initContainers\":[{\"ports\":[{\"containerPort\":1}]}"
        ","
        "{\"restartPolicy\":\"Always\",\"ports\":[{\"containerPort\":53,\"protocol\":\"UDP\"}]}]}";
    buf_init(&out, 4096);
    ports_write((struct jsonslice){ spec, strlen(spec) }, &out);
    assert_string_equal(buf_string(&out), "[{\"name\":\"p-53-udp\",\"port\":53,\"protocol\":\"UDP\",\"targetPort\":53},"
                        "{\"name\":\"p-90-tcp\",\"port\":80,\"protocol\":\"TCP\",\"targetPort\":80},"
                        "{\"name\":\"p-90-tcp-2\",\"port\":90,\"protocol\":\"TCP\",\"targetPort\":90}]");
    buf_done(&out);
}

/* ---- Kernels ---- */

#define KERNEL(notes, spec)                                                                                            \
    "{\"metadata\":{\"name\":\"k\",\"namespace\":\"n\",\"uid\":\"" UID                                                 \
    "\",\"resourceVersion\":\"9\",\"annotations\":{" notes "}},\"spec\":{\"template\":{" spec "}}}"
#define NOTES "\"jupyter.org/kernel-id\":\"i\",\"jupyter.org/kernel-connection-info\":\"{}\""
#define KERNEL_OWNED                                                                                                   \
    "\"ownerReferences\":[{\"controller\":true,\"kind\":\"Kernel\",\"name\":\"k\",\"uid\":\"" UID "\"}]"

static void test_a_kernel_s_states(void **state)
{
    static const struct { const char *kernel, *pod, *service; size_t n; enum kernel_act first; bool failed; } all[] = {
        { KERNEL("", "\"spec\":{\"containers\":[{}]}"), NULL, NULL, 3, KERNEL_ANNOTATE, false },
        { KERNEL(NOTES, "\"spec\":{\"containers\":[{}]}"), NULL, NULL, 2, KERNEL_CREATE_POD, false },
        { KERNEL(NOTES, "\"spec\":{}"), "\"phase\":\"Running\"", NULL, 1, KERNEL_CREATE_SERVICE, false },
        { KERNEL(NOTES, "\"spec\":{}"), "\"phase\":\"Running\"", KERNEL_OWNED, 0, KERNEL_FETCH, false },
        { KERNEL(NOTES, "\"spec\":{}"), "\"phase\":\"Succeeded\"", KERNEL_OWNED, 1, KERNEL_CULL, false },
        { KERNEL(NOTES, "\"spec\":{}"), "\"phase\":\"Failed\"", KERNEL_OWNED, 0, KERNEL_FETCH, false },
        { KERNEL(NOTES, "\"spec\":{}"), "\"phase\":\"Running\"", "\"labels\":{}", 0, KERNEL_FETCH, true },
        { KERNEL(NOTES, "\"nothing\":{}"), NULL, NULL, 0, KERNEL_FETCH, true },
    };
    static const struct policy policy = { .cluster_domain = "x" };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct kernel_plan plan;
        char text[1024];
        struct object *kernel = decode(KIND_KERNEL, all[i].kernel), *pod = NULL, *service = NULL;
        snprintf(
            text, sizeof text,
            "{\"metadata\":{\"name\":\"k\",\"namespace\":\"n\",\"uid\":\"p\",\"resourceVersion\":\"1\"," KERNEL_OWNED
            "},\"status\":{%s}}",
            all[i].pod ? all[i].pod : "");
        if (all[i].pod)
            pod = decode(KIND_POD, text);
        snprintf(text, sizeof text,
                 "{\"metadata\":{\"name\":\"k\",\"namespace\":\"n\",\"uid\":\"s\",\"resourceVersion\":\"1\",%s}}",
                 all[i].service ? all[i].service : "");
        if (all[i].service)
            service = decode(KIND_SERVICE, text);
        struct kernel_view v = { .kernel = (struct kernel *)kernel, .pod = (struct pod *)pod,
                                 .service = (struct service *)service, .policy = &policy };
        kernel_plan(&v, &plan);
        if (plan.n_actions != all[i].n || (plan.n_actions && plan.action[0] != all[i].first) ||
            plan.failed != all[i].failed)
            fail_msg("row %zu: %zu actions, the first %d, failed %d", i, plan.n_actions,
                     plan.n_actions ? (int)plan.action[0] : -1, plan.failed);
        object_free(kernel);
        object_free(pod);
        object_free(service);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_state_has_its_actions_or_its_conditions),
        cmocka_unit_test(test_a_transition_time_moves_only_when_the_status_flips),
        cmocka_unit_test(test_a_hundred_thousand_bytes_of_conditions_of_others_stay),
        cmocka_unit_test(test_no_empty_list_of_keys_is_left_behind),
        cmocka_unit_test(test_a_template_that_was_dropped_is_fetched_first),
        cmocka_unit_test(test_times_and_ports),
        cmocka_unit_test(test_a_kernel_s_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
