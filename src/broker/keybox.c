/* The table of boxes: their keys by host, and certificates for them. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "broker/broker.h"

enum { LEAF_MOST_MS = 180 * 24 * 3600 * 1000LL };

static int fail_memory(struct err *e)
{
    return err_at(e, ENOMEM, STEP_MEMORY, 0, "a box in the broker");
}

/* --- TLS --- */

static void set_usual(SSL_CTX *tls)
{
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_options(tls, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
}

/* HTTP/1.1 alone. A program that speaks HTTP/2 only is refused here; one that says nothing gets HTTP/1.1. */
static int choose_protocol(SSL *tls, const unsigned char **ret, unsigned char *ret_size, const unsigned char *offered,
                           unsigned size, void *unused)
{
    static const unsigned char ours[] = "\x08http/1.1";

    (void)tls, (void)unused;
    return SSL_select_next_proto((unsigned char **)(uintptr_t)ret, ret_size, ours, sizeof ours - 1, offered, size) ==
                   OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int issue(const struct keybox *box, struct broker_host *host, struct err *e)
{
    EVP_PKEY *key = NULL;
    X509 *certificate = NULL;
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    int r = tls ? authority_issue(&box->authority, host->rules.name, &key, &certificate, e) : fail_memory(e);

    if (r == 0 && (SSL_CTX_use_certificate(tls, certificate) != 1 || SSL_CTX_use_PrivateKey(tls, key) != 1))
        r = authority_fail(e, host->rules.name);
    EVP_PKEY_free(key);
    X509_free(certificate);
    if (r < 0) {
        SSL_CTX_free(tls);
        return r;
    }
    set_usual(tls);
    SSL_CTX_set_session_cache_mode(tls, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
    SSL_CTX_free(host->tls);
    host->tls = tls;
    host->issued_ms = loop_now_ms();
    return 0;
}

SSL *broker_tls_inward(struct keybox *box, struct broker_host *host)
{
    struct err ignored = { 0 };

    /* If a new certificate cannot be made, the old one is valid for months. */
    if (loop_now_ms() - host->issued_ms > LEAF_MOST_MS)
        (void)!issue(box, host, &ignored);
    SSL *tls = SSL_new(host->tls);
    if (tls)
        SSL_set_accept_state(tls);
    return tls;
}

SSL *broker_tls_outward(struct broker *b, const char *host)
{
    SSL *tls = SSL_new(b->outward);

    if (!tls)
        return NULL;
    SSL_set_connect_state(tls);
    SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (SSL_set_tlsext_host_name(tls, host) == 1 && SSL_set1_host(tls, host) == 1)
        return tls;
    SSL_free(tls);
    return NULL;
}

/* --- the host's authorities --- */

static int read_bio(struct broker *b, BIO *bio, const char *path, struct err *e)
{
    X509_STORE *store = SSL_CTX_get_cert_store(b->outward);

    for (X509 *x; (x = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL));) {
        if (X509_STORE_add_cert(store, x) != 1 || sk_X509_push(b->authorities, x) <= 0) {
            X509_free(x);
            return err_set(e, ENOMEM, STEP_HOST, "%.150s", path);
        }
    }
    unsigned long last = ERR_peek_last_error();
    if (ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE) {
        ERR_clear_error();      /* the end */
        return 0;
    }
    return authority_fail(e, path);
}

int broker_read_authorities(struct broker *b, const char *path, struct err *e)
{
    static const unsigned char http[] = "\x08http/1.1";

    b->outward = SSL_CTX_new(TLS_client_method());
    b->authorities = sk_X509_new_null();
    if (!b->outward || !b->authorities)
        return fail_memory(e);
    set_usual(b->outward);
    SSL_CTX_set_verify(b->outward, SSL_VERIFY_PEER, NULL);
    (void)SSL_CTX_set_alpn_protos(b->outward, http, sizeof http - 1);
    BIO *bio = BIO_new_file(path, "r");
    if (!bio)
        return authority_fail(e, path);
    int r = read_bio(b, bio, path, e);
    BIO_free(bio);
    if (r == 0 && sk_X509_num(b->authorities) == 0)
        return err_set(e, EINVAL, STEP_HOST, "%.150s holds no certificate", path);
    return r;
}

/* --- the table --- */

static struct keybox **bucket_of(const struct broker *b, uint64_t id)
{
    return (struct keybox **)(uintptr_t)&b->bucket[(id * UINT64_C(0x9e3779b97f4a7c15) >> 40) % BROKER_BUCKETS];
}

struct keybox *keybox_find(const struct broker *b, uint64_t id)
{
    struct keybox *box = *bucket_of(b, id);

    while (box && box->id != id)
        box = box->next;
    return box;
}

static void free_box(struct keybox *box)
{
    for (size_t i = 0; i < box->n_hosts; i++) {
        struct broker_host *host = box->host[i];
        for (size_t k = 0; k < host->rules.n_keys; k++)
            mask_value_done(&host->rules.key[k].value);
        SSL_CTX_free(host->tls);
        free(host);
    }
    authority_done(&box->authority);
    free(box);
}

static void drop_draft(struct broker *b)
{
    if (b->draft)
        free_box(b->draft);
    b->draft = NULL;
}

/* The keys of one box come one after the other. */
static struct keybox *draft_of(struct broker *b, uint64_t id)
{
    if (b->draft && b->draft->id == id)
        return b->draft;
    drop_draft(b);
    b->draft = calloc(1, sizeof *b->draft);
    if (b->draft) {
        b->draft->broker = b;
        b->draft->id = id;
    }
    return b->draft;
}

struct broker_host *keybox_host(const struct keybox *box, const char *name)
{
    for (size_t i = 0; i < box->n_hosts; i++)
        if (strcmp(box->host[i]->rules.name, name) == 0)
            return box->host[i];
    return NULL;
}

static bool is_text(const char *text, size_t size)
{
    size_t n = strnlen(text, size);

    return n < size && http_is_field_value((struct http_text){ text, n });
}

/* The owner is a program of ours; but a wrong frame must not become a wrong request. */
static bool is_sane(const struct broker_key *k)
{
    char clean[NET_NAME_SIZE];
    struct http_text value = { (const char *)k->value, k->value_size };

    return is_text(k->host, sizeof k->host) && is_text(k->header, sizeof k->header) &&
           is_text(k->before, sizeof k->before) && is_text(k->after, sizeof k->after) &&
           is_text(k->placeholder, sizeof k->placeholder) && k->placeholder[0] &&
           net_name_clean(k->host, strlen(k->host), clean) && strcmp(clean, k->host) == 0 &&
           http_is_token((struct http_text){ k->header, strlen(k->header) }) &&
           k->value_size >= BROKER_VALUE_LEAST && k->value_size <= BROKER_VALUE_MOST && http_is_field_value(value);
}

int keybox_add_key(struct broker *b, const struct broker_key *frame, struct err *e)
{
    struct keybox *box = is_sane(frame) ? draft_of(b, frame->head.box) : NULL;

    if (!box)
        return err_set(e, EINVAL, STEP_PROTOCOL, "no key that could have been written");
    if (box->n_keys == BROKER_KEYS)
        return err_set(e, E2BIG, STEP_USAGE, "a box can have %d keys", BROKER_KEYS);
    struct broker_host *host = keybox_host(box, frame->host);
    if (!host) {
        host = calloc(1, sizeof *host);
        if (!host)
            return fail_memory(e);
        box->host[box->n_hosts++] = host;
        memcpy(host->rules.name, frame->host, sizeof host->rules.name);
    }
    struct message_key *key = &host->rules.key[host->rules.n_keys];
    if (mask_value_init(&key->value, frame->value, frame->value_size) < 0)
        return fail_memory(e);
    memcpy(key->header, frame->header, sizeof key->header);
    memcpy(key->before, frame->before, sizeof key->before);
    memcpy(key->after, frame->after, sizeof key->after);
    memcpy(key->placeholder, frame->placeholder, sizeof key->placeholder);
    host->rules.n_keys++;
    box->n_keys++;
    return 0;
}

/* A file that no process can change any more. */
static int seal(struct buf *text)
{
    FD fd = memfd_create("certificates", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    int r = fd_write_all(fd, text->data, text->length);
    if (r == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        r = -errno;
    return r < 0 ? r : TAKE_FD(fd);
}

static int write_files(const struct keybox *box, int ret[2])
{
    int (*const writers[2])(const STACK_OF(X509) *, X509 *, struct buf *) = { authority_write_pem,
                                                                              authority_write_java };

    ret[0] = ret[1] = -1;
    for (int i = 0; i < 2; i++) {
        struct buf text;
        buf_init(&text, BROKER_FILE_MOST);
        int r = writers[i](box->broker->authorities, box->authority.certificate, &text);
        ret[i] = r < 0 ? r : seal(&text);
        buf_done(&text);
        if (ret[i] < 0) {
            r = ret[i];
            ret[0] = i ? fd_close(ret[0]) : -1;
            ret[1] = -1;
            return r;
        }
    }
    return 0;
}

static bool is_same_key(const struct message_key *a, const struct message_key *b)
{
    return strcmp(a->header, b->header) == 0 && strcmp(a->before, b->before) == 0 && strcmp(a->after, b->after) == 0 &&
           strcmp(a->placeholder, b->placeholder) == 0 && a->value.size == b->value.size &&
           memcmp(a->value.bytes, b->value.bytes, a->value.size) == 0;
}

static bool has_same_keys(const struct keybox *a, const struct keybox *b)
{
    bool is_same = a->n_hosts == b->n_hosts && a->n_keys == b->n_keys;

    for (size_t i = 0; i < a->n_hosts && is_same; i++) {
        const struct message_host *mine = &a->host[i]->rules, *its = &b->host[i]->rules;
        is_same = strcmp(mine->name, its->name) == 0 && mine->n_keys == its->n_keys;
        for (size_t k = 0; k < mine->n_keys && is_same; k++)
            is_same = is_same_key(&mine->key[k], &its->key[k]);
    }
    return is_same;
}

static int prepare(struct keybox *box, const struct broker_box *frame, int ret[2], struct err *e)
{
    const char *names[BROKER_KEYS];

    for (size_t i = 0; i < box->n_hosts; i++)
        names[i] = box->host[i]->rules.name;
    int r = authority_make(frame->seed, names, box->n_hosts, &box->authority, e);
    for (size_t i = 0; i < box->n_hosts && r == 0; i++)
        r = issue(box, box->host[i], e);
    if (r < 0 || !frame->wants_files)
        return r;
    r = write_files(box, ret);
    return r < 0 ? err_at(e, -r, STEP_MEMORY, 0, "the box's file of certificates") : 0;
}

static void unlist(struct keybox *box)
{
    LIST_REMOVE(box);
    box->broker->n_boxes--;
}

static void retire(struct keybox *box)
{
    unlist(box);
    box->is_retired = true;
    LIST_ADD(box->broker->retired, box);
    keybox_release(box);
}

int keybox_make(struct broker *b, const struct broker_box *frame, int ret[2], struct err *e)
{
    uint64_t id = frame->head.box;
    struct keybox *box = b->draft, *old = keybox_find(b, id);

    ret[0] = ret[1] = -1;
    if (!box || box->id != id)
        return err_set(e, EINVAL, STEP_PROTOCOL, "a box without keys");
    if (!old && b->n_boxes == BROKER_BOXES)
        return err_set(e, ENOSPC, STEP_USAGE, "%d boxes have keys, and that is all it can", BROKER_BOXES);
    if (old && !frame->wants_files && has_same_keys(old, box)) {
        old->owner = b->n_owners;       /* sent again by an owner that was restarted */
        drop_draft(b);
        return 0;
    }
    int r = prepare(box, frame, ret, e);
    if (r < 0)
        return r;
    if (old)
        retire(old);
    box->owner = b->n_owners;
    b->draft = NULL;
    LIST_ADD(*bucket_of(b, id), box);
    b->n_boxes++;
    return 0;
}

void keybox_release(struct keybox *box)
{
    if (!box->is_retired || box->n_relays > 0)
        return;
    LIST_REMOVE(box);
    free_box(box);
}

static void remove_retired(struct broker *b, uint64_t id)
{
    for (struct keybox *box = b->retired, *next; box; box = next) {
        next = box->next;
        if (box->id == id)
            relay_end_all(box);
    }
}

void keybox_remove(struct broker *b, uint64_t id)
{
    struct keybox *box = keybox_find(b, id);

    if (b->draft && b->draft->id == id)
        drop_draft(b);
    remove_retired(b, id);
    if (!box)
        return;
    relay_end_all(box);
    unlist(box);
    free_box(box);
}

void keybox_remove_others(struct broker *b)
{
    for (size_t i = 0; i < BROKER_BUCKETS; i++)
        for (struct keybox *box = b->bucket[i], *next; box; box = next) {
            next = box->next;
            if (box->owner != b->n_owners)
                keybox_remove(b, box->id);
        }
}

void keybox_remove_all(struct broker *b)
{
    drop_draft(b);
    while (b->retired)
        relay_end_all(b->retired);
    for (size_t i = 0; i < BROKER_BUCKETS; i++)
        while (b->bucket[i])
            keybox_remove(b, b->bucket[i]->id);
}
