/* RFC 2104. */
#include "zmtp/hmac.h"

#include <string.h>

#include "base/sha256.h"

void hmac_hex(const void *key, size_t key_size, const struct iovec *part, size_t n, char ret[HMAC_HEX + 1])
{
    uint8_t inner[SHA256_BLOCK] = { 0 }, outer[SHA256_BLOCK], digest[SHA256_BYTES];
    struct sha256 sha;

    sha256_begin(&sha);
    if (key_size > SHA256_BLOCK) {
        sha256_add(&sha, key, key_size);
        sha256_end(&sha, inner);
    } else {
        memcpy(inner, key, key_size);
    }
    for (int i = 0; i < SHA256_BLOCK; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    sha256_begin(&sha);
    sha256_add(&sha, inner, SHA256_BLOCK);
    for (size_t i = 0; i < n; i++)
        sha256_add(&sha, part[i].iov_base, part[i].iov_len);
    sha256_end(&sha, digest);
    sha256_begin(&sha);
    sha256_add(&sha, outer, SHA256_BLOCK);
    sha256_add(&sha, digest, SHA256_BYTES);
    sha256_end(&sha, digest);
    sha256_hex(digest, ret);
}
