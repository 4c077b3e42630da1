/* SHA-256, for programs that link nothing but libc. */
#ifndef CARREL_BASE_SHA256_H
#define CARREL_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BLOCK = 64, SHA256_BYTES = 32, SHA256_HEX = 64 };

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t  block[SHA256_BLOCK];
};

void sha256_begin(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t size);
void sha256_end(struct sha256 *s, uint8_t ret[SHA256_BYTES]);
/* Lower-case hexadecimal digits with a NUL. */
void sha256_hex(const uint8_t digest[SHA256_BYTES], char ret[SHA256_HEX + 1]);

#endif
