#include "box/spec.h"

static const char *const outcome_names[OUTCOME_COUNT] = {
    [OUTCOME_OK] = "ok",
    [OUTCOME_ERROR] = "error",
    [OUTCOME_TIMEOUT] = "timeout",
    [OUTCOME_OOM] = "oom",
    [OUTCOME_PIDS] = "pids",
    [OUTCOME_DISK] = "disk",
    [OUTCOME_OUTPUT] = "output_limit",
    [OUTCOME_KILLED] = "killed",
};

const char *outcome_name(enum outcome outcome)
{
    return (unsigned)outcome < OUTCOME_COUNT ? outcome_names[outcome] : "unknown";
}
