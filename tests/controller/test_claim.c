/* Claims as a table: what there is, and what is to be done, or what the status says. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/boxclaim.h"
#include "controller/decoding.h"

#define CLAIM_UID "c-1"
#define POOL_UID "p-1"
#define NOW_US INT64_C(1767312000000000) /* 2026-01-02 */
#define BY_POOL                                                                                                        \
    "\"labels\":{\"" LABEL_POOL "\":\"1d0c1ee7\",\"" LABEL_TEMPLATE "\":\"f10c3da3\",\"" LABEL_LAUNCH "\":\"warm\"},"  \
    "\"ownerReferences\":[{\"apiVersion\":\"extensions.agents.x-k8s.io/v1beta1\",\"controller\":true,"                 \
    "\"kind\":\"SandboxWarmPool\",\"name\":\"p\",\"uid\":\"" POOL_UID "\"}]"
#define BY_CLAIM                                                                                                       \
    "\"labels\":{\"" LABEL_CLAIM_ID "\":\"" CLAIM_UID "\",\"" LABEL_TEMPLATE "\":\"f10c3da3\",\"" LABEL_LAUNCH         \
    "\":\"warm\"},\"ownerReferences\":[{\"controller\":true,\"kind\":\"SandboxClaim\",\"name\":\"c\","                 \
    "\"uid\":\"" CLAIM_UID "\"}]"
#define BY_OTHER                                                                                                       \
    "\"ownerReferences\":[{\"controller\":true,\"kind\":\"SandboxClaim\",\"name\":\"d\",\"uid\":\"c-2\"}]"
#define READY_BOX                                                                                                      \
    "\"podIPs\":[\"10.0.0.1\"],\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\",\"reason\":"                    \
    "\"DependenciesReady\",\"message\":\"Pod is Ready\",\"lastTransitionTime\":\"2026-01-01T00:00:00Z\"}]"
#define SLOW_BOX                                                                                                       \
    "\"podIPs\":[\"10.0.0.1\"],\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\",\"reason\":"                   \
    "\"DependenciesNotReady\",\"message\":\"Pod is Running but not Ready\"}]"
#define DONE_BOX                                                                                                       \
    "\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\",\"reason\":\"PodSucceeded\",\"message\":\"m\"},"         \
    "{\"type\":\"Finished\",\"status\":\"True\",\"reason\":\"PodSucceeded\",\"message\":\"m\",\"lastTransitionTime\":" \
    "\"2026-01-01T00:00:00Z\"}]"
#define FINISHED                                                                                                       \
    "{\"type\":\"Finished\",\"status\":\"True\",\"reason\":\"PodSucceeded\",\"message\":\"m\",\"lastTransitionTime\":" \
    "\"2026-01-01T00:00:00Z\"}"
#define TOLD                                                                                                           \
    "{\"type\":\"Ready\",\"status\":\"False\",\"reason\":\"ClaimExpired\",\"message\":"                                \
    "\"Claim expired. Sandbox cleanup initiated.\"}"
#define PAST "\"lifecycle\":{\"shutdownTime\":\"2026-01-01T00:00:00Z\"%s}"
#define REF "\"warmPoolRef\":{\"name\":\"p\"}"
#define OBSERVED "\"" NOTE_OBSERVED "\":\"x\",\"" NOTE_FIRST_READY "\":\"x\""
#define EXPIRED "False ClaimExpired: Claim expired. Sandbox cleanup initiated."
#define AFTER(more) "\"lifecycle\":{\"ttlSecondsAfterFinished\":" more "}"

struct row {
    const char *name;
    const char *spec, *notes, *status;              /* of the claim */
    const char *member[3], *member_status[3];       /* of the pool: metadata and status */
    const char *box, *box_status;                   /* a Sandbox of the claim's name, or of "box-1" */
    bool        no_pool, no_template, recreates;
    const char *template;                           /* members of its spec */
    const char *error;
    const char *does;
    const char *ready, *finished, *box_name;
};

static const struct row rows[] = {
    { "a member of the pool is adopted", REF, .member = { BY_POOL }, .member_status = { READY_BOX },
      .does = "adopt(m0) note" },
    { "one that is Ready before one that is not", REF, .member = { BY_POOL, BY_POOL },
      .member_status = { SLOW_BOX, READY_BOX }, .does = "adopt(m1) note" },
    { "one that is not Ready before none", REF, .member = { BY_POOL }, .member_status = { SLOW_BOX },
      .does = "adopt(m0) note" },
    { "the node with the most of them", REF, .member = { BY_POOL, BY_POOL, BY_POOL },
      .member_status = { READY_BOX ",\"nodeName\":\"a\"", READY_BOX ",\"nodeName\":\"b\"",
                         READY_BOX ",\"nodeName\":\"b\"" },
      .does = "adopt(m1) note" },
    { "one without address is waited for", REF, .member = { BY_POOL }, .does = "", .ready = "" },
    { "not one that is being deleted", REF, .member = { BY_POOL ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"" },
      .member_status = { READY_BOX }, .does = "create note" },
    { "not one without the pool's label", REF,
      .member = { "\"ownerReferences\":[{\"controller\":true,\"kind\":\"SandboxWarmPool\",\"name\":\"p\",\"uid\":"
                  "\"" POOL_UID "\"}]" },
      .member_status = { READY_BOX }, .does = "create note" },
    { "not one whose owner is another pool of that name", REF,
      .member = { "\"labels\":{\"" LABEL_POOL "\":\"1d0c1ee7\",\"" LABEL_TEMPLATE "\":\"f10c3da3\"},"
                  "\"ownerReferences\":[{\"controller\":true,\"kind\":\"SandboxWarmPool\",\"name\":\"p\",\"uid\":\"u\"}"
                  "]" },
      .member_status = { READY_BOX }, .does = "create note" },
    { "not a stale one of a pool that recreates", REF, .member = { BY_POOL }, .member_status = { READY_BOX },
      .recreates = true, .template = "\"podTemplate\":{\"spec\":{\"containers\":[{\"name\":\"other\"}]}}",
      .does = "create note" },
    { "a stale one otherwise", REF, .member = { BY_POOL }, .member_status = { READY_BOX },
      .template = "\"podTemplate\":{\"spec\":{\"containers\":[{\"name\":\"other\"}]}}", .does = "adopt(m0) note" },
    { "an empty pool: one is made", REF, .does = "create note" },
    { "environment: none of the pool is taken", REF ",\"env\":[{\"name\":\"A\",\"value\":\"1\"}]",
      .member = { BY_POOL }, .member_status = { READY_BOX }, .template = "\"envVarsInjectionPolicy\":\"Allowed\"",
      .does = "create note" },
    { "environment that the template forbids", REF ",\"env\":[{\"name\":\"A\",\"value\":\"1\"}]",
      .ready =
          "False EnvVarsInjectionRejected: environment variable injection rejected: environment variable injection "
          "is not allowed by the template policy" },
    { "environment that overrides", REF ",\"env\":[{\"name\":\"PATH\",\"value\":\"1\"}]",
      .template = "\"envVarsInjectionPolicy\":\"Allowed\"",
      .ready = "False ReconcilerError: Error seen: environment variable override is not allowed by the template policy "
               "for variable \"PATH\"" },
    { "environment that may override", REF ",\"env\":[{\"name\":\"PATH\",\"value\":\"1\"}]",
      .template = "\"envVarsInjectionPolicy\":\"Overrides\"", .does = "create note" },
    { "environment for a container that is not there",
      REF ",\"env\":[{\"name\":\"A\",\"value\":\"1\",\"containerName\":\"z\"}]",
      .template = "\"envVarsInjectionPolicy\":\"Allowed\"",
      .ready =
          "False ReconcilerError: Error seen: target container \"z\" not found in template for environment variable "
          "\"A\"" },
    { "volumes that the template forbids",
      REF ",\"volumeClaimTemplates\":[{\"metadata\":{\"name\":\"v\"},\"spec\":{}}]",
      .ready = "False VolumeClaimTemplatesError: failed to merge volume claim templates: volume claim templates are "
               "disallowed by the template" },
    { "a volume without a name", REF ",\"volumeClaimTemplates\":[{\"spec\":{}}]",
      .template = "\"volumeClaimTemplatesPolicy\":\"Allowed\"",
      .ready = "False VolumeClaimTemplatesError: failed to merge volume claim templates: claim: invalid volume claim "
               "templates: name at index 0 is empty" },
    { "a volume that overrides", REF ",\"volumeClaimTemplates\":[{\"metadata\":{\"name\":\"v\"},\"spec\":{}}]",
      .template = "\"volumeClaimTemplatesPolicy\":\"Allowed\",\"volumeClaimTemplates\":[{\"metadata\":{\"name\":\"v\"},"
                  "\"spec\":{}}]",
      .ready = "False VolumeClaimTemplatesError: failed to merge volume claim templates: overriding volume claim "
               "templates is forbidden by the template: cannot override template volume \"v\"" },
    { "a label without domain", REF ",\"additionalPodMetadata\":{\"labels\":{\"a\":\"b\"}}",
      .ready = "False InvalidMetadata: invalid additionalPodMetadata: failed to validate label \"a\": label \"a\" must "
               "have a domain prefix (e.g. 'sandbox.users.io/my-label') to prevent opting into unintended policy "
               "domains" },
    { "a label of a strange domain", REF ",\"additionalPodMetadata\":{\"labels\":{\"x.io/a\":\"b\"}}",
      .ready =
          "False InvalidMetadata: invalid additionalPodMetadata: failed to validate label \"x.io/a\": label domain "
          "\"x.io\" is not in the allowlist (configure the allowed-label-domains key of the agent-sandbox-config "
          "ConfigMap in the controller namespace; default: sandbox.users.io)" },
    { "a label that is allowed", REF ",\"additionalPodMetadata\":{\"labels\":{\"a.sandbox.users.io/a\":\"b\"}}",
      .member = { BY_POOL }, .member_status = { READY_BOX }, .does = "adopt(m0) note" },
    { "an annotation of the system", REF ",\"additionalPodMetadata\":{\"annotations\":{\"x.k8s.io/a\":\"b\"}}",
      .ready = "False InvalidMetadata: invalid additionalPodMetadata: failed to validate annotation \"x.k8s.io/a\": "
               "restricted system domain: \"x.k8s.io/a\" is not allowed in AdditionalPodMetadata" },
    { "an annotation that the template has otherwise", REF ",\"additionalPodMetadata\":{\"annotations\":{\"a\":\"b\"}}",
      .member = { BY_POOL }, .member_status = { READY_BOX },
      .template = "\"podTemplate\":{\"metadata\":{\"annotations\":{\"a\":\"c\"}},\"spec\":{\"containers\":[]}}",
      .ready = "False ReconcilerError: Error seen: metadata override conflict: annotation \"a\" is defined in template "
               "with value \"c\", but claim requests \"b\"" },
    { "no pool", REF, .no_pool = true, .ready = "False WarmPoolNotFound: SandboxWarmPool \"p\" not found" },
    { "no template", REF, .no_template = true, .ready = "False TemplateNotFound: SandboxTemplate \"t\" not found" },
    { "somebody else's Sandbox has the name", REF, .box = BY_OTHER,
      .ready = "False ReconcilerError: Error seen: sandbox \"c\" is not controlled by claim \"c\". Please use a "
               "different claim name or delete the sandbox manually" },
    { "a write that failed", REF, .error = "quota", .ready = "False ReconcilerError: Error seen: quota" },
    { "a claim that began to adopt goes on with the same", REF, "\"agents.x-k8s.io/sandbox-name\":\"m1\"",
      .member = { BY_POOL, BY_POOL }, .member_status = { READY_BOX, READY_BOX }, .does = "adopt(m1) note" },
    { "a claim that names another claim's Sandbox", REF, "\"agents.x-k8s.io/sandbox-name\":\"m0\"",
      .member = { BY_OTHER }, .member_status = { READY_BOX }, .does = "create note" },

    { "bound: the condition is forwarded", REF, OBSERVED, .box = BY_CLAIM, .box_status = READY_BOX,
      .ready = "True DependenciesReady: Pod is Ready", .box_name = "c" },
    { "bound: the Sandbox has no condition yet", REF, OBSERVED, .box = BY_CLAIM,
      .ready = "False SandboxNotReady: Sandbox is not ready", .box_name = "c" },
    { "bound: it was never noted", REF, .box = BY_CLAIM, .box_status = READY_BOX, .does = "note" },
    { "bound: the label is missing", REF, OBSERVED,
      .box = "\"ownerReferences\":[{\"controller\":true,\"kind\":\"SandboxClaim\",\"name\":\"c\",\"uid\":\"" CLAIM_UID
             "\"}]",
      .box_status = READY_BOX, .does = "align(c)" },
    { "bound: Finished is mirrored", REF, OBSERVED, .box = BY_CLAIM, .box_status = DONE_BOX,
      .ready = "False PodSucceeded: m", .finished = "True PodSucceeded: m", .box_name = "c" },
    { "bound: the Sandbox has expired by itself", REF, OBSERVED, .box = BY_CLAIM,
      .box_status = "\"conditions\":[{\"type\":\"Ready\",\"status\":\"False\",\"reason\":\"SandboxExpired\"}]",
      .ready = "False SandboxExpired: Underlying Sandbox resource has expired independently of the Claim.",
      .box_name = "c" },
    { "bound: pool and template are gone", REF, OBSERVED, .box = BY_CLAIM, .box_status = READY_BOX, .no_pool = true,
      .no_template = true, .ready = "True DependenciesReady: Pod is Ready", .box_name = "c" },
    { "bound: why its Pod died is told", REF, OBSERVED,
      .box = BY_CLAIM ",\"annotations\":{\"carrel.dev/last-trouble\":\"container c: OOMKilled\"}",
      .box_status = READY_BOX, .does = "note" },

    { "its time is over: first it is told",
      REF ","
          "\"lifecycle\":{\"shutdownTime\":\"2026-01-01T00:00:00Z\"}",
      .box = BY_CLAIM, .box_status = READY_BOX, .ready = EXPIRED },
    { "then the Sandbox goes",
      REF ","
          "\"lifecycle\":{\"shutdownTime\":\"2026-01-01T00:00:00Z\"}",
      .status = "\"conditions\":[" TOLD "]", .box = BY_CLAIM, .does = "delete-box(c)" },
    { "and the claim stays",
      REF ","
          "\"lifecycle\":{\"shutdownTime\":\"2026-01-01T00:00:00Z\"}",
      .status = "\"conditions\":[" TOLD "," FINISHED "],\"sandbox\":{\"name\":\"c\"}", .ready = EXPIRED,
      .finished = "True PodSucceeded: m" },
    { "or goes as well",
      REF ","
          "\"lifecycle\":{\"shutdownTime\":\"2026-01-01T00:00:00Z\",\"shutdownPolicy\":\"Delete\"}",
      .status = "\"conditions\":[" TOLD "]", .box = BY_CLAIM, .does = "delete" },
    { "not before its time",
      REF ","
          "\"lifecycle\":{\"shutdownTime\":\"2026-01-03T00:00:00Z\"}",
      OBSERVED, .box = BY_CLAIM, .box_status = READY_BOX, .ready = "True DependenciesReady: Pod is Ready",
      .box_name = "c" },
    { "finished, and the time after it is over", REF "," AFTER("60"), .status = "\"conditions\":[" FINISHED "]",
      .box = BY_CLAIM, .box_status = DONE_BOX, .ready = EXPIRED, .finished = "True PodSucceeded: m", .box_name = "" },
    { "finished, and the time after it is not over", REF "," AFTER("9999999"), OBSERVED,
      .status = "\"conditions\":[" FINISHED "]", .box = BY_CLAIM, .box_status = DONE_BOX,
      .ready = "False PodSucceeded: m", .finished = "True PodSucceeded: m", .box_name = "c" },
    { "somebody else's Sandbox is not deleted",
      REF ","
          "\"lifecycle\":{\"shutdownTime\":\"2026-01-01T00:00:00Z\"}",
      .status = "\"conditions\":[" TOLD "]", .box = BY_OTHER,
      .ready =
          "False ClaimExpired: Claim expired. sandbox not owned by this claim: sandbox \"c\" is not owned by claim "
          "\"c\"; deletion skipped." },
    { "v1alpha1: a template, and any pool", "\"sandboxTemplateRef\":{\"name\":\"t\"}", .member = { BY_POOL },
      .member_status = { READY_BOX }, .does = "adopt(m0) note" },
};

static struct sandbox *box_of(const char *name, const char *meta, const char *status)
{
    return (struct sandbox *)decode_format(
        KIND_SANDBOX,
        "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"uid\":\"u-%s\",\"resourceVersion\":\"7\",%s},"
        "\"spec\":{\"podTemplate\":{\"spec\":{\"automountServiceAccountToken\":false,\"dnsPolicy\":\"None\","
        "\"dnsConfig\":{\"nameservers\":[\"8.8.8.8\",\"1.1.1.1\"]},\"containers\":[{\"name\":\"c\",\"env\":[{\"name\":"
        "\"PATH\"}]}]}}},\"status\":{%s}}",
        name, name, meta, status ? status : "");
}

static void name_actions(const struct boxclaim_plan *plan, char *text, size_t size)
{
    static const char *const names[] = { "adopt", "create", "align", "note", "delete-box", "delete-policy", "delete" };

    text[0] = '\0';
    for (size_t i = 0; i < plan->n_actions; i++) {
        enum boxclaim_act a = plan->action[i];
        bool about_box = a == BOXCLAIM_ADOPT || a == BOXCLAIM_ALIGN || a == BOXCLAIM_DELETE_BOX;
        snprintf(text + strlen(text), size - strlen(text), "%s%s", i ? " " : "", names[a]);
        if (about_box)
            snprintf(text + strlen(text), size - strlen(text), "(%s)", plan->box->o.name);
    }
}

static void check_condition(const struct row *r, const struct condition *c, const char *wanted)
{
    static const char *const words[] = { "", "False", "True", "Unknown" };
    char text[1024] = "";

    if (c->status != COND_ABSENT)
        snprintf(text, sizeof text, "%s %s: %s", words[c->status], c->reason, c->message);
    if (strcmp(text, wanted ? wanted : "") != 0)
        fail_msg("%s: it says\n  \"%s\", not\n  \"%s\"", r->name, text, wanted ? wanted : "");
}

/* Every body that could be written is JSON. */
static void check_bodies(const struct boxclaim_view *v, const struct boxclaim_plan *plan)
{
    struct buf out;

    buf_init(&out, 1 << 20);
    for (int i = 0; i < 5; i++) {
        if ((i == 0 && !v->template) || ((i == 1 || i == 2) && !plan->box))
            continue;
        if (i == 0)
            boxclaim_write_box(v, &out);
        else if (i == 1)
            boxclaim_write_adoption(v, plan->box, &out);
        else if (i == 2)
            boxclaim_write_alignment(v, plan->box, &out);
        else if (i == 3)
            boxclaim_write_notes(v->claim, &plan->notes, &out);
        else
            boxclaim_write_status(v->claim, &plan->status, &out);
        assert_int_equal(buf_error(&out), 0);
        assert_true(jsonscan_is_object(out.data, out.length));
        buf_clear(&out);
    }
    buf_done(&out);
}

static void check_row(const struct row *r)
{
    static const struct policy policy = { .cluster_domain = "cluster.local", .max_batch = 300 };
    static struct boxclaim_plan plan;
    const struct sandbox *member[3], *owned[1];
    char done[256];

    struct boxclaim *claim = (struct boxclaim *)decode_format(
        KIND_BOXCLAIM,
        "{\"metadata\":{\"name\":\"c\",\"namespace\":\"n\",\"uid\":\"" CLAIM_UID "\",\"resourceVersion\":"
        "\"9\",\"generation\":1,\"creationTimestamp\":\"2026-01-02T00:00:00Z\",\"annotations\":{%s}},\"spec\":{%s},"
        "\"status\":{%s}}",
        r->notes ? r->notes : "", r->spec, r->status ? r->status : "");
    struct pool *pool = (struct pool *)decode_format(
        KIND_POOL,
        "{\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",\"uid\":\"" POOL_UID "\",\"resourceVersion\":\"3\"},"
        "\"spec\":{\"sandboxTemplateRef\":{\"name\":\"t\"},\"updateStrategy\":{\"type\":\"%s\"}}}",
        r->recreates ? "Recreate" : "OnReplenish");
    struct template *template = (struct template *)decode_format(
        KIND_TEMPLATE, "{\"metadata\":{\"name\":\"t\",\"namespace\":\"n\",\"uid\":\"t-1\",\"resourceVersion\":\"2\"},"
        "\"spec\":{\"podTemplate\":{\"spec\":{\"containers\":[{\"name\":\"c\",\"env\":[{\"name\":\"PATH\"}]}]}}%s%s}}",
        r->template ? "," : "", r->template ? r->template : "");
    struct sandbox *box = r->box ? box_of("c", r->box, r->box_status) : NULL;
    struct boxclaim_view v = { .claim = claim, .pool = r->no_pool ? NULL : pool,
                               .template = r->no_template ? NULL : template, .template_name = "t", .owned = owned,
                               .member = member, .named = box, .policy = &policy, .error = r->error, .now_us = NOW_US };
    for (; v.n_members < 3 && r->member[v.n_members]; v.n_members++) {
        char name[8];
        snprintf(name, sizeof name, "m%zu", v.n_members);
        member[v.n_members] = box_of(name, r->member[v.n_members], r->member_status[v.n_members]);
        if (texts_are_same(claim->assigned, name))
            v.assigned = member[v.n_members];
    }
    if (box && object_is_owned_by(&box->o, &claim->o))
        owned[v.n_owned++] = box;
    boxclaim_plan(&v, &plan);
    name_actions(&plan, done, sizeof done);
    if (strcmp(done, r->does ? r->does : "") != 0)
        fail_msg("%s: it does \"%s\", not \"%s\"", r->name, done, r->does ? r->does : "");
    if (plan.n_actions == 0) {
        check_condition(r, &plan.status.ready, r->ready);
        check_condition(r, &plan.status.finished, r->finished);
        if (!texts_are_same(plan.status.name, r->box_name))
            fail_msg("%s: the Sandbox is \"%s\"", r->name, plan.status.name);
    }
    check_bodies(&v, &plan);
    for (size_t i = 0; i < v.n_members; i++)
        object_free((struct object *)&member[i]->o);
    object_free(box ? &box->o : NULL);
    object_free(&claim->o);
    object_free(&pool->o);
    object_free(&template->o);
}

static void test_each_state_of_a_claim_has_its_actions_or_its_status(void **state)
{
    char hash[9];

    (void)state;
    hash_name("t", hash);
    assert_string_equal(hash, "f10c3da3");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

/* What a claim adds to a template, as the API server gets it. */
static void test_a_sandbox_has_what_template_and_claim_say(void **state)
{
    static const struct policy policy = { .max_batch = 1 };
    struct buf out;

    (void)state;
    struct boxclaim *claim = (struct boxclaim *)decode_format(
        KIND_BOXCLAIM,
        "{\"metadata\":{\"name\":\"c\",\"namespace\":\"n\",\"uid\":\"u\",\"resourceVersion\":\"9\"},\"spec\":{" REF
        ",\"env\":[{\"name\":\"A\",\"value\":\"1\"},{\"name\":\"B\",\"value\":\"2\",\"containerName\":\"i\"}],"
        "\"volumeClaimTemplates\":[{\"metadata\":{\"name\":\"v\"},\"spec\":{\"x\":1}},{\"metadata\":{\"name\":\"w\"},"
        "\"spec\":{}}],\"additionalPodMetadata\":{\"labels\":{\"sandbox.users.io/l\":\"1\"}}}}");
    struct template *t = (struct template *)decode_format(
        KIND_TEMPLATE,
        "{\"metadata\":{\"name\":\"t\",\"namespace\":\"n\",\"uid\":\"t\",\"resourceVersion\":\"2\"},\"spec\":{"
        "\"networkPolicyManagement\":\"Unmanaged\",\"service\":true,\"volumeClaimTemplates\":[{\"metadata\":{\"name\":"
        "\"v\"},\"spec\":{}}],\"podTemplate\":{\"metadata\":{\"labels\":{\"app\":\"x\",\"agents.x-k8s.io/"
        "f\":\"forged\"}},"
        "\"spec\":{\"initContainers\":[{\"name\":\"i\"}],\"containers\":[{\"name\":\"c\",\"env\":[{\"name\":\"A\","
        "\"value\":\"0\"},{\"name\":\"Z\"}]},{\"name\":\"d\"}]}}}}");
    struct boxclaim_view v = { .claim = claim, .template = t, .policy = &policy };
    buf_init(&out, 65536);
    boxclaim_write_box(&v, &out);
    const char *text = buf_string(&out);
    assert_non_null(strstr(text, "\"metadata\":{\"labels\":{\"app\":\"x\",\"sandbox.users.io/l\":\"1\"}"));
    assert_null(strstr(text, "forged"));
    assert_non_null(
        strstr(text, "\"containers\":[{\"name\":\"c\",\"env\":[{\"name\":\"A\",\"value\":\"1\"},{\"name\":\"Z\"}]}"
                     ",{\"name\":\"d\",\"env\":[]}]"));
    assert_non_null(strstr(text, "\"initContainers\":[{\"name\":\"i\",\"env\":[{\"name\":\"B\",\"value\":\"2\"}]}]"));
    assert_non_null(strstr(text,
                           "\"volumeClaimTemplates\":[{\"metadata\":{\"name\":\"v\"},\"spec\":{\"x\":1}},{\"metadata\":"
                           "{\"name\":\"w\"},\"spec\":{}}]"));
    assert_non_null(strstr(text, "\"automountServiceAccountToken\":false"));
    assert_null(strstr(text, "8.8.8.8"));       /* an unmanaged network keeps the cluster's DNS */
    assert_non_null(strstr(text, "\"service\":true"));
    buf_done(&out);
    object_free(&claim->o);
    object_free(&t->o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_state_of_a_claim_has_its_actions_or_its_status),
        cmocka_unit_test(test_a_sandbox_has_what_template_and_claim_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
