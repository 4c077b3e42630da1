/* What a Jupyter program passes to a kernel besides the connection file: environment, and arguments for IPython. */
#ifndef CARREL_CLIENT_KERNEL_KERNEL_GIVEN_H
#define CARREL_CLIENT_KERNEL_KERNEL_GIVEN_H

#include <jansson.h>

/* Adds to env the variables given to this process and those of the kernelspec (spec: its folder, or NULL). Variables
 * already in env stay. */
void given_environment(json_t *env, const char *spec);
/* Removes the words for IPython, which are last, from argv, and adds the variable that carries them to the kernel.
 * Returns how many words are left. */
int  given_arguments(int argc, char **argv, json_t *env);

#endif
