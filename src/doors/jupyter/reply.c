/* Answers in the form that Jupyter's clients expect. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "doors/jupyter/door.h"

static void answer(struct gateway_request *c, int status, const char *data, size_t size)
{
    c->on_gone = NULL;
    if (http_reply(c->r, status, data ? "application/json" : NULL, data, size) < 0)
        http_request_abort(c->r);
}

void answer_json(struct gateway_request *c, int status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    json_decref(body);
    if (text)
        answer(c, status, text, strlen(text));
    else
        answer(c, 503, "{\"reason\":\"Service Unavailable\",\"message\":\"out of memory\"}", 58);
    free(text);
}

void answer_none(struct gateway_request *c)
{
    answer(c, 204, NULL, 0);
}

void answer_fail(struct gateway_request *c, int status, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_t *message = json_string(text);
    answer_json(c, status, json_pack("{s:s,s:o}", "reason", http_status_text(status), "message",
                                     message ? message : json_string("")));
}

void answer_unknown(struct gateway_request *c, const char *id)
{
    answer_fail(c, 404, "Kernel does not exist: %s", id);
}

/* An exceeded limit of the caller is Jupyter's 403; a full host is not the caller's fault. */
void answer_err(struct gateway_request *c, const struct err *e)
{
    static const struct {
        int number, status;
    } statuses[] = {
        { ENOPKG, 422 },       { EINVAL, 400 },       { ENAMETOOLONG, 400 },
        { ENOENT, 404 },       { EEXIST, 409 },       { EDQUOT, 403 },
        { EPERM, 403 },        { EACCES, 403 },       { ENOSPC, 503 },   { EAGAIN, 503 },     { ENOMEM, 503 },
        { ECONNREFUSED, 503 }, { ECONNRESET, 503 },   { ENOTCONN, 503 }, { E2BIG, 413 },      { EOPNOTSUPP, 501 },
        { ENOSYS, 501 },       { EPIPE, 409 },        { ESRCH, 409 },    { ECANCELED, 409 },  { EBUSY, 409 },
    };
    char text[512];
    int status = 500;

    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].number == e->code)
            status = statuses[i].status;
    err_text(e, text, sizeof text);
    answer_fail(c, status, "%s", text);
}

void jupyter_time(int64_t ms, char text[40])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    size_t n = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, 40 - n, ".%03d000Z", (int)(ms % 1000));
}

void jupyter_uuid(char text[37])
{
    unsigned char b[16];

    /* Cannot fail for so few bytes once the machine is up. */
    if (getrandom(b, sizeof b, 0) != sizeof b)
        memset(b, 0, sizeof b);
    b[6] = (unsigned char)((b[6] & 15) | 0x40);
    b[8] = (unsigned char)((b[8] & 63) | 0x80);
    snprintf(text, 37, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
             b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

json_t *kernel_model(const struct kernel *k)
{
    char time[40];

    jupyter_time(k->activity_ms ? k->activity_ms : k->started_ms, time);
    /* s*: only a dead kernel has a reason */
    return json_pack("{s:s,s:O,s:s,s:s,s:I,s:s*}", "id", k->id, "name",
                     json_object_get(k->box->settings.labels, JUPYTER_LABEL), "last_activity", time, "execution_state",
                     kernel_state_names[k->state], "connections", (json_int_t)k->connections, "reason",
                     k->state == KERNEL_DEAD && k->reason[0] ? k->reason : NULL);
}

void handle_api(struct gateway_request *c)
{
    answer_json(c, 200, json_pack("{s:s,s:s}", "version", "2.20.0", "gateway_version", CARREL_VERSION));
}

void handle_me(struct gateway_request *c)
{
    const char *name = c->who.name;

    answer_json(c, 200, json_pack("{s:{s:s,s:s,s:s,s:s,s:n,s:n},s:{}}", "identity", "username", name, "name", name,
                                  "display_name", name, "initials", "", "avatar_url", "color", "permissions"));
}
