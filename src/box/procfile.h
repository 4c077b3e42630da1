/* /proc/meminfo and /proc/cpuinfo inside a box show its own limits, so that programs that size themselves by them
 * fit. */
#ifndef CARREL_BOX_PROCFILE_H
#define CARREL_BOX_PROCFILE_H

#include <stddef.h>
#include <stdint.h>

void procfile_meminfo(uint64_t memory_bytes, char *text, size_t size);
void procfile_cpuinfo(unsigned processors, char *text, size_t size);

#endif
