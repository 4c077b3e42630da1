#define _GNU_SOURCE
#include "client/follow.h"

#include <errno.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "proto/names.h"
#include "proto/refusals.h"

enum { LINE_BYTES_MAX = 16 << 20, PATIENCE_US = 15000000, PAUSE_MS = 50 };

void follow_init(struct follow *f, const struct client *c, const char *box)
{
    *f = (struct follow){ .client = c, .box = box, .follows = true };
    buf_init(&f->line, LINE_BYTES_MAX);
}

static void disconnect(struct follow *f)
{
    if (f->x)
        exchange_close(f->x);
    free(f->x);
    f->x = NULL;
    buf_clear(&f->line);
}

void follow_done(struct follow *f)
{
    disconnect(f);
    buf_done(&f->line);
    json_decref(f->end);
    f->end = NULL;
}

/* Sends a request whose answer is a stream. The HTTP status, or -errno. */
static int open_stream(struct follow *f, const char *method, const char *target, const char *body, struct err *e)
{
    static const char fields[] = "Accept: application/x-ndjson\r\nConnection: close\r\n",
                      typed[] =
                          "Accept: application/x-ndjson\r\nContent-Type: application/json\r\nConnection: close\r\n";

    disconnect(f);
    f->x = malloc(sizeof *f->x);
    if (!f->x)
        return err_set(e, ENOMEM, STEP_MEMORY, "out of memory");
    f->x->fd = -1;
    int r = exchange_open(f->x, &f->client->server, method, target, body ? typed : fields,
                          body ? (int64_t)strlen(body) : EXCHANGE_NO_BODY, e);
    if (r == 0 && body)
        (void)!exchange_send(f->x, body, strlen(body));
    if (r == 0)
        r = exchange_answer(f->x, e);
    return r < 0 ? r : f->x->status;
}

static int tell_refusal(struct follow *f)
{
    json_t *answer = client_read_json(f->x);

    (void)client_refused(f->x->status, answer);
    json_decref(answer);
    disconnect(f);
    return -1;
}

int follow_start(struct follow *f, json_t *body)
{
    struct err e = { 0 };
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);

    if (!text) {
        fputs("carrel: a word of the command is not UTF-8\n", stderr);
        return -1;
    }
    int status = open_stream(f, "POST", target_box(f->box, "/exec"), text, &e);
    if (status < 0) {
        f->interrupted = status == -EINTR;
        if (!f->interrupted)
            (void)client_complain(&e);
        return -1;
    }
    return status == 200 ? 0 : tell_refusal(f);
}

int follow_attach(struct follow *f, bool patience)
{
    const struct timespec pause = { .tv_nsec = PAUSE_MS * 1000000L };
    uint64_t until = clock_monotonic_us() + (patience ? PATIENCE_US : 0);
    struct err e = { 0 };
    int status;

    f->interrupted = false;
    for (;;) {
        char rest[128];
        snprintf(rest, sizeof rest, "/exec/%.31s/output?offset=%llu&follow=%s", f->exec, (unsigned long long)f->offset,
                 f->follows ? "true" : "false");
        status = open_stream(f, "GET", target_box(f->box, rest), NULL, &e);
        if ((status >= 0 && status != 503) || status == -EINTR || clock_monotonic_us() >= until)
            break;
        nanosleep(&pause, NULL);
        if (f->client->server.heeds_signals && heed_pending()) {
            f->interrupted = true;
            return -1;
        }
    }
    if (status < 0) {
        f->interrupted = status == -EINTR;
        if (!f->interrupted)
            (void)client_complain(&e);
        return -1;
    }
    return status == 200 ? 0 : tell_refusal(f);
}

static bool put(struct follow *f, int fd, const char *data, size_t size)
{
    if (!f->capture) {
        int r = f->stop ? heed_write(fd, data, size, f->stop, f->stop_arg) : fd_write_all(fd, data, size);
        f->stopped |= r == -EINTR;
        return r == 0;
    }
    buf_add(&f->capture[fd - STDOUT_FILENO], data, size);       /* the buffer records an overflow */
    return true;
}

static void hand_on(struct follow *f, const json_t *event, int fd)
{
    const char *data = json_string_value(json_object_get(event, "data"));
    size_t size = json_string_length(json_object_get(event, "data"));
    unsigned char *plain = NULL;

    if (!data && (data = json_string_value(json_object_get(event, "data_base64")))) {
        size_t length = json_string_length(json_object_get(event, "data_base64"));
        plain = malloc(length / 4 * 3 + 3);
        int n = plain ? EVP_DecodeBlock(plain, (const unsigned char *)data, (int)length) : -1;
        if (n < 0) {
            free(plain);
            return;
        }
        size = (size_t)n - (length > 0 && data[length - 1] == '=') - (length > 1 && data[length - 2] == '=');
        data = (const char *)plain;
    }
    if (data && !put(f, fd, data, size))
        f->cut = !f->stopped;
    free(plain);
}

/* On standard error, at the place of the gap. */
static void tell_dropped(const json_t *event)
{
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(event, "stdout_bytes"))
                     + (uint64_t)json_integer_value(json_object_get(event, "stderr_bytes"));

    fprintf(stderr, "\ncarrel: \xe2\x80\xa6 %s \xe2\x80\xa6\n", ending_left_out(bytes).text);
}

static void take_event(struct follow *f, json_t *event)
{
    const char *type = text_of(event, "type");

    if (f->json)
        print_json_line(event);
    if (strcmp(type, "started") == 0)
        snprintf(f->exec, sizeof f->exec, "%s", text_of(event, "exec"));
    else if (!f->json && strcmp(type, "stdout") == 0)
        hand_on(f, event, STDOUT_FILENO);
    else if (!f->json && strcmp(type, "stderr") == 0)
        hand_on(f, event, STDERR_FILENO);
    else if (!f->json && strcmp(type, "dropped") == 0)
        tell_dropped(event);
    else if (strcmp(type, "exit") == 0 && !f->end)
        f->end = json_incref(event);
    if (json_object_get(event, "next"))
        f->offset = (uint64_t)json_integer_value(json_object_get(event, "next"));
}

/* Handles the complete lines of the received bytes. */
static int take_lines(struct follow *f)
{
    size_t at = 0;

    for (char *end; (end = memchr(f->line.data + at, '\n', f->line.length - at)) && !f->cut && !f->stopped;
         at = (size_t)(end + 1 - f->line.data)) {
        size_t size = (size_t)(end - f->line.data) - at;
        json_t *event = size ? json_loadb(f->line.data + at, size, JSON_ALLOW_NUL, NULL) : NULL;
        if (size && !event) {
            fputs("carrel: the server sent something that is not JSON\n", stderr);
            return -1;
        }
        take_event(f, event);
        json_decref(event);
    }
    memmove(f->line.data, f->line.data + at, f->line.length - at);
    f->line.length -= at;
    return 0;
}

/* One piece only: a fast command always has more, and the caller must also handle signals and keys. A piece is at least
 * as large as the exchange's buffer, so no bytes stay there where poll does not see them. */
int follow_step(struct follow *f, bool wait)
{
    enum { PIECE = 256 << 10 };
    _Static_assert((int)PIECE >= (int)EXCHANGE_BUFFER, "bytes left in the buffer would not wake the caller");

    char *room = buf_reserve(&f->line, PIECE);
    ssize_t n = room ? exchange_read(f->x, room, PIECE, wait) : -EFBIG;
    if (n == -EAGAIN)
        return 0;
    if (n == 0)
        return f->end || !f->follows ? 1 : -ECONNRESET;
    if (n < 0 && n != -EFBIG && n != -EBADMSG)
        return -ECONNRESET;
    if (n > 0)
        buf_commit(&f->line, (size_t)n);
    if (n < 0 || take_lines(f) < 0) {
        if (n < 0)
            fputs("carrel: the server's answer is malformed\n", stderr);
        return -1;
    }
    return f->cut || f->stopped || (f->end && f->follows) ? 1 : 0;
}

/* ---- how it ended ---- */

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static uint64_t us_of(const json_t *object, const char *key)
{
    return (uint64_t)(json_number_value(json_object_get(object, key)) * 1000 + 0.5);
}

/* Milliseconds of a timeout, else the limit's value. */
static uint64_t limit_of(const json_t *end, enum outcome outcome)
{
    const json_t *value = json_object_get(json_object_get(end, "limit"), "value");

    return outcome == OUTCOME_TIMEOUT ? (uint64_t)(json_number_value(value) * 1000 + 0.5)
                                      : (uint64_t)json_integer_value(value);
}

struct ending ending_of(const json_t *end)
{
    const json_t *code = json_object_get(end, "exit_code"), *usage = json_object_get(end, "box_usage");
    enum outcome outcome = outcome_parse(text_of(end, "outcome"));
    uint64_t peak = number_of(usage, "memory_peak_bytes");

    return (struct ending){
        .outcome = outcome,
        .code = json_is_integer(code) ? (int)json_integer_value(code) : EXIT_CLIENT,
        .signal = (int)number_of(end, "signal"),
        .limit = limit_of(end, outcome),
        .wall_us = us_of(end, "wall_ms"),
        .cpu_us = us_of(end, "cpu_ms"),
        .memory_peak_bytes = peak ? peak : number_of(end, "memory_peak_bytes"),
        .disk_bytes = number_of(usage, "disk_bytes"),
        .pids_peak = (uint32_t)number_of(usage, "pids_peak"),
    };
}

void tell_ending(const json_t *end)
{
    const json_t *error = json_object_get(end, "error");
    struct ending e = ending_of(end);
    struct ending_text line = ending_remark(e.outcome, e.limit, ENDING_OPTIONS);

    if (json_is_object(error))
        fprintf(stderr, "carrel: %s\n", show_text(text_of(error, "message")));
    else if (line.text[0])
        fprintf(stderr, "carrel: %s\n", line.text);
    tell_refused(end);
}

void tell_refused(const json_t *end)
{
    const json_t *refused = json_object_get(end, "refused");
    struct buf advice;

    if (!json_is_object(refused))
        return;
    buf_init(&advice, NET_RULE_TEXT + 192);
    refusals_advise("--allow ", json_string_value(json_object_get(refused, "rule")), "", "--packages NAME", &advice);
    fprintf(stderr, "carrel: %s%s\n", show_text(text_of(refused, "message")), show_text(buf_string(&advice)));
    buf_done(&advice);
}

int exit_of(const json_t *end, int caught)
{
    const json_t *error = json_object_get(end, "error");
    struct ending e = ending_of(end);

    if (!json_is_object(error))
        return ending_status(&e, caught);
    enum step step = strcmp(text_of(error, "step"), err_step_name(STEP_EXEC)) == 0 ? STEP_EXEC : STEP_NONE;
    return ending_failure_status(step, (int)number_of(error, "errno"));
}
