/* Which host names a request may use for this server, and which pages a browser may call it from. Pure: texts in,
 * verdict out.
 *
 * A page that a user visits can make the browser talk to 127.0.0.1. Two things reveal it: its Origin is not ours, or,
 * when its own name was made to resolve to 127.0.0.1 (DNS rebinding), the Host is not a name of this server. */
#ifndef CARREL_FRONT_IDENTITY_AUTH_HOST_H
#define CARREL_FRONT_IDENTITY_AUTH_HOST_H

#include <stdbool.h>

#include "front/config/config.h"
#include "http/parse.h"

enum host_kind { HOST_NAME, HOST_IPV4, HOST_IPV6 };

struct host {
    enum host_kind kind;
    char           name[254];       /* lower case, no trailing dot; a literal in its canonical form without brackets */
    unsigned char  address[16];     /* of a literal: 4 or 16 bytes; an IPv4-mapped one is IPv4 */
    int            port;            /* -1: none */
};

struct origin {
    bool        is_https;
    struct host host;               /* port is always set */
};

/* "name", "name:80", "127.0.0.1:80", "[::1]:80". 0 or -EINVAL; refuses texts that programs read differently ("127.1",
 * "a..b", "u@h"). */
MUST_CHECK int host_parse(struct http_text text, struct host *ret);
/* "https://name[:port]" and nothing after it. 0 or -EINVAL, also for "null". */
MUST_CHECK int origin_parse(struct http_text text, struct origin *ret);
/* Writes "https://name:port", the port only if it is not the scheme's own. */
void           origin_format(const struct origin *o, char *text, size_t size);

/* 127.0.0.0/8, ::1, localhost, *.localhost: no resolver can redirect them. */
bool host_is_loopback(const struct host *h);
bool host_is_any(const struct host *h);                         /* 0.0.0.0, :: */
bool host_same(const struct host *a, const struct host *b);     /* ports aside */

struct auth_rules {
    bool          has_listen;
    struct host   listen;
    unsigned      n_origins;
    struct origin origin[CONFIG_ORIGINS];
};

MUST_CHECK int auth_rules_init(struct auth_rules *rules, const struct config *config, struct err *e);

/* Loopback, the address listened on, any address if all are listened on, or the host of a configured origin. The port
 * may differ, as behind a forwarded port. */
bool auth_host_allowed(const struct auth_rules *rules, const struct host *h);
/* A configured origin, or the page comes from the same host and port that it calls. */
bool auth_origin_allowed(const struct auth_rules *rules, const struct origin *o, const struct host *h);

/* The fields of a request that describe its origin; an absent field has no data. */
struct auth_source {
    /* No browser can name a unix socket, so Host is ignored unless Origin is present. */
    bool             is_unix;
    bool             is_get;        /* GET or HEAD */
    bool             many_origins;
    struct http_text host, origin;
    struct http_text site, mode, dest;  /* Sec-Fetch-Site, -Mode, -Dest */
    struct http_text agent;             /* User-Agent */
};

/* 0 or 403 with the reason. */
int auth_source_check(const struct auth_rules *rules, const struct auth_source *source, const char **ret_why);

/* Whether a page made the request, or led to it, and not one of a configured origin. We have no pages of our own, so a
 * page of our own origin is served by a box at a port. Call it after auth_source_check(). */
bool auth_source_is_page(const struct auth_rules *rules, const struct auth_source *source);

#endif
