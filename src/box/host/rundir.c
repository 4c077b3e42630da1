#define _GNU_SOURCE
#include "box/host/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/places.h"

static char  path[256];

void rundir_choose(void)
{
    if (!places_run(geteuid() == 0, getenv("XDG_RUNTIME_DIR"), path, sizeof path))
        path[0] = '\0';         /* rundir_open() will fail */
}

int rundir_open(int *ret, struct err *e)
{
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return err_at(e, errno, STEP_HOST, 0, path);
    FD dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (dir < 0 || fstat(dir, &status) < 0)
        return err_at(e, errno, STEP_HOST, 0, path);
    if (status.st_uid != geteuid() || (status.st_mode & 022))
        return err_set(e, EPERM, STEP_HOST, "%s belongs to another user or others may write there: remove it", path);
    *ret = TAKE_FD(dir);
    return 0;
}
