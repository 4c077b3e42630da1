/* Shared by the files about runs. */
#ifndef CARREL_DOORS_NATIVE_RUN_H
#define CARREL_DOORS_NATIVE_RUN_H

#include "base/jsonout.h"
#include "doors/native/door.h"
#include "front/kernels/kernel_run.h"

enum { CODE_MOST = 16 << 20, RUN_BODY_MOST = 32 << 20 };

/* A request's body. Texts are borrowed from its JSON. */
struct run_body {
    struct ask               *ask;
    struct kernel_run_options options;
    struct kernel_options     kernel;
    json_t                   *env;          /* borrowed or NULL */
    bool                      has_output;
};

/* --- run_body.c --- */
/* Reads the members about the run; the others go into *ret_rest (a new object), or are an error if that is NULL. */
MUST_CHECK int run_body_read(struct run_body *b, json_t *root, json_t **ret_rest, struct err *e);
/* For POST …/kernels: context, env, secrets, cwd, template. */
MUST_CHECK int run_body_kernel(struct run_body *b, json_t *root, struct err *e);
/* NAME=VALUE of b->env, in the request's arena; false: no memory. */
bool           run_body_env(struct run_body *b);

/* --- run_event.c: messages as lines of JSON. A kernel's JSON is copied unchanged, but its line ends become blanks
 * --- */
/* False: the message is not for callers. */
bool           run_event(const struct kernel_message *m, struct buf *line);
/* The end of a stream, and of the single answer: members without the braces. */
void           run_event_outcome(const struct kernel_run *run, struct jsonout *j);

/* --- run_answer.c: the whole run in one answer --- */
struct run_answer {
    struct buf text[2];     /* the text between the quotes of stdout and stderr */
    struct buf results;     /* without the brackets */
    struct buf error;       /* or empty */
};
void           run_answer_init(struct run_answer *a);
void           run_answer_done(struct run_answer *a);
size_t         run_answer_bytes(const struct run_answer *a);
void           run_answer_add(struct run_answer *a, const struct kernel_message *m);
void           run_answer_send(struct run_answer *a, struct ask *ask, const struct kernel_run *run);

#endif
