#include "cli/options/suggest.h"

#include <string.h>

enum { WORD_MAX = 40 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete, replace or swap with their neighbour to make a from b; both at most WORD_MAX long. */
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
    unsigned best_distance = bare >= 6 ? 3 : bare >= 3 ? 2 : 1; /* a candidate must be nearer than or as near as this */

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
