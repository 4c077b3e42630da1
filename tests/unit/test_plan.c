/* The layout of a box as data: what must be there, in which order, and what must not. */
#include "unit/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "box/plan.h"
#include "sys/mountfd.h"

static const struct host_facts host = {
    .landlock_abi = 7,
    .can_mknod = true,
    .can_map_ids = true,
    .n_etc = 4,
    .etc = { { .name = "ld.so.cache" }, { .name = "services", .text = "http 80/tcp\n" },
             { .name = "ssl/certs", .is_dir = true }, { .name = "vimrc", .link = "/usr/share/vimrc" } },
    .n_trees = 3,
    .tree = { { .name = "usr" }, { .name = "bin", .link = "usr/bin" }, { .name = "lib", .link = "usr/lib" } },
};

static struct plan plan;
static struct err  e;

static struct box_spec plain(void)
{
    return (
        struct box_spec){ .profile = PROFILE_STANDARD, .uid = 1000, .gid = 1000, .limits = { .disk_bytes = 1 << 20 } };
}

static const struct plan_mount *mount_at(const char *target)
{
    for (size_t i = 0; i < plan.n_mounts; i++)
        if (strcmp(plan.mount[i].target, target) == 0)
            return &plan.mount[i];
    return NULL;
}

static const struct plan_entry *entry_at(const char *path, bool on_scratch)
{
    for (size_t i = 0; i < plan.n_entries; i++)
        if (plan.entry[i].on_scratch == on_scratch && strcmp(plan.entry[i].path, path) == 0)
            return &plan.entry[i];
    return NULL;
}

static enum landlock_rights rights_at(const char *path)
{
    for (size_t i = 0; i < plan.n_rules; i++)
        if (strcmp(plan.rule[i].path, path) == 0)
            return plan.rule[i].rights;
    return LANDLOCK_READ;
}

static void test_everything_of_the_host_is_read_only_without_devices_and_set_id(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    for (size_t i = 0; i < plan.n_mounts; i++)
        if (plan.mount[i].source == FROM_HOST)
            assert_int_equal(plan.mount[i].flags & (TREE_READONLY | TREE_NOSUID | TREE_NODEV),
                             TREE_READONLY | TREE_NOSUID | TREE_NODEV);
    assert_non_null(mount_at("usr"));
    assert_non_null(mount_at("etc/ld.so.cache"));
    assert_null(mount_at("etc"));
}

static void test_var_tmp_is_a_folder_of_scratch_where_something_is_mounted_there(void **state)
{
    static const char *const targets[] = { "/var/tmp", "/var/tmp/a/b", "/var/tmpx" };
    struct box_spec spec = plain();
    (void)state;

    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(entry_at("var/tmp", false)->kind, PLAN_LINK);
    assert_null(mount_at("var/tmp"));
    spec.n_mounts = 1;
    for (size_t i = 0; i < 3; i++) {
        spec.mount[0] = (struct mount_spec){
            .kind = i == 1 ? MOUNT_LAYER : MOUNT_HOST, .source = targets[i], .target = targets[i]
        };
        assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
        assert_int_equal(entry_at("var/tmp", false)->kind, i == 2 ? PLAN_LINK : PLAN_DIR);
        assert_int_equal(rights_at("/var/tmp"), i == 2 ? LANDLOCK_READ : LANDLOCK_WRITE);
        if (i < 2)
            assert_int_equal(mount_at("var/tmp")->source, FROM_SCRATCH);
    }
    spec.mount[0] = (struct mount_spec){ .source = "/d", .target = "/var/tmp/a/b" };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(entry_at("var-tmp/a/b", true)->kind, PLAN_DIR);
    assert_null(entry_at("var/tmp/a", false));
}

static void test_every_mount_point_is_made_before_its_mount(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    spec.n_mounts = 2;
    spec.mount[0] = (struct mount_spec){ .source = "/data", .target = "/a/b/c" };
    spec.mount[1] = (struct mount_spec){ .source = "/file", .target = "/tmp/deep/file", .is_file = true };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(entry_at("a", false)->kind, PLAN_DIR);
    assert_int_equal(entry_at("a/b", false)->kind, PLAN_DIR);
    assert_int_equal(entry_at("a/b/c", false)->kind, PLAN_DIR);
    assert_int_equal(entry_at("tmp/deep", true)->kind, PLAN_DIR);
    assert_int_equal(entry_at("tmp/deep/file", true)->kind, PLAN_FILE);
}

static void test_nothing_on_the_root_belongs_to_the_box(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    for (size_t i = 0; i < plan.n_entries; i++)
        if (!plan.entry[i].on_scratch)
            assert_int_equal(plan.entry[i].owner, OWNER_KEEPER);
    assert_int_equal(entry_at("home", true)->owner, OWNER_BOX_USER);
}

static void test_only_the_scratch_and_writable_mounts_may_be_written(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    spec.n_mounts = 2;
    spec.mount[0] = (struct mount_spec){ .source = "/data", .target = "/ro" };
    spec.mount[1] = (struct mount_spec){ .source = "/data", .target = "/rw", .writable = true };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(rights_at("/"), LANDLOCK_READ);
    assert_int_equal(rights_at("/ro"), LANDLOCK_READ);
    assert_int_equal(rights_at("/rw"), LANDLOCK_WRITE);
    assert_int_equal(rights_at("/tmp"), LANDLOCK_WRITE);
    assert_true(mount_at("ro")->flags & TREE_READONLY);
    assert_false(mount_at("rw")->flags & TREE_READONLY);
    assert_true(mount_at("rw")->flags & TREE_NOSUID);
}

static void test_strict_shows_only_processes_in_proc(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    spec.profile = PROFILE_STRICT;
    spec.limits.memory_bytes = 1 << 20;
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_non_null(mount_at("proc")->path);
    assert_null(mount_at("proc/meminfo"));
    spec.profile = PROFILE_STANDARD;
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_null(mount_at("proc")->path);
    assert_true(mount_at("proc/meminfo")->flags & TREE_READONLY);
    assert_true(mount_at("proc/kallsyms")->optional);
}

static void test_a_box_that_cannot_make_nodes_binds_the_host_s(void **state)
{
    struct box_spec spec = plain();
    struct host_facts rootless = host;
    (void)state;

    rootless.can_mknod = false;
    assert_int_equal(plan_make(&spec, &rootless, &plan, &e), 0);
    assert_int_equal(mount_at("dev/null")->source, FROM_DEVICE);
    assert_int_equal(entry_at("dev/null", false)->kind, PLAN_FILE);
}

static void test_a_directory_cannot_cover_a_file_of_the_box(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    spec.n_mounts = 1;
    spec.mount[0] = (struct mount_spec){ .source = "/data", .target = "/etc/passwd" };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), -ENOTDIR);
    assert_non_null(strstr(e.what, "/etc/passwd"));
    spec.mount[0] = (struct mount_spec){ .source = "/file", .target = "/tmp", .is_file = true };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), -EISDIR);
}

static void test_nothing_is_made_below_a_link_or_a_file_of_the_box(void **state)
{
    static const char *const targets[] = { "/var/run/x", "/var/run/deep/x", "/bin/x", "/etc/passwd/x" };
    (void)state;

    for (size_t i = 0; i < sizeof targets / sizeof *targets * 2; i++) {
        struct box_spec spec = plain();
        const char *target = targets[i / 2];
        spec.mount[spec.n_mounts++] =
            (struct mount_spec){ .source = "/x", .target = target, .is_file = i % 2 };
        assert_int_equal(plan_make(&spec, &host, &plan, &e), -ENOTDIR);
        assert_non_null(strstr(e.what, target));
    }
}

static void test_terminals_are_in_every_box_and_needed_only_if_asked_for(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_true(mount_at("dev/pts")->optional);
    spec.terminal = true;
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_false(mount_at("dev/pts")->optional);
}

static void test_the_host_s_configuration_is_bound_copied_or_linked(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_string_equal(entry_at("etc/services", false)->text, "http 80/tcp\n");
    assert_null(mount_at("etc/services"));
    assert_int_equal(entry_at("etc/ssl", false)->kind, PLAN_DIR);
    assert_int_equal(mount_at("etc/ssl/certs")->flags & TREE_READONLY, TREE_READONLY);
    assert_string_equal(entry_at("etc/vimrc", false)->text, "/usr/share/vimrc");
    /* One that the caller brings comes later, and so above. */
    spec.mount[spec.n_mounts++] = (struct mount_spec){ .source = "/x", .target = "/etc/ssl/certs" };
    spec.mount[spec.n_mounts++] = (struct mount_spec){ .source = "/y", .target = "/etc/services", .is_file = true };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    /* A root of its own has an /etc of its own. */
    spec = plain();
    spec.mount[spec.n_mounts++] = (struct mount_spec){ .kind = MOUNT_ROOT, .source = "/srv/root" };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_null(entry_at("etc/services", false));
}

static void test_a_writable_root_is_an_overlay_of_the_box_s_own(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    spec.mount[spec.n_mounts++] = (struct mount_spec){ .kind = MOUNT_ROOT, .writable = true };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(mount_at("usr")->source, FROM_OVERLAY);
    assert_int_equal(entry_at("upper-usr", true)->owner, OWNER_BOX_ROOT);
    assert_int_equal(rights_at("/usr"), LANDLOCK_WRITE);
}

static void test_one_list_holds_root_layers_store_and_host_mounts_in_any_order(void **state)
{
    static const struct mount_spec list[] = {
        { .kind = MOUNT_STORE, .fd = 11 },
        { .kind = MOUNT_HOST, .source = "/data", .target = "/opt/layer/over", .fd = 12 },
        { .kind = MOUNT_LAYER, .source = "/opt/layer", .target = "/opt/layer", .writable = true, .fd = 13 },
        { .kind = MOUNT_ROOT, .source = "/srv/root", .writable = true, .fd = -1 },
    };
    struct box_spec spec = plain();
    (void)state;

    spec.n_mounts = 4;
    for (size_t i = 0; i < 4; i++)
        spec.mount[i] = list[3 - i];
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_string_equal(plan.root, "/srv/root");
    assert_true(plan.writable_root && plan.on_store);
    assert_int_equal(plan.store, 11);
    assert_int_equal(mount_at("opt/layer")->source, FROM_LAYER);
    assert_int_equal(mount_at("opt/layer")->fd, 13);
    assert_true(mount_at("opt/layer")->flags & TREE_READONLY);      /* whatever was asked for */
    assert_int_equal(mount_at("opt/layer/over")->fd, 12);
    assert_true(mount_at("opt/layer") < mount_at("opt/layer/over"));
    assert_null(entry_at("opt/layer/over", false));                 /* nothing is made in what is not ours */

    /* A layer below which something was mounted before is in the way of it, as in the list. */
    memcpy(spec.mount, list, sizeof list);
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_true(mount_at("opt/layer") > mount_at("opt/layer/over"));

    spec.mount[0].kind = MOUNT_TMPFS;
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_false(plan.on_store);
    assert_int_equal(plan.store, -1);
}

static void test_a_volume_is_mounted_as_it_is_and_written_only_if_it_may_be(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    spec.n_mounts = 2;
    spec.mount[0] = (struct mount_spec){ .kind = MOUNT_VOLUME, .source = "/data", .target = "/data", .fd = 21,
                                         .writable = true };
    spec.mount[1] = (struct mount_spec){ .kind = MOUNT_VOLUME, .source = "/tmp/m", .target = "/tmp/m", .fd = 22 };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    const struct plan_mount *data = mount_at("data"), *models = mount_at("tmp/m");
    assert_int_equal(data->source, FROM_VOLUME);
    assert_int_equal(data->fd, 21);
    assert_int_equal(data->flags, TREE_NOSUID | TREE_NODEV);
    assert_int_equal(rights_at("/data"), LANDLOCK_WRITE);
    assert_int_equal(models->source, FROM_VOLUME);
    assert_int_equal(models->flags, TREE_NOSUID | TREE_NODEV | TREE_READONLY);
    assert_non_null(entry_at("data", false));
    assert_non_null(entry_at("tmp/m", true));           /* its mount point is on scratch, below /tmp */
}

static void test_files_of_secrets_are_never_on_a_store(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_null(mount_at("run/secrets"));
    spec.has_secrets = true;
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(mount_at("run/secrets")->source, FROM_SCRATCH);
    assert_int_equal(entry_at("secrets", true)->mode, 0700);
    assert_int_equal(entry_at("secrets", true)->owner, OWNER_BOX_USER);
    assert_true(mount_at("run/secrets")->flags & TREE_NOEXEC);
    assert_int_equal(rights_at("/run/secrets"), LANDLOCK_WRITE);
    spec.mount[spec.n_mounts++] = (struct mount_spec){ .kind = MOUNT_STORE, .fd = 11 };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(mount_at("run/secrets")->source, FROM_MEMORY);
    assert_null(entry_at("secrets", true));
}

/* Its owner may be the only one who can search that tree, and who that is in the box is known from the maps alone. */
static void test_a_mount_point_in_a_tree_of_the_caller_s_waits_for_id_maps(void **state)
{
    struct box_spec spec = plain();
    (void)state;

    spec.n_mounts = 2;
    spec.mount[0] = (struct mount_spec){ .source = "/data", .target = "/root", .fd = 11 };
    spec.mount[1] = (struct mount_spec){ .kind = MOUNT_LAYER, .source = "/root/p", .target = "/root/p", .fd = 12,
                                         .fills_gap = true };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_true(mount_at("root/p")->fills_gap);
    spec.mount[0].target = "/home/other";
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
}

static void test_a_device_is_a_node_of_the_box_s_own_or_the_host_s_bound(void **state)
{
    struct host_facts rootless = host;
    struct box_spec spec = plain();
    (void)state;

    rootless.can_mknod = false;
    spec.n_mounts = 2;
    spec.mount[0] = (struct mount_spec){ .kind = MOUNT_DEVICE, .source = "/dev/x", .target = "/dev/dri/card0", .fd = 7,
                                         .is_file = true, .writable = true, .device = makedev(226, 0) };
    spec.mount[1] = (struct mount_spec){ .kind = MOUNT_DEVICE, .source = "/dev/y", .target = "/dev/disk", .fd = 8,
                                         .is_file = true, .is_block = true, .device = makedev(7, 1) };
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    assert_int_equal(entry_at("dev/dri", false)->kind, PLAN_DIR);
    assert_int_equal(entry_at("dev/dri/card0", false)->kind, PLAN_NODE);
    assert_int_equal(entry_at("dev/dri/card0", false)->device, makedev(226, 0));
    assert_int_equal(entry_at("dev/dri/card0", false)->mode, S_IFCHR | 0666);
    assert_int_equal(entry_at("dev/dri/card0", false)->owner, OWNER_KEEPER);
    assert_int_equal(entry_at("dev/disk", false)->mode, S_IFBLK | 0444);
    assert_null(mount_at("dev/disk"));

    assert_int_equal(plan_make(&spec, &rootless, &plan, &e), 0);
    assert_int_equal(mount_at("dev/dri/card0")->source, FROM_NODE);
    assert_int_equal(mount_at("dev/dri/card0")->fd, 7);
    assert_int_equal(mount_at("dev/dri/card0")->flags, TREE_NOSUID | TREE_NOEXEC);
    assert_true(mount_at("dev") < mount_at("dev/dri/card0"));

    spec.mount[1].target = "/dev/null";
    assert_int_equal(plan_make(&spec, &host, &plan, &e), -EEXIST);
    spec.mount[1].target = "/dev/fd/1";
    assert_int_equal(plan_make(&spec, &host, &plan, &e), -ENOTDIR);
}

static void test_a_plan_prints_its_steps_in_order(void **state)
{
    struct box_spec spec = plain();
    char *text = NULL;
    size_t size = 0;
    (void)state;

    spec.limits.memory_bytes = 1 << 26;
    assert_int_equal(plan_make(&spec, &host, &plan, &e), 0);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    plan_print(&plan, out);
    fclose(out);
    const char *pivot = strstr(text, "pivot"), *usr = strstr(text, "/usr <- /usr"),
               *filter = strstr(text, "seccomp standard");
    assert_non_null(strstr(text, "memory=67108864"));
    assert_true(usr && pivot && filter && usr < pivot && pivot < filter);
    free(text);
}

static void test_too_many_mounts_are_told(void **state)
{
    static struct box_spec spec;
    static char targets[SPEC_MOUNTS_MAX][512];
    (void)state;

    spec = plain();
    for (spec.n_mounts = 0; spec.n_mounts < SPEC_MOUNTS_MAX; spec.n_mounts++) {
        char *t = targets[spec.n_mounts];
        memset(t, 'a', 500);
        snprintf(t, 512, "/%zu/", spec.n_mounts);
        t[strlen(t)] = 'b';
        t[500] = '\0';
        spec.mount[spec.n_mounts] = (struct mount_spec){ .source = "/data", .target = t };
    }
    int r = plan_make(&spec, &host, &plan, &e);
    assert_true(r == 0 || r == -E2BIG);
    assert_true(plan.text_used <= sizeof plan.text && plan.n_mounts <= PLAN_MOUNTS && plan.n_entries <= PLAN_ENTRIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_of_the_host_is_read_only_without_devices_and_set_id),
        cmocka_unit_test(test_var_tmp_is_a_folder_of_scratch_where_something_is_mounted_there),
        cmocka_unit_test(test_every_mount_point_is_made_before_its_mount),
        cmocka_unit_test(test_nothing_on_the_root_belongs_to_the_box),
        cmocka_unit_test(test_only_the_scratch_and_writable_mounts_may_be_written),
        cmocka_unit_test(test_strict_shows_only_processes_in_proc),
        cmocka_unit_test(test_a_box_that_cannot_make_nodes_binds_the_host_s),
        cmocka_unit_test(test_a_directory_cannot_cover_a_file_of_the_box),
        cmocka_unit_test(test_nothing_is_made_below_a_link_or_a_file_of_the_box),
        cmocka_unit_test(test_terminals_are_in_every_box_and_needed_only_if_asked_for),
        cmocka_unit_test(test_the_host_s_configuration_is_bound_copied_or_linked),
        cmocka_unit_test(test_a_writable_root_is_an_overlay_of_the_box_s_own),
        cmocka_unit_test(test_one_list_holds_root_layers_store_and_host_mounts_in_any_order),
        cmocka_unit_test(test_files_of_secrets_are_never_on_a_store),
        cmocka_unit_test(test_a_volume_is_mounted_as_it_is_and_written_only_if_it_may_be),
        cmocka_unit_test(test_a_mount_point_in_a_tree_of_the_caller_s_waits_for_id_maps),
        cmocka_unit_test(test_a_device_is_a_node_of_the_box_s_own_or_the_host_s_bound),
        cmocka_unit_test(test_a_plan_prints_its_steps_in_order),
        cmocka_unit_test(test_too_many_mounts_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
