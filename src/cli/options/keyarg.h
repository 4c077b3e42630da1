/* The value of --key: a key for one host, which the broker has and the box does not.
 *
 *     NAME@HOST                        the caller's variable NAME, as "Authorization: Bearer {}"
 *     NAME@HOST:HEADER: before {}      another header field
 *     NAME=FILE@HOST...                the value is a file's */
#ifndef CARREL_CLI_OPTIONS_KEYARG_H
#define CARREL_CLI_OPTIONS_KEYARG_H

#include "base/err.h"
#include "proto/keys.h"

struct keyarg {
    char              name[KEY_NAME_SIZE];      /* of the variable that has the placeholder in the box */
    char              what[KEY_NAME_SIZE + 8];  /* for messages */
    struct broker_key key;
};

struct run_options;

/* Parses one key, reads its value and makes its placeholder, and adds it with the rule that allows its host. Messages
 * never contain a value. */
MUST_CHECK int keyarg_add(struct run_options *options, const char *text, char *const *environment, struct err *e);
struct envlist;

/* After all options: the box's variables get the placeholders. This process gives its own copies of the values up,
 * because the box's first process is forked from it. */
MUST_CHECK int keyarg_settle(const struct run_options *options, struct envlist *env, char *const *environment,
                             struct err *e);

#endif
