/* What kernels need from this machine: the files that run in boxes (guest/) and an interpreter with ipykernel. */
#ifndef CARREL_BASE_GUEST_H
#define CARREL_BASE_GUEST_H

#include <stdbool.h>
#include <stddef.h>

enum { GUEST_PATH = 256 };

/* The directory of the files that run in boxes: $CARREL_GUEST, else beside this program, else in the installed copy
 * (any prefix) or the wheel; "" if there is none. */
void guest_find_files(char *ret, size_t size);

/* The program that users call: beside this one, or in bin when this one is in libexec; else "carrel". */
void guest_find_program(char *ret, size_t size);

/* The environment that 'carrel setup' makes: $CARREL_ENVIRONMENT, else the machine's for root and the user's own for
 * others. "" if the user has no home. */
void guest_setup_place(char *ret, size_t size);
/* Whether the environment exists and setup completed. */
bool guest_is_set_up(const char *place);

/* The interpreter of the environment that this program was installed into as a wheel: $CARREL_PYTHON, which the wheel's
 * script sets, or found by this program's location. False: not installed as a wheel. */
bool guest_find_own_python(char *ret, size_t size);

/* The default interpreter of kernels, the first of these that has ipykernel: that of the environment around this
 * program, of 'carrel setup' by this user, of 'carrel setup' by root, Debian's. False: none has it; ret is then where
 * 'carrel setup' would put one, or Debian's if there is no such place. */
bool guest_find_python(char *ret, size_t size);

/* Whether ipykernel is among the packages of an interpreter. Looks at the folders of packages; runs nothing. */
bool guest_has_ipykernel(const char *python);

/* A path without its last n components; "" if there are not so many. */
void guest_cut(char *path, int n);
/* Replaces a symbolic link by its target. False: it is no link, or the target is too long. */
bool guest_follow(char *path, size_t size);

#endif
