/* The environment of a program in a box, in layers: the defaults, the box's variables and secrets, those of the
 * command, kernel or service itself. And the files of its secrets. Values of secrets are here from the request to the
 * packed command, and are wiped then. */
#ifndef CARREL_FRONT_EXECS_EXEC_ENV_H
#define CARREL_FRONT_EXECS_EXEC_ENV_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "front/secrets/secrets.h"
#include "proto/command.h"

struct box;

/* template: its interpreter comes first in PATH; 0: none. more: objects of strings, the last one wins; NULL ones are
 * skipped. secrets: the program's own (front/secrets/secret_uses.h), or NULL. NAME=VALUE, ended by NULL; freed by
 * exec_env_free(). -ENOENT: a secret does not exist; the message names it. */
MUST_CHECK int exec_env_make(const struct box *box, uint32_t template, json_t *const *more, size_t n_more,
                             json_t *secrets, char ***ret, struct err *e);
/* Wipes it first. */
void           exec_env_free(char **env);

/* Files of the box's secrets and of the program's own. Zeroed: none. */
struct exec_files {
    struct command_file file[COMMAND_FILES_MAX];
    struct secret_value value[COMMAND_FILES_MAX];   /* owned */
    size_t              n;
};
/* The box's own only if the program runs as the box's user, to whom they belong. */
MUST_CHECK int exec_files_read(const struct box *box, json_t *secrets, bool is_boxes_user, struct exec_files *ret,
                               struct err *e);
void           exec_files_done(struct exec_files *files);

#endif
