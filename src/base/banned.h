/* Functions that have no safe use here become compile errors. The build includes this file before every source file. */
#ifndef CARREL_BASE_BANNED_H
#define CARREL_BASE_BANNED_H

/* Their declarations must be seen before the names are taken away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef strcpy
#undef strcat
#undef strncpy
#undef strncat
#undef sprintf
#undef vsprintf
#undef strtok
#undef atoi
#undef atol
#undef atoll
#undef atof
#undef system
#undef popen
#undef alloca

#define BANNED(function) (banned_##function##_see_base_banned_h)
#define strcpy(to, from) BANNED(strcpy)
#define strcat(to, from) BANNED(strcat)
#define strncpy(to, from, size) BANNED(strncpy)
#define strncat(to, from, size) BANNED(strncat)
#define sprintf(...) BANNED(sprintf)
#define vsprintf(...) BANNED(vsprintf)
#define strtok(text, separators) BANNED(strtok)
#define atoi(text) BANNED(atoi)
#define atol(text) BANNED(atol)
#define atoll(text) BANNED(atoll)
#define atof(text) BANNED(atof)
#define system(command) BANNED(system)
#define popen(command, mode) BANNED(popen)
#define alloca(size) BANNED(alloca)

#endif
