/* HMAC-SHA256, with which Jupyter signs its messages, for programs that link only libc. */
#ifndef CARREL_ZMTP_HMAC_H
#define CARREL_ZMTP_HMAC_H

#include <stddef.h>
#include <sys/uio.h>

enum { HMAC_HEX = 64 };

/* Over the concatenated parts, as lower-case hexadecimal digits with a NUL. */
void hmac_hex(const void *key, size_t key_size, const struct iovec *part, size_t n, char ret[HMAC_HEX + 1]);

#endif
