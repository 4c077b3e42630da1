/* Services and grants in the database. */
#include <errno.h>

#include "front/db/db_private.h"
#include "front/scratch_db.h"

static char listed[1024];

static int list_service(const struct db_service *s, void *arg)
{
    size_t n = strlen(listed);

    (void)arg;
    snprintf(listed + n, sizeof listed - n, "%s%s/%s/%s/%llu/%s", n ? " " : "", s->id, s->owner, s->name,
             (unsigned long long)s->box, s->body);
    return 0;
}

static int list_grant(const struct db_grant *g, void *arg)
{
    size_t n = strlen(listed);

    (void)arg;
    snprintf(listed + n, sizeof listed - n, "%s%s/%s/%s/%llu/%s/%llu", n ? " " : "", g->id, g->owner, g->service,
             (unsigned long long)g->box, g->body, (unsigned long long)g->used);
    return 0;
}

static void test_services_go_with_their_boxes_and_grants_with_both(void **state)
{
    struct db_box one = { .id = "b1", .owner = "alice", .phase = "running", .body = "{}", .alive = true };
    struct db_box two = { .id = "b2", .owner = "alice", .phase = "running", .body = "{}", .alive = true };

    assert_int_equal(db_box_insert(db, &one, &e), 0);
    assert_int_equal(db_box_insert(db, &two, &e), 0);
    struct db_service s = { "v1", "alice", "tools", one.number, "{\"a\":1}" };
    assert_int_equal(db_service_put(db, &s, &e), 0);
    s.body = "{\"a\":2}";
    assert_int_equal(db_service_put(db, &s, &e), 0);
    assert_int_equal(db_service_put(db, &(struct db_service){ "v9", "a", "n", 99, "{}" }, &e), -ENOENT);
    assert_int_equal(db_grant_insert(db, &(struct db_grant){ "g1", "alice", "v1", 0, "{}", 0 }, &e), 0);
    assert_int_equal(db_grant_insert(db, &(struct db_grant){ "g2", "alice", "v1", two.number, "{}", 3 }, &e),
                     0);
    assert_int_equal(db_grant_used(db, "g1", 7, &e), 0);
    assert_int_equal(db_grant_used(db, "g9", 7, &e), -ENOENT);
    reopen(state);
    listed[0] = 0;
    assert_int_equal(db_services(db, list_service, NULL, &e), 0);
    assert_string_equal(listed, "v1/alice/tools/1/{\"a\":2}");
    listed[0] = 0;
    assert_int_equal(db_grants(db, list_grant, NULL, &e), 0);
    assert_string_equal(listed, "g1/alice/v1/0/{}/7 g2/alice/v1/2/{}/3");
    assert_int_equal(db_box_delete(db, two.number, &e), 0);       /* who held it is gone */
    listed[0] = 0;
    assert_int_equal(db_grants(db, list_grant, NULL, &e), 0);
    assert_string_equal(listed, "g1/alice/v1/0/{}/7");
    assert_int_equal(db_service_delete(db, "v1", &e), 0);
    listed[0] = 0;
    assert_int_equal(db_grants(db, list_grant, NULL, &e), 0);
    assert_string_equal(listed, "");
    assert_int_equal(db_service_delete(db, "v1", &e), -ENOENT);
    assert_int_equal(db_grant_delete(db, "g1", &e), -ENOENT);
}

static void test_a_service_has_its_name_alone(void **state)
{
    struct db_box box = { .id = "b1", .owner = "alice", .phase = "running", .body = "{}", .alive = true };

    (void)state;
    assert_int_equal(db_box_insert(db, &box, &e), 0);
    assert_int_equal(db_service_put(db, &(struct db_service){ "v1", "alice", "tools", box.number, "{}" }, &e), 0);
    assert_int_equal(db_service_put(db, &(struct db_service){ "v2", "alice", "tools", box.number, "{}" }, &e), -EEXIST);
    assert_says(&e, "a service of this name");
    assert_int_equal(db_service_put(db, &(struct db_service){ "v2", "bob", "tools", box.number, "{}" }, &e), 0);
    assert_int_equal(db_service_delete(db, "v1", &e), 0);
    assert_int_equal(db_service_put(db, &(struct db_service){ "v1", "alice", "tools", box.number, "{}" }, &e), 0);
}

/* What two fronts on one database could make, before there was a lock. */
static void test_services_of_one_name_from_an_earlier_version_get_names_of_their_own(void **state)
{
    static const char earlier[] =
        "DROP INDEX services_name; DROP TABLE volumes; PRAGMA user_version = 3;"
        "INSERT INTO boxes (number, id, owner, phase, body, created_ms, alive)"
        " VALUES (1, 'b1', 'alice', 'running', '{}', 1, 1);"
        "INSERT INTO services (number, id, owner, name, box, body) VALUES (1, 'vone', 'alice', 'tools', 1, '{}'),"
        " (2, 'vtwo', 'alice', 'tools', 1, '{}'), (3, 'vthree', 'bob', 'tools', 1, '{}'),"
        " (4, 'vfour', 'alice', 'tools', 1, '{}'), (5, 'vfive', 'alice', 'other', 1, '{}'),"
        " (6, 'vsix', 'alice', 'long567890123456789012345678901234567890123456789012345678901234', 1, '{}'),"
        " (7, 'vseven', 'alice', 'long567890123456789012345678901234567890123456789012345678901234', 1, '{}');"
        "INSERT INTO grants (id, owner, service, body, used) VALUES ('g1', 'alice', 'vone', '{}', 0);";

    assert_int_equal(sqlite3_exec(db->sqlite, earlier, NULL, NULL, NULL), SQLITE_OK);
    reopen(state);
    listed[0] = 0;
    assert_int_equal(db_services(db, list_service, NULL, &e), 0);
    /* The newest is the one that was found by its name. */
    assert_string_equal(listed, "vone/alice/tools-vone/1/{} vtwo/alice/tools-vtwo/1/{} vthree/bob/tools/1/{} "
                                "vfour/alice/tools/1/{} vfive/alice/other/1/{} "
                                "vsix/alice/long567890123456789012345678901234567890123456789-vsix/1/{} "
                                "vseven/alice/long567890123456789012345678901234567890123456789012345678901234/1/{}");
    listed[0] = 0;
    assert_int_equal(db_grants(db, list_grant, NULL, &e), 0);
    assert_string_equal(listed, "g1/alice/vone/0/{}/0");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_db, close_db)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_services_go_with_their_boxes_and_grants_with_both),
        TEST(test_a_service_has_its_name_alone),
        TEST(test_services_of_one_name_from_an_earlier_version_get_names_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
