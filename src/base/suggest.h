/* "Did you mean ...?" */
#ifndef CARREL_BASE_SUGGEST_H
#define CARREL_BASE_SUGGEST_H

#include <stddef.h>

/* The candidate that the user probably meant, or NULL when none is near. */
const char *suggest_nearest(const char *word, const char *const *candidates, size_t count);

/* The replacement for an option of other tools ("--network"), with the page that has more; NULL: not such an option. */
const char *suggest_option(const char *word);

#endif
