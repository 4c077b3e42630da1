#ifndef CARREL_TESTS_HOSTILE_H
#define CARREL_TESTS_HOSTILE_H

/* Serves like a zygote of this bad habit. Returns if there is no such habit, or at the end. */
int hostile_serve(const char *habit);

#endif
