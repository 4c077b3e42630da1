/* The words that programs, the API and people use for numbers in frames. */
#ifndef CARREL_PROTO_NAMES_H
#define CARREL_PROTO_NAMES_H

#include <stdint.h>

/* Which system calls, capabilities and /proc a payload gets; see policy/policy.h for what a profile is. */
enum profile { PROFILE_STRICT, PROFILE_STANDARD, PROFILE_SYSTEM, PROFILE_COUNT };

/* How a command ended, and how a cell did. */
enum outcome {
    OUTCOME_NONE, /* it has not ended, or never ran */
    OUTCOME_OK,
    OUTCOME_ERROR,
    OUTCOME_TIMEOUT,
    OUTCOME_OOM,
    OUTCOME_PIDS,
    OUTCOME_DISK,
    OUTCOME_OUTPUT,
    OUTCOME_KILLED,
    /* Only of a kernel, a service's worker or a cell: */
    OUTCOME_INTERRUPTED,
    OUTCOME_POLICY, /* promised by the API; nothing ends so yet */
    OUTCOME_DIED,   /* the interpreter ended by itself while the cell ran */
    OUTCOME_DEAD,   /* it was dead before the cell began */
    OUTCOME_COUNT,
    OUTCOME_COMMAND_COUNT = OUTCOME_KILLED + 1
};

/* NULL for OUTCOME_NONE and numbers that are none. */
const char  *outcome_name(enum outcome outcome);
/* OUTCOME_NONE if text is NULL or no outcome. */
enum outcome outcome_parse(const char *text);

/* NULL for a number that is none. */
const char  *profile_name(enum profile profile);
/* PROFILE_COUNT if text is NULL or no profile. */
enum profile profile_parse(const char *text);

#endif
