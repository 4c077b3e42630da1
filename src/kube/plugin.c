/* Credential plugins (client.authentication.k8s.io): a program that prints an ExecCredential. It is run at the start
 * and when the server says 401; the caller waits for it, at most PLUGIN_MS. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/jsonscan.h"
#include "kube/config.h"

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

int kube_config_take_credential(struct kube_config *c, const char *text, size_t size, struct err *e)
{
    if (!jsonscan_is_object(text, size))
        return err_set(e, EINVAL, STEP_USAGE, "the credential plugin did not print a JSON object");
    struct jsonslice status = jsonscan_find((struct jsonslice){ text, size }, "status");
    if (!status.data || *status.data != '{')
        return err_set(e, EINVAL, STEP_USAGE, "the credential plugin printed no status");
    int r = take_member(status, "token", &c->token, e);
    if (r == 0)
        r = take_member(status, "clientCertificateData", &c->cert_pem, e);
    if (r == 0)
        r = take_member(status, "clientKeyData", &c->key_pem, e);
    for (const char *p = c->token; r == 0 && p && *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
            r = err_set(e, EINVAL, STEP_USAGE, "the credential plugin printed a token with blanks in it");
    return r;
}

/* Reads until the end of the pipe or the deadline. */
static int read_output(int fd, struct buf *out)
{
    uint64_t until = clock_monotonic_us() / 1000 + PLUGIN_MS;

    for (;;) {
        uint64_t now = clock_monotonic_us() / 1000;
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (now >= until)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        char *room = buf_reserve(out, 4096);
        ssize_t n = room ? read(fd, room, 4096) : -1;
        if (n <= 0)
            return n == 0 ? 0 : room ? -errno : -EFBIG;
        buf_commit(out, (size_t)n);
    }
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

int kube_config_run_plugin(struct kube_config *c, struct err *e)
{
    char info[256];
    int ends[2], status, r;
    pid_t pid;
    struct buf out;
    posix_spawn_file_actions_t actions;

    if (!c->exec_argv[0])
        return 0;
    snprintf(
        info, sizeof info,
        "KUBERNETES_EXEC_INFO={\"apiVersion\":\"%.80s\",\"kind\":\"ExecCredential\",\"spec\":{\"interactive\":false}}",
        c->exec_version ? c->exec_version : "client.authentication.k8s.io/v1");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_at(e, errno, STEP_USAGE, 0, "credential plugin");
    FD in = ends[0], to = ends[1];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, to, 1);
    char **env = make_env(c, info);
    r = env ? posix_spawnp(&pid, c->exec_argv[0], &actions, NULL, c->exec_argv, env) : ENOMEM;
    free(env);
    posix_spawn_file_actions_destroy(&actions);
    if (r != 0)
        return err_set(e, r, STEP_USAGE, "credential plugin %.120s", c->exec_argv[0]);
    to = fd_close(to);
    buf_init(&out, PLUGIN_MAX_BYTES);
    r = read_output(in, &out);
    if (r < 0)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r < 0)
        err_set(e, -r, STEP_USAGE, "credential plugin %.120s", c->exec_argv[0]);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        r = err_set(e, EPERM, STEP_USAGE, "credential plugin %.120s failed (status %d)", c->exec_argv[0],
                    WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    else
        r = kube_config_take_credential(c, buf_string(&out), out.length, e);
    buf_done(&out);
    return r;
}
