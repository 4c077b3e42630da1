/* The C library has no non-blocking lookup, so a thread does it and writes a byte into a pipe at its end. The thread
 * and the caller share the job; the last of both to release it frees it, so that the caller may cancel at any time. */
#include "kube/resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"

enum { STACK_BYTES = 256 << 10 };

struct resolve_job {
    char            *host, *port;
    struct addrinfo *found;
    int              ends[2];
    atomic_int       users;
};

static const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };

static void let_go(struct resolve_job *j)
{
    if (atomic_fetch_sub(&j->users, 1) != 1)
        return;
    if (j->found)
        freeaddrinfo(j->found);
    fd_close(j->ends[0]);
    fd_close(j->ends[1]);
    free(j->host);
    free(j->port);
    free(j);
}

static void *look_up(void *arg)
{
    struct resolve_job *j = arg;

    if (getaddrinfo(j->host, j->port, &wanted, &j->found) != 0)
        j->found = NULL;
    while (write(j->ends[1], "", 1) < 0 && errno == EINTR)
        ;
    let_go(j);
    return NULL;
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    struct kube_resolve *r = container_of(w, struct kube_resolve, watch);
    char byte;

    (void)events;
    if (read(w->fd, &byte, 1) != 1)
        return;
    struct addrinfo *found = r->job->found;
    r->job->found = NULL;
    kube_resolve_stop(r);
    r->on_done(r, found);
}

int kube_resolve_now(const char *host, const char *port, struct addrinfo **ret, struct err *e)
{
    int r = getaddrinfo(host, port, &wanted, ret);

    if (r != 0)
        return err_set(e, r == EAI_SYSTEM ? errno : ENOENT, STEP_NETWORK, "%.100s: %s", host, gai_strerror(r));
    return 0;
}

static int start_thread(struct resolve_job *j)
{
    pthread_attr_t attributes;
    pthread_t thread;

    int r = pthread_attr_init(&attributes);
    if (r != 0)
        return -r;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    atomic_fetch_add(&j->users, 1);
    r = pthread_create(&thread, &attributes, look_up, j);
    if (r != 0)
        atomic_fetch_sub(&j->users, 1);
    pthread_attr_destroy(&attributes);
    return -r;
}

int kube_resolve_start(struct kube_resolve *r, struct loop *l, const char *host, const char *port)
{
    struct resolve_job *j = calloc(1, sizeof *j);

    if (!j)
        return -ENOMEM;
    *j = (struct resolve_job){ .host = strdup(host), .port = strdup(port), .ends = { -1, -1 }, .users = 1 };
    int result = j->host && j->port ? 0 : -ENOMEM;
    if (result == 0 && pipe2(j->ends, O_CLOEXEC | O_NONBLOCK) < 0)
        result = -errno;
    r->watch.on_event = on_event;
    if (result == 0)
        result = loop_fd_add(l, &r->watch, j->ends[0], EPOLLIN);
    if (result < 0) {
        let_go(j);
        return result;
    }
    r->loop = l;
    r->job = j;
    result = start_thread(j);
    if (result < 0)
        kube_resolve_stop(r);
    return result;
}

void kube_resolve_stop(struct kube_resolve *r)
{
    if (!r->job)
        return;
    loop_fd_remove(r->loop, &r->watch);
    let_go(r->job);
    r->job = NULL;
}
