/* Passes a request on to another HTTP server over a socket that the caller connects. Bodies stream both ways with
 * back-pressure; after 101 both directions are raw bytes. The other server is not trusted: its answers are parsed as
 * strictly as requests, and an invalid one becomes 502. */
#ifndef CARREL_HTTP_PROXY_H
#define CARREL_HTTP_PROXY_H

#include "http/server.h"

struct http_proxy;

struct http_proxy_field {
    const char *name, *value;
};

struct http_proxy_config {
    const char *target;                     /* path and query for the upstream; NULL: the client's */
    const char *host;                       /* NULL: the client's */
    const char *scheme;                     /* for X-Forwarded-Proto; NULL: "http" */
    const char *const *drop;                /* names of the client's fields to drop; NULL-terminated, or NULL */
    const char *const *drop_reply;          /* the same for the answer */
    /* The path under which the client reaches the other server, as the client wrote it, without a slash at the end. The
     * server's cookies are confined to it. NULL: cookies pass unchanged. */
    const char *cookie_path;
    const char *cookie_alias;               /* another path of that server, or NULL: cookies with this path pass
                                             * unchanged */
    const struct http_proxy_field *add;     /* fields to add; ended by a NULL name, or NULL */
    uint32_t connect_ms;                    /* 0: 10,000; then 504 */
    uint32_t reply_ms;                      /* 0: 300,000: from the request's last byte to the answer's head */
    void *owner;
    /* Must call http_proxy_connected() or http_proxy_failed(), now or later. */
    void (*connect)(struct http_proxy *p, void *owner);
    /* The request ended before the connection was made; p is invalid afterwards. May be NULL. */
    void (*cancel)(struct http_proxy *p, void *owner);
    /* The request ended after the connection was made. May be NULL. */
    void (*on_end)(struct http_request *r, enum http_end how, void *owner);
};

/* After the return only drop_reply and the paths of cookies are used of the texts in config. The proxy owns the request
 * from now on. -EINVAL if a text could break the head (the request is not answered then), -ENOMEM. */
int http_proxy_start(struct http_request *r, const struct http_proxy_config *config) MUST_CHECK;

/* Takes fd: a non-blocking stream socket, connected or connecting. */
void http_proxy_connected(struct http_proxy *p, int fd);

/* Answers the client, usually with 502, 503 or 504. p is invalid afterwards. */
void http_proxy_failed(struct http_proxy *p, int status, const char *text);

#endif
