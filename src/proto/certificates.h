/* The host's CA certificates: their file, and the variables by which programs with their own certificates find it. A
 * box with network on the host's own root gets both. */
#ifndef CARREL_PROTO_CERTIFICATES_H
#define CARREL_PROTO_CERTIFICATES_H

#include <stddef.h>

/* For OpenSSL, Go and uv, wherever they were built; requests and pip; node. */
#define CERTIFICATES_VARIABLES { "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS" }

/* Where a box finds the host's certificates together with that of its own authority, if a broker has keys for it: as
 * PEM, and as a truststore of Java with the usual password. The files of the root that programs read by default are
 * covered with them; these variables are for programs that have certificates of their own. */
#define CERTIFICATES_OF_BOX      "/run/carrel/ca.pem"
#define CERTIFICATES_OF_BOX_JAVA "/run/carrel/ca.jks"
#define CERTIFICATES_OF_BOX_VARIABLES                                                                       \
    { "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",     \
      "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT" }

/* A world-readable file: Debian, Fedora, Alpine; NULL: none. */
const char *certificates_find(void);

#endif
