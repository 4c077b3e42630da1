/* TLS for a Kubernetes client: only the cluster's own CA (the machine's CAs if none is named), a check of the server's
 * name or address, a client certificate if there is one. Touches no files. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "kube/conn.h"

static int fail(struct err *e, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return err_set(e, EINVAL, STEP_USAGE, "%s: %s", what, reason ? reason : "not usable");
}

static int take_ca(SSL_CTX *tls, const char *pem, struct err *e)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509_STORE *store = SSL_CTX_get_cert_store(tls);
    int n = 0;

    for (X509 *x; bio && (x = PEM_read_bio_X509(bio, NULL, NULL, NULL)); n++) {
        X509_STORE_add_cert(store, x);
        X509_free(x);
    }
    BIO_free(bio);
    if (n == 0)
        return fail(e, "certificate-authority holds no certificate");
    ERR_clear_error(); /* "no start line" after the last one */
    return 0;
}

static int take_certificate(SSL_CTX *tls, const char *cert_pem, const char *key_pem, struct err *e)
{
    BIO *cert = BIO_new_mem_buf(cert_pem, -1), *key = BIO_new_mem_buf(key_pem, -1);
    X509 *x = cert ? PEM_read_bio_X509(cert, NULL, NULL, NULL) : NULL, *more;
    EVP_PKEY *k = key ? PEM_read_bio_PrivateKey(key, NULL, NULL, NULL) : NULL;
    int r = 0;

    if (!x || SSL_CTX_use_certificate(tls, x) != 1)
        r = fail(e, "client-certificate");
    else if (!k || SSL_CTX_use_PrivateKey(tls, k) != 1)
        r = fail(e, "client-key");
    else if (SSL_CTX_check_private_key(tls) != 1)
        r = fail(e, "client-key does not belong to client-certificate");
    else if (X509_cmp_time(X509_get0_notAfter(x), NULL) < 0)
        r = err_set(e, EKEYEXPIRED, STEP_USAGE, "client-certificate in the kubeconfig has expired; get a new one");
    while (r == 0 && (more = PEM_read_bio_X509(cert, NULL, NULL, NULL)))
        if (SSL_CTX_add0_chain_cert(tls, more) != 1)
            X509_free(more);
    ERR_clear_error();
    X509_free(x);
    EVP_PKEY_free(k);
    BIO_free(cert);
    BIO_free(key);
    return r;
}

static int check_name(SSL_CTX *tls, const char *name)
{
    X509_VERIFY_PARAM *param = SSL_CTX_get0_param(tls);
    unsigned char address[16];
    bool is_address = inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1;

    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return is_address ? X509_VERIFY_PARAM_set1_ip_asc(param, name) : X509_VERIFY_PARAM_set1_host(param, name, 0);
}

int kube_tls_new(const struct kube_config *config, SSL_CTX **ret, struct err *e)
{
    *ret = NULL;
    if (!config->tls)
        return 0;
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    int r = 0;
    if (!tls)
        return fail(e, "TLS");
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_options(tls, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(tls,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    if (config->insecure) {
        SSL_CTX_set_verify(tls, SSL_VERIFY_NONE, NULL);
    } else {
        SSL_CTX_set_verify(tls, SSL_VERIFY_PEER, NULL);
        if (config->ca_pem)
            r = take_ca(tls, config->ca_pem, e);
        else if (SSL_CTX_set_default_verify_paths(tls) != 1)
            r = fail(e, "the machine's certificates");
        if (r == 0 && check_name(tls, config->server_name ? config->server_name : config->host) != 1)
            r = fail(e, "server name");
    }
    if (r == 0 && config->cert_pem && config->key_pem)
        r = take_certificate(tls, config->cert_pem, config->key_pem, e);
    if (r < 0) {
        SSL_CTX_free(tls);
        return r;
    }
    *ret = tls;
    return 0;
}
