/* What a box is made of, as the front has it: one list. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "front/boxes/boxes.h"
#include "front/front.h"
#include "unit/unit.h"

static struct box_mount *add(struct box_mounts *list, enum mount_kind kind, uint64_t number, const char *target)
{
    struct box_mount *added = NULL;
    struct err e;

    assert_int_equal(box_mounts_add(list, kind, number, target, target, &added, &e), 0);
    return added;
}

static void test_a_list_has_the_caller_s_own_last(void **state)
{
    (void)state;
    struct box_mounts list = { 0 };

    add(&list, MOUNT_HOST, 0, "/one");
    add(&list, MOUNT_DEVICE, 0, "vendor.com/class=device");
    add(&list, MOUNT_HOST, 0, "/two");
    box_mounts_set(&list, MOUNT_LAYER, 2, false);
    box_mounts_set(&list, MOUNT_ROOT, 0, true);
    static const enum mount_kind order[] = { MOUNT_ROOT, MOUNT_LAYER, MOUNT_DEVICE, MOUNT_HOST, MOUNT_HOST };
    assert_int_equal(list.n, sizeof order / sizeof *order);
    for (uint32_t i = 0; i < list.n; i++)
        assert_int_equal(list.at[i].kind, order[i]);
    assert_string_equal(list.at[3].target, "/one");
    assert_string_equal(list.at[4].target, "/two");
    box_mounts_done(&list);
}

static void test_only_directories_cover_a_place(void **state)
{
    (void)state;
    struct box_mounts list = { 0 };

    add(&list, MOUNT_PACKAGES, 0, "");      /* not resolved yet */
    add(&list, MOUNT_DEVICE, 0, "vendor.com/class=device");
    add(&list, MOUNT_HOST, 0, "/running");
    assert_false(box_mounts_cover(&list, "/run/secrets"));
    add(&list, MOUNT_HOST, 0, "/run/secrets/mine");
    assert_true(box_mounts_cover(&list, "/run/secrets"));
    box_mounts_done(&list);
    list = (struct box_mounts){ 0 };
    add(&list, MOUNT_VOLUME, 0, "/run");
    assert_true(box_mounts_cover(&list, "/run/secrets"));
    box_mounts_done(&list);
}

static void test_an_entry_that_says_nothing_is_none(void **state)
{
    (void)state;
    struct box_mounts list = { 0 };

    box_mounts_set(&list, MOUNT_ROOT, 3, false);
    box_mounts_set(&list, MOUNT_ROOT, 4, true);
    assert_int_equal(list.n, 1);
    assert_int_equal(box_mounts_number(&list, MOUNT_ROOT), 4);
    box_mounts_set(&list, MOUNT_ROOT, 0, false);
    assert_int_equal(list.n, 0);
    box_mounts_set_disk(&list, true);
    assert_true(box_mounts_on_disk(&list));
    box_mounts_set_disk(&list, false);
    assert_false(box_mounts_on_disk(&list));
    box_mounts_want_template(&list);
    assert_int_equal(box_mounts_template(&list), 1);
    box_mounts_set(&list, MOUNT_LAYER, 5, false);
    box_mounts_want_template(&list);
    assert_int_equal(box_mounts_template(&list), 5);
    box_mounts_done(&list);
}

static void test_a_kind_is_bounded_by_its_row(void **state)
{
    (void)state;
    struct box_mounts list = { 0 };
    struct err e;

    for (int i = 0; i < KEEPER_DEVICES; i++)
        add(&list, MOUNT_DEVICE, 0, "vendor.com/class=device");
    assert_int_equal(box_mounts_add(&list, MOUNT_DEVICE, 0, "vendor.com/class=more", NULL, NULL, &e), -EINVAL);
    assert_int_equal(list.n, KEEPER_DEVICES);
    box_mounts_done(&list);
}

static void test_families_and_pool_compare_lists(void **state)
{
    (void)state;
    static struct front front;
    struct box_mounts a = { 0 }, b = { 0 };

    front.boxes.n_templates = 2;
    box_mounts_set(&a, MOUNT_LAYER, 1, false);      /* what a list without a template gets, too */
    assert_true(box_mounts_are_alike(&front, &a, &b));
    assert_false(box_mounts_equal(&a, &b, MOUNT_OF_FAMILY));
    box_mounts_set(&b, MOUNT_LAYER, 2, false);
    assert_false(box_mounts_are_alike(&front, &a, &b));
    box_mounts_set(&b, MOUNT_LAYER, 1, false);
    add(&b, MOUNT_HOST, 0, "/data");
    assert_false(box_mounts_are_alike(&front, &a, &b));
    assert_true(box_mounts_equal(&a, &b, MOUNT_OF_FAMILY));
    assert_true(box_mounts_are_all(&b, MOUNT_IN_FAMILY));
    add(&b, MOUNT_DEVICE, 0, "vendor.com/class=device");
    assert_false(box_mounts_are_all(&b, MOUNT_IN_FAMILY));
    box_mounts_done(&a);
    box_mounts_done(&b);
}

static void test_a_frame_has_all_of_it(void **state)
{
    (void)state;
    static struct front front;
    struct box_mounts list = { 0 };
    struct frame_mounts frame;

    front.boxes.n_templates = 2;
    box_mounts_set(&list, MOUNT_LAYER, 2, false);
    box_mounts_set_disk(&list, true);
    add(&list, MOUNT_HOST, 0, "/data")->writable = true;
    box_mounts_frame(&front, &list, 77, &frame);
    assert_true(frame_mounts_are_sane(&frame));
    assert_int_equal(frame.n, 3);
    assert_int_equal(frame_mount_number(&frame, MOUNT_LAYER), 2);
    assert_int_equal(frame_mount_number(&frame, MOUNT_STORE), 77);
    const struct frame_mount *host = frame_mount_find(&frame, MOUNT_HOST);
    assert_string_equal(host->target, "/data");
    assert_int_equal(host->writable, 1);
    box_mounts_set(&list, MOUNT_ROOT, 1, false);    /* a root of its own has no template's layers */
    box_mounts_frame(&front, &list, 77, &frame);
    assert_null(frame_mount_find(&frame, MOUNT_LAYER));
    box_mounts_done(&list);
}

static void test_a_volume_comes_before_a_callers_directory_unless_it_lies_in_it(void **state)
{
    (void)state;
    static struct front front;
    static const char *const order[] = { "/data", "/workshop", "/work", "/data/mine", "/work/data" };
    struct box_mounts list = { 0 };
    struct frame_mounts frame;

    add(&list, MOUNT_HOST, 0, "/work");
    add(&list, MOUNT_VOLUME, 1, "/data")->writable = true;
    add(&list, MOUNT_VOLUME, 2, "/work/data");
    add(&list, MOUNT_VOLUME, 3, "/workshop");
    add(&list, MOUNT_HOST, 0, "/data/mine");
    assert_false(box_mounts_are_all(&list, MOUNT_IN_FAMILY));     /* a zygote reaches what is in its boxes */
    box_mounts_frame(&front, &list, 0, &frame);
    assert_int_equal(frame.n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(frame.at[i].target, order[i]);
    assert_true(frame.at[0].writable && !frame.at[4].writable);
    assert_int_equal(frame.at[4].number, 2);
    box_mounts_done(&list);
}

static void test_a_start_takes_the_same_mounts_again(void **state)
{
    (void)state;
    struct box_mounts list = { 0 }, again = { 0 };
    struct err e;

    add(&list, MOUNT_HOST, 0, "/one");
    add(&list, MOUNT_HOST, 0, "/two");
    assert_int_equal(box_mounts_match(&list, &again, &e), -EINVAL);
    add(&again, MOUNT_HOST, 0, "/two")->fd = open("/dev/null", O_PATH | O_CLOEXEC);
    assert_int_equal(box_mounts_match(&list, &again, &e), -EINVAL);
    add(&again, MOUNT_HOST, 0, "/one")->fd = open("/dev/zero", O_PATH | O_CLOEXEC);
    int one = again.at[1].fd, two = again.at[0].fd, fds[KEEPER_LIST];
    again.at[0].writable = true;
    assert_int_equal(box_mounts_match(&list, &again, &e), -EINVAL);
    again.at[0].writable = false;
    assert_int_equal(box_mounts_match(&list, &again, &e), 0);
    box_mounts_reopen(&list, &again);
    assert_int_equal(box_mounts_fds(&list, fds), 2);
    assert_int_equal(fds[0], one);
    assert_int_equal(fds[1], two);
    box_mounts_done(&again);        /* has none of them any more */
    assert_true(fcntl(one, F_GETFD) >= 0 && fcntl(two, F_GETFD) >= 0);
    box_mounts_done(&list);
    assert_true(fcntl(one, F_GETFD) < 0 && fcntl(two, F_GETFD) < 0);
}

/* A service's box that has ended is replaced by one like it. */
static void test_a_copy_of_settings_owns_all_that_it_has(void **state)
{
    (void)state;
    struct box_settings s, copy;

    box_settings_init(&s);
    s.env = json_object();
    s.labels = json_object();
    s.net = json_string("public");
    add(&s.mounts, MOUNT_HOST, 0, "/data");
    add(&s.mounts, MOUNT_DEVICE, 0, "vendor.com/class=device");
    box_mounts_set(&s.mounts, MOUNT_ROOT, 0, true);
    assert_int_equal(box_settings_copy(&s, &copy), 0);
    assert_int_equal(copy.mounts.n, 3);
    assert_true(box_mounts_find(&copy.mounts, MOUNT_ROOT)->writable);
    box_settings_done(&copy);
    assert_string_equal(json_string_value(s.net), "public");
    assert_int_equal(s.net->refcount, 1);
    assert_int_equal(s.env->refcount, 1);
    assert_string_equal(box_mounts_find(&s.mounts, MOUNT_HOST)->target, "/data");
    box_settings_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list_has_the_caller_s_own_last),
        cmocka_unit_test(test_only_directories_cover_a_place),
        cmocka_unit_test(test_an_entry_that_says_nothing_is_none),
        cmocka_unit_test(test_a_kind_is_bounded_by_its_row),
        cmocka_unit_test(test_families_and_pool_compare_lists),
        cmocka_unit_test(test_a_frame_has_all_of_it),
        cmocka_unit_test(test_a_volume_comes_before_a_callers_directory_unless_it_lies_in_it),
        cmocka_unit_test(test_a_start_takes_the_same_mounts_again),
        cmocka_unit_test(test_a_copy_of_settings_owns_all_that_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
