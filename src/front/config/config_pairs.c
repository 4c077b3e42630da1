/* Settings that are words LEFT=RIGHT: secrets of templates, credentials. Who uses them checks what the words mean. */
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "front/config/config_private.h"

int config_check_pairs(const char *name, const char *value, const char *example, struct err *e)
{
    for (const char *at = value + strspn(value, " "); *at; at += strcspn(at, " "), at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        const char *equals = memchr(at, '=', length);
        if (!equals || equals == at || equals + 1 == at + length)
            return err_set(e, EINVAL, STEP_USAGE, "%s '%s' is not a list of pairs; write for example %s", name,
                           parse_quote(value).text, example);
    }
    return 0;
}
