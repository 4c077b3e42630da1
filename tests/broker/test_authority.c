/* A box's authority: the same from one seed, another from another, and only for the box's hosts. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "broker/authority.h"

static const char *const hosts[] = { "api.example.com", "api.example.com", "b.example.org" };

static void make(uint8_t first, struct authority *ret)
{
    uint8_t seed[BROKER_SEED_BYTES] = { first };
    struct err e = { 0 };

    assert_int_equal(authority_make(seed, hosts, 3, ret, &e), 0);
}

/* X509_V_OK or why a leaf is not believed. */
static int judge(const struct authority *trusted, X509 *leaf, const char *name)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();

    X509_STORE_add_cert(store, trusted->certificate);
    X509_STORE_CTX_init(context, store, leaf, NULL);
    X509_VERIFY_PARAM_set1_host(X509_STORE_CTX_get0_param(context), name, 0);
    X509_VERIFY_PARAM_set_purpose(X509_STORE_CTX_get0_param(context), X509_PURPOSE_SSL_SERVER);
    (void)X509_verify_cert(context);
    int verdict = X509_STORE_CTX_get_error(context);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return verdict;
}

static X509 *issue(const struct authority *a, const char *name)
{
    struct err e = { 0 };
    EVP_PKEY *key;
    X509 *leaf;

    assert_int_equal(authority_issue(a, name, &key, &leaf, &e), 0);
    EVP_PKEY_free(key);
    return leaf;
}

static void test_a_seed_makes_the_same_authority_again(void **state)
{
    struct authority one, same, other;

    (void)state;
    make(1, &one);
    make(1, &same);
    make(2, &other);
    assert_int_equal(EVP_PKEY_eq(one.key, same.key), 1);
    assert_int_not_equal(EVP_PKEY_eq(one.key, other.key), 1);
    /* What a restarted broker issues, the certificate in the box still vouches for. */
    X509 *leaf = issue(&same, hosts[0]);
    assert_int_equal(judge(&one, leaf, hosts[0]), X509_V_OK);
    assert_int_not_equal(judge(&other, leaf, hosts[0]), X509_V_OK);
    X509_free(leaf);
    authority_done(&one);
    authority_done(&same);
    authority_done(&other);
}

static void test_it_vouches_for_its_hosts_alone(void **state)
{
    static const char *const others[] = { "example.com", "evil.test", "xapi.example.com", "192.0.2.1" };
    struct authority a;

    (void)state;
    make(1, &a);
    for (size_t i = 1; i < 3; i++) {
        X509 *leaf = issue(&a, hosts[i]);
        assert_int_equal(judge(&a, leaf, hosts[i]), X509_V_OK);
        assert_int_equal(judge(&a, leaf, "other.example.net"), X509_V_ERR_HOSTNAME_MISMATCH);
        X509_free(leaf);
    }
    for (size_t i = 0; i < 4; i++) {
        X509 *leaf = issue(&a, others[i]);
        assert_int_equal(judge(&a, leaf, others[i]), X509_V_ERR_PERMITTED_VIOLATION);
        X509_free(leaf);
    }
    authority_done(&a);
}

static void test_a_long_name_has_a_certificate(void **state)
{
    char name[200];
    struct authority a;
    const char *const list[] = { name };
    uint8_t seed[BROKER_SEED_BYTES] = { 5 };
    struct err e = { 0 };

    (void)state;
    memset(name, 'a', sizeof name);
    for (size_t i = 50; i < sizeof name; i += 50)
        name[i] = '.';
    name[sizeof name - 1] = '\0';
    assert_int_equal(authority_make(seed, list, 1, &a, &e), 0);
    X509 *leaf = issue(&a, name);
    assert_int_equal(judge(&a, leaf, name), X509_V_OK);
    X509_free(leaf);
    authority_done(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_seed_makes_the_same_authority_again),
        cmocka_unit_test(test_it_vouches_for_its_hosts_alone),
        cmocka_unit_test(test_a_long_name_has_a_certificate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
