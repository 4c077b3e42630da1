/* A clock that goes only when a test winds it, so that limits and ladders of seconds take no time and a slow machine
 * changes nothing. It is the one of all that is linked with --wrap=clock_gettime. */
#ifndef CARREL_TESTS_FRONT_CLOCK_H
#define CARREL_TESTS_FRONT_CLOCK_H

#include <stdint.h>

void clock_wind(uint64_t ms);

#endif
