/* passwd and group of a root of its own: lines of NAME:PASSWORD:NUMBER:... */
#include <stdio.h>
#include <string.h>

#include "box/plan.h"

bool accounts_have(const char *text, const char *name, unsigned number)
{
    char wanted[16];
    size_t length = name ? strlen(name) : (size_t)snprintf(wanted, sizeof wanted, "%u", number);

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        const char *field = line;
        for (int i = 0; !name && i < 2; i++)
            field += strcspn(field, ":\n"), field += *field == ':';
        if (strncmp(field, name ? name : wanted, length) == 0 && (field[length] == ':' || field[length] == '\n'))
            return true;
    }
    return false;
}
