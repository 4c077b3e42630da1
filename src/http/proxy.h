/* Hands a request on to another HTTP server over a socket that somebody else connects. Bodies stream both ways with
 * back-pressure; after 101 both directions are bytes. The other server is not trusted: its answers are parsed as
 * strictly as requests are, and what cannot be understood becomes 502. */
#ifndef CARREL_HTTP_PROXY_H
#define CARREL_HTTP_PROXY_H

#include "http/server.h"

struct http_proxy;

struct http_proxy_field {
    const char *name, *value;
};

struct http_proxy_config {
    const char *target;                     /* path and query to ask for; NULL: as the client did */
    const char *host;                       /* NULL: as the client said */
    const char *scheme;                     /* for X-Forwarded-Proto; NULL: "http" */
    const char *const *drop;                /* names of the client's fields not to hand on; NULL-terminated, or NULL */
    const char *const *drop_reply;          /* the same for the answer */
    /* Where the other server is here, as the client wrote it, without a slash at the end: its cookies hold there only.
     * NULL: they are handed on as they are. */
    const char *cookie_path;
    const char *cookie_alias;               /* another path of its, or NULL: cookies that name that are handed on */
    const struct http_proxy_field *add;     /* fields to add; ended by a NULL name, or NULL */
    uint32_t connect_ms;                    /* 0: 10,000; then 504 */
    uint32_t reply_ms;                      /* 0: 300,000: from the request's last byte to the answer's head */
    void *owner;
    /* Is to call http_proxy_connected() or http_proxy_failed(), now or later. */
    void (*connect)(struct http_proxy *p, void *owner);
    /* Called instead of any further use if the request ends before that; p is invalid afterwards. May be NULL. */
    void (*cancel)(struct http_proxy *p, void *owner);
    /* When the request ends after that. May be NULL. */
    void (*on_end)(struct http_request *r, enum http_end how, void *owner);
};

/* Of the texts in config only drop_reply and the paths of cookies are used after this returns. The request belongs to
 * the proxy from now on. -EINVAL if a text could break the head (the request is not answered then), -ENOMEM. */
int http_proxy_start(struct http_request *r, const struct http_proxy_config *config) MUST_CHECK;

/* Takes fd: a non-blocking stream socket, connected or connecting. */
void http_proxy_connected(struct http_proxy *p, int fd);

/* Answers the client; status is 502, 503 or 504, usually. p is invalid afterwards. */
void http_proxy_failed(struct http_proxy *p, int status, const char *text);

#endif
