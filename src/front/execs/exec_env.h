/* The environment of what runs in a box, in layers: what every box has, what this box was given, what the command,
 * kernel or service itself is given. */
#ifndef CARREL_FRONT_EXECS_EXEC_ENV_H
#define CARREL_FRONT_EXECS_EXEC_ENV_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct box;

/* template: whose interpreter comes first in PATH; 0: none's. more: objects of strings, the last one wins; a NULL among
 * them is skipped. NAME=VALUE, ended by NULL; the caller's to exec_env_free(). NULL: out of memory. */
char **exec_env_make(const struct box *box, uint32_t template, json_t *const *more, size_t n_more);
/* Of one object alone; NULL counts as an empty one. */
char **exec_env_list(json_t *variables);
void   exec_env_free(char **env);

#endif
