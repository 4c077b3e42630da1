#include "proto/ending.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

/* The names of the limit behind an outcome. */
struct limit_words {
    const char *name, *option, *field;
};

static const struct limit_words limit_words[OUTCOME_COUNT] = {
    [OUTCOME_TIMEOUT] = { "timeout", "--timeout", "timeout" },
    [OUTCOME_OOM] = { "memory", "--memory", "limits.memory" },
    [OUTCOME_PIDS] = { "pids", "--pids", "limits.pids" },
    [OUTCOME_DISK] = { "disk", "--disk", "limits.disk" },
    [OUTCOME_OUTPUT] = { "output_limit", "--output-limit", "output_limit" },
};

uint64_t ending_limit(enum outcome outcome, const struct limits *limits, uint64_t timeout_ms, uint64_t output_bytes)
{
    switch (outcome) {
    case OUTCOME_TIMEOUT: return timeout_ms;
    case OUTCOME_OOM: return limits->memory_bytes;
    case OUTCOME_PIDS: return limits->pids;
    case OUTCOME_DISK: return limits->disk_bytes;
    case OUTCOME_OUTPUT: return output_bytes;
    default: return 0;
    }
}

const char *ending_limit_name(enum outcome outcome)
{
    return (unsigned)outcome < OUTCOME_COUNT ? limit_words[outcome].name : NULL;
}

struct ending_text ending_remark(enum outcome outcome, uint64_t limit, enum ending_words words)
{
    struct ending_text t = { "" };

    if (!ending_limit_name(outcome))
        return t;
    const char *name = words == ENDING_OPTIONS ? limit_words[outcome].option : limit_words[outcome].field;
    struct parse_quote size = parse_show_size(limit);
    switch (outcome) {
    case OUTCOME_TIMEOUT:
        snprintf(t.text, sizeof t.text, "the command was ended after %.3g s (%s)", (double)limit / 1000, name);
        break;
    case OUTCOME_OOM:
        if (limit)
            snprintf(t.text, sizeof t.text, "the box ran out of memory (%s %.32s)", name, size.text);
        else
            snprintf(t.text, sizeof t.text, "the host ran out of memory");
        break;
    case OUTCOME_PIDS:
        snprintf(t.text, sizeof t.text, "the box reached its limit of %llu processes (%s)", (unsigned long long)limit,
                 name);
        break;
    case OUTCOME_DISK:
        snprintf(t.text, sizeof t.text, "the box filled its disk (%s %.32s)", name, size.text);
        break;
    default:
        snprintf(t.text, sizeof t.text, "the command was ended after %.32s of output (%s)", size.text, name);
        break;
    }
    return t;
}

struct ending_text ending_left_out(uint64_t bytes)
{
    static const char *const units[] = { "kB", "MB", "GB", "TB" };
    struct ending_text t;
    double shown = (double)bytes / 1000;
    size_t i = 0;

    if (bytes < 1000) {
        snprintf(t.text, sizeof t.text, "%llu bytes of output left out", (unsigned long long)bytes);
        return t;
    }
    for (; shown >= 999.95 && i < 3; i++)
        shown /= 1000;
    snprintf(t.text, sizeof t.text, "%.1f %s of output left out", shown, units[i]);
    return t;
}

int ending_status(const struct ending *e, int caught)
{
    if (e->outcome == OUTCOME_TIMEOUT)
        return EXIT_TIMEOUT;
    if (e->outcome == OUTCOME_KILLED && caught)
        return 128 + caught;
    if (e->outcome == OUTCOME_OUTPUT)
        return 128 + SIGKILL;       /* also if it had ended by itself before */
    return e->signal ? 128 + e->signal : e->code;
}

int ending_failure_status(enum step step, int code)
{
    if (step != STEP_EXEC)
        return EXIT_CARREL;
    return code == ENOENT || code == ENOTDIR ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
}

void ending_write(struct jsonout *j, const struct ending *e)
{
    jsonout_string(j, "outcome", outcome_name(e->outcome));
    if (e->signal) {
        jsonout_null(j, "exit_code");
        jsonout_signed(j, "signal", e->signal);
    } else {
        jsonout_signed(j, "exit_code", e->code);
        jsonout_null(j, "signal");
    }
    jsonout_decimal(j, "wall_ms", e->wall_us, 3);
    jsonout_decimal(j, "cpu_ms", e->cpu_us, 3);
    jsonout_unsigned(j, "memory_peak_bytes", e->memory_peak_bytes);
    jsonout_unsigned(j, "disk_bytes", e->disk_bytes);
    if (e->pids_peak)
        jsonout_unsigned(j, "pids_peak", e->pids_peak);
    else
        jsonout_null(j, "pids_peak");
}

void ending_write_output(struct jsonout *j, const struct buf *output, const struct buf *errors)
{
    jsonout_bool(j, "truncated", buf_error(output) < 0 || buf_error(errors) < 0);
    jsonout_bytes(j, "stdout", buf_string(output), output->length);
    jsonout_bytes(j, "stderr", buf_string(errors), errors->length);
}

int ending_write_failure(const char *step, int code, const char *message, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "outcome", ENDING_NOT_STARTED);
    jsonout_open_object(&j, "error");
    jsonout_string(&j, "step", step);
    jsonout_signed(&j, "errno", code);
    jsonout_string(&j, "message", message);
    jsonout_close(&j);
    jsonout_close(&j);
    return jsonout_finish(&j);
}
