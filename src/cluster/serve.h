/* The controller's own small web pages: /metrics, /healthz, /readyz. */
#ifndef CARREL_CLUSTER_SERVE_H
#define CARREL_CLUSTER_SERVE_H

#include "cluster/controller.h"
#include "http/server.h"

struct serve {
    struct controller  *controller;
    struct http_server *server;
};

/* Addresses are HOST:PORT or :PORT; "0" or "" is none. Both may be the same. */
MUST_CHECK int serve_start(struct serve *s, struct controller *c, const char *metrics, const char *probes,
                           struct err *e);
void serve_stop(struct serve *s);

#endif
