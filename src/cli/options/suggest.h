/* "Did you mean ...?" */
#ifndef CARREL_CLI_OPTIONS_SUGGEST_H
#define CARREL_CLI_OPTIONS_SUGGEST_H

#include <stddef.h>

/* The candidate that somebody probably meant, or NULL when none is near. */
const char *suggest_nearest(const char *word, const char *const *candidates, size_t count);

#endif
