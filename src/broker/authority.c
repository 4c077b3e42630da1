#include "broker/authority.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>

enum { DAY_S = 24 * 3600, AUTHORITY_DAYS = 3650, LEAF_DAYS = 397, SERIAL_BYTES = 16 };

int authority_fail(struct err *e, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return err_set(e, EINVAL, STEP_HOST, "%s: %s", what, reason ? reason : "not usable");
}

/* --- keys --- */

/* A scalar below the group's order; a seed that gives none (one in 2^32) is hashed again. */
static BIGNUM *make_scalar(const uint8_t *seed, const EC_GROUP *group)
{
    uint8_t hash[32];
    BIGNUM *scalar = NULL;

    memcpy(hash, seed, sizeof hash);
    for (int i = 0; i < 8; i++) {
        if (EVP_Digest(hash, sizeof hash, hash, NULL, EVP_sha256(), NULL) != 1)
            break;
        BN_clear_free(scalar);
        scalar = BN_bin2bn(hash, sizeof hash, NULL);
        if (scalar && !BN_is_zero(scalar) && BN_cmp(scalar, EC_GROUP_get0_order(group)) < 0)
            break;
    }
    OPENSSL_cleanse(hash, sizeof hash);
    return scalar;
}

static EVP_PKEY *key_of_scalar(const EC_GROUP *group, const BIGNUM *scalar)
{
    EC_POINT *point = EC_POINT_new(group);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    OSSL_PARAM *params = NULL;
    EVP_PKEY *key = NULL;
    uint8_t octets[65];

    if (point && build && context && EC_POINT_mul(group, point, scalar, NULL, NULL, NULL) == 1 &&
        EC_POINT_point2oct(group, point, POINT_CONVERSION_UNCOMPRESSED, octets, sizeof octets, NULL) == sizeof octets &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PRIV_KEY, scalar) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, octets, sizeof octets) == 1 &&
        (params = OSSL_PARAM_BLD_to_param(build)) && EVP_PKEY_fromdata_init(context) == 1 &&
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_KEYPAIR, params) != 1)
        key = NULL;
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    EVP_PKEY_CTX_free(context);
    EC_POINT_free(point);
    return key;
}

static EVP_PKEY *key_of_seed(const uint8_t *seed)
{
    EC_GROUP *group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1);
    BIGNUM *scalar = group ? make_scalar(seed, group) : NULL;
    EVP_PKEY *key = scalar ? key_of_scalar(group, scalar) : NULL;

    BN_clear_free(scalar);
    EC_GROUP_free(group);
    return key;
}

/* --- certificates --- */

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;

    X509V3_set_ctx(&context, issuer, x, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool is_added = extension && X509_add_ext(x, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return is_added;
}

static bool set_serial(X509 *x)
{
    uint8_t bytes[SERIAL_BYTES];

    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(bytes, sizeof bytes, NULL);
    bool is_set = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(x));
    BN_free(number);
    return is_set;
}

static X509 *begin_certificate(EVP_PKEY *key, int days)
{
    X509 *x = X509_new();

    if (x && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
        X509_gmtime_adj(X509_getm_notBefore(x), -DAY_S) &&
        X509_time_adj_ex(X509_getm_notAfter(x), days, 0, NULL) && X509_set_pubkey(x, key) == 1)
        return x;
    X509_free(x);
    return NULL;
}

static bool add_name(X509_NAME *name, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)text, -1, -1, 0) == 1;
}

/* Its name has a part of its key's hash, so that no two boxes have authorities of one name. */
static bool name_authority(X509 *x)
{
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    char text[64];

    if (X509_pubkey_digest(x, EVP_sha256(), hash, &size) != 1 || size < 8)
        return false;
    snprintf(text, sizeof text, "Carrel box %02x%02x%02x%02x%02x%02x%02x%02x", hash[0], hash[1], hash[2], hash[3],
             hash[4], hash[5], hash[6], hash[7]);
    return add_name(X509_get_subject_name(x), text) && X509_set_issuer_name(x, X509_get_subject_name(x)) == 1;
}

/* Names below a permitted one are permitted, too; so are no addresses, which would need no permission otherwise. */
static bool constrain(X509 *x, const char *const *hosts, size_t n)
{
    struct buf text;

    buf_init(&text, (NET_NAME_SIZE + 20) * BROKER_KEYS + 200);
    buf_add_text(&text, "critical");
    for (size_t i = 0; i < n; i++)
        buf_printf(&text, ",permitted;DNS:%s", hosts[i]);
    buf_add_text(&text, ",excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:::/::");
    bool is_added = buf_error(&text) == 0 && add_extension(x, x, NID_name_constraints, buf_string(&text));
    buf_done(&text);
    return is_added;
}

int authority_make(const uint8_t seed[BROKER_SEED_BYTES], const char *const *hosts, size_t n, struct authority *ret,
                   struct err *e)
{
    struct authority a = { .key = key_of_seed(seed) };

    a.certificate = a.key ? begin_certificate(a.key, AUTHORITY_DAYS) : NULL;
    X509 *x = a.certificate;
    if (x && name_authority(x) && add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        add_extension(x, x, NID_subject_key_identifier, "hash") && constrain(x, hosts, n) &&
        X509_sign(x, a.key, EVP_sha256()) > 0) {
        *ret = a;
        return 0;
    }
    authority_done(&a);
    return authority_fail(e, "the certificate authority of the box");
}

void authority_done(struct authority *a)
{
    EVP_PKEY_free(a->key);
    X509_free(a->certificate);
    *a = (struct authority){ 0 };
}

int authority_issue(const struct authority *a, const char *host, EVP_PKEY **ret_key, X509 **ret, struct err *e)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = key ? begin_certificate(key, LEAF_DAYS) : NULL;
    char alternative[NET_NAME_SIZE + 8];

    snprintf(alternative, sizeof alternative, "DNS:%s", host);
    /* A common name has 64 characters at most; the alternative name alone counts. */
    if (x && (strlen(host) > 64 || add_name(X509_get_subject_name(x), host)) &&
        X509_set_issuer_name(x, X509_get_subject_name(a->certificate)) == 1 &&
        add_extension(x, a->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(x, a->certificate, NID_key_usage, "critical,digitalSignature") &&
        add_extension(x, a->certificate, NID_ext_key_usage, "serverAuth") &&
        add_extension(x, a->certificate, NID_subject_key_identifier, "hash") &&
        add_extension(x, a->certificate, NID_authority_key_identifier, "keyid") &&
        add_extension(x, a->certificate, NID_subject_alt_name, alternative) &&
        X509_sign(x, a->key, EVP_sha256()) > 0) {
        *ret_key = key;
        *ret = x;
        return 0;
    }
    X509_free(x);
    EVP_PKEY_free(key);
    return authority_fail(e, "a certificate for a host of the box");
}

/* --- for programs in the box --- */

int authority_write_pem(const STACK_OF(X509) *others, X509 *own, struct buf *out)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL;
    int r = bio && PEM_write_bio_X509(bio, own) == 1 ? 0 : -ENOMEM;

    for (int i = 0; r == 0 && i < sk_X509_num(others); i++)
        r = PEM_write_bio_X509(bio, sk_X509_value(others, i)) == 1 ? 0 : -ENOMEM;
    long size = r == 0 ? BIO_get_mem_data(bio, &text) : 0;
    buf_add(out, text, (size_t)size);
    BIO_free(bio);
    return r < 0 ? r : buf_error(out);
}

static void add_number(struct buf *out, uint64_t number, int bytes)
{
    while (bytes-- > 0)
        buf_add_char(out, (char)(number >> (8 * bytes)));
}

static void add_java_text(struct buf *out, const char *text)
{
    add_number(out, strlen(text), 2);
    buf_add_text(out, text);
}

static bool add_java_entry(struct buf *out, X509 *x, int number)
{
    unsigned char *der = NULL;
    int size = i2d_X509(x, &der);
    char alias[32];

    if (size < 0)
        return false;
    snprintf(alias, sizeof alias, "carrel%d", number);
    add_number(out, 2, 4);      /* a trusted certificate */
    add_java_text(out, alias);
    add_number(out, 0, 8);      /* its date */
    add_java_text(out, "X.509");
    add_number(out, (uint64_t)size, 4);
    buf_add(out, der, (size_t)size);
    OPENSSL_free(der);
    return true;
}

/* The hash at the end is over the password in UTF-16, two words that the format prescribes, and the file. */
static bool add_java_hash(struct buf *out)
{
    static const char wide[] = "\0c\0h\0a\0n\0g\0e\0i\0t", words[] = "Mighty Aphrodite";
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;

    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_made = context && EVP_DigestInit_ex(context, EVP_sha1(), NULL) == 1 &&
                   EVP_DigestUpdate(context, wide, sizeof wide - 1) == 1 &&
                   EVP_DigestUpdate(context, words, sizeof words - 1) == 1 &&
                   EVP_DigestUpdate(context, out->data, out->length) == 1 &&
                   EVP_DigestFinal_ex(context, hash, &size) == 1;
    EVP_MD_CTX_free(context);
    if (is_made)
        buf_add(out, hash, size);
    return is_made;
}

int authority_write_java(const STACK_OF(X509) *others, X509 *own, struct buf *out)
{
    int n = sk_X509_num(others);

    add_number(out, 0xfeedfeed, 4);
    add_number(out, 2, 4);
    add_number(out, (uint64_t)n + 1, 4);
    bool is_made = add_java_entry(out, own, 0);
    for (int i = 0; is_made && i < n; i++)
        is_made = add_java_entry(out, sk_X509_value(others, i), i + 1);
    int r = buf_error(out);
    if (r == 0 && !(is_made && add_java_hash(out)))
        r = -ENOMEM;
    return r < 0 ? r : buf_error(out);
}
