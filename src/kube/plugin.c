/* Runs at the start and when the server answers 401. A pidfd shows its end: other processes that still hold its output
 * (left behind by the plugin) are not waited for. A plugin that takes longer than PLUGIN_MS is killed. */
#include "kube/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/jsonscan.h"
#include "base/list.h"

enum { PLUGIN_MS = 30000, PLUGIN_MAX_BYTES = 1 << 20 };

extern char **environ;

static int take_member(struct jsonslice status, const char *name, char **into, struct err *e)
{
    struct jsonslice value = jsonscan_find(status, name);
    if (!value.data)
        return 0;
    char *text = malloc(value.size + 1);
    if (!text || !jsonscan_text(value, text, value.size + 1)) {
        free(text);
        return err_set(e, EINVAL, STEP_USAGE, "the credential plugin printed a %s that is no string", name);
    }
    free(*into);
    *into = text;
    return 0;
}

static void swap(char **a, char **b)
{
    char *t = *a;

    if (!*b)
        return;
    *a = *b;
    *b = t;
}

int kube_config_take_credential(struct kube_config *c, const char *text, size_t size, struct err *e)
{
    struct kube_config fresh = { 0 };

    if (!jsonscan_is_object(text, size))
        return err_set(e, EINVAL, STEP_USAGE, "the credential plugin did not print a JSON object");
    struct jsonslice status = jsonscan_find((struct jsonslice){ text, size }, "status");
    if (!status.data || *status.data != '{')
        return err_set(e, EINVAL, STEP_USAGE, "the credential plugin printed no status");
    int r = take_member(status, "token", &fresh.token, e);
    if (r == 0)
        r = take_member(status, "clientCertificateData", &fresh.cert_pem, e);
    if (r == 0)
        r = take_member(status, "clientKeyData", &fresh.key_pem, e);
    for (const char *p = fresh.token; r == 0 && p && *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
            r = err_set(e, EINVAL, STEP_USAGE, "the credential plugin printed a token with blanks in it");
    if (r == 0 && !fresh.cert_pem != !fresh.key_pem)
        r = err_set(e, EINVAL, STEP_USAGE, "the credential plugin printed a certificate or a key without the other");
    if (r == 0) {
        swap(&c->token, &fresh.token);
        swap(&c->cert_pem, &fresh.cert_pem);
        swap(&c->key_pem, &fresh.key_pem);
    }
    kube_config_done(&fresh);
    return r;
}

static char **make_env(const struct kube_config *c, char *info)
{
    size_t n = 0, at = 0;

    while (environ[n])
        n++;
    char **env = calloc(n + KUBE_EXEC_ARGS_MAX + 2, sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; c->exec_env[i]; i++)
        env[at++] = c->exec_env[i];
    env[at++] = info;
    for (size_t i = 0; i < n; i++) {
        size_t length = strcspn(environ[i], "=") + 1;
        bool given = false;
        for (size_t k = 0; c->exec_env[k] && !given; k++)
            given = strncmp(environ[i], c->exec_env[k], length) == 0;
        if (!given)
            env[at++] = environ[i];
    }
    return env;
}

static int spawn(const struct kube_config *c, int to, pid_t *ret)
{
    char info[256];
    sigset_t none, all;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;

    snprintf(
        info, sizeof info,
        "KUBERNETES_EXEC_INFO={\"apiVersion\":\"%.80s\",\"kind\":\"ExecCredential\",\"spec\":{\"interactive\":false}}",
        c->exec_version ? c->exec_version : "client.authentication.k8s.io/v1");
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, to, 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);         /* we block and ignore some */
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    char **env = make_env(c, info);
    int r = env ? posix_spawnp(ret, c->exec_argv[0], &actions, &attributes, c->exec_argv, env) : ENOMEM;
    free(env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return -r;
}

/* Reads the available bytes of the pipe. */
static void drain(struct kube_plugin *p)
{
    for (;;) {
        char *room = buf_reserve(&p->text, 4096);
        ssize_t n = room ? read(p->output.fd, room, 4096) : 0;
        if (!room && !p->error) {
            p->error = EFBIG;
            kill(p->pid, SIGKILL);
        }
        if (n == 0)
            loop_fd_remove(p->loop, &p->output);
        if (n <= 0)
            return;
        buf_commit(&p->text, (size_t)n);
    }
}

static void on_output(struct loop_fd *w, uint32_t events)
{
    (void)events;
    drain(container_of(w, struct kube_plugin, output));
}

static void on_limit(struct loop_timer *t)
{
    struct kube_plugin *p = container_of(t, struct kube_plugin, limit);

    p->error = ETIMEDOUT;
    kill(p->pid, SIGKILL);
}

/* The process has ended, or is killed now. Returns its status. */
static int reap(struct kube_plugin *p)
{
    int status = 0;

    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    loop_timer_cancel(p->loop, &p->limit);
    loop_fd_remove(p->loop, &p->output);
    loop_fd_remove(p->loop, &p->end);
    p->output.fd = fd_close(p->output.fd);
    p->end.fd = fd_close(p->end.fd);
    p->running = false;
    return status;
}

static void on_end(struct loop_fd *w, uint32_t events)
{
    struct kube_plugin *p = container_of(w, struct kube_plugin, end);
    const char *name = p->config->exec_argv[0];
    struct err e = { 0 };
    int r;

    (void)events;
    if (p->output.watching)
        drain(p);
    int status = reap(p);
    if (p->error)
        r = err_set(&e, p->error, STEP_USAGE, "credential plugin %.120s", name);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        r = err_set(&e, EPERM, STEP_USAGE, "credential plugin %.120s failed (status %d)", name,
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    else
        r = kube_config_take_credential(p->config, buf_string(&p->text), p->text.length, &e);
    if (p->text.data)
        explicit_bzero(p->text.data, p->text.length);
    buf_done(&p->text);
    p->on_done(p, r, &e);
}

int kube_plugin_start(struct kube_plugin *p, struct loop *l, struct kube_config *config, struct err *e)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_file(e, errno, "credential plugin");
    FD in = ends[0], to = ends[1], end = -1;
    int r = fcntl(in, F_SETFL, O_NONBLOCK) < 0 ? -errno : spawn(config, to, &p->pid);
    if (r < 0)
        return err_set(e, -r, STEP_USAGE, "credential plugin %.120s", config->exec_argv[0]);
    p->loop = l;
    p->config = config;
    p->error = 0;
    p->output.on_event = on_output;
    p->end.on_event = on_end;
    p->limit.on_expire = on_limit;
    end = pidfd_open(p->pid, 0);
    r = end < 0 ? -errno : loop_fd_add(l, &p->end, end, EPOLLIN);
    if (r == 0 && (r = loop_fd_add(l, &p->output, in, EPOLLIN)) < 0)
        loop_fd_remove(l, &p->end);
    if (r < 0) {
        kill(p->pid, SIGKILL);
        (void)waitpid(p->pid, NULL, 0);
        return err_set(e, -r, STEP_USAGE, "credential plugin %.120s", config->exec_argv[0]);
    }
    (void)TAKE_FD(in);
    (void)TAKE_FD(end);
    buf_init(&p->text, PLUGIN_MAX_BYTES);
    loop_timer_set(l, &p->limit, PLUGIN_MS);
    p->running = true;
    return 0;
}

void kube_plugin_stop(struct kube_plugin *p)
{
    if (!p->running)
        return;
    kill(p->pid, SIGKILL);
    (void)reap(p);
    buf_done(&p->text);
}

/* ---- the blocking call ---- */

struct wait {
    struct kube_plugin plugin;      /* first */
    struct err         e;
    int                error;
};

static void on_waited(struct kube_plugin *p, int error, struct err *e)
{
    struct wait *w = (struct wait *)p;

    w->error = error;
    w->e = *e;
}

int kube_config_run_plugin(struct kube_config *c, struct err *e)
{
    struct wait w = { .plugin.on_done = on_waited };
    struct loop *l;

    if (!c->exec_argv[0])
        return 0;
    int r = loop_new(&l);
    if (r < 0)
        return err_at(e, -r, STEP_USAGE, 0, "credential plugin");
    r = kube_plugin_start(&w.plugin, l, c, e);
    while (r == 0 && w.plugin.running)
        if ((r = loop_turn(l, -1)) < 0)
            err_at(e, -r, STEP_USAGE, 0, "credential plugin");
    kube_plugin_stop(&w.plugin);
    loop_free(l);
    if (r == 0 && w.error < 0) {
        *e = w.e;
        r = w.error;
    }
    return r;
}
