#include "proto/checks.h"

#include <string.h>

#include "proto/defaults.h"

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool hostname_is_plain(const char *name, size_t size)
{
    size_t length = strnlen(name, size);

    if (length == 0 || length == size || length > BOX_HOSTNAME_MAX || !is_alphanumeric(name[0]))
        return false;
    for (size_t i = 1; i < length; i++)
        if (!is_alphanumeric(name[i]) && name[i] != '-' && name[i] != '.')
            return false;
    return true;
}

bool target_is_plain(const char *path, size_t size)
{
    size_t length = strnlen(path, size);

    if (length == size || length < 2 || path[0] != '/' || path[length - 1] == '/')
        return false;
    for (const char *part = path; part; part = strchr(part, '/')) {
        size_t n = strcspn(++part, "/");
        if (n == 0 || n > 255 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
    }
    size_t first = strcspn(path + 1, "/");
    return !(first == 4 && memcmp(path + 1, "proc", 4) == 0) && !(first == 3 && memcmp(path + 1, "dev", 3) == 0);
}

bool layer_target_is_plain(const char *target, size_t size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    size_t owner = strnlen(target, size) < size ? strspn(target, letters) : 0;

    return owner > 0 && target[owner] == '/' && strspn(target + owner + 1, "0123456789abcdef") == 64
           && target[owner + 65] == '\0' && owner + 66 <= LAYER_TARGET_MAX;
}
