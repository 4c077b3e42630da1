/* A job is one builder: its pipe, its last line, and its waiters. Results are cached in a short list, newest first;
 * that is only a shortcut, because a builder that finds an existing layer answers in a few milliseconds. */
#define _GNU_SOURCE
#include "front/layers/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "proto/packages.h"

enum { KNOWN_MOST = 256, JOBS_MOST = 4, JOBS_OF_OWNER = 2, WAITERS_MOST = 256, LINE_BYTES = 1024 };

struct layer_waiter {
    struct layer_waiter *next, **back;
    layer_callback      *call;
    void               (*say)(const char *text, void *arg);
    void                *arg;
};

struct layer_job {
    struct layer_job    *next, **back;
    struct front        *front;
    char                *owner, *list;      /* owned */
    uint32_t             template, serial;  /* serial: of the request; 0: answered */
    bool                 is_started;        /* else it is queued */
    bool                 is_over;           /* the waiters are being called */
    struct loop_fd       output;            /* fd owned; -1: none */
    char                 line[LINE_BYTES];
    size_t               length;
    struct layer_waiter *waiters;
};

struct known_layer {
    struct known_layer *next, **back;
    char               *owner, *list;       /* owned */
    uint32_t            template;
    char                name[LAYER_TARGET_MAX];
};

struct front_layers {
    struct layer_job   *jobs;               /* newest first */
    struct known_layer *known;              /* the same */
    unsigned            n_known;
    struct layer_ask   *asks;               /* layers_ask.c */
};

static void run_next(struct front *front);

/* ---- the cache ---- */

static void known_free(struct front_layers *all, struct known_layer *k)
{
    LIST_REMOVE(k);
    free(k->owner);
    free(k->list);
    free(k);
    all->n_known--;
}

static void remember(struct front_layers *all, const struct layer_job *job, const char *name)
{
    struct known_layer *k = calloc(1, sizeof *k), *last = all->known;

    if (!k || !(k->owner = strdup(job->owner)) || !(k->list = strdup(job->list)))
        abort();
    k->template = job->template;
    snprintf(k->name, sizeof k->name, "%s", name);
    LIST_ADD(all->known, k);
    if (++all->n_known <= KNOWN_MOST)
        return;
    while (last->next)
        last = last->next;
    known_free(all, last);
}

const char *layers_known(const struct front *front, const char *owner, uint32_t template, const char *list)
{
    for (const struct known_layer *k = front->layers->known; k; k = k->next)
        if (k->template == template && strcmp(k->owner, owner) == 0 && strcmp(k->list, list) == 0)
            return k->name;
    return NULL;
}

void layers_forget(struct front *front, const char *name)
{
    for (struct known_layer *k = front->layers->known, *next; k; k = next) {
        next = k->next;
        if (strcmp(k->name, name) == 0)
            known_free(front->layers, k);
    }
}

/* ---- one builder ---- */

static void job_end(struct layer_job *job, const char *name, const struct err *e)
{
    struct front *front = job->front;

    if (job->output.fd >= 0)
        loop_fd_remove(front->loop, &job->output);
    job->output.fd = fd_close(job->output.fd);
    if (job->serial)
        keeper_link_cancel(front->keeper, job->serial);
    if (name)
        remember(front->layers, job, name);
    job->is_over = true;        /* a callback may cancel another of this list, which is then not called */
    for (struct layer_waiter *w = job->waiters, *next; w; w = next) {
        if (w->call)
            w->call(name, e, w->arg);
        next = w->next;
        free(w);
    }
    LIST_REMOVE(job);
    free(job->owner);
    free(job->list);
    free(job);
    run_next(front);
}

/* True: the job is over. */
static bool hear_line(struct layer_job *job)
{
    char name[LAYER_TARGET_MAX], owner[PACKAGES_OWNER], *rest;
    struct err e = { 0 };

    job->line[job->length] = '\0';
    job->length = 0;
    if (strncmp(job->line, LAYER_SAY, sizeof LAYER_SAY - 1) == 0) {
        for (struct layer_waiter *w = job->waiters; w; w = w->next)
            if (w->say)
                w->say(job->line + sizeof LAYER_SAY - 1, w->arg);
        return false;
    }
    if (strncmp(job->line, LAYER_DONE, sizeof LAYER_DONE - 1) == 0
        && strlen(job->line) == sizeof LAYER_DONE - 1 + SHA256_HEX) {
        packages_owner(job->owner, owner);
        snprintf(name, sizeof name, "%s/%s", owner, job->line + sizeof LAYER_DONE - 1);
        job_end(job, name, NULL);
        return true;
    }
    if (strncmp(job->line, LAYER_ERROR, sizeof LAYER_ERROR - 1) == 0) {
        long code = strtol(job->line + sizeof LAYER_ERROR - 1, &rest, 10);
        char names[128] = "";
        if (code == ENOEXEC)
            config_python_names(&job->front->config, names, sizeof names);
        (void)err_set(&e, ENOPKG, STEP_USAGE, "%.200s%s%s", rest + (*rest == ' '),
                      names[0] ? "; python here: " : "", names);
        job_end(job, NULL, &e);
        return true;
    }
    return false;
}

static void on_output(struct loop_fd *w, uint32_t events)
{
    struct layer_job *job = container_of(w, struct layer_job, output);
    char text[4096];
    struct err e = { 0 };
    ssize_t n = read(w->fd, text, sizeof text);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    for (ssize_t i = 0; i < n; i++)
        if (text[i] != '\n' && job->length < sizeof job->line - 1)
            job->line[job->length++] = text[i];
        else if (text[i] == '\n' && hear_line(job))
            return;
    if (n > 0)
        return;
    (void)err_set(&e, ECANCELED, STEP_HOST, "the installation of packages was ended; try again");
    job_end(job, NULL, &e);
}

static void on_ordered(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct layer_job *job = arg;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    job->serial = 0;
    if (e)
        job_end(job, NULL, e);
}

static int write_list(const char *list, int *ret)
{
    FD fd = memfd_create("packages", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : fd_write_all(fd, list, strlen(list));

    if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
        r = -errno;
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}

static int job_start(struct layer_job *job, struct err *e)
{
    struct request_layer q = { .head.type = REQUEST_LAYER, .template = job->template };
    int pair[2] = { -1, -1 };
    FD list = -1;
    int r = write_list(job->list, &list);

    if (r == 0 && pipe2(pair, O_CLOEXEC) < 0)
        r = -errno;
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "packages");
    FD ours = pair[0], theirs = pair[1];
    job->output.on_event = on_output;
    r = fcntl(ours, F_SETFL, O_NONBLOCK) < 0 ? -errno : loop_fd_add(job->front->loop, &job->output, ours, EPOLLIN);
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "packages");
    job->output.fd = TAKE_FD(ours);
    job->is_started = true;
    packages_owner(job->owner, q.owner);
    job->serial = keeper_link_request(job->front->keeper, &q, sizeof q, (int[]){ list, theirs }, 2, on_ordered, job);
    return 0;
}

static unsigned count_started(const struct front_layers *all, const char *owner)
{
    unsigned n = 0;

    for (const struct layer_job *job = all->jobs; job; job = job->next)
        n += job->is_started && !job->is_over && (!owner || strcmp(job->owner, owner) == 0);
    return n;
}

/* Starts the oldest job that may run. */
static void run_next(struct front *front)
{
    struct layer_job *oldest = NULL;
    struct err e = { 0 };

    for (struct layer_job *job = front->layers->jobs; job; job = job->next)
        if (!job->is_started && count_started(front->layers, job->owner) < JOBS_OF_OWNER)
            oldest = job;
    if (oldest && count_started(front->layers, NULL) < JOBS_MOST && job_start(oldest, &e) < 0)
        job_end(oldest, NULL, &e);
}

/* ---- the interface ---- */

static struct layer_job *find_job(const struct front *front, const char *owner, uint32_t template, const char *list)
{
    for (struct layer_job *job = front->layers->jobs; job; job = job->next)
        if (!job->is_over && job->template == template && strcmp(job->owner, owner) == 0
            && strcmp(job->list, list) == 0)
            return job;
    return NULL;
}

int layers_want(struct front *front, const char *owner, uint32_t template, const char *list, layer_callback *call,
                void (*say)(const char *text, void *arg), void *arg, struct err *e)
{
    struct layer_job *job = find_job(front, owner, template, list);
    struct layer_waiter *w = calloc(1, sizeof *w);
    bool is_new = !job;
    unsigned waiting = 0;

    for (const struct layer_job *one = front->layers->jobs; one; one = one->next)
        waiting += strcmp(one->owner, owner) == 0;
    if (is_new && waiting >= WAITERS_MOST) {
        free(w);
        return err_set(e, EAGAIN, STEP_USAGE, "%s has %d lists of packages to be installed already; wait for them",
                       owner, WAITERS_MOST);
    }
    if (is_new)
        job = calloc(1, sizeof *job);
    if (!w || !job || (is_new && (!(job->owner = strdup(owner)) || !(job->list = strdup(list)))))
        abort();
    *w = (struct layer_waiter){ .call = call, .say = say, .arg = arg };
    if (is_new) {
        job->front = front;
        job->template = template;
        job->output.fd = -1;
        LIST_ADD(front->layers->jobs, job);
    }
    LIST_ADD(job->waiters, w);
    if (!is_new || count_started(front->layers, NULL) >= JOBS_MOST
        || count_started(front->layers, owner) >= JOBS_OF_OWNER)
        return 0;
    int r = job_start(job, e);
    if (r < 0) {
        w->call = NULL;         /* our result is its answer */
        job_end(job, NULL, e);
    }
    return r;
}

void layers_cancel(struct front *front, const void *arg)
{
    for (struct layer_job *job = front->layers->jobs, *next; job; job = next) {
        bool found = false;
        next = job->next;
        for (struct layer_waiter *w = job->waiters, *after; w; w = after) {
            after = w->next;
            if (w->arg == arg && job->is_over) {
                w->call = NULL;
            } else if (w->arg == arg) {
                LIST_REMOVE(w);
                free(w);
                found = true;
            }
        }
        /* Without a reader the builder ends at its next output. No callback is called, so the list stays as it is. */
        if (found && !job->waiters)
            job_end(job, NULL, NULL);
    }
}

struct layer_ask **layers_asks(struct front *front)
{
    return &front->layers->asks;
}

void layers_init(struct front *front)
{
    front->layers = calloc(1, sizeof *front->layers);
    if (!front->layers)
        abort();
}

void layers_free(struct front *front)
{
    struct front_layers *all = front->layers;

    layers_ask_free(front);
    for (struct layer_job *job = all->jobs; job; job = job->next) {
        job->is_started = true;             /* nothing is started any more */
        for (struct layer_waiter *w = job->waiters; w; w = w->next)
            w->call = NULL;
    }
    for (struct layer_job *job = all->jobs, *next; job; job = next) {
        next = job->next;
        job_end(job, NULL, NULL);
    }
    for (struct known_layer *k = all->known, *next; k; k = next) {
        next = k->next;
        known_free(all, k);
    }
    free(all);
    front->layers = NULL;
}
