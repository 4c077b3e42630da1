/* Credential plugins (client.authentication.k8s.io): a program that prints an ExecCredential. */
#ifndef CARREL_KUBE_PLUGIN_H
#define CARREL_KUBE_PLUGIN_H

#include <sys/types.h>

#include "base/buf.h"
#include "http/loop.h"
#include "kube/config.h"

/* A running plugin. Zeroed = none runs. */
struct kube_plugin {
    struct loop         *loop;
    struct kube_config  *config;        /* gets the credentials */
    struct loop_fd       output, end;
    struct loop_timer    limit;
    struct buf           text;
    pid_t                pid;
    int                  error;         /* why it was killed */
    bool                 running;
    /* Once, from the loop. error: 0, or -errno with *e set; then the configuration is unchanged. */
    void (*on_done)(struct kube_plugin *p, int error, struct err *e);
};

/* p->on_done must be set. config must have a plugin, and outlive it. */
MUST_CHECK int kube_plugin_start(struct kube_plugin *p, struct loop *l, struct kube_config *config, struct err *e);
/* Kills it; on_done() will not be called. */
void kube_plugin_stop(struct kube_plugin *p);

#endif
