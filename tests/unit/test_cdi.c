/* Specifications of devices: what is read, and what is refused by name. */
#include "unit/unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/cdi.h"

static struct err e;

static int parse(const char *text, struct cdi_file *ret)
{
    /* A copy without a NUL behind it, so that the sanitizer sees who looks there. */
    size_t size = strlen(text);
    char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    int r = cdi_parse("/etc/cdi/x.yaml", copy, size, ret, &e);
    free(copy);
    return r;
}

static const char yaml[] =
    "---\n"
    "# as nvidia-ctk writes it\n"
    "cdiVersion: 0.5.0\n"
    "containerEdits:\n"
    "  deviceNodes:\n"
    "  - path: /dev/nvidiactl\n"
    "  env:\n"
    "  - NVIDIA_VISIBLE_DEVICES=void   # none of its own\n"
    "  - EMPTY=\n"
    "  mounts:\n"
    "  - containerPath: /usr/lib/libcuda.so.1\n"
    "    hostPath: /usr/lib/libcuda.so.1\n"
    "    options:\n"
    "    - ro\n"
    "    - nosuid\n"
    "devices:\n"
    "- containerEdits:\n"
    "    deviceNodes:\n"
    "      - path: /dev/nvidia0\n"
    "        hostPath: '/dev/it''s 0'\n"
    "        major: 195\n"
    "        minor: 0\n"
    "        permissions: r\n"
    "        type: c\n"
    "  name: \"0\"\n"
    "- name: all\n"
    "  annotations: {a: b, \"c\": 'd'}\n"
    "  containerEdits: {env: [A=1, \"B=2, 3\"]}\n"
    "kind: nvidia.com/gpu\n";

static void test_block_style_is_read(void **state)
{
    struct cdi_file f;
    (void)state;

    assert_int_equal(parse(yaml, &f), 0);
    assert_string_equal(f.kind, "nvidia.com/gpu");
    assert_int_equal(f.n, 2);
    assert_string_equal(f.edits.node[0].path, "/dev/nvidiactl");
    assert_string_equal(f.edits.node[0].host, "/dev/nvidiactl");
    assert_true(f.edits.node[0].read && f.edits.node[0].write && !f.edits.node[0].has_number);
    assert_int_equal(f.edits.n_env, 2);
    assert_string_equal(f.edits.env[0], "NVIDIA_VISIBLE_DEVICES=void");
    assert_string_equal(f.edits.env[1], "EMPTY=");
    assert_string_equal(f.edits.mount[0].host, "/usr/lib/libcuda.so.1");
    const struct cdi_node *node = &f.device[0].edits.node[0];
    assert_string_equal(f.device[0].name, "0");
    assert_string_equal(node->host, "/dev/it's 0");
    assert_true(node->has_number && node->major == 195 && node->minor == 0 && node->read && !node->write);
    assert_int_equal(node->type, 'c');
    assert_int_equal(f.device[1].edits.n_env, 2);
    assert_string_equal(f.device[1].edits.env[1], "B=2, 3");
    cdi_free(&f);
}

static void test_json_is_read(void **state)
{
    struct cdi_file f;
    (void)state;

    assert_int_equal(parse("{\"cdiVersion\": \"0.8.0\", \"kind\": \"a.b/c\", \"devices\":\n [{\"name\": \"x\",\t"
                           "\"containerEdits\": {\"env\": [\"A=\\u00fc\\n\\\"\"], \"mounts\": null}}]}\n", &f), 0);
    assert_string_equal(f.device[0].edits.env[0], "A=ü\n\"");
    cdi_free(&f);
}

static void test_what_cannot_be_held_is_the_device_s_fault_alone(void **state)
{
    static const char *const edits[][2] = {
        { "hooks: [{hookName: createContainer, path: /usr/bin/nvidia-ctk}]",
          "hook createContainer (/usr/bin/nvidia-ctk)" },
        { "mounts: [{hostPath: /a, containerPath: /b, options: [rw]}]", "/a for writing" },
        { "mounts: [{hostPath: /a, containerPath: /dev/shm}]", "/dev/shm" },
        { "additionalGids: [44]", "additionalGids" },
        { "intelRdt: {closID: x}", "intelRdt" },
    };
    char text[512];
    struct cdi_file f;
    (void)state;

    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        snprintf(text, sizeof text, "cdiVersion: 0.7.0\nkind: a.b/c\ndevices:\n- name: bad\n  containerEdits: {%s}\n"
                 "- name: good\n", edits[i][0]);
        assert_int_equal(parse(text, &f), 0);
        assert_non_null(strstr(f.device[0].edits.refused, edits[i][1]));
        assert_string_equal(f.device[1].edits.refused, "");
        cdi_free(&f);
    }
}

static void test_what_is_wrong_is_named_with_its_line(void **state)
{
    static const char *const wrong[][2] = {
        { "", ":1: there is nothing in it" },
        { "cdiVersion: 0.2.0\nkind: a.b/c\n", "cdiVersion '0.2.0' is not understood" },
        { "cdiVersion: 0.9.0\nkind: a.b/c\n", "cdiVersion" },
        { "cdiVersion: 0.5.0\n", "'kind' is missing" },
        { "cdiVersion: 0.5.0\nkind: gpu\n", "not like vendor.com/class" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\nnew: 1\n", ":3: 'new' is not known here" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\nkind: a.b/d\n", ":3: a name is there twice" },
        { "cdiVersion: 0.5.0\nkind: &a a.b/c\n", ":2: anchors" },
        { "cdiVersion: 0.5.0\nkind: |\n  a.b/c\n", ":2: anchors" },
        { "cdiVersion: 0.5.0\n   kind: a.b/c\n", "further in" },
        { "cdiVersion: 0.5.0\n\tkind: a.b/c\n", "tab" },
        { "cdiVersion: \"0.5.0\nkind: a.b/c\n", ":1: the quote is not closed" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\n---\n", "':' is missing" },
        { "{\"cdiVersion\": \"0.5.0\", \"kind\": \"a.b/c\"", "',' or the closing bracket" },
        { "{\"cdiVersion\": \"0.5.0\"} x", "belongs to nothing" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\ndevices:\n- name: x\n- name: x\n", ":5: two devices" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\ncontainerEdits: {deviceNodes: [{path: /etc/passwd}]}\n", "below /dev" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\ncontainerEdits: {deviceNodes: [{path: /dev/../etc/x}]}\n", "below /dev" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\ncontainerEdits: {deviceNodes: [{path: /dev/x, major: 1}]}\n", "both" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\ncontainerEdits: {deviceNodes: [{path: /dev/x, permissions: w}]}\n", "read" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\ncontainerEdits: {env: [\"=x\"]}\n", "NAME=VALUE" },
        { "cdiVersion: 0.5.0\nkind: a.b/c\ncontainerEdits: {mounts: [{hostPath: a, containerPath: /b}]}\n", "plain" },
        { "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "nested too deeply" },
    };
    struct cdi_file f;
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        e = (struct err){ 0 };
        if (parse(wrong[i][0], &f) != -EINVAL || !strstr(e.what, wrong[i][1]))
            fail_msg("%s -> %s", wrong[i][0], e.what);
    }
}

static void test_kinds_are_allowed_one_by_one_by_class_or_all(void **state)
{
    (void)state;
    assert_true(cdi_kind_is_allowed("a.b/c,nvidia.com/gpu", "nvidia.com/gpu"));
    assert_true(cdi_kind_is_allowed("*/gpu", "amd.com/gpu"));
    assert_true(cdi_kind_is_allowed("*", "x.y/z"));
    assert_false(cdi_kind_is_allowed("", "x.y/z"));
    assert_false(cdi_kind_is_allowed("*/gpu", "amd.com/gpus"));
    assert_false(cdi_kind_is_allowed("nvidia.com/gpu", "evil.nvidia.com/gpu"));
    assert_false(cdi_kind_is_allowed("nvidia.com/gpu", "nvidia.com/gp"));
    assert_true(cdi_name_is_valid("vendor.com/net-card=eth0:1"));
    assert_false(cdi_name_is_valid("vendor.com/=0"));
    assert_false(cdi_name_is_valid("vendor.com/a/b=0"));
    assert_false(cdi_name_is_valid("vendor.com/a=../x"));
    assert_false(cdi_name_is_valid("vendor.com/a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_block_style_is_read),
        cmocka_unit_test(test_json_is_read),
        cmocka_unit_test(test_what_cannot_be_held_is_the_device_s_fault_alone),
        cmocka_unit_test(test_what_is_wrong_is_named_with_its_line),
        cmocka_unit_test(test_kinds_are_allowed_one_by_one_by_class_or_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
