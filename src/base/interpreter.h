/* Interpreters of Python on this machine, for packages. */
#ifndef CARREL_BASE_INTERPRETER_H
#define CARREL_BASE_INTERPRETER_H

#include <stdbool.h>

#include "base/err.h"

enum { PYTHON_MAX = 512, PYTHON_VERSION = 24 };

/* Finds an interpreter: a path, a version ("3.12"), or NULL for the default one. ret: its path. */
MUST_CHECK int interpreter_find(const char *wanted, char ret[PYTHON_MAX], struct err *e);
/* Calls for each interpreter that interpreter_find() would find by a version: "3.12" on PATH, "3.12.4" of pyenv. */
void           interpreters_each(void (*call)(const char *version, const char *path, void *arg), void *arg);
/* Its version, as the name of the real program has it: "3.12". False: it has none. */
bool           interpreter_version(const char *path, char ret[PYTHON_VERSION]);

#endif
