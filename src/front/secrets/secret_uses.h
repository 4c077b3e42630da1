/* Which secrets a box, a command, a kernel or a service gets, and where: the member "secrets" of requests and records,
 * [{"name": "hf", "env": "HF_TOKEN"}, {"name": "cert", "file": "/run/secrets/cert"}]. Values are read when a process
 * starts. */
#ifndef CARREL_FRONT_SECRETS_SECRET_USES_H
#define CARREL_FRONT_SECRETS_SECRET_USES_H

#include <jansson.h>

#include "base/err.h"

struct front;
struct secret;

enum { SECRET_USES_MAX = 32 };

/* field: the member's name, for messages. */
MUST_CHECK int secret_uses_check(const char *field, json_t *list, struct err *e);
/* The same variable as a secret and in env (an object, or NULL) is refused. list may be NULL. */
MUST_CHECK int secret_uses_check_env(json_t *list, json_t *env, struct err *e);
/* Finds the secret of one entry. A missing one is -EINVAL, not -ENOENT: the API would report a missing box. */
MUST_CHECK int secret_use_find(struct front *front, const char *identity, json_t *use, struct secret **ret,
                               struct err *e);
/* Whether identity has them, and their values suit their places. list may be NULL. */
MUST_CHECK int secret_uses_admit(struct front *front, const char *identity, json_t *list, struct err *e);
/* From words NAME=VARIABLE or NAME=/run/secrets/FILE, separated by spaces; a new list. */
MUST_CHECK int secret_uses_parse(const char *field, const char *words, json_t **ret, struct err *e);
/* The variable of an entry, the file's name below SECRETS_PLACE, or NULL. */
const char    *secret_use_variable(json_t *use);
const char    *secret_use_file(json_t *use);
const char    *secret_use_name(json_t *use);

#endif
