/* carrel mcp: an MCP server on standard input and output, for programs that start their servers themselves. It knows
 * only the protocol's envelope: each input line is a POST to the server's /mcp, made by a child of its own, which
 * writes the answers as lines. So calls run in parallel, and killing the child cancels its call (the server sees its
 * client go away). Handshake requests and those of the stateless revision are passed alike. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/jsonscan.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/mcp_options.h"
#include "client/wire/private.h"

enum { LINE_MAX_BYTES = 16 << 20, ANSWER_MAX_BYTES = 128 << 20 };
enum { CALLS_MAX = 64, FIELD_MAX = 1024, LAST_S = 1 };
enum { NO_JSON = -32700, NO_REQUEST = -32600, FAILED = -32603 };

#define META "io.modelcontextprotocol/"

struct stdio_call {
    pid_t   pid;        /* 0: free */
    json_t *id;         /* owned */
};

struct relay {
    struct client      client;
    struct mcp_options options;
    bool          is_private;       /* the server ends with this process */
    char          session[40];      /* of this process: its calls without `box` share one */
    int           lock;             /* a file; the holder of its lock may write to standard output */
    struct stdio_call   calls[CALLS_MAX];
};

/* ---- one message, in a child ---- */

static void write_all(const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(EXIT_CLIENT);     /* our reader is gone */
        data += n;
        size -= (size_t)n;
    }
}

/* A message is a line; the lock keeps children from writing at once. */
static void put_line(const struct relay *relay, const char *data, size_t size)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    while (fcntl(relay->lock, F_SETLKW, &lock) < 0 && errno == EINTR)
        ;
    write_all(data, size);
    write_all("\n", 1);
    lock.l_type = F_UNLCK;
    (void)!fcntl(relay->lock, F_SETLK, &lock);
}

static void put_failure(const struct relay *relay, json_t *id, int code, const char *why)
{
    json_t *answer =
        json_pack("{s:s,s:O,s:{s:i,s:s}}", "jsonrpc", "2.0", "id", id, "error", "code", code, "message", why);
    char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;

    if (text)
        put_line(relay, text, strlen(text));
    free(text);
    json_decref(answer);
}

/* A value that may stand in a field as it is, or the protocol's encoding of any other. */
static void add_field(struct buf *fields, const char *name, const char *value)
{
    bool is_plain =
        value[0] && value[0] != ' ' && value[strlen(value) - 1] != ' ' && strncmp(value, "=?base64?", 9) != 0;

    for (const char *at = value; is_plain && *at; at++)
        is_plain = *at >= ' ' && *at < 127;
    if (is_plain)
        buf_printf(fields, "%s: %s\r\n", name, value);
    else {
        size_t n = strlen(value);
        buf_printf(fields, "%s: =?base64?", name);
        char *room = buf_reserve(fields, 4 * ((n + 2) / 3) + 1);
        if (room)
            buf_commit(fields, (size_t)EVP_EncodeBlock((unsigned char *)room, (const unsigned char *)value, (int)n));
        buf_add_text(fields, "?=\r\n");
    }
}

/* The stateless revision repeats parts of its body in fields for proxies. There is no proxy here, but the server checks
 * them. */
static void add_fields(struct buf *fields, const struct relay *relay, json_t *root)
{
    json_t *params = json_object_get(root, "params"), *meta = json_object_get(params, "_meta");
    const char *version = json_string_value(json_object_get(meta, META "protocolVersion"));
    const char *name = json_string_value(json_object_get(params, "name")),
               *uri = json_string_value(json_object_get(params, "uri"));

    buf_add_text(fields, "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n");
    buf_printf(fields, "Mcp-Session-Id: %s\r\n", relay->session);
    if (relay->is_private)
        buf_add_text(fields, "Carrel-Relay: private\r\n");
    if (!version)
        return;
    add_field(fields, "MCP-Protocol-Version", version);
    add_field(fields, "Mcp-Method", text_of(root, "method"));
    if (name || uri)
        add_field(fields, "Mcp-Name", name ? name : uri);
}

/* Whether a message is the answer, after which the client expects nothing more. */
static bool is_answer(const char *data, size_t size)
{
    struct jsonslice message = { data, size };

    return jsonscan_is_object(data, size) && jsonscan_find(message, "id").data
           && !jsonscan_find(message, "method").data;
}

/* Passes a stream of events on: each "data:" line is a message. Before `from` there is no line end. */
static bool relay_events(const struct relay *relay, struct buf *all, size_t from)
{
    char *end, *line = all->data, *stop = all->data + all->length;
    bool is_answered = false;

    while ((end = memchr(line + from, '\n', (size_t)(stop - line) - from))) {
        size_t n = (size_t)(end - line);
        if (n > 6 && memcmp(line, "data: ", 6) == 0) {
            put_line(relay, line + 6, n - 6);
            is_answered = is_answered || is_answer(line + 6, n - 6);
        }
        line = end + 1;
        from = 0;
    }
    all->length = (size_t)(stop - line);
    memmove(all->data, line, all->length);
    return is_answered;
}

/* An answer may have line ends between tokens; here a line is a message. */
static void relay_whole(const struct relay *relay, struct buf *all)
{
    for (size_t i = 0; i < all->length; i++)
        if (all->data[i] == '\n' || all->data[i] == '\r')
            all->data[i] = ' ';
    put_line(relay, all->data, all->length);
}

/* A request that was refused before it was parsed is answered without its id, and its client would wait for ever. So
 * the id is added. */
static bool relay_refusal(const struct relay *relay, json_t *id, const struct buf *all)
{
    json_t *answer = json_loadb(all->data, all->length, 0, NULL), *error = json_object_get(answer, "error");
    bool is_refused = id && json_is_object(error) && !json_is_string(json_object_get(answer, "id"))
                      && !json_is_number(json_object_get(answer, "id"));

    if (is_refused)
        put_failure(relay, id, (int)json_integer_value(json_object_get(error, "code")), text_of(error, "message"));
    json_decref(answer);
    return is_refused;
}

/* The client waits for an answer: half an answer, or a stream that ends without one, is a failure. */
static int relay_answer(const struct relay *relay, json_t *id, struct exchange *x)
{
    struct http_text type = http_head_get(&x->head, "Content-Type");
    bool is_stream = type.data && type.size >= 17 && memcmp(type.data, "text/event-stream", 17) == 0;
    bool is_answered = x->status == 202;
    struct buf all;
    ssize_t n = 0;

    buf_init(&all, ANSWER_MAX_BYTES);
    for (;;) {
        char *room = buf_reserve(&all, 65536);
        if (!room || (n = exchange_read(x, room, 65536, true)) <= 0)
            break;
        size_t before = all.length;
        buf_commit(&all, (size_t)n);
        if (is_stream && relay_events(relay, &all, before))
            is_answered = true;
    }
    if (!is_stream && all.length && !all.failure && n == 0) {
        if (x->status < 400 || !relay_refusal(relay, id, &all))
            relay_whole(relay, &all);
        is_answered = true;
    }
    int r = is_answered ? 0 : all.failure ? -EFBIG : n < 0 ? (int)n : -EBADMSG;
    buf_done(&all);
    return r;
}

static int post(const struct relay *relay, json_t *root, const char *line, size_t size, struct err *e)
{
    static struct exchange x;
    struct buf fields;

    buf_init(&fields, 4 * FIELD_MAX);
    add_fields(&fields, relay, root);
    int r = buf_error(&fields);
    if (r < 0)
        r = err_set(e, -r, STEP_USAGE, "the name of the tool is too long");
    if (r == 0)
        r = exchange_open(&x, &relay->client.server, "POST", relay->options.target, fields.data, (int64_t)size, e);
    buf_done(&fields);
    if (r < 0)
        return r;
    (void)!exchange_send(&x, line, size);       /* if the server stops reading, its answer says why */
    r = exchange_answer(&x, e);
    if (r == 0 && (r = relay_answer(relay, json_object_get(root, "id"), &x)) < 0)
        err_set(e, -r, STEP_WAIT, "the server's answer cannot be read (HTTP status %d)", x.status);
    exchange_close(&x);
    return r;
}

static void child(const struct relay *relay, pid_t parent, json_t *root, const char *line, size_t size)
{
    json_t *id = json_object_get(root, "id");
    struct err e = { 0 };

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent)
        _exit(EXIT_CLIENT);     /* the parent exited before the signal was set */
    signal(SIGPIPE, SIG_IGN);
    if (post(relay, root, line, size, &e) < 0 && id)
        put_failure(relay, id, FAILED, e.what);
    _exit(0);
}

/* ---- all of them ---- */

static void reap(struct relay *relay)
{
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
        for (size_t i = 0; i < CALLS_MAX; i++)
            if (relay->calls[i].pid == pid) {
                json_decref(relay->calls[i].id);
                relay->calls[i] = (struct stdio_call){ 0 };
            }
}

/* NULL: the most calls are running. Waiting for one would block cancellations and the end of input. */
static struct stdio_call *free_call(struct relay *relay)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (!relay->calls[i].pid)
            return &relay->calls[i];
    return NULL;
}

/* A child that holds the lock is in the middle of a line; it is killed afterwards. */
static void cancel(struct relay *relay, json_t *id)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    for (size_t i = 0; i < CALLS_MAX; i++)
        if (relay->calls[i].pid && json_equal(relay->calls[i].id, id)) {
            while (fcntl(relay->lock, F_SETLKW, &lock) < 0 && errno == EINTR)
                ;
            kill(relay->calls[i].pid, SIGKILL);
            (void)!waitpid(relay->calls[i].pid, NULL, 0);
            json_decref(relay->calls[i].id);
            relay->calls[i] = (struct stdio_call){ 0 };
            lock.l_type = F_UNLCK;
            (void)!fcntl(relay->lock, F_SETLK, &lock);
            return;
        }
}

static void start_call(struct relay *relay, json_t *root, const char *line, size_t size)
{
    json_t *id = json_object_get(root, "id");
    struct stdio_call *call = free_call(relay);

    if (!call) {
        char text[80];
        snprintf(text, sizeof text, "%d calls are running already; wait for one, or cancel it", CALLS_MAX);
        put_failure(relay, id, FAILED, text);
        return;
    }
    pid_t self = getpid(), pid = fork();
    if (pid == 0)
        child(relay, self, root, line, size);
    if (pid < 0)
        put_failure(relay, id, FAILED, strerror(errno));
    else
        *call = (struct stdio_call){ .pid = pid, .id = json_incref(id) };
}

static void take_line(struct relay *relay, const char *line, size_t size)
{
    json_error_t where;
    json_t *root = json_loadb(line, size, 0, &where);
    json_t *id = json_object_get(root, "id");

    if (!root) {
        put_failure(relay, json_null(), NO_JSON, where.text);
        return;
    }
    if (!json_is_object(root)) {
        put_failure(relay, json_null(), NO_REQUEST, "a request is one JSON object");
    } else if (!id && strcmp(text_of(root, "method"), "notifications/cancelled") == 0) {
        cancel(relay, json_object_get(json_object_get(root, "params"), "requestId"));
    } else if (id) {        /* other notifications mean nothing to a server without sessions */
        start_call(relay, root, line, size);
    }
    json_decref(root);
}

static void end_line(struct relay *relay, struct buf *line)
{
    reap(relay);
    if (line->failure)
        put_failure(relay, json_null(), NO_REQUEST, "the message is too large");
    while (line->length > 0 && line->data[line->length - 1] == '\r')
        line->length--;
    if (!line->failure && line->length > 0)
        take_line(relay, line->data, line->length);
    buf_clear(line);
}

static bool is_busy(const struct relay *relay)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (relay->calls[i].pid)
            return true;
    return false;
}

/* Our input is closed: the client has gone, or its requests came from a file. Calls that end within LAST_S are
 * answered, the others cancelled. */
static void end_calls(struct relay *relay)
{
    struct timespec left = { .tv_sec = LAST_S };
    sigset_t ended;

    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    (void)!sigprocmask(SIG_BLOCK, &ended, NULL);
    for (reap(relay); is_busy(relay) && sigtimedwait(&ended, NULL, &left) > 0; reap(relay))
        ;
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (relay->calls[i].pid)
            kill(relay->calls[i].pid, SIGKILL);
}

static void on_alarm(int signal)
{
    (void)signal;
    _exit(0);
}

/* Deletes the box that calls without `box` shared. If the server does not answer, the idle timeout deletes it. */
static void end_session(const struct relay *relay)
{
    static struct exchange x;
    char fields[80];
    struct err ignored = { 0 };

    if (relay->options.service || relay->options.box)
        return;
    signal(SIGALRM, on_alarm);
    alarm(LAST_S);
    snprintf(fields, sizeof fields, "Mcp-Session-Id: %s\r\n", relay->session);
    if (exchange_open(&x, &relay->client.server, "DELETE", "/mcp", fields, 0, &ignored) == 0) {
        (void)!exchange_answer(&x, &ignored);
        exchange_close(&x);
    }
    alarm(0);
}

static int relay_all(struct relay *relay)
{
    static char piece[65536];
    struct buf line;
    ssize_t n;

    buf_init(&line, LINE_MAX_BYTES);        /* longer lines are cut */
    while ((n = read(STDIN_FILENO, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)) {
        const char *at = piece, *stop = piece + (n > 0 ? n : 0), *end;
        while ((end = memchr(at, '\n', (size_t)(stop - at)))) {
            buf_add(&line, at, (size_t)(end - at));
            end_line(relay, &line);
            at = end + 1;
        }
        buf_add(&line, at, (size_t)(stop - at));
    }
    buf_done(&line);
    end_calls(relay);
    end_session(relay);
    return 0;
}

/* ---- the commands ---- */

static int find_server(struct client *c, struct private_server *own)
{
    char *settings[] = { NULL };
    struct err e = { 0 };
    int r = server_find(c->url, &c->server, &e);

    if (r < 0 && !c->url && !server_named())
        r = private_server_start(own, settings, &c->server, &e);
    return r < 0 ? client_complain(&e) : -1;
}

static int make_session(struct relay *relay)
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -EIO;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(relay->session + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

int client_mcp(int argc, char **argv)
{
    static struct relay relay = { .client = { .name = "mcp", .usage = mcp_usage, .may_lack_server = true } };
    struct private_server own = { 0 };
    struct words words;

    relay.options.boxes = json_object();
    int status = client_begin(&relay.client, argc, argv, mcp_flags, MCP_FLAGS, &relay.options, false, &words);

    if (status >= 0)
        return status;
    if (words.n > 1 || (words.n == 1 && strcmp(words.at[0], "config") != 0))
        return client_misused(&relay.client, "it takes no word but 'config'");
    const char *wrong = mcp_make_target(&relay.options);
    if (wrong)
        return client_misused(&relay.client, "%s", wrong);
    if (words.n == 1)
        return mcp_print_config(&relay.options, relay.client.url);
    if ((status = find_server(&relay.client, &own)) >= 0)
        return status;
    relay.is_private = own.guardian != 0;
    relay.lock = memfd_create("carrel-mcp", MFD_CLOEXEC);
    if (relay.lock < 0 || make_session(&relay) < 0) {
        perror("carrel: mcp");
        status = EXIT_CLIENT;
    } else {
        status = relay_all(&relay);
    }
    private_server_end(&own);
    return status;
}
