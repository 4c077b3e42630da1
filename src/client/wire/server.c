/* A server's address, and connections to it. proto/places.c decides which socket at a default place is trusted. */
#define _GNU_SOURCE
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/wire/exchange.h"
#include "proto/defaults.h"
#include "proto/places.h"

static int parse_unix(const char *path, struct server_address *ret, struct err *e)
{
    struct sockaddr_un address;

    if (path[0] != '/' || strlen(path) >= sizeof address.sun_path)
        return err_set(e, EINVAL, STEP_USAGE,
                       "the server's socket must be an absolute path of at most %zu bytes, not '%s'",
                       sizeof address.sun_path - 1, parse_quote(path).text);
    ret->is_unix = true;
    snprintf(ret->address, sizeof ret->address, "%s", path);
    snprintf(ret->url, sizeof ret->url, "unix:%s", path);
    return 0;
}

static int parse_tcp(const char *rest, struct server_address *ret, struct err *e)
{
    const char *end = rest + strcspn(rest, "/"), *host_end = end;
    const char *colon = memrchr(rest, ':', (size_t)(end - rest)), *bracket = memrchr(rest, ']', (size_t)(end - rest));
    uint32_t port;

    if (end[0] && end[1])
        return err_set(e, EINVAL, STEP_USAGE, "a server's URL has no path: http://HOST:PORT");
    snprintf(ret->port, sizeof ret->port, "%s", SERVER_PORT);
    if (colon && (!bracket || colon > bracket)) {
        char text[8];
        host_end = colon;
        if (end - colon > 6)
            return err_set(e, EINVAL, STEP_USAGE, "'%s' is not http://HOST:PORT", parse_quote(rest).text);
        snprintf(text, sizeof text, "%.*s", (int)(end - colon - 1), colon + 1);
        int r = parse_count("the server's port", text, 1, 65535, &port, e);
        if (r < 0)
            return r;
        snprintf(ret->port, sizeof ret->port, "%s", text);
    }
    if (rest[0] == '[' && host_end > rest + 1 && host_end[-1] == ']') {
        rest++;
        host_end--;
    }
    size_t length = (size_t)(host_end - rest);
    if (length == 0 || length >= sizeof ret->address)
        return err_set(e, EINVAL, STEP_USAGE, "the server's URL names no host; write http://HOST:PORT");
    memcpy(ret->address, rest, length);
    ret->address[length] = '\0';
    bool is_v6 = strchr(ret->address, ':') != NULL;
    snprintf(ret->url, sizeof ret->url, is_v6 ? "http://[%s]:%s" : "http://%s:%s", ret->address, ret->port);
    return 0;
}

int server_parse(const char *url, struct server_address *ret, struct err *e)
{
    *ret = (struct server_address){ 0 };
    if (strncmp(url, "unix:", 5) == 0)
        return parse_unix(url + (strncmp(url, "unix://", 7) == 0 ? 7 : 5), ret, e);
    if (url[0] == '/')
        return parse_unix(url, ret, e);
    if (strncmp(url, "http://", 7) == 0)
        return parse_tcp(url + 7, ret, e);
    return err_set(e, EINVAL, STEP_USAGE, "the server's URL is unix:PATH or http://HOST:PORT, not '%s'",
                   parse_quote(url).text);
}

static int connect_unix(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    memcpy(address.sun_path, path, strlen(path));
    FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static int connect_tcp(const struct server_address *s, struct err *e)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *found = NULL;
    int one = 1, failure = 0, r = getaddrinfo(s->address, s->port, &hints, &found);
    FD fd = -1;

    if (r != 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s: %s", s->url, gai_strerror(r));
    for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
            failure = errno;
            fd = fd_close(fd);
        }
    }
    freeaddrinfo(found);
    if (fd < 0)
        return err_set(e, failure, STEP_USAGE,
                       "cannot reach the server at %s (%s); is 'carrel serve --listen' running there?", s->url,
                       strerror(failure));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return TAKE_FD(fd);
}

int server_connect(const struct server_address *s, struct err *e)
{
    if (!s->is_unix)
        return connect_tcp(s, e);
    int fd = connect_unix(s->address);
    if (fd < 0)
        return err_set(e, -fd, STEP_USAGE, "no server answers at %s (%s); start one with 'carrel serve --socket %s'",
                       s->address, strerror(-fd), s->address);
    return fd;
}

const char *server_named(void)
{
    const char *named = getenv("CARREL_URL");

    return named && named[0] ? named : NULL;
}

int server_find(const char *url, struct server_address *ret, struct err *e)
{
    char found[sizeof((struct sockaddr_un *)0)->sun_path], looked[400];
    const char *named = url ? url : server_named(), *token = getenv("CARREL_TOKEN");

    if (named && named[0]) {
        int r = server_parse(named, ret, e);
        ret->token = token && token[0] ? token : NULL;
        return r;
    }
    if (places_find_server(found, sizeof found, looked, sizeof looked))
        return server_parse(found, ret, e);
    return err_set(
        e, ECONNREFUSED, STEP_USAGE,
        "no server is running; start one with 'carrel serve', or name one with --url or CARREL_URL (looked at %s)",
        looked);
}
