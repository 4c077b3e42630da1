/* Words in the API, in the database and for people, for numbers in programs and frames. A released word stays: rows of
 * older servers have it. */
#ifndef CARREL_PROTO_NAMES_H
#define CARREL_PROTO_NAMES_H

#include <stdint.h>

/* Selects the system calls, capabilities and /proc of a payload; see policy/policy.h. */
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
    /* Only for a kernel, a service's worker or a cell. */
    OUTCOME_INTERRUPTED,
    OUTCOME_POLICY, /* reserved by the API; unused so far */
    OUTCOME_DIED,   /* the interpreter ended by itself while the cell ran */
    OUTCOME_DEAD,   /* it was dead before the cell began */
    OUTCOME_COUNT,
    OUTCOME_COMMAND_COUNT = OUTCOME_KILLED + 1
};

/* Why a box is in its phase, if the phase alone does not say it. */
enum box_reason {
    BOX_REASON_NONE,
    BOX_REASON_ASKED,           /* by its owner */
    BOX_REASON_TTL,             /* its time to live was over */
    BOX_REASON_IDLE,            /* unused for as long as it may be idle */
    BOX_REASON_DIED,            /* it ended by itself */
    BOX_REASON_KEEPER_LOST,     /* with the keeper */
    BOX_REASON_CREATE_FAILED,
    BOX_REASON_START_FAILED,    /* of a stopped box */
    BOX_REASON_COMMAND_ENDED,   /* the command that it was made for */
    BOX_REASON_RUN_OVER,        /* the cell that it was made for */
    BOX_REASON_CALLER_GONE,     /* before the caller learned of its box */
    BOX_REASON_DELETED,         /* by an MCP client */
    BOX_REASON_SERVICE_FAILED,  /* the service that it was made for could not be created */
    BOX_REASON_SERVICE_DELETED,
    BOX_REASON_COUNT
};

/* Further facts about a command's end. */
enum exec_reason {
    EXEC_REASON_NONE,
    EXEC_REASON_STOPPED,        /* its box was stopped */
    EXEC_REASON_OUTPUT_LOST,    /* the end of its output could not be stored */
    EXEC_REASON_COUNT
};

/* How a call of a service's function ended. */
enum call_outcome {
    CALL_OK,            /* result is what the function returned */
    CALL_ERROR,         /* result is an object: type, message, traceback */
    CALL_INVALID,       /* the arguments do not fit; result is an object: message, argument */
    CALL_TIMEOUT,
    CALL_DIED,          /* the worker died; reason and died say why */
    CALL_GONE,          /* the service was deleted, or is dead */
    CALL_ABANDONED,     /* cancelled: the caller is gone */
    CALL_OUTCOME_COUNT
};

/* How the process of a kernel was started. */
enum kernel_way {
    KERNEL_WAY_NONE,    /* not started yet */
    KERNEL_COLD,        /* exec'd */
    KERNEL_FORKED,      /* from the zygote, for this request */
    KERNEL_PARKED,      /* before the request */
    KERNEL_WAY_COUNT
};

/* NULL for OUTCOME_NONE and invalid numbers. */
const char  *outcome_name(enum outcome outcome);
/* OUTCOME_NONE if text is NULL or no outcome. */
enum outcome outcome_parse(const char *text);

/* Likewise: NULL for none, and none for NULL and unknown words. */
const char      *box_reason_name(enum box_reason reason);
enum box_reason  box_reason_parse(const char *text);
const char      *exec_reason_name(enum exec_reason reason);
enum exec_reason exec_reason_parse(const char *text);
const char      *kernel_way_name(enum kernel_way way);
enum kernel_way  kernel_way_parse(const char *text);

/* NULL for an invalid number. */
const char *call_outcome_name(enum call_outcome outcome);

/* NULL for an invalid number. */
const char  *profile_name(enum profile profile);
/* PROFILE_COUNT if text is NULL or no profile. */
enum profile profile_parse(const char *text);

#endif
