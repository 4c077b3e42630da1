#include "proto/names.h"

#include <stddef.h>
#include <string.h>

static const char *const outcomes[OUTCOME_COUNT] = {
    [OUTCOME_OK] = "ok",
    [OUTCOME_ERROR] = "error",
    [OUTCOME_TIMEOUT] = "timeout",
    [OUTCOME_OOM] = "oom",
    [OUTCOME_PIDS] = "pids",
    [OUTCOME_DISK] = "disk",
    [OUTCOME_OUTPUT] = "output_limit",
    [OUTCOME_KILLED] = "killed",
    [OUTCOME_INTERRUPTED] = "interrupted",
    [OUTCOME_POLICY] = "policy",
    [OUTCOME_DIED] = "died",
    [OUTCOME_DEAD] = "dead",
};

static const char *const profiles[PROFILE_COUNT] = {
    [PROFILE_STRICT] = "strict",
    [PROFILE_STANDARD] = "standard",
    [PROFILE_SYSTEM] = "system",
};

const char *outcome_name(enum outcome outcome)
{
    return (unsigned)outcome < OUTCOME_COUNT ? outcomes[outcome] : NULL;
}

enum outcome outcome_parse(const char *text)
{
    for (unsigned i = OUTCOME_NONE + 1; text && i < OUTCOME_COUNT; i++)
        if (strcmp(outcomes[i], text) == 0)
            return (enum outcome)i;
    return OUTCOME_NONE;
}

const char *profile_name(enum profile profile)
{
    return (unsigned)profile < PROFILE_COUNT ? profiles[profile] : NULL;
}

enum profile profile_parse(const char *text)
{
    unsigned i = 0;

    while (i < PROFILE_COUNT && !(text && strcmp(profiles[i], text) == 0))
        i++;
    return (enum profile)i;
}
