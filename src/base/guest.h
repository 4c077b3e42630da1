/* What kernels need of this machine: the files that run in boxes (guest/), and an interpreter that has ipykernel. */
#ifndef CARREL_BASE_GUEST_H
#define CARREL_BASE_GUEST_H

#include <stdbool.h>
#include <stddef.h>

enum { GUEST_PATH = 256 };

/* The directory of what runs in boxes: $CARREL_GUEST; beside this program; where it lies in an installed copy, whatever
 * its prefix, or in a wheel; "" if there is none. */
void guest_find_files(char *ret, size_t size);

/* The program that people call: beside this one, or in bin when this one is in libexec; else "carrel". */
void guest_find_program(char *ret, size_t size);

/* The environment that 'carrel setup' makes: $CARREL_ENVIRONMENT; else the machine's, if root asks, or the user's. ""
 * if the user has no home. */
void guest_setup_place(char *ret, size_t size);
/* It is there, and was made to the end. */
bool guest_is_set_up(const char *place);

/* The interpreter of the environment that this program was installed into as a wheel: $CARREL_PYTHON, which the wheel's
 * script sets, or told by where this program lies. False: it was not. */
bool guest_find_own_python(char *ret, size_t size);

/* The interpreter of kernels where nobody names one: that of the environment around this program, of 'carrel setup' by
 * this user or by root, Debian's; the first of them that has ipykernel. False: none has, and ret is where 'carrel
 * setup' would put one, or Debian's if there is no such place. */
bool guest_find_python(char *ret, size_t size);

/* Whether ipykernel is among the packages of an interpreter. Nothing is run: it is looked for where packages are. */
bool guest_has_ipykernel(const char *python);

/* A path without its last n components; "" if there are not so many. */
void guest_cut(char *path, int n);
/* Replaces a path by where it points. False: it is no link, or leads too far. */
bool guest_follow(char *path, size_t size);

#endif
