#include "fuzz.h"

#include "cli/options/mountarg.h"

/* A target that was accepted is absolute, tidy and nowhere it must not be. */
static void check_target(const char *target)
{
    size_t length = strlen(target);

    HOLDS(target[0] == '/' && length > 1 && target[length - 1] != '/');
    HOLDS(!strstr(target, "//") && !strstr(target, "/../") && !strstr(target, "/./"));
    HOLDS(length < 3 || strcmp(target + length - 3, "/.."));
    HOLDS(strcmp(target, "/proc") && strncmp(target, "/proc/", 6) && strcmp(target, "/dev") &&
          strncmp(target, "/dev/", 5));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct box_spec box;
    char *text = fuzz_string(data, size);
    struct arena arena = { 0 };

    box.n_mounts = 0;
    for (char *line = text, *next; line; line = next) {
        struct err e = { 0 };
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        int r = mountarg_add(&box, line, &arena, &e);
        if (r < 0)
            fuzz_check_refusal(r, &e);
    }
    for (size_t i = 0; i < box.n_mounts; i++) {
        HOLDS(box.mount[i].source[0]);
        check_target(box.mount[i].target);
        for (size_t j = 0; j < i; j++)
            HOLDS(strcmp(box.mount[i].target, box.mount[j].target));
    }
    arena_reset(&arena);
    free(text);
    return 0;
}
