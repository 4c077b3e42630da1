#define _GNU_SOURCE
#include "base/place.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_ours(const struct stat *status)
{
    return status->st_uid == 0 || status->st_uid == geteuid();
}

static bool is_closed(const struct stat *folder)
{
    return S_ISDIR(folder->st_mode) && is_ours(folder) && !(folder->st_mode & (S_IWGRP | S_IWOTH));
}

/* In a sticky one, as /tmp is, others cannot rename or remove what is not theirs. */
static bool keeps_ours(const struct stat *folder)
{
    return is_closed(folder) || (S_ISDIR(folder->st_mode) && is_ours(folder) && (folder->st_mode & S_ISVTX));
}

bool place_is_own_socket(const char *path)
{
    char folder[PATH_MAX];
    struct stat status;

    if (path[0] != '/' || snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return false;
    if (lstat(folder, &status) < 0 || !S_ISSOCK(status.st_mode))
        return false;
    *strrchr(folder, '/') = '\0';
    if (!folder[0] || lstat(folder, &status) < 0 || !is_closed(&status))
        return false;
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    return stat(folder, &status) == 0 && keeps_ours(&status);
}
