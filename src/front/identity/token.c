/* See token.h. No allocation: a token has a fixed size, and a longer text is none. */
#include "front/identity/token.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

static const char prefix[] = "carrel_";
static const char base64url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static int fill_random(unsigned char *data, size_t size)
{
    while (size) {
        ssize_t n = getrandom(data, size, 0);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        }
    }
    return 0;
}

int token_make_id(char ret[TOKEN_ID_SIZE])
{
    static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char bytes[TOKEN_ID_SIZE - 2];
    int r = fill_random(bytes, sizeof bytes);

    if (r < 0)
        return r;
    ret[0] = 't';
    for (size_t i = 0; i < sizeof bytes; i++)
        ret[i + 1] = base32[bytes[i] & 31];
    ret[TOKEN_ID_SIZE - 1] = 0;
    return 0;
}

int token_make_secret(char ret[TOKEN_SECRET_SIZE])
{
    unsigned char bytes[33] = { 0 };    /* one more than random, so that triples come out even */
    int r = fill_random(bytes, 32);
    size_t at = sizeof prefix - 1;

    if (r < 0)
        return r;
    memcpy(ret, prefix, at);
    for (size_t i = 0; i < sizeof bytes; i += 3) {
        unsigned triple = (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];
        for (int shift = 18; shift >= 0 && at < TOKEN_SECRET_SIZE - 1; shift -= 6)
            ret[at++] = base64url[triple >> shift & 63];
    }
    ret[at] = 0;
    OPENSSL_cleanse(bytes, sizeof bytes);
    return 0;
}

bool token_is_sound(struct http_text text)
{
    if (text.size != TOKEN_SECRET_SIZE - 1 || memcmp(text.data, prefix, sizeof prefix - 1) != 0)
        return false;
    for (size_t i = sizeof prefix - 1; i < text.size; i++)
        if (!memchr(base64url, text.data[i], sizeof base64url - 1))
            return false;
    return true;
}

int token_hash(struct http_text secret, unsigned char ret[32])
{
    unsigned size = 0;

    return EVP_Digest(secret.data, secret.size, ret, &size, EVP_sha256(), NULL) == 1 && size == 32 ? 0 : -EIO;
}

int token_from_field(struct http_text value, struct http_text *ret)
{
    static const char *const schemes[] = { "bearer ", "token " };

    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        size_t n = strlen(schemes[i]);
        if (value.size == n - 1 && strncasecmp(value.data, schemes[i], n - 1) == 0)
            return -ENOENT;     /* Jupyter's gateway client sends "token " when it has none */
        if (value.size <= n || strncasecmp(value.data, schemes[i], n) != 0)
            continue;
        *ret = http_text_trim((struct http_text){ value.data + n, value.size - n });
        return ret->size && !memchr(ret->data, ' ', ret->size) ? 0 : -EBADMSG;
    }
    return -EBADMSG;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes %XX; a text that does not fit or is malformed is no token. */
static int unescape(struct http_text raw, char storage[TOKEN_SECRET_SIZE], struct http_text *ret)
{
    size_t n = 0;

    for (size_t i = 0; i < raw.size; i++) {
        char c = raw.data[i];
        if (c == '%') {
            int high = i + 2 < raw.size ? hex_digit(raw.data[i + 1]) : -1,
                low = high >= 0 ? hex_digit(raw.data[i + 2]) : -1;
            if (low < 0)
                return -EBADMSG;
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (n == TOKEN_SECRET_SIZE - 1)
            return -EBADMSG;
        storage[n++] = c;
    }
    storage[n] = 0;
    *ret = (struct http_text){ storage, n };
    return 0;
}

int token_from_query(struct http_text query, char storage[TOKEN_SECRET_SIZE], struct http_text *ret)
{
    struct http_text name, value, found = { 0 };

    while (http_query_next(&query, &name, &value)) {
        if (!http_text_is(name, "token"))
            continue;
        if (found.data)
            return -EBADMSG;
        found = value;
    }
    return found.data ? unescape(found, storage, ret) : -ENOENT;
}
