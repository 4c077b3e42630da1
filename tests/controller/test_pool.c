/* Pools and templates as tables: what there is, and what is to be done. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/pool.h"
#include "cluster/template.h"
#include "controller/decoding.h"

#define NOW 1767312000 /* 2026-01-02 */
#define SPEC "{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"memory\":\"1Gi\"}}}]}"
/* As the API server keeps what the pool wrote: another order, another unit, empty members. */
#define SAME                                                                                                           \
    "{\"dnsPolicy\":\"None\",\"dnsConfig\":{\"nameservers\":[\"8.8.8.8\",\"1.1.1.1\"]},\"volumes\":[],"                \
    "\"automountServiceAccountToken\":false,\"containers\":[{\"resources\":{\"limits\":{\"memory\":\"1024Mi\"},"       \
    "\"requests\":{}},\"name\":\"c\"}]}"
#define OTHER "{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{\"memory\":\"2Gi\"}}}]}"

enum who { POOL, ORPHAN };

/* One Sandbox: r ready, n not ready, u unschedulable, d deleting; capital letters are made from another template.
 * Those after a | have the pool's label and no owner. "old" ones are past the grace period. */
struct row {
    const char *name, *boxes;
    int         replicas;
    bool        recreates, no_template, old;
    struct policy policy;               /* zeros: the defaults */
    struct pool_memory memory;
    const char *error;
    const char *does;                   /* actions by the Sandbox's number, and how many are created */
    const char *status;                 /* "REPLICAS/READY" */
    bool        is_stuck, is_contended;
    uint64_t    wake_ms;                /* at most; 0: not asked about */
};

static const struct row rows[] = {
    { "an empty pool begins with one", "", 3, .does = "create 1", .status = "0/0" },
    { "and doubles", "r", 9, .memory = { .batch = 4 }, .does = "create 4", .status = "1/1" },
    { "never more than are missing", "rr", 3, .memory = { .batch = 16 }, .does = "create 1", .status = "2/2" },
    { "never more than the flag says", "", 9, .policy = { .max_batch = 2 }, .memory = { .batch = 16 },
      .does = "create 2", .status = "0/0" },
    { "what is being deleted still takes a place", "rd", 2, .does = "", .status = "1/1" },
    { "a full pool", "rr", 2, .does = "", .status = "2/2" },
    { "a pool of none", "", 0, .does = "", .status = "0/0" },
    { "of too many, those that are not Ready go, then the newest", "rrn", 1, .does = "delete 2 delete 1",
      .status = "3/2" },
    { "no template", "", 3, .no_template = true, .does = "", .status = "0/0" },
    { "no template: what is there stays", "Rr", 3, .no_template = true, .recreates = true, .does = "",
      .status = "2/2" },
    { "a stale one goes if the pool recreates", "rR", 2, .recreates = true, .does = "delete 1", .status = "1/1" },
    { "and stays otherwise", "rR", 2, .does = "", .status = "2/2" },
    { "an orphan is taken over", "r|r", 2, .does = "adopt 1 create 1", .status = "1/1" },
    { "a stale orphan goes", "r|R", 1, .does = "delete 1", .status = "1/1" },
    { "not Ready, and there is time", "n", 1, .does = "", .status = "1/0", .wake_ms = 302000 },
    { "not Ready for too long", "n", 1, .old = true, .does = "delete 0", .status = "0/0" },
    { "unschedulable for too long: held", "u", 1, .old = true, .does = "", .status = "1/0", .is_stuck = true,
      .wake_ms = 60000 },
    { "a write failed: nothing more is created", "r", 5, .error = "quota", .does = "", .status = "1/1" },
    { "a burst took one: not now", "r", 2, .policy = { .replenish_delay_ms = 500 },
      .memory = { .is_known = true, .members = 2 }, .does = "", .status = "1/1", .wake_ms = 500 },
    { "the burst is over", "r", 2, .policy = { .replenish_delay_ms = 500 },
      .memory = { .is_known = true, .members = 1, .hold_until_ms = 999000 }, .does = "create 1", .status = "1/1" },
    { "a pool that is new is filled at once", "", 2, .policy = { .replenish_delay_ms = 500 }, .does = "create 1",
      .status = "0/0" },
    { "claims come first", "rr", 3, .is_contended = true, .does = "", .status = "2/2", .wake_ms = 50 },
    { "but not for ever", "rr", 3, .is_contended = true, .memory = { .yielding_ms = 998000 }, .does = "create 1",
      .status = "2/2" },
    { "and not when half of the pool is gone", "rr", 4, .is_contended = true, .does = "create 1", .status = "2/2" },
    { "two a second, and one is left", "", 9, .policy = { .refill_rate = 2 },
      .memory = { .batch = 16, .tokens = 1, .paced_at_ms = 1000000 }, .does = "create 1", .status = "0/0",
      .wake_ms = 501 },
    { "two a second, and none is left", "", 9, .policy = { .refill_rate = 2 },
      .memory = { .batch = 16, .tokens = 0, .paced_at_ms = 1000000 }, .does = "", .status = "0/0", .wake_ms = 501 },
};

static struct sandbox *box_of(char kind, enum who who, unsigned i, bool is_old)
{
    static const char unschedulable[] =
        ",{\"type\":\"PodScheduled\",\"status\":\"False\",\"reason\":\"Unschedulable\"}";
    bool is_stale = kind >= 'A' && kind <= 'Z', ready = kind == 'r' || kind == 'R';

    return (struct sandbox *)decode_format(
        KIND_SANDBOX,
        "{\"metadata\":{\"name\":\"m%u\",\"namespace\":\"n\",\"uid\":\"u%u\",\"resourceVersion\":\"7\","
        "\"creationTimestamp\":\"2026-01-0%uT0%u:00:00Z\",\"labels\":{\"" LABEL_POOL "\":\"x\",\"" LABEL_TEMPLATE
        "\":\"f10c3da3\",\"" LABEL_LAUNCH "\":\"warm\"}%s%s},\"spec\":{\"podTemplate\":{\"spec\":%s}},"
        "\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"%s\"}%s]}}",
        i, i, is_old ? 1 : 2, is_old ? i : 0, kind == 'd' ? ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"" : "",
        who == POOL ? ",\"ownerReferences\":[{\"controller\":true,\"kind\":\"SandboxWarmPool\",\"name\":\"p\","
                      "\"uid\":\"pool\"}]"
                    : "",
        is_stale ? OTHER : SAME, ready ? "True" : "False", kind == 'u' ? unschedulable : "");
}

static struct template *template_of(const char *spec)
{
    return (struct template *)decode_format(
        KIND_TEMPLATE,
        "{\"metadata\":{\"name\":\"t\",\"namespace\":\"n\",\"uid\":\"t\",\"resourceVersion\":\"2\",\"labels\":{"
        "\"" LABEL_TEMPLATE "\":\"f10c3da3\"}},\"spec\":{\"podTemplate\":{\"spec\":" SPEC "}%s}}",
        spec);
}

static void check_row(const struct row *r)
{
    static const char *const names[] = { "delete", "adopt", "label" };
    struct pool_action actions[16];
    struct pool_plan plan = { .action = actions };
    const struct sandbox *all[8], *members[8], *orphans[8];
    struct policy policy = r->policy;
    char done[256] = "", status[32];
    size_t n = 0;
    enum who who = POOL;

    policy.max_batch = policy.max_batch ? policy.max_batch : 300;
    policy.grace_ms = 300000;
    policy.recheck_ms = 60000;
    struct pool *pool = (struct pool *)decode_format(
        KIND_POOL, "{\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",\"uid\":\"pool\",\"resourceVersion\":\"3\","
        "\"generation\":1},\"spec\":{\"replicas\":%d,\"sandboxTemplateRef\":{\"name\":\"t\"},\"updateStrategy\":"
        "{\"type\":\"%s\"}}}", r->replicas, r->recreates ? "Recreate" : "OnReplenish");
    struct template *t = template_of("");
    struct pool_view v = { .pool = pool, .template = r->no_template ? NULL : t, .member = members, .orphan = orphans,
                           .policy = &policy, .error = r->error,
                           .is_contended = r->is_contended, .now = NOW, .now_ms = 1000000 };
    pool->memory = r->memory;
    for (const char *c = r->boxes; *c; c++) {
        if (*c == '|') {
            who = ORPHAN;
            continue;
        }
        all[n] = box_of(*c, who, (unsigned)n, r->old);
        if (who == POOL)
            members[v.n_members++] = all[n++];
        else
            orphans[v.n_orphans++] = all[n++];
    }
    pool_plan(&v, &plan);
    for (size_t i = 0; i < plan.n_actions; i++)
        snprintf(done + strlen(done), sizeof done - strlen(done), "%s%s %s", i ? " " : "", names[plan.action[i].act],
                 plan.action[i].box->o.name + 1);
    if (plan.n_create)
        snprintf(done + strlen(done), sizeof done - strlen(done), "%screate %u", done[0] ? " " : "", plan.n_create);
    snprintf(status, sizeof status, "%lld/%lld", (long long)plan.replicas, (long long)plan.ready);
    if (strcmp(done, r->does) != 0 || strcmp(status, r->status) != 0 || plan.is_stuck != r->is_stuck ||
        (r->wake_ms && (plan.wake_ms == 0 || plan.wake_ms > r->wake_ms)))
        fail_msg("%s: it does \"%s\", says %s%s, wakes in %llu", r->name, done, status, plan.is_stuck ? ", stuck" : "",
                 (unsigned long long)plan.wake_ms);
    for (size_t i = 0; i < n; i++)
        object_free((struct object *)&all[i]->o);
    object_free(&pool->o);
    object_free(&t->o);
}

static void test_each_state_of_a_pool_has_its_actions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_row(&rows[i]);
}

static void test_names_of_members_fit(void **state)
{
    struct pool *pool =
        (struct pool *)decode(KIND_POOL, "{\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",\"uid\":\"u\","
                                         "\"resourceVersion\":\"3\"},\"spec\":{}}");
    char name[BOX_NAME_SIZE], long_name[254];

    (void)state;
    pool_name_box(pool, 0, name);
    assert_string_equal(name, "p-bbbbb");
    memset(long_name, 'a', 253);
    long_name[253] = '\0';
    pool->o.name = long_name;
    pool_name_box(pool, 12345, name);
    assert_int_equal(strlen(name), 63);
    object_free(&pool->o);
}

/* ---- templates ---- */

#define POLICY(meta, spec)                                                                                             \
    "{\"metadata\":{\"name\":\"t-network-policy\",\"namespace\":\"n\",\"uid\":\"np\",\"resourceVersion\":\"4\"" meta   \
    "},\"spec\":" spec "}"
#define BY_TEMPLATE                                                                                                    \
    ",\"ownerReferences\":[{\"controller\":true,\"kind\":\"SandboxTemplate\",\"name\":\"t\",\"uid\":\"t\"}]"
#define RULES(rules)                                                                                                   \
    "{\"podSelector\":{\"matchLabels\":{\"" LABEL_TEMPLATE "\":\"f10c3da3\"}}," rules                                  \
    "\"policyTypes\":[\"Ingress\",\"Egress\"]}"

static void test_a_template_s_network_policy(void **state)
{
    static const struct { const char *name, *spec, *policy; size_t n; enum template_act act; bool failed; } all[] = {
        { "none yet", "", NULL, 1, TEMPLATE_CREATE_POLICY, false },
        { "unmanaged", ",\"networkPolicyManagement\":\"Unmanaged\"", NULL, 0, 0, false },
        { "no longer managed", ",\"networkPolicyManagement\":\"Unmanaged\"", POLICY(BY_TEMPLATE, "{}"), 1,
          TEMPLATE_DELETE_POLICY, false },
        { "unmanaged, and another's of that name", ",\"networkPolicyManagement\":\"Unmanaged\"", POLICY("", "{}"), 0, 0,
          false },
        { "another's of that name", "", POLICY("", "{}"), 0, 0, true },
        { "as it should be", ",\"networkPolicy\":{\"ingress\":[{\"ports\":[{\"port\":1}]}]}",
          POLICY(BY_TEMPLATE, RULES("\"ingress\":[{\"ports\":[{\"protocol\":\"TCP\",\"port\":1}]}],")), 0, 0, false },
        { "no rule at all is not all rules", ",\"networkPolicy\":{\"ingress\":[{}]}",
          POLICY(BY_TEMPLATE, RULES("")), 1, TEMPLATE_REPLACE_POLICY, false },
        { "somebody changed it", "", POLICY(BY_TEMPLATE, RULES("\"ingress\":[{}],")), 1, TEMPLATE_REPLACE_POLICY,
          false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct template *t = template_of(all[i].spec);
        struct object *policy = all[i].policy ? decode(KIND_NETPOLICY, all[i].policy) : NULL;
        struct template_view v = { .template = t, .policy = (struct netpolicy *)policy };
        struct template_plan plan;
        template_plan(&v, &plan);
        if (plan.n_actions != all[i].n || (plan.n_actions && plan.action[0] != all[i].act) ||
            !plan.error == all[i].failed)
            fail_msg("%s: %zu actions, the first %d, %s", all[i].name, plan.n_actions, (int)plan.action[0],
                     plan.error ? plan.error : "");
        object_free(&t->o);
        object_free(policy);
    }
    /* What it writes is what it finds again. */
    struct template *t = template_of("");
    struct buf out;
    buf_init(&out, 65536);
    template_write_policy(t, &out);
    assert_non_null(strstr(buf_string(&out), "\"except\":[\"10.0.0.0/8\",\"172.16.0.0/12\",\"192.168.0.0/16\","));
    assert_non_null(strstr(buf_string(&out), "\"app\":\"sandbox-router\""));
    struct jsonslice spec = jsonscan_find((struct jsonslice){ out.data, out.length }, "spec");
    assert_true(normal_hash(spec, NORMAL_RULES) == t->policy_hash);
    buf_done(&out);
    object_free(&t->o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_state_of_a_pool_has_its_actions),
        cmocka_unit_test(test_names_of_members_fit),
        cmocka_unit_test(test_a_template_s_network_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
