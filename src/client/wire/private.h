/* A private server for a command that needs one and finds none: started on demand, ended with the process even if that
 * is killed; its state is thrown away. */
#ifndef CARREL_CLIENT_WIRE_PRIVATE_H
#define CARREL_CLIENT_WIRE_PRIVATE_H

#include <sys/types.h>

#include "client/client.h"

struct private_server {
    pid_t guardian;     /* 0: none */
    int   alive;        /* owned: a pipe; when it closes, the guardian knows that we are gone */
};

enum { PRIVATE_SETTING = 4200 };
/* The setting that uses this interpreter, a path or a name on PATH, for kernels. Links are not followed, because the
 * path determines the packages. */
MUST_CHECK int private_server_python(const char *python, char setting[PRIVATE_SETTING], struct err *e);
/* The running server, in c. A program installed into a Python environment wants kernels of that environment: unless the
 * user named the server or a template, a server whose kernels are others does not count (-ENOENT). */
MUST_CHECK int private_server_find(struct client *c, bool names_template, struct err *e);
/* settings: for `carrel serve`, NULL-terminated; or NULL. Blocks until it serves. */
MUST_CHECK int private_server_start(struct private_server *p, char *const *settings, struct server_address *ret,
                                    struct err *e);
/* Ends it with all its boxes. A no-op for a zeroed one. */
void           private_server_end(struct private_server *p);

#endif
