/* carrel-controller. One process, one thread, one loop:
 *
 *   flags -> kubeconfig -> /healthz and /metrics -> watches -> the Lease -> act until SIGTERM or the Lease is lost
 *
 * It watches before it has the Lease, so that a second replica takes over with a warm cache. On SIGTERM it begins no
 * new write, waits for those under way, and releases the Lease. A process that loses the Lease exits at once. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "cluster/flags.h"
#include "cluster/serve.h"

enum { STOP_MS = 5000 };

struct program {
    struct controller  controller;
    struct kube_config config;
    struct serve       serve;
    struct loop_signal signals;
    struct loop_timer  stop, drain;
    char               identity[320], domains[4096];
    int                status;
};

static void end(struct program *p, int status)
{
    p->status = status;
    loop_stop(p->controller.loop);
}

static struct program *program_of_lease(struct kube_lease *l)
{
    struct controller *c = container_of(l, struct controller, lease);

    return container_of(c, struct program, controller);
}

static void on_held(struct kube_lease *l)
{
    struct program *p = program_of_lease(l);

    log_line(LOG_INFO, "lease %s/%s: ours", l->namespace, l->name);
    controller_lead(&p->controller);
}

static void on_lost(struct kube_lease *l, const char *why)
{
    struct program *p = program_of_lease(l);

    log_line(LOG_ERROR, "lease %s/%s is lost: %s; ending, so that only one acts", l->namespace, l->name, why);
    p->controller.leads = false;
    p->controller.is_stopping = true;
    end(p, 1);
}

static void on_other(struct kube_lease *l, const char *holder)
{
    log_line(LOG_INFO, "lease %s/%s is held by %s; standing by", l->namespace, l->name, holder);
}

static void on_released(struct kube_lease *l)
{
    end(program_of_lease(l), 0);
}

static void on_credential_trouble(const char *text)
{
    log_line(LOG_ERROR, "the credentials cannot be renewed: %s; going on with the old ones", text);
}

static void on_lease_trouble(struct kube_lease *l, const char *text)
{
    log_line(LOG_ERROR, "lease %s/%s: %s; trying on", l->namespace, l->name, text);
}

static void on_stop_timeout(struct loop_timer *t)
{
    end(container_of(t, struct program, stop), 0);
}

static void on_drain(struct loop_timer *t)
{
    struct program *p = container_of(t, struct program, drain);
    struct controller *c = &p->controller;

    if (c->n_busy > 0) {
        loop_timer_set(c->loop, t, 20);
        return;
    }
    if (c->elects)
        kube_lease_release(&c->lease);
    else
        end(p, 0);
}

static void on_signal(struct loop_signal *s, const struct signalfd_siginfo *info)
{
    struct program *p = container_of(s, struct program, signals);

    if (p->controller.is_stopping)
        return;
    log_line(LOG_INFO, "signal %u: ending", info->ssi_signo);
    p->controller.is_stopping = true;
    p->stop.on_expire = on_stop_timeout;
    loop_timer_set(p->controller.loop, &p->stop, STOP_MS);
    p->drain.on_expire = on_drain;
    loop_timer_set(p->controller.loop, &p->drain, 0);
}

static void name_ourselves(struct program *p)
{
    char host[256] = "carrel-controller";

    (void)gethostname(host, sizeof host - 1);
    snprintf(p->identity, sizeof p->identity, "%s_%08x%08x", host, arc4random(), arc4random());
    p->controller.identity = p->identity;
}

/* The key of an optional mounted ConfigMap. NULL: there is none. */
static const char *read_domains(struct program *p)
{
    ssize_t n = fd_read_file(-1, "/etc/sandbox-config/allowed-label-domains", p->domains, sizeof p->domains);

    if (n <= 0)
        return NULL;
    for (char *at = p->domains; *at; at++)
        if (*at == '\n')
            *at = ',';
    return p->domains;
}

static void set_lease(struct program *p, const struct flags *f)
{
    struct controller *c = &p->controller;
    const char *pod_namespace = getenv("POD_NAMESPACE");

    if (!pod_namespace && p->config.in_cluster)
        pod_namespace = p->config.namespace;
    c->elects = f->elects;
    c->lease = (struct kube_lease){
        .client = c->client, .loop = c->loop, .name = "a3317529.agent-sandbox.x-k8s.io", .identity = p->identity,
        .namespace = f->lease_namespace && *f->lease_namespace ? f->lease_namespace
                     : pod_namespace ? pod_namespace : "agent-sandbox-system",
        .on_held = on_held, .on_lost = on_lost, .on_other = on_other, .on_released = on_released,
        .on_trouble = on_lease_trouble };
}

static int start(struct program *p, const struct flags *f, struct err *e)
{
    struct controller *c = &p->controller;
    sigset_t signals;
    int r;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    if ((r = loop_new(&c->loop)) < 0 || (r = controller_init(c)) < 0)
        return err_at(e, -r, STEP_MEMORY, 0, NULL);
    p->signals.on_signal = on_signal;
    if ((r = loop_signal_open(c->loop, &p->signals, &signals)) < 0)
        return err_at(e, -r, STEP_HOST, 0, "signals");
    if ((r = kube_config_find(f->kubeconfig, f->context, &p->config, e)) < 0 ||
        (r = kube_client_new(c->loop, &p->config, &c->client, e)) < 0)
        return r;
    kube_client_on_trouble(c->client, on_credential_trouble);
    c->policy = (struct policy){ .cluster_domain = f->cluster_domain, .secure_defaults = f->secure_defaults,
                                 .retain_volumes = f->retain_volumes, .recreate_on_change = f->recreate_on_change,
                                 .release_volumes = f->release_volumes, .evictable_pools = f->evictable_pools,
                                 .quiet_claims = f->quiet_claims, .bare_claims = f->bare_claims,
                                 .label_domains = f->label_domains ? f->label_domains : read_domains(p),
                                 .max_batch = f->max_batch, .refill_rate = f->refill_rate,
                                 .replenish_delay_ms = f->replenish_delay_ms, .grace_ms = f->grace_ms,
                                 .recheck_ms = f->recheck_ms };
    c->max_busy = f->workers;
    c->with_kernels = f->kernels;
    c->with_extensions = f->extensions;
    if (f->selects_labels) {
        c->watch[KIND_POD].selector = "agents.x-k8s.io%2Fsandbox-name-hash";
        c->watch[KIND_SERVICE].selector = "agents.x-k8s.io%2Fsandbox-name-hash";
    }
    name_ourselves(p);
    set_lease(p, f);
    if ((r = serve_start(&p->serve, c, f->metrics_address, f->probe_address, e)) < 0)
        return r;
    log_line(LOG_INFO, "carrel-controller " CARREL_VERSION " as %s at %s", p->identity, p->config.url);
    controller_start(c);
    if (c->elects)
        kube_lease_start(&c->lease);
    return 0;
}

int main(int argc, char **argv)
{
    static struct program p;
    struct flags f;
    struct err e = { 0 };
    char text[320];

    if (flags_parse(argc, argv, &f, &e) < 0) {
        fprintf(stderr, "carrel-controller: %s\n", e.what);
        return 2;
    }
    if (f.print_version || f.print_help) {
        if (f.print_help)
            flags_print_help();
        else
            puts("carrel-controller " CARREL_VERSION);
        return 0;
    }
    (void)fd_fill_standard();
    /* Large buffers (a page of a list) go back to the system at once. */
    mallopt(M_MMAP_THRESHOLD, 128 << 10);
    mallopt(M_TRIM_THRESHOLD, 256 << 10);
    log_set((enum log_level)f.verbosity);
    for (unsigned i = 0; i < f.n_ignored; i++)
        log_line(LOG_INFO, "--%s means nothing here and is ignored", f.ignored[i]);
    p.status = 1;
    int r = start(&p, &f, &e);
    if (r < 0) {
        err_text(&e, text, sizeof text);
        fprintf(stderr, "carrel-controller: %s\n", text);
    } else if ((r = loop_run(p.controller.loop)) < 0) {
        log_line(LOG_ERROR, "event loop: %s", strerror(-r));
    }
    if (p.controller.loop && p.controller.client) {
        serve_stop(&p.serve);
        kube_lease_stop(&p.controller.lease);
        controller_done(&p.controller);
        kube_client_free(p.controller.client);
        loop_signal_close(p.controller.loop, &p.signals);
        loop_free(p.controller.loop);
    }
    kube_config_done(&p.config);
    return r < 0 ? 1 : p.status;
}
