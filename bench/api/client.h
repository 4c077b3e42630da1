/* A client with nothing between the clock and the wire: one connection, one request after the other, blocking. */
#ifndef CARREL_BENCH_API_CLIENT_H
#define CARREL_BENCH_API_CLIENT_H

#include <stddef.h>
#include <stdint.h>

enum { CLIENT_BUFFER = 1 << 20 };

struct client {
    int    fd;                          /* owned */
    size_t have, at;                    /* bytes in the buffer, and how many of them are used */
    char   buffer[CLIENT_BUFFER + 1];   /* an answer's body starts at body and is NUL-terminated */
    char  *body;
    size_t body_size;
};

/* All of them end the program with a message when something is not as it must be: a figure of a failure is none. */
struct client *client_unix(const char *path);
/* To 127.0.0.1 in the network namespace behind path. */
int            client_connect_in(const char *netns, unsigned port);
struct client *client_new(int fd);
void           client_free(struct client *c);

/* The answer's status; its body, which must fit, is in c. body NULL: none. */
int            client_ask(struct client *c, const char *method, const char *path, const char *body);
/* Reads the body and throws it away; returns how much there was. */
uint64_t       client_download(struct client *c, const char *path);
void           client_upload(struct client *c, const char *path, uint64_t size);

/* The string behind "key":" in the last body. Lives until the next request. */
const char    *client_string(struct client *c, const char *key, char *text, size_t size);

__attribute__((noreturn, format(printf, 1, 2))) void client_die(const char *format, ...);

#endif
