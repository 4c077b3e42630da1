/* The client's pure parts: lines of a watch, the Lease's record, kubeconfigs, paths, times between tries. */
#include "kube/client.h"
#include "kube/lease.h"
#include "kube/watch.h"
#include "unit/unit.h"

static void test_lines_of_a_watch(void **state)
{
    static const struct { const char *line; enum kube_line kind; uint32_t after_ms;
    } all[] = {
        { "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\"}}}", KUBE_LINE_SET, 0 },
        { "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\"}}}", KUBE_LINE_SET, 0 },
        { "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\"}}}", KUBE_LINE_DELETED, 0 },
        { "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\"}}}", KUBE_LINE_BOOKMARK, 0 },
        { "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"reason\":\"Expired\"}}", KUBE_LINE_EXPIRED, 0 },
        { "{\"type\":\"ERROR\",\"object\":{\"code\":410}}", KUBE_LINE_EXPIRED, 0 },
        { "{\"type\":\"ERROR\",\"object\":{\"code\":504}}", KUBE_LINE_ERROR, 0 },
        { "{\"type\":\"ERROR\",\"object\":{\"code\":429,\"details\":{\"retryAfterSeconds\":7}}}", KUBE_LINE_ERROR,
          7000 },
        { "{\"type\":\"NEW\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\"}}}", KUBE_LINE_BAD, 0 },
        { "{\"type\":\"ADDED\",\"object\":{\"metadata\":{}}}", KUBE_LINE_BAD, 0 },
        { "{\"type\":\"ADDED\",\"object\":[]}", KUBE_LINE_BAD, 0 },
        { "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"5\"}", KUBE_LINE_BAD, 0 },
        { "[]", KUBE_LINE_BAD, 0 },
    };
    struct kube_line_parts parts;

    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        assert_int_equal(kube_line_parse(all[i].line, strlen(all[i].line), &parts), all[i].kind);
        assert_int_equal(parts.retry_after_ms, all[i].after_ms);
    }
}

/* An API server that has just started refuses what it allows a moment later, because it has not read its roles yet. */
static void test_a_refusal_of_what_was_allowed_before_is_told_when_it_lasts(void **state)
{
    static const struct { int status; bool synced; unsigned repeats; bool told; } all[] = {
        { 0, true, 2, false },    { 0, true, 3, true },     { 500, true, 3, true },   { 403, false, 3, true },
        { 403, true, 3, false },  { 403, true, 6, false },  { 403, true, 7, true },   { 404, true, 3, true },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        struct kube_watch w = { .status = all[i].status, .synced = all[i].synced, .repeats = all[i].repeats };
        if (kube_watch_should_tell(&w) != all[i].told)
            fail_msg("row %zu", i);
    }
}

static struct jsonslice text(const char *t)
{
    return (struct jsonslice){ t, strlen(t) };
}

static void test_a_lease_is_over_by_our_clock_alone(void **state)
{
    struct kube_lease l = { .identity = "me" };

    (void)state;
    /* The other's clock is years ahead; what counts is when we saw its record change. */
    assert_true(kube_lease_take(
        &l,
        text("{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"holderIdentity\":\"you\","
             "\"leaseDurationSeconds\":15,\"renewTime\":\"2099-01-01T00:00:00.000000Z\",\"leaseTransitions\":3}}"),
        1000));
    assert_int_equal(l.seen_ms, 1000);
    assert_int_equal(l.seen_for_ms, 15000);
    assert_int_equal(l.transitions, 3);
    assert_true(kube_lease_take(&l,
                                text("{\"metadata\":{\"resourceVersion\":\"1\"},\"spec\":{\"holderIdentity\":\"you\","
                                     "\"leaseDurationSeconds\":15,\"renewTime\":\"2099-01-01T00:00:00.000000Z\"}}"),
                                9000));
    assert_int_equal(l.seen_ms, 1000);
    assert_true(kube_lease_take(&l,
                                text("{\"metadata\":{\"resourceVersion\":\"2\"},\"spec\":{\"holderIdentity\":\"you\","
                                     "\"leaseDurationSeconds\":15,\"renewTime\":\"2099-01-01T00:00:02.000000Z\"}}"),
                                9500));
    assert_int_equal(l.seen_ms, 9500);
    assert_true(kube_lease_take(
        &l, text("{\"metadata\":{\"resourceVersion\":\"3\"},\"spec\":{\"holderIdentity\":null}}"), 9900));
    assert_string_equal(l.holder, "");
    assert_false(kube_lease_take(&l, text("{\"metadata\":{},\"spec\":{}}"), 9900));
    assert_false(kube_lease_is_held(&l));
}

static void test_a_kubeconfig_is_read(void **state)
{
    static const char good[] =
        "current-context: b\ncontexts:\n- {name: a, context: {cluster: none}}\n- {name: b, context: {cluster: c, user: "
        "u, namespace: n}}\n"
        "clusters:\n- name: c\n  cluster: {server: 'https://[::1]:6443/x/', certificate-authority-data: aGVsbG8=, "
        "tls-server-name: k}\n"
        "users:\n- name: u\n  user: {token: t, exec: {command: p, args: [a, b], env: [{name: X, value: y}]}}\n";
    struct kube_config c;
    struct err e;

    (void)state;
    struct kube_config_source from = { "f", good, ".", strlen(good) };
    assert_int_equal(kube_config_parse(&from, 1, NULL, &c, &e), 0);
    assert_string_equal(c.host, "::1");
    assert_string_equal(c.port, "6443");
    assert_string_equal(c.prefix, "/x");
    assert_string_equal(c.ca_pem, "hello");
    assert_string_equal(c.server_name, "k");
    assert_string_equal(c.namespace, "n");
    assert_string_equal(c.token, "t");
    assert_string_equal(c.exec_argv[2], "b");
    assert_string_equal(c.exec_env[0], "X=y");
    assert_true(c.tls && !c.insecure);
    kube_config_done(&c);
    assert_true(kube_config_parse(&from, 1, "a", &c, &e) < 0);
    assert_says(&e, "no cluster named \"none\"");
}

static struct kube_config_source source(const char *name, const char *text, const char *folder)
{
    return (struct kube_config_source){ name, text, folder, strlen(text) };
}

static void test_of_several_kubeconfigs_the_first_that_says_something_is_heard(void **state)
{
    struct kube_config_source from[] = {
        source("empty", "", "/0"),
        source("one", "contexts: [{name: a, context: {cluster: c, user: u}}]\n"
               "users: [{name: u, user: {exec: {command: bin/get}}}]\n", "/1"),
        source("two", "current-context: a\ncontexts: [{name: a, context: {cluster: other, namespace: n}}]\n"
               "clusters: [{name: c, cluster: {server: 'http://second'}}]\n", "/2"),
        source("three", "current-context: b\nclusters: [{name: c, cluster: {server: 'http://third', "
               "tls-server-name: x}}]\nusers: [{name: u, user: {token: t}}]\n", "/3"),
    };
    struct kube_config c;
    struct err e;

    (void)state;
    assert_int_equal(kube_config_parse(from, COUNT(from), NULL, &c, &e), 0);
    assert_string_equal(c.host, "second");
    assert_null(c.namespace);               /* elements are taken whole */
    assert_null(c.server_name);
    assert_null(c.token);
    assert_string_equal(c.exec_argv[0], "/1/bin/get");
    kube_config_done(&c);
    assert_true(kube_config_parse(from, COUNT(from), "b", &c, &e) < 0);
    assert_says(&e, "no context named \"b\", nor in the files after this one");
    from[3].text = "[a";
    from[3].size = 2;
    assert_true(kube_config_parse(from, COUNT(from), NULL, &c, &e) < 0);
    assert_says(&e, "three:2: did not find");
}

static void test_a_token_that_is_no_header_is_refused(void **state)
{
    static const char bad[] = "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
                              "clusters: [{name: c, cluster: {server: 'http://x'}}]\n"
                              "users: [{name: u, user: {token: \"a\\r\\nX: y\"}}]\n";
    struct kube_config_source from = source("f", bad, ".");
    struct kube_config c = { .token = strdup("old") };
    struct err e;

    (void)state;
    assert_true(kube_config_parse(&from, 1, NULL, &c, &e) < 0);
    assert_says(&e, "f:4: token has blanks");
    /* Nor one of a plugin; what was there stays. */
    static const char printed[] = "{\"status\":{\"token\":\"a\\r\\nX: y\"}}";
    assert_true(kube_config_take_credential(&c, printed, strlen(printed), &e) < 0);
    assert_string_equal(c.token, "old");
    static const char half[] = "{\"status\":{\"token\":\"t\",\"clientKeyData\":\"k\"}}";
    assert_true(kube_config_take_credential(&c, half, strlen(half), &e) < 0);
    assert_string_equal(c.token, "old");
    kube_config_done(&c);
}

static void put(const char *folder, const char *name, const char *content)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
}

static void test_a_pod_s_own_configuration_and_its_token_that_changes(void **state)
{
    char root[] = "/tmp/carrel-kube-XXXXXX", folder[300];
    struct kube_config c;
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(folder, sizeof folder, "%s/var/run/secrets/kubernetes.io/serviceaccount", root);
    for (char *p = folder + strlen(root) + 1; p; p = strchr(p + 1, '/')) {
        char whole[300];
        snprintf(whole, sizeof whole, "%.*s", (int)(p - folder), folder);
        (void)mkdir(whole, 0700);
    }
    (void)mkdir(folder, 0700);
    setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    assert_true(kube_config_in_cluster(root, &c, &e) < 0);
    put(folder, "ca.crt", "ca");
    put(folder, "namespace", "agent-sandbox-system");
    put(folder, "token", "one\n");
    assert_int_equal(kube_config_in_cluster(root, &c, &e), 0);
    assert_string_equal(c.namespace, "agent-sandbox-system");
    assert_string_equal(c.host, "10.96.0.1");
    assert_string_equal(c.token, "one");
    put(folder, "token", "two");
    c.token_read.tv_sec = 0;
    assert_int_equal(kube_config_refresh(&c, &e), 0);
    assert_string_equal(c.token, "two");
    kube_config_done(&c);
    static const char *const files[] = { "ca.crt", "namespace", "token", "" };
    for (size_t i = 0; i < COUNT(files); i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        (void)remove(path);
    }
}

static void test_paths_are_escaped_and_tries_grow_apart(void **state)
{
    char *path = kube_path("%r/namespaces/%s/x?continue=%s", "/api/v1", "a/b", "c d|é");

    (void)state;
    assert_string_equal(path, "/api/v1/namespaces/a%2Fb/x?continue=c%20d%7C%C3%A9");
    free(path);
    for (unsigned n = 1; n < 40; n++) {
        uint32_t ms = kube_backoff_ms(n), base = n >= 10 ? 30000 : 100u << (n - 1);
        assert_true(ms >= (base > 30000 ? 30000 : base) && ms <= 60000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_of_a_watch),
        cmocka_unit_test(test_a_refusal_of_what_was_allowed_before_is_told_when_it_lasts),
        cmocka_unit_test(test_a_lease_is_over_by_our_clock_alone),
        cmocka_unit_test(test_a_kubeconfig_is_read),
        cmocka_unit_test(test_of_several_kubeconfigs_the_first_that_says_something_is_heard),
        cmocka_unit_test(test_a_token_that_is_no_header_is_refused),
        cmocka_unit_test(test_a_pod_s_own_configuration_and_its_token_that_changes),
        cmocka_unit_test(test_paths_are_escaped_and_tries_grow_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
