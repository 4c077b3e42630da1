/* The cache: the newest version wins, whichever way it comes. */
#include "cluster/cache.h"
#include "unit/unit.h"

static struct cache cache;
static unsigned n_told;

static void on_change(void *owner, const struct object *was, const struct object *now)
{
    (void)owner;
    (void)was;
    (void)now;
    n_told++;
}

static int set_up(void **state)
{
    (void)state;
    n_told = 0;
    int r = cache_init(&cache);
    cache.on_change = on_change;
    return r;
}

static int tear_down(void **state)
{
    (void)state;
    cache_done(&cache);
    return 0;
}

static struct object *make(enum kind kind, const char *name, const char *uid, unsigned version, const char *more)
{
    char text[1024];
    struct err e;

    snprintf(text, sizeof text,
             "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"n\",\"uid\":\"%s\",\"resourceVersion\":\"%u\"%s}}", name,
             uid, version, more);
    struct object *o = object_decode(kind, (struct jsonslice){ text, strlen(text) }, &e);
    assert_non_null(o);
    return o;
}

static uint64_t version_of(const char *name)
{
    struct object *o = cache_find(&cache, KIND_POD, "n", name);

    return o ? o->version : 0;
}

static void test_an_older_version_is_an_echo(void **state)
{
    (void)state;
    assert_true(cache_put(&cache, make(KIND_POD, "p", "u", 10, "")));
    assert_false(cache_put(&cache, make(KIND_POD, "p", "u", 9, "")));
    assert_true(cache_put(&cache, make(KIND_POD, "p", "u", 10, "")));   /* the same is no news */
    assert_int_equal(n_told, 1);
    assert_int_equal(version_of("p"), 10);
    cache_remove(&cache, KIND_POD, "n", "p", "u", 9);
    assert_int_equal(version_of("p"), 10);
    cache_remove(&cache, KIND_POD, "n", "p", "another", 99);
    assert_int_equal(version_of("p"), 10);
    cache_remove(&cache, KIND_POD, "n", "p", "u", 11);
    assert_int_equal(version_of("p"), 0);
}

static void test_an_answer_that_comes_after_the_end_revives_nothing(void **state)
{
    (void)state;
    cache_put(&cache, make(KIND_POD, "p", "u", 10, ""));
    cache.watched[KIND_POD] = 12;
    cache_remove(&cache, KIND_POD, "n", "p", "u", 12);
    assert_false(cache_put_answer(&cache, make(KIND_POD, "p", "u", 11, ""), false));
    assert_int_equal(version_of("p"), 0);
    assert_true(cache_put_answer(&cache, make(KIND_POD, "p", "v", 13, ""), false));
    assert_true(cache_put_answer(&cache, make(KIND_POD, "q", "w", 5, ""), true));
}

static void test_a_list_removes_what_it_lacks_but_not_what_is_newer(void **state)
{
    (void)state;
    cache_put(&cache, make(KIND_POD, "stays", "1", 10, ""));
    cache_put(&cache, make(KIND_POD, "gone", "2", 11, ""));
    cache_list_begin(&cache, KIND_POD);
    cache_put(&cache, make(KIND_POD, "ours", "3", 21, ""));     /* an answer to a write while the list came */
    cache_list_version(&cache, KIND_POD, 20);
    cache_put(&cache, make(KIND_POD, "stays", "1", 10, ""));
    cache_list_end(&cache, KIND_POD, 20);
    assert_int_equal(version_of("stays"), 10);
    assert_int_equal(version_of("gone"), 0);
    assert_int_equal(version_of("ours"), 21);
}

static void test_a_server_that_was_set_back_is_believed(void **state)
{
    (void)state;
    cache_put(&cache, make(KIND_POD, "p", "1", 100, ""));
    cache_put(&cache, make(KIND_POD, "q", "2", 101, ""));
    cache_list_begin(&cache, KIND_POD);
    cache_list_version(&cache, KIND_POD, 50);
    cache_put(&cache, make(KIND_POD, "p", "1", 40, ""));
    cache_list_end(&cache, KIND_POD, 50);
    assert_int_equal(version_of("p"), 40);
    assert_int_equal(version_of("q"), 0);
    cache_put(&cache, make(KIND_POD, "p", "1", 51, ""));
    assert_int_equal(version_of("p"), 51);
}

static void test_pods_are_found_by_owner_also_when_there_are_many(void **state)
{
    char name[32], more[160];
    size_t n = 0, bucket;

    (void)state;
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "p%u", i);
        snprintf(more, sizeof more,
                 ",\"ownerReferences\":[{\"controller\":true,\"kind\":\"Sandbox\",\"name\":\"s\",\"uid\":\"o%u\"}]",
                 i / 3);
        cache_put(&cache, make(KIND_POD, name, name, i + 1, more));
    }
    for (struct object *p = cache_first_owned(&cache, KIND_POD, "o500"); p; p = cache_next_owned(p))
        n++;
    assert_int_equal(n, 3);
    cache_remove(&cache, KIND_POD, "n", "p1500", NULL, UINT64_MAX);
    n = 0;
    for (struct object *p = cache_first_owned(&cache, KIND_POD, "o500"); p; p = cache_next_owned(p))
        n++;
    assert_int_equal(n, 2);
    n = 0;
    for (struct object *o = NULL; (o = cache_walk(&cache, KIND_POD, &bucket, o));)
        n++;
    assert_int_equal(n, 2999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_older_version_is_an_echo, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_answer_that_comes_after_the_end_revives_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_list_removes_what_it_lacks_but_not_what_is_newer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_server_that_was_set_back_is_believed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pods_are_found_by_owner_also_when_there_are_many, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
