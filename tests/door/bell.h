/* A door for the tests of doors. */
#ifndef CARREL_TESTS_DOOR_BELL_H
#define CARREL_TESTS_DOOR_BELL_H

#include "front/door.h"

extern const struct door bell_door;

#endif
