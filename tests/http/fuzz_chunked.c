/* Chunked bodies: the same outcome whole, in pieces, and in place. The first byte gives the size of pieces and room. */
#include <stdlib.h>
#include <string.h>

#include "http/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t step = (size_t)(data[0] & 15) + 1, room = (size_t)(data[0] >> 4) + 1;
    const char *text = (const char *)data + 1;
    size--;
    char *whole = malloc(size), *parts = malloc(size + room), *place = malloc(size);
    struct http_chunked a = { 0 }, b = { 0 }, c = { 0 };
    size_t taken_a, put_a, taken_c, put_c, taken_b = 0, put_b = 0;
    int ra = http_chunked_decode(&a, text, size, whole, size, &taken_a, &put_a), rb = 0;
    memcpy(place, text, size);
    int rc = http_chunked_decode(&c, place, size, place, size, &taken_c, &put_c);
    check(ra == rc && taken_a == taken_c && put_a == put_c && memcmp(whole, place, put_a) == 0);
    while (rb == 0 && taken_b < size) {
        size_t n = size - taken_b < step ? size - taken_b : step, taken, put;
        char *piece = malloc(n);
        memcpy(piece, text + taken_b, n);
        rb = http_chunked_decode(&b, piece, n, parts + put_b, room, &taken, &put);
        free(piece);
        check(taken <= n && put <= room && (taken || rb));
        taken_b += taken;
        put_b += put;
    }
    check(ra == rb && a.fault == b.fault && put_a == put_b && taken_a == taken_b && memcmp(whole, parts, put_a) == 0);
    free(whole);
    free(parts);
    free(place);
    return 0;
}
