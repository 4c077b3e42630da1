/* What /proc/meminfo and /proc/cpuinfo say inside a box: its own limits, so that programs that size themselves by them
 * do it well. */
#ifndef CARREL_BOX_PROCFILE_H
#define CARREL_BOX_PROCFILE_H

#include <stddef.h>
#include <stdint.h>

void procfile_meminfo(uint64_t memory_bytes, char *text, size_t size);
void procfile_cpuinfo(unsigned processors, char *text, size_t size);

#endif
