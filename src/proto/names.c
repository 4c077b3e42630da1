#include "proto/names.h"

#include <stddef.h>
#include <string.h>

#include "proto/kernel.h"
#include "proto/service.h"

_Static_assert(!OUTCOME_NONE && !BOX_REASON_NONE && !EXEC_REASON_NONE && !KERNEL_WAY_NONE, "see number_or_none()");

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

static const char *const box_reasons[BOX_REASON_COUNT] = {
    [BOX_REASON_ASKED] = "asked",
    [BOX_REASON_TTL] = "ttl",
    [BOX_REASON_IDLE] = "idle",
    [BOX_REASON_DIED] = "died",
    [BOX_REASON_KEEPER_LOST] = "keeper_lost",
    [BOX_REASON_CREATE_FAILED] = "create_failed",
    [BOX_REASON_START_FAILED] = "start_failed",
    [BOX_REASON_COMMAND_ENDED] = "command_ended",
    [BOX_REASON_RUN_OVER] = "run_over",
    [BOX_REASON_CALLER_GONE] = "caller_gone",
    [BOX_REASON_DELETED] = "deleted",
    [BOX_REASON_SERVICE_FAILED] = "service_failed",
    [BOX_REASON_SERVICE_DELETED] = "service_deleted",
};

static const char *const exec_reasons[EXEC_REASON_COUNT] = {
    [EXEC_REASON_STOPPED] = "stopped",
    [EXEC_REASON_OUTPUT_LOST] = "output_lost",
};

static const char *const call_outcomes[CALL_OUTCOME_COUNT] = {
    [CALL_OK] = "ok",
    [CALL_ERROR] = "error",
    [CALL_INVALID] = "invalid_arguments",
    [CALL_TIMEOUT] = "timeout",
    [CALL_DIED] = "died",
    [CALL_GONE] = "gone",
    [CALL_ABANDONED] = "abandoned",
};

static const char *const kernel_ways[KERNEL_WAY_COUNT] = {
    [KERNEL_COLD] = "cold",
    [KERNEL_FORKED] = "forked",
    [KERNEL_PARKED] = "parked",
};

static const char *const channels[KERNEL_CHANNELS] = {
    [KERNEL_SHELL] = "shell",
    [KERNEL_CONTROL] = "control",
    [KERNEL_IOPUB] = "iopub",
    [KERNEL_STDIN] = "stdin",
};

static const char *const service_messages[SERVICE_MESSAGES] = {
    [SERVICE_LOAD] = "load",
    [SERVICE_CALL] = "call",
    [SERVICE_CHECK] = "check",
    [SERVICE_CANCEL] = "cancel",
    [SERVICE_DESCRIBE] = "describe",
    [SERVICE_STARTED] = "started",
    [SERVICE_LOADED] = "loaded",
    [SERVICE_FAILED] = "failed",
    [SERVICE_PRINT] = "print",
    [SERVICE_RESULT] = "result",
    [SERVICE_ERROR] = "error",
    [SERVICE_INVALID] = "invalid",
};

static const char *const streams[SERVICE_STREAMS] = {
    [SERVICE_STDOUT] = "stdout",
    [SERVICE_STDERR] = "stderr",
};

static const char *const profiles[PROFILE_COUNT] = {
    [PROFILE_STRICT] = "strict",
    [PROFILE_STANDARD] = "standard",
    [PROFILE_SYSTEM] = "system",
};

static const char *name_of(const char *const *names, unsigned count, unsigned number)
{
    return number < count ? names[number] : NULL;
}

/* count: no such name. */
static unsigned number_of(const char *const *names, unsigned count, const char *text)
{
    unsigned i = 0;

    while (i < count && !(text && names[i] && strcmp(names[i], text) == 0))
        i++;
    return i;
}

/* For enums whose number 0 means none. */
static unsigned number_or_none(const char *const *names, unsigned count, const char *text)
{
    unsigned number = number_of(names, count, text);

    return number < count ? number : 0;
}

const char *outcome_name(enum outcome outcome)
{
    return name_of(outcomes, OUTCOME_COUNT, outcome);
}

enum outcome outcome_parse(const char *text)
{
    return (enum outcome)number_or_none(outcomes, OUTCOME_COUNT, text);
}

const char *box_reason_name(enum box_reason reason)
{
    return name_of(box_reasons, BOX_REASON_COUNT, reason);
}

enum box_reason box_reason_parse(const char *text)
{
    return (enum box_reason)number_or_none(box_reasons, BOX_REASON_COUNT, text);
}

const char *exec_reason_name(enum exec_reason reason)
{
    return name_of(exec_reasons, EXEC_REASON_COUNT, reason);
}

enum exec_reason exec_reason_parse(const char *text)
{
    return (enum exec_reason)number_or_none(exec_reasons, EXEC_REASON_COUNT, text);
}

const char *call_outcome_name(enum call_outcome outcome)
{
    return name_of(call_outcomes, CALL_OUTCOME_COUNT, outcome);
}

const char *kernel_way_name(enum kernel_way way)
{
    return name_of(kernel_ways, KERNEL_WAY_COUNT, way);
}

enum kernel_way kernel_way_parse(const char *text)
{
    return (enum kernel_way)number_or_none(kernel_ways, KERNEL_WAY_COUNT, text);
}

const char *kernel_channel_name(enum kernel_channel channel)
{
    return name_of(channels, KERNEL_CHANNELS, channel);
}

enum kernel_channel kernel_channel_find(const char *name, size_t size)
{
    unsigned i = 0;

    while (i < KERNEL_CHANNELS && !(strlen(channels[i]) == size && memcmp(channels[i], name, size) == 0))
        i++;
    return (enum kernel_channel)i;
}

const char *service_message_name(enum service_message message)
{
    return name_of(service_messages, SERVICE_MESSAGES, message);
}

const char *service_stream_name(enum service_stream stream)
{
    return name_of(streams, SERVICE_STREAMS, stream);
}

const char *profile_name(enum profile profile)
{
    return name_of(profiles, PROFILE_COUNT, profile);
}

enum profile profile_parse(const char *text)
{
    return (enum profile)number_of(profiles, PROFILE_COUNT, text);
}
