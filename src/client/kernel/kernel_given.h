/* What a Jupyter program gives to a kernel besides a connection file: environment, and arguments for IPython. */
#ifndef CARREL_CLIENT_KERNEL_KERNEL_GIVEN_H
#define CARREL_CLIENT_KERNEL_KERNEL_GIVEN_H

#include <jansson.h>

/* Adds to env what this process was given and what the kernelspec says (spec: its folder, or NULL). What is in env
 * already stays. */
void given_environment(json_t *env, const char *spec);
/* Takes the words for IPython, which are last, out of argv, and adds the variable that brings them to the kernel.
 * How many are left. */
int  given_arguments(int argc, char **argv, json_t *env);

#endif
