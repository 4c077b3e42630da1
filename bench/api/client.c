#define _GNU_SOURCE
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_S = 60 };

void client_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(1);
}

struct client *client_new(int fd)
{
    struct client *c = malloc(sizeof *c);
    struct timeval patience = { .tv_sec = PATIENCE_S };

    if (!c)
        client_die("no memory");
    c->fd = fd;
    c->have = c->at = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return c;
}

struct client *client_unix(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        client_die("%s: %s", path, strerror(errno));
    return client_new(fd);
}

int client_connect_in(const char *netns, unsigned port)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    static int own = -1, there = -1;

    if (own < 0 && ((own = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) < 0 ||
                    (there = open(netns, O_RDONLY | O_CLOEXEC)) < 0))
        client_die("%s: %s", netns, strerror(errno));
    if (setns(there, CLONE_NEWNET) < 0)
        client_die("entering %s: %s", netns, strerror(errno));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (setns(own, CLONE_NEWNET) < 0 || fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        client_die("port %u in %s: %s", port, netns, strerror(errno));
    return fd;
}

void client_free(struct client *c)
{
    close(c->fd);
    free(c);
}

static void send_all(struct client *c, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        ssize_t n = send(c->fd, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            client_die("send: %s", strerror(errno));
        at += n;
        size -= (size_t)n;
    }
}

static size_t fill(struct client *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, c->buffer + c->have, CLIENT_BUFFER - c->have, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            client_die("the server closed the connection or does not answer (%s)", n ? strerror(errno) : "end");
        c->have += (size_t)n;
        c->buffer[c->have] = '\0';
        return (size_t)n;
    }
}

/* Reads a head; afterwards c->at is behind it. -1: chunked. */
static int64_t read_head(struct client *c, int *ret_status)
{
    char *end;

    c->have = c->at = 0;
    c->buffer[0] = '\0';
    while (!(end = strstr(c->buffer, "\r\n\r\n")))
        fill(c);
    c->at = (size_t)(end + 4 - c->buffer);
    *end = '\0';
    *ret_status = c->have > 12 ? (int)strtol(c->buffer + 9, NULL, 10) : 0;
    const char *length = strcasestr(c->buffer, "\r\ncontent-length:");
    if (!length && *ret_status == 204)
        return 0;
    return length ? (int64_t)strtoll(length + 17, NULL, 10) : -1;
}

static void send_head(struct client *c, const char *method, const char *path, size_t body_size, const char *body)
{
    char head[2048];
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%s", method,
                     path, body ? "Content-Type: application/json\r\n" : "", body_size, body ? body : "");

    if (n < 0 || n >= (int)sizeof head)
        client_die("the request is too long");
    send_all(c, head, (size_t)n);
}

int client_ask(struct client *c, const char *method, const char *path, const char *body)
{
    int status;

    send_head(c, method, path, body ? strlen(body) : 0, body);
    int64_t size = read_head(c, &status);
    if (size < 0 || c->at + (size_t)size > CLIENT_BUFFER)
        client_die("%s %s: an answer of %lld bytes", method, path, (long long)size);
    while (c->have - c->at < (size_t)size)
        fill(c);
    c->body = c->buffer + c->at;
    c->body_size = (size_t)size;
    c->body[size] = '\0';
    return status;
}

uint64_t client_download(struct client *c, const char *path)
{
    int status;

    send_head(c, "GET", path, 0, NULL);
    int64_t size = read_head(c, &status);
    if (status != 200 || size < 0)
        client_die("GET %s: status %d, size %lld", path, status, (long long)size);
    uint64_t left = (uint64_t)size - (c->have - c->at);
    while (left > 0) {
        c->have = 0;
        left -= fill(c);
    }
    return (uint64_t)size;
}

void client_upload(struct client *c, const char *path, uint64_t size)
{
    static char zeros[1 << 18];
    int status;

    send_head(c, "PUT", path, size, NULL);
    for (uint64_t left = size; left > 0;) {
        size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
        send_all(c, zeros, n);
        left -= n;
    }
    int64_t rest = read_head(c, &status);
    while (rest > 0 && (int64_t)(c->have - c->at) < rest)
        fill(c);
    if (status / 100 != 2)
        client_die("PUT %s: status %d: %s", path, status, c->buffer + c->at);
}

const char *client_string(struct client *c, const char *key, char *text, size_t size)
{
    char wanted[64];

    snprintf(wanted, sizeof wanted, "\"%s\":", key);
    const char *at = strstr(c->body, wanted);
    if (!at)
        client_die("no %s in %s", key, c->body);
    at += strlen(wanted);
    at += strspn(at, " \"");
    snprintf(text, size, "%.*s", (int)strcspn(at, "\",}"), at);
    return text;
}
