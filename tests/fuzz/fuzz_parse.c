#include "fuzz.h"

#include "base/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    struct err e = { 0 };
    uint64_t large = 0;
    uint32_t small = 0;
    uid_t uid = 0;
    gid_t gid = 0;

    int r = parse_size("--memory", text, 4096, &large, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    else
        HOLDS(large >= 4096 && large <= INT64_MAX);
    r = parse_duration("--timeout", text, &large, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    else
        HOLDS(large >= 1 && large <= PARSE_DURATION_MAX_MS);
    r = parse_cpus("--cpus", text, &small, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    else
        HOLDS(small >= PARSE_CPU_MILLI_MIN && small <= PARSE_CPU_MILLI_MAX);
    r = parse_count("--pids", text, 1, 4096, &small, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    else
        HOLDS(small >= 1 && small <= 4096);
    r = parse_user("--user", text, &uid, &gid, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    else
        HOLDS(uid <= PARSE_ID_MAX && gid <= PARSE_ID_MAX);
    free(text);
    return 0;
}
