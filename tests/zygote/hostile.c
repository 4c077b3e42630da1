#include "tests/zygote/hostile.h"
int hostile_serve(const char *habit) { (void)habit; return 1; }
