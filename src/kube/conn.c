/* States: CONNECTING -> HANDSHAKE (TLS) -> IDLE -> BUSY -> IDLE ... -> CLOSED.
 *
 * The parser of src/http reads the answer's head; the body is decoded piece by piece and passed on at once, so that a
 * watch needs memory for one line only. A callback may close the connection; step() checks the state after each. The
 * owner frees the memory later, from the loop, never from inside a callback. */
#include "kube/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"

enum { IN_BYTES = HTTP_HEAD_MAX_BYTES, PIECE_BYTES = 16384, WANTS_WRITE = 1 };

static void end_exchange(struct kube_conn *c, int error, const char *what)
{
    if (error && what != c->e.what)
        err_at(&c->e, -error, STEP_NETWORK, 0, what);
    free(c->in);
    c->in = NULL;
    buf_done(&c->out);
    if (error)
        kube_conn_close(c);
    c->on_end(c, error);
}

void kube_conn_close(struct kube_conn *c)
{
    if (c->state == KUBE_CONN_CLOSED)
        return;
    loop_fd_remove(c->loop, &c->watch);
    if (c->ssl) {
        if (c->state == KUBE_CONN_IDLE)
            SSL_shutdown(c->ssl);
        SSL_free(c->ssl);
        ERR_clear_error();
    }
    c->ssl = NULL;
    c->fd = fd_close(c->fd);
    free(c->in);
    c->in = NULL;
    buf_done(&c->out);
    c->state = KUBE_CONN_CLOSED;
}

/* Describes why TLS failed. */
static int tls_failure(struct kube_conn *c, char *text, size_t size)
{
    long verdict = SSL_get_verify_result(c->ssl);
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);

    if (verdict != X509_V_OK)
        snprintf(text, size, "TLS: the server's certificate: %s", X509_verify_cert_error_string(verdict));
    else
        snprintf(text, size, "TLS: %s", reason ? reason : "the connection was closed");
    ERR_clear_error();
    return verdict != X509_V_OK ? -EKEYREJECTED : -EPROTO;
}

static void arm(struct kube_conn *c, uint32_t events)
{
    if (c->watch.events != events && loop_fd_set(c->loop, &c->watch, events) < 0)
        end_exchange(c, -ENOMEM, "epoll");
}

/* > 0, 0 at the end, -EAGAIN, -errno. */
static ssize_t receive(struct kube_conn *c, char *data, size_t size)
{
    if (!c->ssl) {
        ssize_t n = recv(c->fd, data, size, 0);
        return n < 0 ? -errno : n;
    }
    ERR_clear_error();
    int n = SSL_read(c->ssl, data, (int)size);
    if (n > 0)
        return n;
    switch (SSL_get_error(c->ssl, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return errno ? -errno : 0;
    default: {
        char text[160];
        int r = tls_failure(c, text, sizeof text);
        err_at(&c->e, -r, STEP_NETWORK, 0, text);
        return r;
    }
    }
}

static ssize_t transmit(struct kube_conn *c, const char *data, size_t size)
{
    if (!c->ssl) {
        ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL);
        return n < 0 ? -errno : n;
    }
    ERR_clear_error();
    int n = SSL_write(c->ssl, data, size > 1 << 20 ? 1 << 20 : (int)size);
    if (n > 0)
        return n;
    int why = SSL_get_error(c->ssl, n);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
        return -EAGAIN;
    ERR_clear_error();
    return -ECONNRESET;
}

static void push(struct kube_conn *c)
{
    while (c->sent < c->out.length) {
        ssize_t n = transmit(c, c->out.data + c->sent, c->out.length - c->sent);
        if (n == -EAGAIN || n == -EINTR)
            break;
        if (n < 0) {
            end_exchange(c, (int)n, "sending");
            return;
        }
        c->sent += (size_t)n;
    }
    arm(c, c->sent < c->out.length ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static void finish(struct kube_conn *c)
{
    bool keeps = c->head.keep_alive && c->body != HTTP_BODY_UNTIL_CLOSE && c->begin == c->end &&
                 c->sent == c->out.length;

    c->state = KUBE_CONN_IDLE;
    c->reused = true;
    if (!keeps)
        kube_conn_close(c);
    else
        arm(c, EPOLLIN);
    end_exchange(c, 0, NULL);
}

/* Passes the buffered bytes to the owner. 1: the body is complete; 0: more is needed; -errno. */
static int pass_body(struct kube_conn *c)
{
    char piece[PIECE_BYTES];

    while (c->begin < c->end && c->state == KUBE_CONN_BUSY) {
        size_t taken = c->end - c->begin, put = taken;
        int r = 0;
        if (c->body == HTTP_BODY_CHUNKED) {
            r = http_chunked_decode(&c->chunks, c->in + c->begin, taken, piece, sizeof piece, &taken, &put);
            c->begin += taken;
            if (r < 0)
                return -EBADMSG;
            if (put > 0)
                c->on_data(c, piece, put);
        } else {
            if (c->body == HTTP_BODY_LENGTH && taken > c->left)
                taken = (size_t)c->left;
            c->begin += taken;
            c->left -= c->body == HTTP_BODY_LENGTH ? taken : 0;
            c->on_data(c, c->in + c->begin - taken, taken);
            r = c->body == HTTP_BODY_LENGTH && c->left == 0;
        }
        if (c->state != KUBE_CONN_BUSY)
            return 0;
        if (r == 1)
            return 1;
    }
    c->begin = c->end = 0;
    return 0;
}

/* Reads the head, once it is complete. 1: the answer is complete; 0: more is needed; -errno. */
static int pass_head(struct kube_conn *c)
{
    ssize_t n = http_head_parse(&c->head, c->in, c->end);

    if (n < 0)
        return -EBADMSG;
    if (n == 0)
        return c->end == IN_BYTES ? -EBADMSG : 0;
    if (c->head.status >= 100 && c->head.status < 200) {
        memmove(c->in, c->in + n, c->end - (size_t)n);
        c->end -= (size_t)n;
        http_head_init(&c->head, true);
        return c->end > 0 ? pass_head(c) : 0;
    }
    c->has_head = true;
    c->begin = (size_t)n;
    c->body = http_head_response_body(&c->head, false);
    c->left = c->head.length > 0 ? (uint64_t)c->head.length : 0;
    c->on_head(c);
    if (c->state != KUBE_CONN_BUSY)
        return 0;
    return c->body == HTTP_BODY_NONE || (c->body == HTTP_BODY_LENGTH && c->left == 0) ? 1 : 0;
}

static void pull(struct kube_conn *c)
{
    while (c->state == KUBE_CONN_BUSY) {
        ssize_t n = receive(c, c->in + c->end, IN_BYTES - c->end);
        if (n == -EAGAIN || n == -EINTR)
            return;
        if (n == 0 && c->has_head && c->body == HTTP_BODY_UNTIL_CLOSE) {
            finish(c);
            return;
        }
        if (n <= 0) {
            end_exchange(c, n == 0 ? -ECONNRESET : (int)n,
                         n == 0      ? "closed by the server"
                         : c->e.code ? c->e.what
                                     : NULL);
            return;
        }
        c->heard = true;
        c->end += (size_t)n;
        int r = c->has_head ? 0 : pass_head(c);
        if (r == 0 && c->has_head && c->state == KUBE_CONN_BUSY)
            r = pass_body(c);
        if (r < 0) {
            end_exchange(c, r, "the answer is not HTTP");
            return;
        }
        if (r == 1)
            finish(c);
    }
}

static void shake(struct kube_conn *c)
{
    char text[160];

    ERR_clear_error();
    int n = SSL_connect(c->ssl), why = n == 1 ? 0 : SSL_get_error(c->ssl, n);
    if (n == 1) {
        c->state = KUBE_CONN_IDLE;
        arm(c, EPOLLIN);
        if (c->state == KUBE_CONN_IDLE)
            c->on_ready(c);
    } else if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
        arm(c, why == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT);
    } else {
        int r = tls_failure(c, text, sizeof text);
        end_exchange(c, r, text);
    }
}

static void connected(struct kube_conn *c)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error) {
        end_exchange(c, -(error ? error : EIO), "connecting");
        return;
    }
    c->state = c->ssl ? KUBE_CONN_HANDSHAKE : KUBE_CONN_IDLE;
    if (c->ssl) {
        shake(c);
        return;
    }
    arm(c, EPOLLIN);
    c->on_ready(c);
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct kube_conn *c = container_of(w, struct kube_conn, watch);

    switch (c->state) {
    case KUBE_CONN_CONNECTING:
        connected(c);
        break;
    case KUBE_CONN_HANDSHAKE:
        shake(c);
        break;
    case KUBE_CONN_IDLE: {
        char byte[64]; /* no answer is due: the end, or a TLS ticket */
        ssize_t n = receive(c, byte, sizeof byte);
        if (n != -EAGAIN)
            end_exchange(c, -ECONNRESET, "closed by the server");
        break;
    }
    case KUBE_CONN_BUSY:
        if ((events & EPOLLOUT) || c->sent < c->out.length)
            push(c);
        if (c->state == KUBE_CONN_BUSY && (events & ~(uint32_t)EPOLLOUT))
            pull(c);
        break;
    default:
        break;
    }
}

static void set_options(int fd)
{
    static const struct { int level, name, value;
    } all[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },   { SOL_SOCKET, SO_KEEPALIVE, 1 }, { IPPROTO_TCP, TCP_KEEPIDLE, 20 },
        { IPPROTO_TCP, TCP_KEEPINTVL, 5 }, { IPPROTO_TCP, TCP_KEEPCNT, 4 }, { IPPROTO_TCP, TCP_USER_TIMEOUT, 30000 },
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        (void)setsockopt(fd, all[i].level, all[i].name, &all[i].value, sizeof all[i].value);
}

int kube_conn_open(struct kube_conn *c, struct loop *l, SSL_CTX *tls, const struct kube_config *config,
                   const struct sockaddr *address, socklen_t size, struct err *e)
{
    FD fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "socket");
    set_options(fd);
    if (connect(fd, address, size) < 0 && errno != EINPROGRESS)
        return err_at(e, errno, STEP_NETWORK, 0, "connecting");
    c->loop = l;
    if (tls) {
        const char *name = config->server_name ? config->server_name : config->host;
        unsigned char ignored[16];
        c->ssl = SSL_new(tls);
        if (!c->ssl || SSL_set_fd(c->ssl, fd) != 1) {
            SSL_free(c->ssl);
            c->ssl = NULL;
            return err_at(e, ENOMEM, STEP_NETWORK, 0, "TLS");
        }
        if (inet_pton(AF_INET, name, ignored) != 1 && inet_pton(AF_INET6, name, ignored) != 1)
            SSL_set_tlsext_host_name(c->ssl, name);
    }
    c->watch.on_event = on_event;
    int r = loop_fd_add(l, &c->watch, fd, EPOLLOUT);
    if (r < 0) {
        SSL_free(c->ssl);
        c->ssl = NULL;
        return err_at(e, -r, STEP_NETWORK, 0, "epoll");
    }
    c->fd = TAKE_FD(fd);
    c->state = KUBE_CONN_CONNECTING;
    return 0;
}

void kube_conn_send(struct kube_conn *c)
{
    http_head_init(&c->head, true);
    c->chunks = (struct http_chunked){ 0 };
    c->has_head = c->heard = false;
    c->begin = c->end = c->sent = 0;
    c->e = (struct err){ 0 };
    c->in = malloc(IN_BYTES);
    c->state = KUBE_CONN_BUSY;
    /* The loop reports it, so that no callback comes from inside this call. */
    if (loop_fd_set(c->loop, &c->watch, EPOLLIN | EPOLLOUT) < 0 || !c->in)
        shutdown(c->fd, SHUT_RDWR);
}
