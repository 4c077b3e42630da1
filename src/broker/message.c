/* The parser refuses heads that two programs could read differently; what is left is written in one way. Fields about
 * the connection are the broker's own on both sides. */
#include "broker/message.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/jsonout.h"

static bool refuse(struct message_refusal *ret, int status, const char *format, ...) PRINTF_LIKE(3, 4);

static bool refuse(struct message_refusal *ret, int status, const char *format, ...)
{
    va_list args;

    ret->status = status;
    va_start(args, format);
    vsnprintf(ret->why, sizeof ret->why, format, args);
    va_end(args);
    return false;
}

static bool is_one_of(struct http_text name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (http_text_is_nocase(name, list[i]))
            return true;
    return false;
}

/* Named by a Connection field, so meant for the next hop alone. */
static bool is_for_this_hop(const struct http_head *h, struct http_text name)
{
    struct http_text field, value;

    for (unsigned i = 0; i < h->n_fields; i++) {
        http_head_field(h, i, &field, &value);
        for (struct http_text one; http_text_is_nocase(field, "connection") && http_list_next(&value, &one);)
            if (one.size == name.size && strncasecmp(one.data, name.data, name.size) == 0)
                return true;
    }
    return false;
}

static bool contains(struct http_text in, const char *what)
{
    return memmem(in.data, in.size, what, strlen(what)) != NULL;
}

/* The name, perhaps with the port. */
static bool is_host(struct http_text host, const char *name)
{
    size_t n = strlen(name);

    if (host.size < n || strncasecmp(host.data, name, n) != 0)
        return false;
    struct http_text rest = { host.data + n, host.size - n };
    return rest.size == 0 || http_text_is(rest, ":443");
}

static bool check_request(const struct http_head *h, const struct message_host *host, struct message_refusal *ret)
{
    if (h->minor == 0)
        return refuse(ret, 505, "HTTP/1.0 is not passed on; use HTTP/1.1");
    if (h->target.data[0] != '/' && !http_text_is(h->target, "*"))
        return refuse(ret, 400, "the target is an absolute URI; use a path, and the name in Host");
    if (!is_host(h->host, host->name))
        return refuse(ret, 421, "Host is %.*s, but this connection is to %s; a key goes to its own host only",
                      (int)(h->host.size < 100 ? h->host.size : 100), h->host.data, host->name);
    if (h->wants_upgrade)
        return refuse(ret, 501, "the connection cannot be upgraded: a host with a key has HTTP/1.1 requests only");
    /* Its answer repeats the request, with the key. */
    if (http_text_is(h->method, "TRACE") || http_text_is(h->method, "TRACK"))
        return refuse(ret, 405, "%.*s is not passed on", HTTP_TEXT_FORMAT(h->method));
    return true;
}

/* Whether the value is exactly the key's form. The words around it are compared without regard to case. */
static bool fits(const struct message_key *key, struct http_text value)
{
    size_t before = strlen(key->before), middle = strlen(key->placeholder), after = strlen(key->after);

    return value.size == before + middle + after && strncasecmp(value.data, key->before, before) == 0 &&
           memcmp(value.data + before, key->placeholder, middle) == 0 &&
           strncasecmp(value.data + before + middle, key->after, after) == 0;
}

/* One field of a request, with the key in the place of its placeholder. */
static bool write_field(const struct message_host *host, struct http_text name, struct http_text value,
                        struct buf *out, struct message_refusal *ret)
{
    buf_printf(out, "%.*s: ", HTTP_TEXT_FORMAT(name));
    for (size_t i = 0; i < host->n_keys; i++) {
        const struct message_key *key = &host->key[i];
        if (!http_text_is_nocase(name, key->header) || !contains(value, key->placeholder))
            continue;
        if (!fits(key, value))
            return refuse(ret, 400, "%s holds the placeholder of a key in another form than '%s: %s{}%s'", key->header,
                          key->header, key->before, key->after);
        buf_add_text(out, key->before);
        buf_add(out, key->value.bytes, key->value.size);
        buf_add_text(out, key->after);
        buf_add_text(out, "\r\n");
        return true;
    }
    buf_add(out, value.data, value.size);
    buf_add_text(out, "\r\n");
    return true;
}

/* A field in which a key stands may occur once: servers differ in which one they take. */
static bool check_repeated(const struct http_head *h, const struct message_host *host, struct message_refusal *ret)
{
    struct http_text name, value;

    for (size_t i = 0; i < host->n_keys; i++) {
        unsigned n = 0;
        for (unsigned k = 0; k < h->n_fields; k++) {
            http_head_field(h, k, &name, &value);
            n += http_text_is_nocase(name, host->key[i].header);
        }
        if (n > 1)
            return refuse(ret, 400, "%s occurs %u times; send it once", host->key[i].header, n);
    }
    return true;
}

bool message_request(const struct http_head *h, const struct message_host *host, struct buf *out,
                     struct message_refusal *ret)
{
    /* Accept-Encoding: a key in a compressed answer could not be masked. */
    static const char *const own[] = { "host", "connection", "keep-alive", "proxy-connection", "proxy-authorization",
                                       "te", "trailer", "transfer-encoding", "upgrade", "content-length", "expect",
                                       "accept-encoding", "http2-settings" };
    struct http_text name, value;

    if (!check_request(h, host, ret) || !check_repeated(h, host, ret))
        return false;
    buf_printf(out, "%.*s %.*s HTTP/1.1\r\nHost: %s\r\n", HTTP_TEXT_FORMAT(h->method), HTTP_TEXT_FORMAT(h->target),
               host->name);
    for (unsigned i = 0; i < h->n_fields; i++) {
        http_head_field(h, i, &name, &value);
        if (is_one_of(name, own, sizeof own / sizeof *own) || is_for_this_hop(h, name))
            continue;
        if (!write_field(host, name, value, out, ret))
            return false;
    }
    buf_add_text(out, "Accept-Encoding: identity\r\n");
    if (h->chunked)
        buf_add_text(out, "Transfer-Encoding: chunked\r\n");
    else if (h->length >= 0)
        buf_printf(out, "Content-Length: %lld\r\n", (long long)h->length);
    if (h->wants_continue)
        buf_add_text(out, "Expect: 100-continue\r\n");
    if (!h->keep_alive)
        buf_add_text(out, "Connection: close\r\n");
    buf_add_text(out, "\r\n");
    return buf_error(out) == 0 || refuse(ret, 431, "the request's head is too long with its keys in it");
}

bool message_is_encoded(const struct http_head *h)
{
    struct http_text name, value;

    for (unsigned i = 0; i < h->n_fields; i++) {
        http_head_field(h, i, &name, &value);
        for (struct http_text one; http_text_is_nocase(name, "content-encoding") && http_list_next(&value, &one);)
            if (!http_text_is_nocase(one, "identity"))
                return true;
    }
    return false;
}

bool message_answer(const struct http_head *h, enum http_body body, bool close, struct mask *mask, struct buf *out)
{
    /* Alt-Svc: it would lead clients around the broker. */
    static const char *const own[] = { "connection", "keep-alive", "proxy-connection", "trailer", "transfer-encoding",
                                       "upgrade", "content-length", "alt-svc" };
    struct http_text name, value;
    struct buf plain;

    buf_init(&plain, HTTP_HEAD_MAX_BYTES + 256);
    buf_printf(&plain, "HTTP/1.1 %d %.*s\r\n", h->status, HTTP_TEXT_FORMAT(h->reason));
    for (unsigned i = 0; i < h->n_fields; i++) {
        http_head_field(h, i, &name, &value);
        if (!is_one_of(name, own, sizeof own / sizeof *own) && !is_for_this_hop(h, name))
            buf_printf(&plain, "%.*s: %.*s\r\n", HTTP_TEXT_FORMAT(name), HTTP_TEXT_FORMAT(value));
    }
    bool is_whole = buf_error(&plain) == 0;
    mask_feed(mask, plain.data, is_whole ? plain.length : 0, out);
    mask_end(mask, out);
    buf_done(&plain);
    if (body == HTTP_BODY_CHUNKED || body == HTTP_BODY_UNTIL_CLOSE)
        buf_add_text(out, "Transfer-Encoding: chunked\r\n");
    else if (h->length >= 0)        /* also of an answer to HEAD, and of 304 */
        buf_printf(out, "Content-Length: %lld\r\n", (long long)h->length);
    buf_add_text(out, close ? "Connection: close\r\n\r\n" : "\r\n");
    return is_whole && buf_error(out) == 0;
}

void message_own(const struct message_refusal *why, bool with_body, struct buf *out)
{
    char room[2 * sizeof why->why + 200];
    struct jsonout j;
    struct buf body;

    buf_init_fixed(&body, room, sizeof room);
    jsonout_init(&j, &body);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "error");
    jsonout_string(&j, "type", "carrel_broker");
    jsonout_string(&j, "message", why->why);
    jsonout_close(&j);
    jsonout_close(&j);
    buf_add_char(&body, '\n');
    buf_printf(out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
               "Connection: close\r\nX-Carrel-Broker: refused\r\n\r\n", why->status, http_status_text(why->status),
               body.length);
    if (with_body)
        buf_add(out, body.data, body.length);
}
