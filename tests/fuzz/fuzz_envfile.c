#include "fuzz.h"

#include "cli/options/envfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena = { 0 };
    struct envlist list;
    struct err e = { 0 };
    char **env = NULL, *text = malloc(size ? size : 1);

    HOLDS(text);
    memcpy(text, data, size);
    envlist_init(&list, &arena);
    int r = envfile_parse("fuzz.env", text, size, &list, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    size_t count = list.count, n = 0;
    HOLDS(envlist_finish(&list, &env) == 0);
    for (; env[n]; n++)
        HOLDS(strchr(env[n], '=') && envlist_name_is_valid(env[n], strcspn(env[n], "=")) && !strchr(env[n], '\n'));
    HOLDS(n == count);
    free(env);
    free(text);
    envlist_done(&list);
    arena_reset(&arena);
    return 0;
}
