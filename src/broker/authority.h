/* The certificate authority of a box, made from a seed: it may vouch for the box's hosts and nothing else (name
 * constraints). Its key never leaves this process. */
#ifndef CARREL_BROKER_AUTHORITY_H
#define CARREL_BROKER_AUTHORITY_H

#include <openssl/ssl.h>

#include "base/buf.h"
#include "proto/broker.h"

struct authority {
    EVP_PKEY *key;
    X509     *certificate;
};

/* hosts: each name once or more. */
MUST_CHECK int authority_make(const uint8_t seed[BROKER_SEED_BYTES], const char *const *hosts, size_t n,
                              struct authority *ret, struct err *e);
void           authority_done(struct authority *a);
/* A certificate for one of its hosts, with a key of its own. */
MUST_CHECK int authority_issue(const struct authority *a, const char *host, EVP_PKEY **ret_key, X509 **ret,
                               struct err *e);

/* Certificates of a store and one more, as PEM. */
MUST_CHECK int authority_write_pem(const STACK_OF(X509) *others, X509 *own, struct buf *out);
/* The same as a truststore of Java (JKS), whose password is "changeit". */
MUST_CHECK int authority_write_java(const STACK_OF(X509) *others, X509 *own, struct buf *out);

/* A failure of OpenSSL in words. */
int authority_fail(struct err *e, const char *what);

#endif
