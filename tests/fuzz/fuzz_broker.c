/* Any bytes as a request: what the broker writes is a head that it would accept itself, which means the same, with the
 * value in its field alone. Any bytes as an answer, in pieces: no value is left in what is written. */
#include "fuzz.h"

#include "broker/message.h"

enum { OWN_FIELDS = 6 };

static const char value[] = "VALUE-1234", placeholder[] = "PLACE";

static size_t count(const char *in, size_t size, const char *what)
{
    size_t n = 0;

    if (size == 0)
        return 0;
    for (const char *at = in, *end = in + size; (at = memmem(at, (size_t)(end - at), what, strlen(what))); at++)
        n++;
    return n;
}

static void check_request(const struct message_host *host, const char *data, size_t size)
{
    struct message_refusal why = { 0 };
    struct http_head h, again;
    struct buf out;

    /* With as many fields as the parser takes there would be no room for our own. */
    http_head_init(&h, false);
    if (http_head_parse(&h, data, size) <= 0 || h.n_fields + OWN_FIELDS > HTTP_FIELDS_MAX)
        return;
    buf_init(&out, 2 * HTTP_HEAD_MAX_BYTES);
    if (!message_request(&h, host, &out, &why)) {
        HOLDS(why.status >= 400 && why.status < 600 && (count(data, size, value) > 0 || !strstr(why.why, value)));
        buf_done(&out);
        return;
    }
    http_head_init(&again, false);
    HOLDS(out.length > HTTP_HEAD_MAX_BYTES || http_head_parse(&again, out.data, out.length) == (ssize_t)out.length);
    if (out.length <= HTTP_HEAD_MAX_BYTES) {
        HOLDS(http_text_is(again.host, host->name) && again.n_hosts == 1);
        HOLDS(again.chunked == h.chunked && again.length == h.length && again.keep_alive == h.keep_alive);
        HOLDS(again.target.size == h.target.size && memcmp(again.target.data, h.target.data, h.target.size) == 0);
        HOLDS(again.target.data[0] == '/' || again.target.data[0] == '*');
        struct http_text key = http_head_get(&again, "authorization");
        HOLDS(count(data, size, value) > 0 || count(out.data, out.length, value) ==
              (key.data ? count(key.data, key.size, value) : 0));
    }
    buf_done(&out);
}

static void check_answer(const struct message_host *host, const char *data, size_t size)
{
    struct mask mask;
    struct http_head h;
    struct buf out;
    size_t piece = size > 0 ? (size_t)(uint8_t)data[0] % 16 + 1 : 1;

    mask_init(&mask);
    mask_add(&mask, &host->key[0].value);
    buf_init(&out, 1 << 20);
    for (size_t at = 0; at < size; at += piece) {
        size_t end = size - at < piece ? size : at + piece, most = strlen(value) - 1;
        mask_feed(&mask, data + at, end - at, &out);
        HOLDS(buf_error(&out) < 0 || out.length == (end > most ? end - most : 0));
    }
    mask_end(&mask, &out);
    HOLDS(buf_error(&out) < 0 || (out.length == size && count(out.data, out.length, value) == 0));
    buf_clear(&out);
    http_head_init(&h, true);
    if (http_head_parse(&h, data, size) > 0 && h.n_fields + OWN_FIELDS <= HTTP_FIELDS_MAX &&
        message_answer(&h, http_head_response_body(&h, false), true, &mask, &out)) {
        struct http_head again;
        HOLDS(count(out.data, out.length, value) == 0);
        http_head_init(&again, true);
        HOLDS(out.length > HTTP_HEAD_MAX_BYTES || http_head_parse(&again, out.data, out.length) == (ssize_t)out.length);
    }
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct message_host host = { .name = "a.b", .n_keys = 1,
                                        .key = { { .header = "Authorization", .before = "Bearer " } } };
    char *copy = malloc(size + 1);

    HOLDS(copy);
    if (size > 0)
        memcpy(copy, data, size);
    if (!host.key[0].value.bytes) {
        HOLDS(mask_value_init(&host.key[0].value, value, strlen(value)) == 0);
        memcpy(host.key[0].placeholder, placeholder, sizeof placeholder);
    }
    check_request(&host, copy, size);
    check_answer(&host, copy, size);
    free(copy);
    return 0;
}
