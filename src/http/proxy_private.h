/* Shared by proxy.c and proxy_head.c only. */
#ifndef CARREL_HTTP_PROXY_PRIVATE_H
#define CARREL_HTTP_PROXY_PRIVATE_H

#include "http/proxy.h"

enum proxy_phase { PROXY_CONNECTING, PROXY_HEAD, PROXY_BODY, PROXY_TUNNEL, PROXY_OVER };

struct http_proxy {
    struct http_request *request;
    struct http_proxy_config config;
    struct loop_fd up;
    struct loop_timer timer;
    struct loop_task task;
    int fd;                             /* owned; -1 before and after */
    enum proxy_phase phase;
    uint32_t reply_ms;
    bool upgrading;                     /* the client asked for it */
    bool sent_all;                      /* the client's body was read to its end */
    bool held_back;                     /* the client must read first */
    char *rest;                         /* for upstream, not yet sent; at first the whole head */
    size_t rest_at, rest_size;
    char *in;                           /* the answer's head, and what came with it */
    size_t in_at, in_end, in_size;
    struct http_head head;
    enum http_body kind;
    int64_t left;
    struct http_chunked chunked;
};

/* The request's head, to p->rest. 0, -EINVAL, -ENOMEM. */
int proxy_head_up(struct http_proxy *p) MUST_CHECK;

/* Starts the client's answer from p->head. */
int proxy_head_down(struct http_proxy *p) MUST_CHECK;

/* Confines a Set-Cookie to top and the paths below it. alias: another path of the same server, or NULL; at_top: the
 * client requested top itself. *ret is in the arena, or NULL: drop the field. 0, -ENOMEM. */
int proxy_cookie_confine(struct arena *a, struct http_text cookie, const char *top, const char *alias, bool at_top,
                         const char **ret) MUST_CHECK;

#endif
