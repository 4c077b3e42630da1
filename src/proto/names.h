/* The words that the API, the database and people use for what is a number in programs and frames. A word that was
 * released stays: rows of older servers have it. */
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

/* Why a box is in its phase, where the phase does not say it. */
enum box_reason {
    BOX_REASON_NONE,
    BOX_REASON_ASKED,           /* by its owner */
    BOX_REASON_TTL,             /* its time to live was over */
    BOX_REASON_IDLE,            /* nobody used it for as long as it may be idle */
    BOX_REASON_DIED,            /* it ended by itself */
    BOX_REASON_KEEPER_LOST,     /* with the keeper */
    BOX_REASON_CREATE_FAILED,
    BOX_REASON_START_FAILED,    /* anew, of one that was stopped */
    BOX_REASON_COMMAND_ENDED,   /* the one that it was made for */
    BOX_REASON_RUN_OVER,        /* so was the cell */
    BOX_REASON_CALLER_GONE,     /* before it was told of its box */
    BOX_REASON_DELETED,         /* by an MCP client */
    BOX_REASON_SERVICE_FAILED,  /* the one that it was made for could not be created */
    BOX_REASON_SERVICE_DELETED,
    BOX_REASON_COUNT
};

/* What else there is to say of a command's end. */
enum exec_reason {
    EXEC_REASON_NONE,
    EXEC_REASON_STOPPED,        /* its box was */
    EXEC_REASON_OUTPUT_LOST,    /* the end of its output could not be stored */
    EXEC_REASON_COUNT
};

/* How a call of a service's function ended. */
enum call_outcome {
    CALL_OK,            /* result is what the function returned */
    CALL_ERROR,         /* result is an object: type, message, traceback */
    CALL_INVALID,       /* the arguments do not fit; result is an object: message, argument */
    CALL_TIMEOUT,
    CALL_DIED,          /* the worker did; reason and died say why */
    CALL_GONE,          /* the service was deleted, or is dead */
    CALL_ABANDONED,     /* nobody waits for it any more */
    CALL_OUTCOME_COUNT
};

/* How the process of a kernel came to be. */
enum kernel_way {
    KERNEL_WAY_NONE,    /* it is not there yet */
    KERNEL_COLD,        /* started anew */
    KERNEL_FORKED,      /* from the zygote, for this request */
    KERNEL_PARKED,      /* before anybody asked */
    KERNEL_WAY_COUNT
};

/* NULL for OUTCOME_NONE and numbers that are none. */
const char  *outcome_name(enum outcome outcome);
/* OUTCOME_NONE if text is NULL or no outcome. */
enum outcome outcome_parse(const char *text);

/* The same for these: NULL for none, and none for NULL and for unknown words. */
const char      *box_reason_name(enum box_reason reason);
enum box_reason  box_reason_parse(const char *text);
const char      *exec_reason_name(enum exec_reason reason);
enum exec_reason exec_reason_parse(const char *text);
const char      *kernel_way_name(enum kernel_way way);
enum kernel_way  kernel_way_parse(const char *text);

/* NULL for a number that is none. */
const char *call_outcome_name(enum call_outcome outcome);

/* NULL for a number that is none. */
const char  *profile_name(enum profile profile);
/* PROFILE_COUNT if text is NULL or no profile. */
enum profile profile_parse(const char *text);

#endif
