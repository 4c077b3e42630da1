/* A table of names. Most of the original's flags tune parts that do not exist here (threads, HTTP/2, profiling). */
#include "cluster/flags.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/controller.h"

enum type { BOOL, TEXT, NUMBER, RATE, DURATION, IGNORED_BOOL, IGNORED, LEVEL, REFUSED };

static const struct flag {
    const char *name;
    enum type   type;
    size_t      at;
    const char *help;       /* NULL: not shown */
} all[] = {
    { "kubeconfig", TEXT, offsetof(struct flags, kubeconfig),
      "FILE: default KUBECONFIG, the pod's own, ~/.kube/config" },
    { "context", TEXT, offsetof(struct flags, context), "NAME: of the kubeconfig; default its current one" },
    { "leader-elect", BOOL, offsetof(struct flags, elects), "act only while holding the Lease (default true)" },
    { "leader-election-namespace", TEXT, offsetof(struct flags, lease_namespace),
      "NAMESPACE: of the Lease; default the pod's, else agent-sandbox-system" },
    { "metrics-bind-address", TEXT, offsetof(struct flags, metrics_address), "HOST:PORT: default :8080; 0 for none" },
    { "health-probe-bind-address", TEXT, offsetof(struct flags, probe_address),
      "HOST:PORT: default :8081; 0 for none" },
    { "cluster-domain", TEXT, offsetof(struct flags, cluster_domain), "DOMAIN: default cluster.local" },
    { "sandbox-concurrent-workers", NUMBER, offsetof(struct flags, workers),
      "N: objects with writes under way; default 100" },
    { "cache-label-selectors", BOOL, offsetof(struct flags, selects_labels),
      "watch only Pods and Services with the sandbox label" },
    { "secure-defaults", BOOL, offsetof(struct flags, secure_defaults),
      "no service account token in Pods that do not ask for one" },
    { "retain-volumes", BOOL, offsetof(struct flags, retain_volumes),
      "volume claims stay when their Sandbox is deleted" },
    { "recreate-on-change", BOOL, offsetof(struct flags, recreate_on_change),
      "a Pod is replaced when its template changes" },
    { "release-volumes", BOOL, offsetof(struct flags, release_volumes),
      "a Pod ends when a claim that it uses is deleted" },
    { "kernels", BOOL, offsetof(struct flags, kernels), "look after Kernels of jupyter.org, too (default true)" },
    { "extensions", BOOL, offsetof(struct flags, extensions),
      "look after SandboxTemplates, SandboxWarmPools and SandboxClaims, too (default true)" },
    { "sandbox-warm-pool-max-batch-size", NUMBER, offsetof(struct flags, max_batch),
      "N: Sandboxes that a pool creates or deletes at once; default 300" },
    { "sandbox-warm-pool-replenish-delay", DURATION, offsetof(struct flags, replenish_delay_ms),
      "TIME: a pool that lost members to claims is refilled when it has lost none for so long; default 0" },
    { "sandbox-warm-pool-max-refill-rate", RATE, offsetof(struct flags, refill_rate),
      "N: Sandboxes per second that a pool creates; default 0, as many as are missing" },
    { "sandbox-warm-pool-readiness-grace-period", DURATION, offsetof(struct flags, grace_ms),
      "TIME: a pool replaces a Sandbox that is not Ready after it; default 5m" },
    { "sandbox-warm-pool-unschedulable-recheck-interval", DURATION, offsetof(struct flags, recheck_ms),
      "TIME: default 1m" },
    { "enable-warm-pool-eviction", BOOL, offsetof(struct flags, evictable_pools),
      "an autoscaler may evict the Pods of a pool (default true)" },
    { "disable-claim-events", BOOL, offsetof(struct flags, quiet_claims), "no events about SandboxClaims" },
    { "disable-claim-observability-annotations", BOOL, offsetof(struct flags, bare_claims),
      "no annotations with times on SandboxClaims" },
    { "allowed-label-domains", TEXT, offsetof(struct flags, label_domains),
      "LIST: of labels that a claim may give its Pod; default the file /etc/sandbox-config/allowed-label-domains, else "
      "sandbox.users.io" },
    { "zap-log-level", LEVEL, 0, "LEVEL: error, warn, info, debug" },
    { "version", BOOL, offsetof(struct flags, print_version), "print the version" },
    { "help", BOOL, offsetof(struct flags, print_help), "print this" },
    { "h", BOOL, offsetof(struct flags, print_help), NULL },
    { "metrics-secure-serving", REFUSED, 0, NULL },
    { "enable-tracing", IGNORED_BOOL, 0, NULL },
    { "enable-pprof", IGNORED_BOOL, 0, NULL },
    { "enable-pprof-debug", IGNORED_BOOL, 0, NULL },
    { "pprof-block-profile-rate", IGNORED, 0, NULL },
    { "pprof-mutex-profile-fraction", IGNORED, 0, NULL },
    { "kube-api-qps", IGNORED, 0, NULL },
    { "kube-api-burst", IGNORED, 0, NULL },
    { "api-connections", IGNORED, 0, NULL },
    { "separate-watch-connection", IGNORED_BOOL, 0, NULL },
    { "sandbox-claim-concurrent-workers", IGNORED, 0, NULL },
    { "sandbox-warm-pool-concurrent-workers", IGNORED, 0, NULL },
    { "sandbox-template-concurrent-workers", IGNORED, 0, NULL },
    { "sandbox-write-behind-window", IGNORED, 0, NULL },
    { "enable-webhook", IGNORED_BOOL, 0, NULL },
    { "manage-webhook-certs", IGNORED_BOOL, 0, NULL },
    { "metrics-cert-dir", IGNORED, 0, NULL },
    { "tls-min-version", IGNORED, 0, NULL },
    { "tls-cipher-suites", IGNORED, 0, NULL },
    { "zap-devel", IGNORED_BOOL, 0, NULL },
    { "zap-encoder", IGNORED, 0, NULL },
    { "zap-stacktrace-level", IGNORED, 0, NULL },
    { "zap-time-encoding", IGNORED, 0, NULL },
};
enum { FLAGS = sizeof all / sizeof *all };

static bool parse_bool(const char *text, bool *ret)
{
    static const char *const yes[] = { "1", "t", "T", "true", "TRUE", "True" };
    static const char *const no[] = { "0", "f", "F", "false", "FALSE", "False" };

    for (size_t i = 0; i < 6; i++)
        if (!strcmp(text, yes[i]) || !strcmp(text, no[i])) {
            *ret = !strcmp(text, yes[i]);
            return true;
        }
    return false;
}

static int set_level(struct flags *f, const char *text, struct err *e)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };

    for (int i = 0; i < 4; i++)
        if (!strcmp(text, names[i])) {
            f->verbosity = i;
            return 0;
        }
    if (*text >= '1' && *text <= '9' && !text[1]) {     /* zap: a higher number logs more */
        f->verbosity = LOG_DEBUG;
        return 0;
    }
    return err_set(e, EINVAL, STEP_USAGE, "--zap-log-level is \"%.20s\"; it must be error, warn, info or debug", text);
}

/* Go's: "1h30m", "250ms", "0". */
static bool parse_duration(const char *text, uint64_t *ret_ms)
{
    static const struct { const char *unit; double ms; } units[] = { { "ms", 1 }, { "us", 1e-3 }, { "ns", 1e-6 },
                                                                      { "s", 1e3 }, { "m", 6e4 }, { "h", 3.6e6 } };
    double ms = 0;

    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return true;
    }
    for (char *end; *text; text = end) {
        double n = strtod(text, &end);
        size_t i = 0;
        if (end == text || !(n >= 0) || *text == '+' || *text == '-')
            return false;
        while (i < 6 && strncmp(end, units[i].unit, strlen(units[i].unit)) != 0)
            i++;
        if (i == 6)
            return false;
        end += strlen(units[i].unit);
        ms += n * units[i].ms;
    }
    if (!(ms < 1e12))
        return false;
    *ret_ms = (uint64_t)ms;
    return true;
}

static int set_number(struct flags *f, const struct flag *flag, const char *value, struct err *e)
{
    void *to = (char *)f + flag->at;
    char *end;

    if (flag->type == NUMBER) {
        unsigned long n = strtoul(value, &end, 10);
        if (!*value || *end || n < 1 || n > 100000)
            return err_set(e, EINVAL, STEP_USAGE, "--%s is \"%.40s\"; it must be a number from 1", flag->name, value);
        *(unsigned *)to = (unsigned)n;
    } else if (flag->type == RATE) {
        double rate = strtod(value, &end);
        if (!*value || *end || !(rate >= 0 && rate < 1e6))
            return err_set(e, EINVAL, STEP_USAGE, "--%s is \"%.40s\"; it must be a number from 0", flag->name, value);
        *(double *)to = rate;
    } else if (!parse_duration(value, to)) {
        return err_set(e, EINVAL, STEP_USAGE, "--%s is \"%.40s\"; it must be a time like 5m or 250ms", flag->name,
                       value);
    }
    return 0;
}

static int set(struct flags *f, const struct flag *flag, const char *value, struct err *e)
{
    bool on = true;

    if ((flag->type == BOOL || flag->type == IGNORED_BOOL || flag->type == REFUSED) && value && !parse_bool(value, &on))
        return err_set(e, EINVAL, STEP_USAGE, "--%s is \"%.40s\"; it must be true or false", flag->name, value);
    switch (flag->type) {
    case BOOL:
        *(bool *)((char *)f + flag->at) = on;
        break;
    case TEXT:
        *(const char **)((char *)f + flag->at) = value;
        break;
    case NUMBER:
    case RATE:
    case DURATION:
        return set_number(f, flag, value, e);
    case LEVEL:
        return set_level(f, value, e);
    case REFUSED:
        if (on)
            return err_set(e, EINVAL, STEP_USAGE, "--%s: metrics are served over HTTP only; put a proxy before them",
                           flag->name);
        break;
    default:
        if (f->n_ignored < sizeof f->ignored / sizeof *f->ignored)
            f->ignored[f->n_ignored++] = flag->name;
    }
    return 0;
}

int flags_parse(int argc, char **argv, struct flags *ret, struct err *e)
{
    struct flags f = { .metrics_address = ":8080", .probe_address = ":8081", .cluster_domain = "cluster.local",
                       .elects = true, .kernels = true, .extensions = true, .evictable_pools = true, .workers = 100,
                       .max_batch = 300, .grace_ms = 300000, .recheck_ms = 60000, .verbosity = LOG_INFO };

    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value;
        if (arg[0] != '-' || !arg[1])
            return err_set(e, EINVAL, STEP_USAGE, "\"%.60s\" is no flag; see --help", arg);
        const char *name = arg + (arg[1] == '-' ? 2 : 1);
        size_t length = strcspn(name, "=");
        const struct flag *flag = NULL;
        for (size_t k = 0; k < FLAGS && !flag; k++)
            if (strlen(all[k].name) == length && strncmp(all[k].name, name, length) == 0)
                flag = &all[k];
        if (!flag)
            return err_set(e, EINVAL, STEP_USAGE, "\"%.60s\" is not known; see --help", arg);
        bool takes_none = flag->type == BOOL || flag->type == IGNORED_BOOL || flag->type == REFUSED;
        value = name[length] == '=' ? name + length + 1 : NULL;
        if (!value && !takes_none) {
            if (i + 1 == argc)
                return err_set(e, EINVAL, STEP_USAGE, "--%s needs a value", flag->name);
            value = argv[++i];
        }
        int r = set(&f, flag, value, e);
        if (r < 0)
            return r;
    }
    *ret = f;
    return 0;
}

void flags_print_help(void)
{
    printf("carrel-controller " CARREL_VERSION
           ": looks after Sandboxes, their templates, pools and claims (agents.x-k8s.io), and Kernels (jupyter.org) of "
           "a Kubernetes cluster.\n\n");
    for (size_t i = 0; i < FLAGS; i++)
        if (all[i].help)
            printf("  --%-28s %s\n", all[i].name, all[i].help);
    printf("\nFlags of agent-sandbox-controller that mean nothing here are accepted, and named in the log.\n");
}
