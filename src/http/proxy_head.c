/* The two heads that a proxy makes. Hop-by-hop fields are dropped: the fixed ones, and those that Connection names. The
 * client's claims about forwarding are replaced by what we know. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/proxy_private.h"

static const char *const one_hop[] = {
    "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer",
    "Transfer-Encoding", "Upgrade", "Content-Length", NULL,
};
static const char *const ours_up[] = {
    "Host", "Expect", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port",
    "X-Forwarded-Server", "X-Real-IP", "X-Request-Id", NULL,
};
static const char *const ours_down[] = { "Date", "X-Request-Id", NULL };

static bool is_among(struct http_text name, const char *const *names)
{
    for (; names && *names; names++)
        if (http_text_is_nocase(name, *names))
            return true;
    return false;
}

/* Connection may name several, in several fields. */
static bool is_named_by_connection(const struct http_head *h, struct http_text wanted)
{
    for (unsigned i = 0; i < h->n_fields; i++) {
        struct http_text name, value, option;
        http_head_field(h, i, &name, &value);
        if (!http_text_is_nocase(name, "Connection"))
            continue;
        while (http_list_next(&value, &option))
            if (option.size == wanted.size && strncasecmp(option.data, wanted.data, wanted.size) == 0)
                return true;
    }
    return false;
}

struct builder {
    char *data;
    size_t size, room;
    int error;
};

static void put(struct builder *b, const char *data, size_t size)
{
    if (b->error || !size)
        return;
    if (b->room - b->size < size) {
        size_t room = (b->room + size) * 2;
        char *grown = realloc(b->data, room);
        if (!grown) {
            b->error = -ENOMEM;
            return;
        }
        b->data = grown;
        b->room = room;
    }
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

static void put_text(struct builder *b, const char *text)
{
    put(b, text, strlen(text));
}

static void put_field(struct builder *b, const char *name, struct http_text value)
{
    struct http_text n = { name, strlen(name) };
    if (!http_is_token(n) || !http_is_field_value(value)) {
        b->error = -EINVAL;
        return;
    }
    put(b, n.data, n.size);
    put(b, ": ", 2);
    put(b, value.data, value.size);
    put(b, "\r\n", 2);
}

static void put_field_text(struct builder *b, const char *name, const char *value)
{
    put_field(b, name, (struct http_text){ value, strlen(value) });
}

static void put_clients_fields(struct builder *b, const struct http_proxy *p)
{
    const struct http_head *h = &p->request->head;
    for (unsigned i = 0; i < h->n_fields; i++) {
        struct http_text name, value;
        http_head_field(h, i, &name, &value);
        if (is_among(name, one_hop) || is_among(name, ours_up) || is_among(name, p->config.drop) ||
            is_named_by_connection(h, name))
            continue;
        put(b, name.data, name.size);
        put(b, ": ", 2);
        put(b, value.data, value.size);
        put(b, "\r\n", 2);
    }
}

static void put_own_fields(struct builder *b, struct http_proxy *p)
{
    struct http_request *r = p->request;
    char text[INET6_ADDRSTRLEN + 1];
    const struct sockaddr_in *four = (const struct sockaddr_in *)&r->peer->address;
    const void *address = r->peer->family == AF_INET ? (const void *)&four->sin_addr
                                                     : (const void *)&r->peer->address.sin6_addr;
    if (r->peer->family != AF_UNIX && inet_ntop(r->peer->family, address, text, sizeof text))
        put_field_text(b, "X-Forwarded-For", text);
    if (r->head.host.size)
        put_field(b, "X-Forwarded-Host", r->head.host);
    put_field_text(b, "X-Forwarded-Proto", p->config.scheme ? p->config.scheme : "http");
    put_field_text(b, "X-Request-Id", r->id);
    if (r->head.chunked)
        put_text(b, "Transfer-Encoding: chunked\r\n");
    if (r->head.length >= 0) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)r->head.length);
        put_field_text(b, "Content-Length", number);
    }
    struct http_text upgrade = http_head_get(&r->head, "Upgrade");
    p->upgrading = r->head.wants_upgrade && r->head.minor == 1 && http_text_is_nocase(upgrade, "websocket") &&
                   r->head.length <= 0 && !r->head.chunked;
    put_text(b, p->upgrading ? "Connection: Upgrade\r\nUpgrade: websocket\r\n" : "Connection: close\r\n");
}

int proxy_head_up(struct http_proxy *p)
{
    struct http_request *r = p->request;
    struct builder b = { 0 };
    struct http_text target = { p->config.target, p->config.target ? strlen(p->config.target) : 0 };
    put(&b, r->head.method.data, r->head.method.size);
    put(&b, " ", 1);
    if (target.data) {
        size_t path = (size_t)(strchrnul(target.data, '?') - target.data);
        if (http_path_check((struct http_text){ target.data, path }) != HTTP_OK)
            b.error = -EINVAL;
        for (size_t i = 0; i < target.size; i++)
            if (target.data[i] <= ' ' || target.data[i] > '~' || target.data[i] == '#')
                b.error = -EINVAL;
        put(&b, target.data, target.size);
    } else {
        put(&b, r->head.path.data, r->head.path.size);
        if (r->head.query.data) {
            put(&b, "?", 1);
            put(&b, r->head.query.data, r->head.query.size);
        }
    }
    put_text(&b, " HTTP/1.1\r\n");
    if (p->config.host)
        put_field_text(&b, "Host", p->config.host);
    else
        put_field(&b, "Host", r->head.host.size ? r->head.host : (struct http_text){ "localhost", 9 });
    put_clients_fields(&b, p);
    put_own_fields(&b, p);
    for (const struct http_proxy_field *f = p->config.add; f && f->name; f++)
        put_field_text(&b, f->name, f->value);
    put_text(&b, "\r\n");
    if (b.error) {
        free(b.data);
        return b.error;
    }
    p->rest = b.data;
    p->rest_size = b.size;
    return 0;
}

static int hand_down_field(struct http_proxy *p, struct http_text name, struct http_text value)
{
    struct http_request *r = p->request;
    const char *top = p->config.cookie_path, *v = NULL;
    const char *n = arena_copy(&r->arena, name.data, name.size);

    if (top && http_text_is_nocase(name, "Set-Cookie")) {
        int result = proxy_cookie_confine(&r->arena, value, top, p->config.cookie_alias,
                                          http_text_is(r->head.path, top), &v);
        if (result < 0 || !v)
            return result;
    } else {
        v = arena_copy(&r->arena, value.data, value.size);
    }
    return n && v ? http_reply_header(r, n, v) : -ENOMEM;
}

int proxy_head_down(struct http_proxy *p)
{
    struct http_request *r = p->request;
    int result = 0;
    for (unsigned i = 0; result == 0 && i < p->head.n_fields; i++) {
        struct http_text name, value;
        http_head_field(&p->head, i, &name, &value);
        if (is_among(name, one_hop) || is_among(name, ours_down) || is_among(name, p->config.drop_reply) ||
            is_named_by_connection(&p->head, name))
            continue;
        result = hand_down_field(p, name, value);
    }
    if (result < 0)
        return result;
    if (p->head.status == 101)
        return http_reply_upgrade(r, "websocket");
    return http_reply_start(r, p->head.status, p->head.length >= 0 ? p->head.length : HTTP_CHUNKED);
}
