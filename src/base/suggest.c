#include "base/suggest.h"

#include <string.h>

enum { WORD_MAX = 40 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* The number of letters to insert, delete, replace or swap with their neighbour to turn a into b; both at most WORD_MAX
 * long. */
static unsigned edit_distance(const char *a, const char *b)
{
    unsigned before[WORD_MAX + 1] = { 0 }, above[WORD_MAX + 1], row[WORD_MAX + 1];
    size_t n = strlen(a), m = strlen(b);

    for (size_t j = 0; j <= m; j++)
        above[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(row[j], least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        memcpy(before, above, sizeof before);
        memcpy(above, row, sizeof above);
    }
    return above[m];
}

const char *suggest_nearest(const char *word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t length = strlen(word), bare = length - strspn(word, "-");
    unsigned best_distance = bare >= 6 ? 3 : bare >= 3 ? 2 : 1; /* a candidate must be at least this near */

    if (length > WORD_MAX || !bare)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        if (strlen(candidates[i]) > WORD_MAX)
            continue;
        unsigned distance = edit_distance(word, candidates[i]);
        if (bare >= 3 && !strncmp(candidates[i], word, length))
            distance = 1; /* an abbreviation */
        if (distance < best_distance || (distance == best_distance && !best)) {
            best = candidates[i];
            best_distance = distance;
        }
    }
    return best;
}

const char *suggest_option(const char *word)
{
    static const char network[] = "--allow NAME or --net public say what a box may reach (docs/network.md)",
                      mount[] = "--mount SOURCE:TARGET[:rw] shows a host directory (docs/guide.md, 'Files')",
                      port[] = "'carrel forward' reaches a port of a box (docs/guide.md, 'Ports')",
                      device[] = "--device VENDOR/CLASS=NAME gives a device (docs/guide.md)",
                      gone[] = "a box of 'carrel run' is always removed afterwards",
                      here[] = "'carrel run' makes its box itself; 'carrel create' and 'carrel exec' use a server",
                      wall[] = "--profile says how much a box may do (docs/SECURITY.md)";
    static const struct { const char *option, *advice; } known[] = {
        { "--network", network },  { "--internet", network },  { "--dns", network },        { "--volume", mount },
        { "-v", mount },           { "--bind", mount },        { "--ro-bind", mount },      { "--publish", port },
        { "-p", port },            { "--port", port },         { "--gpus", device },        { "--rm", gone },
        { "--privileged", wall },  { "--cap-add", wall },      { "--cap-drop", wall },      { "--security-opt", wall },
        { "--server", here },      { "--local", here },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(word, known[i].option) == 0)
            return known[i].advice;
    return NULL;
}
