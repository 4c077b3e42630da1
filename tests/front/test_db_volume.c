/* Volumes in the database, and a database of the version before them. */
#include <errno.h>

#include "front/db/db_private.h"
#include "front/scratch_db.h"

static char listed[1024];

static int list_volume(const struct db_volume *v, void *arg)
{
    size_t n = strlen(listed);

    (void)arg;
    snprintf(listed + n, sizeof listed - n, "%s%llu/%s/%s/%s/%s", n ? " " : "", (unsigned long long)v->number, v->id,
             v->owner, v->name, v->body);
    return 0;
}

static const char *list_all(void)
{
    listed[0] = 0;
    assert_int_equal(db_volumes(db, list_volume, NULL, &e), 0);
    return listed;
}

static void test_a_volume_has_its_name_alone_and_its_body_changes(void **state)
{
    struct db_volume v = { UINT64_C(1) << 61, "va", "bob", "data", "{\"a\":1}" };

    assert_int_equal(db_volume_put(db, &v, &e), 0);
    v.body = "{\"a\":2}";
    assert_int_equal(db_volume_put(db, &v, &e), 0);
    assert_int_equal(db_volume_put(db, &(struct db_volume){ 7, "vb", "bob", "data", "{}" }, &e), -EEXIST);
    assert_says(&e, "volume of this name");
    assert_int_equal(db_volume_put(db, &(struct db_volume){ 7, "vb", "alice", "data", "{}" }, &e), 0);
    reopen(state);
    assert_string_equal(list_all(), "7/vb/alice/data/{} 2305843009213693952/va/bob/data/{\"a\":2}");
    assert_int_equal(db_volume_delete(db, 7, &e), 0);
    assert_int_equal(db_volume_delete(db, 7, &e), -ENOENT);
    assert_string_equal(list_all(), "2305843009213693952/va/bob/data/{\"a\":2}");
}

static void test_a_database_of_the_last_version_is_upgraded_in_place(void **state)
{
    struct db_box box = { .id = "b1", .owner = "alice", .phase = "running", .body = "{}", .alive = true };

    assert_int_equal(db_box_insert(db, &box, &e), 0);
    assert_int_equal(sqlite3_exec(db->sqlite, "DROP TABLE volumes; PRAGMA user_version = 4;", NULL, NULL, NULL),
                     SQLITE_OK);
    reopen(state);
    assert_string_equal(list_all(), "");
    assert_int_equal(db_volume_put(db, &(struct db_volume){ 7, "vb", "alice", "data", "{}" }, &e), 0);
    assert_int_equal(db_box_delete(db, box.number, &e), 0);       /* it is still there, and volumes are no part of it */
    assert_string_equal(list_all(), "7/vb/alice/data/{}");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_db, close_db)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_volume_has_its_name_alone_and_its_body_changes),
        TEST(test_a_database_of_the_last_version_is_upgraded_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
