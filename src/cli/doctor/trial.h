/* A box made for trial. */
#ifndef CARREL_CLI_DOCTOR_TRIAL_H
#define CARREL_CLI_DOCTOR_TRIAL_H

#include <stddef.h>

/* Runs `carrel run` with a command that does nothing. "" if the box was made, else carrel's message. */
void trial_run(char *ret_why, size_t size);

#endif
