/* carrel mcp: an MCP server on standard input and output, for programs that start their servers themselves. It knows
 * nothing of the protocol but its envelope: each line that comes in is a POST to the server's /mcp, made by a child of
 * its own, which writes what comes back as lines; so calls run side by side, and a call is cancelled by ending its
 * child (for the server, a client that goes). The handshake's requests and those of the stateless revision
 * pass alike. */
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
#include "client/wire/private.h"

enum { LINE_MAX_BYTES = 16 << 20, ANSWER_MAX_BYTES = 128 << 20 };
enum { CALLS_MAX = 64, FIELD_MAX = 1024, NAME_MOST = 128, LAST_S = 1 };
enum { NO_JSON = -32700, NO_REQUEST = -32600, FAILED = -32603 };

#define META "io.modelcontextprotocol/"

static const char usage[] =
    "usage: carrel mcp [--box BOX] [--tools NAME,NAME] [--service NAME] [--url URL]\n"
    "       carrel mcp config [the same]\n"
    "\n"
    "An MCP server on standard input and output: tools to run code and commands in boxes, and for their files. If no\n"
    "server is running, one is started for as long as this program runs. `config` prints what MCP clients want to be\n"
    "told of it.\n"
    "\n"
    "  --box BOX        the tools of this box only, which is then named in no call\n"
    "  --tools NAMES    these tools only, like run_code,read_file\n"
    "  --service NAME   the functions of this service instead (with CARREL_TOKEN, those that its grant names)\n"
    "  --url URL\n";

struct stdio_call {
    pid_t   pid;        /* 0: free */
    json_t *id;         /* owned */
};

struct relay {
    struct client client;
    const char   *service, *box, *tools;        /* NULL: not told */
    char          target[1024];
    char          session[40];      /* of this process: its calls without `box` share one */
    int           lock;             /* a file whose lock says who may write to standard output */
    struct stdio_call   calls[CALLS_MAX];
};

static int set_service(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct relay *)into)->service = value;
    return 0;
}

static int set_box(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct relay *)into)->box = value;
    return 0;
}

static int set_tools(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct relay *)into)->tools = value;
    return 0;
}

static const struct flag flags[] = { { "service", 0, true, set_service },
                                     { "box", 0, true, set_box },
                                     { "tools", 0, true, set_tools } };

/* ---- one message, in a child ---- */

static void write_all(const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            _exit(EXIT_CLIENT);     /* nobody reads any more */
        data += n;
        size -= (size_t)n;
    }
}

/* A message is a line; two children never write at once. */
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

/* Only what may stand in a field, and how the protocol writes anything else. */
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

/* The stateless revision says some of its body again in fields, for whoever stands between; between here and the server
 * is nobody, but the server checks. */
static void add_fields(struct buf *fields, const struct relay *relay, json_t *root)
{
    json_t *params = json_object_get(root, "params"), *meta = json_object_get(params, "_meta");
    const char *version = json_string_value(json_object_get(meta, META "protocolVersion"));
    const char *name = json_string_value(json_object_get(params, "name")),
               *uri = json_string_value(json_object_get(params, "uri"));

    buf_add_text(fields, "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n");
    buf_printf(fields, "Mcp-Session-Id: %s\r\n", relay->session);
    if (!version)
        return;
    add_field(fields, "MCP-Protocol-Version", version);
    add_field(fields, "Mcp-Method", text_of(root, "method"));
    if (name || uri)
        add_field(fields, "Mcp-Name", name ? name : uri);
}

/* Whether a message is the answer, after which the client waits for nothing more. */
static bool is_answer(const char *data, size_t size)
{
    struct jsonslice message = { data, size };

    return jsonscan_is_object(data, size) && jsonscan_find(message, "id").data
           && !jsonscan_find(message, "method").data;
}

/* Lines of a stream of events: each "data:" is a message. Before `from` there is no line end. */
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

/* Line ends may stand between the tokens of an answer; here a line is a message. */
static void relay_whole(const struct relay *relay, struct buf *all)
{
    for (size_t i = 0; i < all->length; i++)
        if (all->data[i] == '\n' || all->data[i] == '\r')
            all->data[i] = ' ';
    put_line(relay, all->data, all->length);
}

/* A request that was refused before it was read is answered without its id, and its client would wait for ever. */
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

/* Whoever asked waits until it hears something: half an answer, or a stream that ends without one, is a failure. */
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
        r = exchange_open(&x, &relay->client.server, "POST", relay->target, fields.data, (int64_t)size, e);
    buf_done(&fields);
    if (r < 0)
        return r;
    (void)!exchange_send(&x, line, size);       /* if it wants no more, its answer says why */
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
        _exit(EXIT_CLIENT);     /* it ended before it could be told */
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

/* NULL: as many run as may. Waiting for one would mean not to hear who wants to cancel, or to leave. */
static struct stdio_call *free_call(struct relay *relay)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (!relay->calls[i].pid)
            return &relay->calls[i];
    return NULL;
}

/* While it holds the lock a child is in the middle of a line; it is ended after it. */
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
    } else if (id) {        /* other notifications tell a server without sessions nothing */
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

/* Whoever closed our input wants no more answers; or has all that it wanted to ask in a file. So what is about to be
 * answered is, and the rest is ended. */
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

/* The box that calls without `box` shared goes with us. If the server does not answer, it goes when it was idle. */
static void end_session(const struct relay *relay)
{
    static struct exchange x;
    char fields[80];
    struct err ignored = { 0 };

    if (relay->service || relay->box)
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

    buf_init(&line, LINE_MAX_BYTES);        /* of a longer one nothing more is kept */
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

static void add_option(json_t *args, const char *name, const char *value)
{
    if (!value)
        return;
    (void)!json_array_append_new(args, json_string(name));
    (void)!json_array_append_new(args, json_string(value));
}

static int print_config(const struct relay *relay)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    json_t *args = json_pack("[s]", "mcp");
    const char *name = relay->service ? relay->service : "carrel";

    self[n > 0 ? n : 0] = '\0';
    /* This program is carrel-server; what people start is carrel beside it, or in ../bin. */
    char *slash = strrchr(self, '/');
    char carrel[4200] = "carrel";
    for (int i = 0; slash && i < 2; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%.*s/%scarrel", (int)(slash - self), self, i ? "../bin/" : "");
        if (access(path, X_OK) == 0) {
            char *real = realpath(path, NULL);
            snprintf(carrel, sizeof carrel, "%s", real ? real : path);
            free(real);
            break;
        }
    }
    add_option(args, "--service", relay->service);
    add_option(args, "--box", relay->box);
    add_option(args, "--tools", relay->tools);
    add_option(args, "--url", relay->client.url);
    json_t *config =
        json_pack("{s:{s:{s:s,s:s,s:o}}}", "mcpServers", name, "type", "stdio", "command", carrel, "args", args);
    print_json(config);
    json_decref(config);
    return 0;
}

static bool is_name(const char *name)
{
    return !name || (name[0] && strlen(name) <= NAME_MOST);
}

/* NULL, or what is wrong. */
static const char *make_target(struct relay *relay)
{
    struct buf target;

    buf_init_fixed(&target, relay->target, sizeof relay->target);
    buf_add_text(&target, "/mcp");
    if (relay->service && (relay->box || relay->tools))
        return "--service gives the functions of a service, and --box and --tools those of boxes";
    if (relay->service)
        target_add(&target, "/services/", relay->service);
    if (relay->box)
        target_add(&target, "/boxes/", relay->box);
    if (relay->tools)
        target_add(&target, "?tools=", relay->tools);
    if (!is_name(relay->service))
        return "--service takes the name of a service";
    if (!is_name(relay->box))
        return "--box takes the name or id of a box";
    return buf_error(&target) < 0 || (relay->tools && !relay->tools[0]) ? "--tools takes names of tools" : NULL;
}

static int find_server(struct client *c, struct private_server *own)
{
    char *settings[] = { NULL };
    struct err e = { 0 };
    int r = server_find(c->url, &c->server, &e);

    if (r < 0 && !c->url && !getenv("CARREL_URL"))
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
    static struct relay relay = { .client = { .name = "mcp", .usage = usage, .may_lack_server = true } };
    struct private_server own = { 0 };
    struct words words;
    int status = client_begin(&relay.client, argc, argv, flags, sizeof flags / sizeof *flags, &relay, false, &words);

    if (status >= 0)
        return status;
    if (words.n > 1 || (words.n == 1 && strcmp(words.at[0], "config") != 0))
        return client_misused(&relay.client, "it takes no word but 'config'");
    const char *wrong = make_target(&relay);
    if (wrong)
        return client_misused(&relay.client, "%s", wrong);
    if (words.n == 1)
        return print_config(&relay);
    if ((status = find_server(&relay.client, &own)) >= 0)
        return status;
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
