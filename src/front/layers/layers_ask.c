/* What layers an identity has, and their removal. The layers' folder is closed to the front: the keeper's clerk starts
 * `carrel layer list|rm` for one owner, whose answer is one line on a pipe. So a front that was taken over can list and
 * remove layers, and neither read nor name another file. */
#define _GNU_SOURCE
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
#include "front/layers/layers.h"
#include "proto/packages.h"

enum {
    ASKS_MOST = 8,
    ANSWER_BYTES = 16 << 20,
    RETRY_MS = 50,              /* while a family that nobody uses gives its layer back */
    RETRIES = 100,
};

struct layer_ask {
    struct layer_ask   *next, **back;
    struct front       *front;
    char                owner[PACKAGES_OWNER], name[SHA256_HEX + 1];   /* name "": lists */
    layers_answer      *call;
    void               *arg;
    uint32_t            serial;         /* of the request; 0: answered */
    unsigned            retries;
    struct loop_fd      output;         /* fd owned; -1: none */
    struct loop_timer   retry;
    struct buf          text;
};

static void stop(struct layer_ask *ask)
{
    if (ask->output.fd >= 0)
        loop_fd_remove(ask->front->loop, &ask->output);
    ask->output.fd = fd_close(ask->output.fd);
    if (ask->serial)
        keeper_link_cancel(ask->front->keeper, ask->serial);
    ask->serial = 0;
    loop_timer_cancel(ask->front->loop, &ask->retry);
    buf_done(&ask->text);
}

static void ask_free(struct layer_ask *ask)
{
    stop(ask);
    LIST_REMOVE(ask);
    free(ask);
}

static void finish(struct layer_ask *ask, json_t *answer, const struct err *e)
{
    layers_answer *call = ask->call;
    void *arg = ask->arg;

    ask_free(ask);
    call(answer, e, arg);
    json_decref(answer);
}

static void judge(struct layer_ask *ask)
{
    const char *text = buf_string(&ask->text);
    struct err e = { 0 };
    char *rest;

    if (strncmp(text, LAYER_ERROR, sizeof LAYER_ERROR - 1) == 0) {
        long code = strtol(text + sizeof LAYER_ERROR - 1, &rest, 10);
        if (code == EBUSY && ask->retries < RETRIES) {
            stop(ask);
            loop_timer_set(ask->front->loop, &ask->retry, RETRY_MS);
            return;
        }
        rest += *rest == ' ';
        if (code == EBUSY)
            (void)err_set(&e, ETXTBSY, STEP_USAGE, "a template of this server, or 'carrel run', uses the layer %.12s",
                          ask->name);
        else
            (void)err_set(&e, code == ENOENT ? ENOENT : EIO, STEP_USAGE, "%.*s", (int)strcspn(rest, "\n"), rest);
        finish(ask, NULL, &e);
        return;
    }
    json_t *answer = buf_error(&ask->text) < 0 ? NULL : json_loads(text, 0, NULL);
    if (!json_is_array(answer))
        (void)err_set(&e, ECONNRESET, STEP_USAGE, "the layers of packages could not be read; try again");
    finish(ask, answer, e.code ? &e : NULL);
}

static void on_output(struct loop_fd *w, uint32_t events)
{
    struct layer_ask *ask = container_of(w, struct layer_ask, output);
    char text[4096];
    ssize_t n = read(w->fd, text, sizeof text);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        buf_add(&ask->text, text, (size_t)n);
    else
        judge(ask);
}

static void on_ordered(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct layer_ask *ask = arg;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    ask->serial = 0;
    if (e)
        finish(ask, NULL, e);
}

static int order(struct layer_ask *ask, struct err *e)
{
    struct request_layer q = { .head.type = REQUEST_LAYER, .operation = ask->name[0] ? LAYER_REMOVE : LAYER_LIST };
    int pair[2] = { -1, -1 };

    buf_init(&ask->text, ANSWER_BYTES);
    FD name = memfd_create("layer", MFD_CLOEXEC);
    int r = name < 0 ? -errno : fd_write_all(name, ask->name, strlen(ask->name));
    if (r == 0 && (lseek(name, 0, SEEK_SET) < 0 || pipe2(pair, O_CLOEXEC) < 0))
        r = -errno;
    FD ours = pair[0], theirs = pair[1];
    ask->output.on_event = on_output;
    if (r == 0 && fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
        r = -errno;
    if (r == 0)
        r = loop_fd_add(ask->front->loop, &ask->output, ours, EPOLLIN);
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "packages");
    ask->output.fd = TAKE_FD(ours);
    memcpy(q.owner, ask->owner, sizeof q.owner);
    ask->serial = keeper_link_request(ask->front->keeper, &q, sizeof q, (int[]){ name, theirs }, 2, on_ordered, ask);
    return 0;
}

static void on_retry(struct loop_timer *t)
{
    struct layer_ask *ask = container_of(t, struct layer_ask, retry);
    struct err e = { 0 };

    ask->retries++;
    if (order(ask, &e) < 0)
        finish(ask, NULL, &e);
}

static int begin(struct front *front, const char *owner, const char *name, layers_answer *call, void *arg,
                 struct err *e)
{
    unsigned n = 0;

    for (const struct layer_ask *one = *layers_asks(front); one; one = one->next)
        n++;
    if (n >= ASKS_MOST)
        return err_set(e, EAGAIN, STEP_USAGE, "the layers of many are being listed; try again");
    struct layer_ask *ask = calloc(1, sizeof *ask);
    if (!ask)
        abort();
    *ask = (struct layer_ask){ .front = front, .call = call, .arg = arg, .output.fd = -1, .retry.on_expire = on_retry };
    packages_owner(owner, ask->owner);
    snprintf(ask->name, sizeof ask->name, "%s", name);
    LIST_ADD(*layers_asks(front), ask);
    int r = order(ask, e);
    if (r < 0)
        ask_free(ask);
    return r;
}

int layers_list(struct front *front, const char *owner, layers_answer *call, void *arg, struct err *e)
{
    return begin(front, owner, "", call, arg, e);
}

int layers_remove(struct front *front, const char *owner, const char *digest, layers_answer *call, void *arg,
                  struct err *e)
{
    if (strlen(digest) != SHA256_HEX || strspn(digest, "0123456789abcdef") != SHA256_HEX)
        return err_set(e, ENOENT, STEP_USAGE, "there is no such layer; its name has 64 digits");
    return begin(front, owner, digest, call, arg, e);
}

void layers_ask_cancel(struct front *front, const void *arg)
{
    for (struct layer_ask *ask = *layers_asks(front), *next; ask; ask = next) {
        next = ask->next;
        if (ask->arg == arg)
            ask_free(ask);
    }
}

void layers_ask_free(struct front *front)
{
    while (*layers_asks(front))
        ask_free(*layers_asks(front));
}
