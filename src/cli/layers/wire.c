/* `carrel layer build|list|rm --wire --owner OWNER`, for a server, whose keeper's clerk starts it: answers in lines on
 * standard output (proto/packages.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/layers/layers.h"

static void say_wire(const char *text, void *arg)
{
    (void)arg;
    printf(LAYER_SAY "%s\n", text);
    /* The front is gone, or has cancelled. */
    if (fflush(stdout) == EOF)
        exit(EXIT_CARREL);
}

static int fail(const struct err *e)
{
    char why[512];

    err_text(e, why, sizeof why);
    printf(LAYER_ERROR "%d %s\n", e->code, why);
    return EXIT_CARREL;
}

int layer_wire_build(const char *owner, const char *wanted, uint64_t most_bytes)
{
    static char text[PACKAGES_BYTES];
    struct packages packages = { 0 };
    char place[LAYER_PATH], python[PYTHON_MAX], real[4096], index[INDEX_MAX], key[SHA256_HEX + 1], digest[LAYER_NAME];
    struct layers layers;
    struct err e = { 0 };
    size_t n = fread(text, 1, sizeof text - 1, stdin);

    layers_place(place);
    int r = n == 0 && ferror(stdin) ? err_at(&e, EIO, STEP_STDIO, 0, "packages") : 0;
    if (r == 0)
        r = packages_add_file(&packages, "packages", text, &e);
    if (r == 0)
        r = interpreter_find(wanted, python, &e);
    if (r == 0)
        r = layers_open(place, owner, &layers, &e);
    if (r == 0) {
        packages_sort(&packages);
        index_name(index);
        packages_key(&packages, realpath(python, real) ? real : python, index, key);
        struct layer_build build = { .layers = &layers, .python = python, .packages = &packages,
                                     .most_bytes = most_bytes, .say = say_wire };
        if (layer_find(&layers, key, digest) < 0)
            r = layer_make(&build, key, digest, &e);
    }
    if (r == 0) {
        printf(LAYER_DONE "%s\n", digest);
        return 0;
    }
    return fail(&e);
}

struct wire_list {
    struct layers  layers;
    struct jsonout json;
};

static void write_one(const struct layer_info *info, void *arg)
{
    struct wire_list *listed = arg;

    layer_write(&listed->json, listed->layers.path, NULL, info);
}

static int list(struct wire_list *listed, struct err *e)
{
    struct buf out;

    buf_init(&out, 16 << 20);
    jsonout_init(&listed->json, &out);
    jsonout_open_array(&listed->json, NULL);
    int r = layers_each(&listed->layers, write_one, listed, e);
    jsonout_close(&listed->json);
    if (r == 0 && jsonout_finish(&listed->json) < 0)
        r = err_at(e, E2BIG, STEP_MEMORY, 0, "the list of layers");
    if (r == 0)
        puts(buf_string(&out));
    buf_done(&out);
    return r;
}

int layer_wire_ask(const char *owner, bool removes)
{
    char place[LAYER_PATH], digest[LAYER_NAME] = "";
    struct wire_list listed = { .layers.dir = -1 };
    struct err e = { 0 };

    layers_place(place);
    int r = layers_open(place, owner, &listed.layers, &e);
    if (r == 0 && !removes) {
        r = list(&listed, &e);
    } else if (r == 0) {
        (void)!fread(digest, 1, sizeof digest - 1, stdin);
        r = layer_remove(&listed.layers, digest, &e);
        if (r == 0)
            puts("[]");
    }
    layers_close(&listed.layers);
    return r < 0 ? fail(&e) : 0;
}
