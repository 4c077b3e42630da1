/* Any bytes as the beginning of a connection: in one piece and byte by byte the verdict is the same, and TLS passes
 * only with our name in it. */
#include "fuzz.h"

#include "egress/hello.h"

static enum hello_verdict feed(const uint8_t *data, size_t size, size_t piece, size_t *ret_seen)
{
    struct hello h = { 0 };
    enum hello_verdict verdict = HELLO_MORE;
    size_t at = 0;

    while (at < size && verdict < HELLO_PASS) {
        size_t n = size - at < piece ? size - at : piece;
        uint8_t *copy = malloc(n);
        HOLDS(copy);
        memcpy(copy, data + at, n);
        verdict = hello_feed(&h, "a.b", copy, n);
        free(copy);
        at += n;
    }
    HOLDS(strlen(h.other) < NET_NAME_SIZE);
    hello_done(&h);
    *ret_seen = at;
    return verdict;
}

static bool has_name(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i + 3 <= size; i++)
        if ((data[i] | 0x20) == 'a' && data[i + 1] == '.' && (data[i + 2] | 0x20) == 'b')
            return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t seen;

    enum hello_verdict whole = feed(data, size, size ? size : 1, &seen), single = feed(data, size, 1, &seen);
    HOLDS(whole == single);
    if (size >= 2 && data[0] == 0x16 && data[1] == 3 && (whole == HELLO_PASS || whole == HELLO_SO_FAR) && size < 60)
        HOLDS(has_name(data, size));
    return 0;
}
