/* A server of this process's own, for a command that needs one and finds none: started on demand, gone with the process
 * even if that is killed, its state thrown away. */
#ifndef CARREL_CLIENT_WIRE_PRIVATE_H
#define CARREL_CLIENT_WIRE_PRIVATE_H

#include <sys/types.h>

#include "client/client.h"

struct private_server {
    pid_t guardian;     /* 0: none */
    int   alive;        /* owned: a pipe whose closing tells the guardian that we are gone */
};

enum { PRIVATE_SETTING = 4200 };
/* The setting that makes this interpreter, a path or a name on PATH, the kernels' own. Links are not followed: where it
 * stands says which packages it has. */
MUST_CHECK int private_server_python(const char *python, char setting[PRIVATE_SETTING], struct err *e);
/* The server that runs, in c. A program that was installed into a Python environment has kernels of that environment:
 * if nobody has named the server or one of its templates, one whose kernels are others is none (-ENOENT). */
MUST_CHECK int private_server_find(struct client *c, bool names_template, struct err *e);
/* settings: for `carrel serve`, NULL-terminated; or NULL. Waits until it serves. */
MUST_CHECK int private_server_start(struct private_server *p, char *const *settings, struct server_address *ret,
                                    struct err *e);
/* Ends it with all its boxes. Does nothing to a zeroed one. */
void           private_server_end(struct private_server *p);

#endif
