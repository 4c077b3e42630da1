#include "fuzz.h"

#include "box/indexes.h"

/* Nothing comes out but addresses without secrets: no "@" but npm's scopes, whatever goes in. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct buf out;

    HOLDS(text);
    memcpy(text, data, size);
    text[size] = '\0';
    for (enum index_kind kind = INDEX_PIP; kind <= INDEX_APT_SOURCES; kind++) {
        buf_init(&out, 1 << 20);
        (void)indexes_clean(kind, text, &out);
        const char *at = buf_error(&out) < 0 ? "" : buf_string(&out);
        for (const char *url; (url = strstr(at, "://")); at = url + 3)
            for (const char *c = url; *c > ' '; c++)
                HOLDS(*c != '@' && *c != '$' && *c != '?');
        buf_done(&out);
    }
    free(text);
    return 0;
}
