/* Heads of requests and responses: what is seen must not depend on how the bytes arrive, and what is taken must be
 * sane. The first byte says whether it is a response and how large the pieces are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine)
        abort();
}

static bool same(struct http_text a, struct http_text b)
{
    return a.size == b.size && (!a.size || memcmp(a.data, b.data, a.size) == 0);
}

static void check_sane(const struct http_head *h, ssize_t n)
{
    check(n > 0 && n <= HTTP_HEAD_MAX_BYTES && h->n_fields <= HTTP_FIELDS_MAX);
    for (unsigned i = 0; i < h->n_fields; i++) {
        struct http_text name, value;
        http_head_field(h, i, &name, &value);
        check(name.data >= h->base && value.data + value.size <= h->base + n);
        check(http_is_token(name) && http_is_field_value(value));
        check(!value.size || (value.data[0] != ' ' && value.data[value.size - 1] != ' '));
    }
    check(!(h->chunked && h->length >= 0));
    if (h->is_response) {
        check(h->status >= 100 && h->status <= 599);
        return;
    }
    check(http_is_token(h->method) && h->target.size && h->target.size <= HTTP_TARGET_MAX_BYTES);
    struct arena a;
    struct http_text path, name, value, query = h->query;
    arena_init(&a, NULL, 0);
    check(http_unescape(&a, h->path, false, &path) == 0 && strlen(path.data) == path.size);
    char *framed = arena_printf(&a, "%s/", path.data);      /* no dot segment even after unescaping */
    check(framed && !strstr(framed, "/../") && !strstr(framed, "/./"));
    while (http_query_next(&query, &name, &value))
        check(name.data >= h->query.data && value.data + value.size <= h->query.data + h->query.size);
    arena_reset(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_head whole, parts;
    if (size < 1)
        return 0;
    bool is_response = data[0] & 1;
    size_t step = (size_t)(data[0] >> 1) + 1;
    const char *text = (const char *)data + 1;
    size--;
    http_head_init(&whole, is_response);
    http_head_init(&parts, is_response);
    ssize_t n = http_head_parse(&whole, text, size), m = 0;
    char *kept = NULL;
    for (size_t have = 0; m == 0 && have < size;) {
        have = have + step < size ? have + step : size;
        char *moved = malloc(have);
        memcpy(moved, text, have);
        m = http_head_parse(&parts, moved, have);
        free(kept);
        kept = moved;
    }
    check(n == m && whole.fault == parts.fault && (n >= 0) == (whole.fault == HTTP_OK));
    if (n > 0) {
        check_sane(&whole, n);
        check(same(whole.method, parts.method) && same(whole.path, parts.path) && same(whole.query, parts.query));
        check(same(whole.host, parts.host) && same(whole.reason, parts.reason) && whole.n_fields == parts.n_fields);
        check(memcmp(whole.field, parts.field, whole.n_fields * sizeof whole.field[0]) == 0);
        check(whole.length == parts.length && whole.chunked == parts.chunked && whole.keep_alive == parts.keep_alive);
    }
    free(kept);
    return 0;
}
