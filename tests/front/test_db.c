/* The database when all is well. Faults are in test_db_fault.c. */
#include <errno.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "doors/jupyter/session_table.h"
#include "front/db/db_private.h"
#include "front/scratch_db.h"

static struct db_box box_of(const char *id, const char *owner, const char *name, const char *key)
{
    return (struct db_box){ .id = id, .owner = owner, .name = name, .key = key, .phase = "running", .body = "{}",
                               .created_ms = 1000, .alive = true };
}

static void add_box(const char *id, const char *owner, const char *name, const char *key, uint64_t *ret)
{
    struct db_box box = box_of(id, owner, name, key);

    if (db_box_insert(db, &box, &e) < 0)
        fail_msg("%s", e.what);
    assert_true(box.number > 0);
    if (ret)
        *ret = box.number;
}

static void end_box(uint64_t number)
{
    struct db_box box = box_of("ignored", "ignored", NULL, NULL);

    box.number = number;
    box.alive = false;
    box.phase = "ended";
    assert_int_equal(db_box_update(db, &box, &e), 0);
}

/* Ids of what a listing gives, joined. */
static char listed[4096];

static int list_box(const struct db_box *box, void *arg)
{
    size_t n = strlen(listed);

    snprintf(listed + n, sizeof listed - n, "%s%s", n ? " " : "", box->id);
    return arg ? *(int *)arg : 0;
}

static const char *boxes(bool alive_only)
{
    listed[0] = 0;
    assert_int_equal(db_boxes(db, alive_only, list_box, NULL, &e), 0);
    return listed;
}

static int same_box(const struct db_box *box, void *arg)
{
    const struct db_box *want = arg;

    assert_int_equal(box->number, want->number);
    assert_string_equal(box->id, want->id);
    assert_string_equal(box->owner, want->owner);
    assert_string_equal(box->name, want->name);
    assert_string_equal(box->key, want->key);
    assert_string_equal(box->phase, want->phase);
    assert_string_equal(box->body, want->body);
    assert_int_equal(box->created_ms, want->created_ms);
    assert_int_equal(box->alive, want->alive);
    return 7;
}

static void test_a_box_comes_back_as_it_went(void **state)
{
    struct db_box box = box_of("b1", "uid:1", "näme", "k'1");

    box.body = "{\"a\":\"\xe2\x82\xac '); DROP TABLE boxes; --\"}";
    box.created_ms = INT64_C(1) << 50;
    assert_int_equal(db_box_insert(db, &box, &e), 0);
    reopen(state);
    assert_int_equal(db_boxes(db, false, same_box, &box, &e), 0);
    box.phase = "ended";
    box.body = "[]";
    box.name = "other";
    box.alive = false;
    assert_int_equal(db_box_update(db, &box, &e), 0);
    assert_int_equal(db_boxes(db, false, same_box, &box, &e), 0);
    assert_string_equal(boxes(true), "");
    box.number = 99;
    assert_int_equal(db_box_update(db, &box, &e), -ENOENT);
}

static void test_names_are_unique_among_the_living_of_an_owner(void **state)
{
    struct db_box box = box_of("b2", "uid:1", "web", NULL);
    uint64_t first, other;
    (void)state;

    add_box("b1", "uid:1", "web", NULL, &first);
    assert_int_equal(db_box_insert(db, &box, &e), -EEXIST);
    assert_says(&e, "name");
    add_box("b3", "uid:2", "web", NULL, NULL);
    add_box("b4", "uid:1", NULL, NULL, &other);
    add_box("b5", "uid:1", NULL, NULL, NULL);
    box.number = other;
    assert_int_equal(db_box_update(db, &box, &e), -EEXIST);   /* renamed to a taken name */
    end_box(first);
    assert_int_equal(db_box_insert(db, &box, &e), 0);
    assert_string_equal(boxes(true), "b3 b4 b5 b2");
    assert_string_equal(boxes(false), "b1 b3 b4 b5 b2");
    box.id = "b1";
    box.name = NULL;
    assert_int_equal(db_box_insert(db, &box, &e), -EEXIST);
    assert_says(&e, "id");
}

static void test_keys_are_unique_per_owner_and_found(void **state)
{
    struct db_box box = box_of("b2", "uid:1", NULL, "k");
    uint64_t first, found = 0;
    (void)state;

    assert_int_equal(db_box_by_key(db, "uid:1", "k", &found, &e), -ENOENT);
    add_box("b1", "uid:1", NULL, "k", &first);
    assert_int_equal(db_box_insert(db, &box, &e), -EEXIST);
    assert_says(&e, "idempotency key");
    assert_int_equal(db_box_by_key(db, "uid:1", "k", &found, &e), 0);
    assert_int_equal(found, first);
    assert_int_equal(db_box_by_key(db, "uid:2", "k", &found, &e), -ENOENT);
    end_box(first);
    assert_int_equal(db_box_insert(db, &box, &e),
                     -EEXIST); /* a repetition long after its box ended is still one */
}

static int nest(const struct db_box *box, void *arg)
{
    struct db_box copy = *box;
    int *depth = arg, none = 0;

    copy.phase = "touched";
    assert_int_equal(db_box_update(db, &copy, &e), 0);
    if (*depth == 0) {
        (*depth)++;
        assert_int_equal(db_boxes(db, false, nest, depth, &e), 0);
    }
    return list_box(box, &none);
}

static void test_callbacks_may_stop_nest_and_write(void **state)
{
    int stop = 1, fail = -ENOMEM, depth = 0;
    (void)state;

    add_box("b1", "o", NULL, NULL, NULL);
    add_box("b2", "o", NULL, NULL, NULL);
    listed[0] = 0;
    assert_int_equal(db_boxes(db, false, list_box, &stop, &e), 0);
    assert_string_equal(listed, "b1");
    assert_int_equal(db_boxes(db, false, list_box, &fail, &e), -ENOMEM);
    listed[0] = 0;
    assert_int_equal(db_boxes(db, false, nest, &depth, &e), 0);
    assert_string_equal(listed, "b1 b2 b1 b2");
}

static int list_exec(const struct db_exec *exec, void *arg)
{
    size_t n = strlen(listed);

    (void)arg;
    snprintf(listed + n, sizeof listed - n, "%s=%s%s ", exec->id, exec->body, exec->ended ? "!" : "");
    return 0;
}

static int list_event(const struct db_event *event, void *arg)
{
    size_t n = strlen(listed);

    (void)arg;
    snprintf(listed + n, sizeof listed - n, "%s/%d/%s ", event->type, (int)event->box, event->body ? event->body : "-");
    return 0;
}

static const char *events(uint64_t box, uint64_t after, unsigned limit)
{
    listed[0] = 0;
    assert_int_equal(db_events(db, box, after, limit, list_event, NULL, &e), 0);
    return listed;
}

static void test_execs_belong_to_a_box(void **state)
{
    struct db_exec exec = { .id = "x1", .body = "1" }, other = { .id = "x2", .body = "2" };
    uint64_t box;
    (void)state;

    add_box("b1", "o", NULL, NULL, &box);
    exec.box = other.box = box;
    assert_int_equal(db_exec_insert(db, &exec, &e), 0);
    assert_int_equal(db_exec_insert(db, &other, &e), 0);
    assert_int_equal(db_exec_insert(db, &other, &e), -EEXIST);
    other.box = 77;
    other.id = "x3";
    assert_int_equal(db_exec_insert(db, &other, &e), -ENOENT);
    assert_says(&e, "no such box");
    exec.body = "3";
    exec.ended = true;
    assert_int_equal(db_exec_update(db, &exec, &e), 0);
    exec.number = 77;
    assert_int_equal(db_exec_update(db, &exec, &e), -ENOENT);
    listed[0] = 0;
    assert_int_equal(db_execs(db, box, list_exec, NULL, &e), 0);
    assert_string_equal(listed, "x1=3! x2=2 ");
    exec.number = other.number - 1;
    assert_int_equal(db_exec_delete(db, exec.number, &e), 0);
    assert_int_equal(db_exec_delete(db, exec.number, &e), -ENOENT);
    listed[0] = 0;
    assert_int_equal(db_execs(db, box, list_exec, NULL, &e), 0);
    assert_string_equal(listed, "x2=2 ");
}

static void test_events_are_read_from_where_one_was(void **state)
{
    struct db_event event = { .time_ms = 5 };
    uint64_t box, first = 0;
    static const char *const types[] = { "a", "b", "c" };
    (void)state;

    add_box("b1", "o", NULL, NULL, &box);
    for (size_t i = 0; i < COUNT(types); i++) {
        event.type = types[i];
        event.box = i == 1 ? 0 : box;
        event.body = i == 2 ? "{}" : NULL;
        assert_int_equal(db_event_insert(db, &event, &e), 0);
        first = first ? first : event.number;
    }
    assert_string_equal(events(0, 0, 100), "a/1/- b/0/- c/1/{} ");
    assert_string_equal(events(box, 0, 100), "a/1/- c/1/{} ");
    assert_string_equal(events(0, first, 1), "b/0/- ");
    assert_string_equal(events(0, first, 0), "");
    assert_string_equal(events(0, UINT64_MAX, 100), "");
}

static void test_prune_forgets_the_dead_and_never_reuses_numbers(void **state)
{
    struct db_event event = { .time_ms = 5, .type = "t" };
    struct db_exec exec = { .id = "x1", .body = "1" };
    uint64_t dead, alive, next;
    (void)state;

    add_box("b1", "o", NULL, NULL, &alive);
    add_box("b2", "o", NULL, NULL, &dead);
    exec.box = event.box = dead;
    assert_int_equal(db_exec_insert(db, &exec, &e), 0);
    assert_int_equal(db_event_insert(db, &event, &e), 0);
    event.box = 0;
    assert_int_equal(db_event_insert(db, &event, &e), 0);
    end_box(dead);
    assert_int_equal(db_prune(db, 1, &e), 0);     /* it ended now, not then */
    assert_string_equal(boxes(false), "b1 b2");
    assert_int_equal(db_prune(db, INT64_MAX, &e), 0);
    assert_string_equal(boxes(false), "b1");
    assert_string_equal(events(0, 0, 9), "");
    listed[0] = 0;
    assert_int_equal(db_execs(db, dead, list_exec, NULL, &e), 0);
    assert_string_equal(listed, "");
    add_box("b2", "o", NULL, NULL, &next);
    assert_true(next > dead);
    for (int i = 0; i < 250; i++) {     /* more than one portion */
        char id[16];
        snprintf(id, sizeof id, "d%d", i);
        add_box(id, "o", NULL, NULL, &dead);
        end_box(dead);
    }
    assert_int_equal(db_prune(db, INT64_MAX, &e), 0);
    assert_string_equal(boxes(false), "b1 b2");
}

static int take_token(const struct db_token *token, void *arg)
{
    struct db_token *copy = arg;

    snprintf(listed, sizeof listed, "%s %s %s", token->id, token->identity, token->scopes);
    *copy = *token;
    copy->id = copy->identity = copy->scopes = NULL;
    return 0;
}

static void test_tokens(void **state)
{
    struct db_token token = {
        .id = "t1", .identity = "ci", .scopes = "exec", .created_ms = 1, .expires_ms = 2, .used_ms = 3
    };
    struct db_token got = { 0 };

    memset(token.hash, 0xab, sizeof token.hash);
    token.hash[5] = 0;
    assert_int_equal(db_token_insert(db, &token, &e), 0);
    assert_int_equal(db_token_insert(db, &token, &e), -EEXIST);
    token.id = "t2";
    assert_int_equal(db_token_insert(db, &token, &e), -EEXIST);   /* the same hash */
    reopen(state);
    assert_int_equal(db_token_by_hash(db, token.hash, take_token, &got, &e), 0);
    assert_string_equal(listed, "t1 ci exec");
    assert_memory_equal(got.hash, token.hash, 32);
    assert_int_equal(got.expires_ms, 2);
    assert_false(got.revoked);
    assert_int_equal(db_token_used(db, "t1", 44, &e), 0);
    assert_int_equal(db_token_used(db, "t9", 44, &e), -ENOENT);
    assert_int_equal(db_token_revoke(db, "t1", &e), 0);
    assert_int_equal(db_token_revoke(db, "t9", &e), -ENOENT);
    assert_int_equal(db_tokens(db, take_token, &got, &e), 0);
    assert_true(got.revoked);
    assert_int_equal(got.used_ms, 44);
    listed[0] = 0;
    token.hash[5] = 1;
    assert_int_equal(db_token_by_hash(db, token.hash, take_token, &got, &e), 0);
    assert_string_equal(listed, "");
}

static int list_session(const struct session_row *s, void *arg)
{
    size_t n = strlen(listed);

    (void)arg;
    snprintf(listed + n, sizeof listed - n, "%s%s/%s/%s/%s/%s/%s", n ? " " : "", s->id, s->owner, s->kernel, s->path,
             s->name, s->type);
    return 0;
}

static void test_sessions_are_put_changed_and_deleted(void **state)
{
    struct session_row session = { "s1", "alice", "k1", "a.ipynb", "a", "notebook" };
    struct db_tables *t;

    assert_int_equal(db_tables_open(db, &session_schema, &t, &e), 0);
    assert_int_equal(session_table_put(t, &session, &e), 0);
    assert_int_equal(session_table_put(t, &(struct session_row){ "s0", "bob", "k1", "", "", "console" }, &e), 0);
    session.owner = "mallory";      /* a session stays its owner's */
    session.kernel = "k2";
    session.path = "b's.ipynb";
    assert_int_equal(session_table_put(t, &session, &e), 0);
    db_tables_close(t);
    reopen(state);
    assert_int_equal(db_tables_open(db, &session_schema, &t, &e), 0);
    listed[0] = 0;
    assert_int_equal(session_table_each(t, list_session, NULL, &e), 0);
    assert_string_equal(listed, "s1/alice/k2/b's.ipynb/a/notebook s0/bob/k1///console");
    assert_int_equal(session_table_delete(t, "s1", &e), 0);
    assert_int_equal(session_table_delete(t, "s1", &e), -ENOENT);
    listed[0] = 0;
    assert_int_equal(session_table_each(t, list_session, NULL, &e), 0);
    assert_string_equal(listed, "s0/bob/k1///console");
    db_tables_close(t);
}

/* What a front before that wrote is there, and what this one writes that one would find. */
static void test_sessions_of_a_database_from_before_doors_had_tables_are_found(void **state)
{
    struct db_tables *t;

    (void)state;
    assert_int_equal(db_script(db, "INSERT INTO sessions (id, owner, kernel, path, name, type)"
                                   " VALUES ('s7', 'alice', 'k', 'p', 'n', 'notebook')", &e), 0);
    assert_int_equal(db_tables_open(db, &session_schema, &t, &e), 0);
    listed[0] = 0;
    assert_int_equal(session_table_each(t, list_session, NULL, &e), 0);
    assert_string_equal(listed, "s7/alice/k/p/n/notebook");
    db_tables_close(t);
}

static int take_number(const struct db_row *row, void *arg)
{
    *(int64_t *)arg = db_row_number(row, 0);
    return 0;
}

static void test_a_doors_tables_have_versions_of_their_own(void **state)
{
    static const char *const scripts[] = { "CREATE TABLE lift_calls (floor INTEGER)",
                                           "ALTER TABLE lift_calls ADD COLUMN at INTEGER",
                                           "CREATE TABLE lift_calls (x)" };
    static const char *const statements[] = { "INSERT INTO lift_calls (floor) VALUES (?1)",
                                              "SELECT sum(floor) FROM lift_calls", "SELECT at FROM lift_calls" };
    struct db_schema lift = { "lift", scripts, 1, statements, 2 };
    struct db_tables *t;
    int64_t sum = 0;

    assert_int_equal(db_tables_open(db, &lift, &t, &e), 0);
    assert_int_equal(db_tables_change(t, 0, &e, "i", (int64_t)5), 0);
    db_tables_close(t);
    reopen(state);
    lift.n_scripts = 2;         /* a newer door finds what the older one wrote */
    lift.n_statements = 3;
    assert_int_equal(db_tables_open(db, &lift, &t, &e), 0);
    assert_int_equal(db_tables_change(t, 0, &e, "i", (int64_t)6), 0);
    assert_int_equal(db_tables_each(t, 1, take_number, &sum, &e, ""), 0);
    assert_int_equal(sum, 11);
    db_tables_close(t);
    lift.n_scripts = 1;
    assert_int_equal(db_tables_open(db, &lift, &t, &e), -ENOTSUP);
    assert_non_null(strstr(e.what, "newer"));
    lift.n_scripts = 3;         /* the third fails: nothing has changed */
    assert_true(db_tables_open(db, &lift, &t, &e) < 0);
    lift.n_scripts = 2;
    assert_int_equal(db_tables_open(db, &lift, &t, &e), 0);
    db_tables_close(t);
}

static void test_files_are_private(void **state)
{
    static const char *const names[] = { "state.db", "state.db-wal", "state.db-shm" };
    struct stat st;

    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(stat(scratch_file(state, names[i]), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
}

static int count_box(const struct db_box *box, void *arg)
{
    (void)box;
    *(int *)arg += 1;
    return 0;
}

/* The figure is the mean of the best of several portions: what it costs when the machine does nothing else. */
static void test_thousands_of_boxes_are_inserted(void **state)
{
    enum { PORTIONS = 200, PORTION = 10 };
    char id[32], body[1200];
    uint64_t best = UINT64_MAX;
    int n = 0;
    (void)state;

    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = 0;
    for (int p = 0; p < PORTIONS; p++) {
        uint64_t start = clock_monotonic_us();
        for (int i = 0; i < PORTION; i++) {
            struct db_box box = box_of(id, "uid:1000", id, id);
            box.body = body;
            snprintf(id, sizeof id, "b%d.%d", p, i);
            assert_int_equal(db_box_insert(db, &box, &e), 0);
        }
        uint64_t mean = (clock_monotonic_us() - start) / PORTION;
        best = mean < best ? mean : best;
    }
    print_message("insert of a box: %u us\n", (unsigned)best);
    assert_int_equal(db_boxes(db, false, count_box, &n, &e), 0);
    assert_int_equal(n, PORTIONS * PORTION);
    uint64_t start = clock_monotonic_us();
    assert_int_equal(db_maintain(db, &e), 0);
    print_message("maintain: %u us\n", (unsigned)(clock_monotonic_us() - start));
}

static void test_migration_goes_forward_step_by_step(void **state)
{
    static const char *const good[] = { "SELECT 1", "SELECT 1", "SELECT 1", "SELECT 1", "SELECT 1",
                                        "CREATE TABLE second (a); INSERT INTO second VALUES (1)",
                                        "ALTER TABLE second ADD b" };
    static const char *const bad[] = { good[0], good[1], good[2], good[3], good[4], good[5],
                                       "CREATE TABLE third (a); CREATE TABLE third (a)" };

    assert_int_equal(db_migrate(db, good, 6, &e), 0);
    assert_int_equal(db_migrate(db, good, 6, &e), 0);     /* does nothing again */
    assert_int_equal(db_migrate(db, bad, 7, &e), -EINVAL);
    assert_int_equal(sqlite3_exec(db->sqlite, "SELECT * FROM third", NULL, NULL, NULL), SQLITE_ERROR);
    assert_int_equal(db_migrate(db, good, 7, &e), 0);
    assert_int_equal(sqlite3_exec(db->sqlite, "SELECT a, b FROM second", NULL, NULL, NULL), SQLITE_OK);
    db_close(db);
    db = NULL;
    assert_int_equal(db_open(((struct scratch *)*state)->path, &db, &e), -ENOTSUP);
    assert_says(&e, "newer carrel (version 7; this one knows 5)");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_db, close_db)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_box_comes_back_as_it_went),
        TEST(test_names_are_unique_among_the_living_of_an_owner),
        TEST(test_keys_are_unique_per_owner_and_found),
        TEST(test_callbacks_may_stop_nest_and_write),
        TEST(test_execs_belong_to_a_box),
        TEST(test_events_are_read_from_where_one_was),
        TEST(test_prune_forgets_the_dead_and_never_reuses_numbers),
        TEST(test_tokens),
        TEST(test_sessions_are_put_changed_and_deleted),
        TEST(test_sessions_of_a_database_from_before_doors_had_tables_are_found),
        TEST(test_a_doors_tables_have_versions_of_their_own),
        TEST(test_files_are_private),
        TEST(test_thousands_of_boxes_are_inserted),
        TEST(test_migration_goes_forward_step_by_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
