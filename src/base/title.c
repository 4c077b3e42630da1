#define _GNU_SOURCE
#include "base/title.h"

#include <string.h>
#include <sys/prctl.h>

static char  *start;
static size_t size;

void title_remember(int argc, char **argv)
{
    if (argc < 1)
        return;
    start = argv[0];
    size = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]) + 1;
}

void title_set(const char *title)
{
    size_t length = strlen(title);

    if (size > 0) {
        memset(start, 0, size);
        memcpy(start, title, length < size ? length : size - 1);
    }
    prctl(PR_SET_NAME, title, 0, 0, 0);
}
