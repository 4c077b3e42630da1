/* carrel kernel: a kernel in a box for any Jupyter program on this machine. The program starts it like every kernel,
 * with a connection file.
 *
 *   Jupyter program <-- ZeroMQ --> carrel kernel <-- WebSocket --> server --> kernel in its box
 *
 * This process owns the box: it is deleted when a client asks for a shutdown or when this process is asked to end. If
 * this process is killed, the box's own idle timeout deletes it (or it ends with the private server). The sockets
 * listen before there is a box, so a client that connects early waits and loses nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/kernel/kernel_given.h"
#include "client/kernel/kernel_zmq.h"
#include "client/kernel/wsclient.h"
#include "client/wire/envelope.h"
#include "client/wire/private.h"

static const char usage[] =
    "usage: carrel kernel [OPTIONS] -f CONNECTION_FILE\n"
    "\n"
    "Runs a kernel in a box for a Jupyter program: 'carrel kernelspec install' makes programs start it. The folder in\n"
    "which it is started, the notebook's, is there in the box, writable; nothing else of this machine is.\n"
    "\n"
    "  -f FILE                 the connection file, as Jupyter writes it; options for IPython after it\n"
    "                          (--Class.name=value) are passed on, but not files to run\n"
    "  --python PROGRAM        the interpreter and with it the packages (then a server of its own is started)\n"
    "  --template NAME         a template of the server's instead\n"
    "  --memory 2G  --cpus 2  --pids 256  --disk 1G        limits of the box\n"
    "  --env K=V               may be given often; variables that Jupyter sets for this kernel are passed on,\n"
    "                          too, but not the environment in which that program was itself started\n"
    "  --spec DIR              the kernelspec's folder: 'env' in its kernel.json is passed on\n"
    "  --no-mount              the folder is not there either\n"
    "  --home                  it is there, too, if it is the home directory, or holds that\n"
    "  --url URL\n";

enum { ABANDONED_S = 3600, FLUSH_MS = 1000, SERVER_GONE = 3 };

struct kernel_launch {
    struct client         client;
    struct private_server own;
    struct zmq_side      *zmq;              /* owned: it is large */
    struct wsclient       socket;
    json_t               *limits, *env;     /* owned */
    const char           *file, *python, *template, *spec;
    bool                  no_mount, with_home;
    bool                  tells_home;       /* the home directory was left out, and the first cell is to say so */
    char                  cwd[4096];        /* "": the box's home */
    char                  box[32], id[160];
    int                   signals;          /* owned */
    int                   parent;           /* owned: a pidfd of the parent; -1: not watched */
    struct buf            out;
    bool                  ending;
    int                   status;
};

/* ---- options ---- */

#define SETTER(function, call)                                                     \
    static int function(void *into, const char *value, struct err *e)             \
    {                                                                              \
        struct kernel_launch *k = into;                                               \
        return call;                                                               \
    }
SETTER(set_memory, take_size("--memory", value, k->limits, "memory", e))
SETTER(set_disk, take_size("--disk", value, k->limits, "disk", e))
SETTER(set_cpus, take_cpus("--cpus", value, k->limits, "cpus", e))
SETTER(set_pids, take_count("--pids", value, k->limits, "pids", e))
SETTER(set_env, take_pair("--env", value, k->env, e))

#define TEXT(function, member)                                                     \
    static int function(void *into, const char *value, struct err *e)             \
    {                                                                              \
        (void)e;                                                                   \
        ((struct kernel_launch *)into)->member = value;                               \
        return 0;                                                                  \
    }
TEXT(set_file, file)
TEXT(set_python, python)
TEXT(set_template, template)
TEXT(set_spec, spec)

static int set_no_mount(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct kernel_launch *)into)->no_mount = true;
    return 0;
}

static int set_home(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct kernel_launch *)into)->with_home = true;
    return 0;
}

/* ---- server, box, kernel ---- */

static int find_server(struct kernel_launch *k, struct err *e)
{
    char setting[PRIVATE_SETTING];
    char *settings[] = { "templates.python.pool=off", "pool.size=off", k->python ? setting : NULL, NULL };

    if (!k->python && private_server_find(&k->client, k->template, e) == 0)
        return 0;
    if (k->client.url)
        return k->python ? err_set(e, EINVAL, STEP_USAGE, "--python starts a server of its own, so there is no --url")
                         : -e->code;
    int r = k->python ? private_server_python(k->python, setting, e) : 0;
    return r < 0 ? r : private_server_start(&k->own, settings, &k->client.server, e);
}

static const char home_is_closed[] =
    "This kernel was started in your home directory, and its files are not there: its code could read and change all "
    "of them. Put the notebook into a folder of its own, or allow it: carrel kernelspec install --home";

/* Whether the home directory is this one or below it. */
static bool holds_home(const char *here)
{
    const char *home = getenv("HOME");
    char *real = home && home[0] == '/' ? realpath(home, NULL) : NULL;
    size_t n = strlen(here);

    bool holds = real && strncmp(real, here, n) == 0 && (real[n] == '\0' || real[n] == '/');
    free(real);
    return holds;
}

/* The directory that this program was started in, unless a box has its own directory at that path. */
static int open_here(struct kernel_launch *k)
{
    static const char *const own[] = {
        "/usr", "/etc", "/proc", "/sys", "/dev", "/bin", "/lib", "/sbin", "/tmp", "/run", "/var/tmp"
    };
    char *here = getcwd(NULL, 0);
    bool usable = here && here[0] == '/' && here[1] && strlen(here) < 240;

    for (size_t i = 0; usable && i < sizeof own / sizeof *own; i++) {
        size_t n = strlen(own[i]);
        if (strncmp(here, own[i], n) == 0 && (here[n] == '\0' || (here[n] == '/' && !strstr(own[i], "tmp"))))
            usable = false;
    }
    k->tells_home = usable && !k->no_mount && !k->with_home && holds_home(here);
    if (k->tells_home)
        fprintf(stderr, "carrel: kernel: %s\n", home_is_closed);
    else if (usable && !k->no_mount)
        snprintf(k->cwd, sizeof k->cwd, "%s", here);
    free(here);
    return k->cwd[0] && k->client.server.is_unix ? open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

static int ask_with_fd(struct kernel_launch *k, json_t *body, int fd, json_t **ret)
{
    struct err e = { 0 };
    struct exchange *x = malloc(sizeof *x);
    char *text = json_dumps(body, JSON_COMPACT);
    int status = -1;

    json_decref(body);
    if (!x || !text)
        (void)client_complain((err_at(&e, ENOMEM, STEP_MEMORY, 0, "request"), &e));
    else if (exchange_open_with(x, &k->client.server, "POST", "/v1/boxes",
                                "Content-Type: application/json\r\nConnection: close\r\n", (int64_t)strlen(text), &fd,
                                fd >= 0, &e) < 0)
        (void)client_complain(&e);
    else {
        (void)!exchange_send(x, text, strlen(text));
        if (exchange_answer(x, &e) < 0) {
            (void)client_complain(&e);
        } else {
            *ret = client_read_json(x);
            status = x->status < 300 ? 0 : (client_refused(x->status, *ret), -1);
        }
        exchange_close(x);
    }
    free(text);
    free(x);
    return status;
}

static int make_box(struct kernel_launch *k)
{
    json_t *body = json_pack("{s:O,s:i,s:{s:s}}", "limits", k->limits, "idle_timeout", ABANDONED_S, "labels",
                             "made-by", "carrel-kernel");
    json_t *answer = NULL;
    FD here = open_here(k), envelope = -1;

    json_object_set_new(body, "template", json_string(k->template ? k->template : "python"));
    if (here >= 0 && envelope_make(here, &envelope) == 0)
        json_object_set_new(body, "mounts", json_pack("[{s:s,s:s,s:b,s:i}]", "source", k->cwd, "target", k->cwd,
                                                      "writable", 1, "fd", 0));
    else
        k->cwd[0] = '\0';
    if (json_object_size(k->limits) == 0)
        json_object_del(body, "limits");
    if (ask_with_fd(k, body, envelope, &answer) < 0) {
        json_decref(answer);
        return -1;
    }
    snprintf(k->box, sizeof k->box, "%s", text_of(answer, "id"));
    json_decref(answer);
    return 0;
}

static int make_kernel(struct kernel_launch *k)
{
    struct err e = { 0 };
    char target[400];
    json_t *answer = NULL, *body = json_pack("{s:O}", "env", k->env);

    if (k->cwd[0])
        json_object_set_new(body, "cwd", json_string(k->cwd));
    if (client_call(&k->client, "POST", target_box(k->box, "/kernels"), body, &answer) < 0)
        return -1;
    snprintf(k->id, sizeof k->id, "%s", text_of(answer, "id"));
    json_decref(answer);
    snprintf(target, sizeof target, "/api/kernels/%s/channels?session_id=carrel-kernel-%d", k->id, (int)getpid());
    if (wsclient_open(&k->socket, &k->client.server, target, "v1.kernel.websocket.jupyter.org", &e) == 0)
        return 0;
    (void)client_complain(&e);
    return -1;
}

static void delete_box(struct kernel_launch *k)
{
    struct err e;
    json_t *answer = NULL;

    if (k->box[0] && client_ask(&k->client, "DELETE", target_box(k->box, ""), NULL, &answer, &e) >= 0)
        json_decref(answer);
    k->box[0] = '\0';
}

/* ---- messages ---- */

static struct iovec text_part(const char *text)
{
    return (struct iovec){ (void *)(uintptr_t)text, strlen(text) };
}

/* Sends to the clients in the kernel's name. */
static void tell(struct kernel_launch *k, enum kernel_channel channel, const char *type, const struct iovec *parent,
                 const char *content)
{
    static unsigned number;
    struct timespec now;
    struct tm utc;
    char header[400], date[32];

    clock_gettime(CLOCK_REALTIME, &now);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(header, sizeof header,
             "{\"msg_id\":\"carrel-%d-%u\",\"session\":\"%.140s\",\"username\":\"carrel\",\"date\":\"%s.%06ldZ\","
             "\"msg_type\":\"%s\",\"version\":\"5.3\"}",
             (int)getpid(), ++number, k->id, date, now.tv_nsec / 1000, type);
    struct wire w = { .channel = channel,
                      .part = { text_part(header), parent ? *parent : text_part("{}"), text_part("{}"),
                                text_part(content) } };
    zmq_tell(k->zmq, &w, k->id);
}

/* Beside the output of the first cell: there the reader looks for the file that is missing. */
static void tell_home(struct kernel_launch *k, const struct wire *w)
{
    char content[512];

    snprintf(content, sizeof content, "{\"name\":\"stderr\",\"text\":\"%s\\n\"}", home_is_closed);
    tell(k, KERNEL_IOPUB, "stream", &w->part[PART_HEADER], content);
    k->tells_home = false;
}

static void on_request(const struct wire *w, enum kernel_channel channel, json_t *header, void *arg)
{
    struct kernel_launch *k = arg;
    const char *type = text_of(header, "msg_type");

    if (channel == KERNEL_CONTROL && strcmp(type, "shutdown_request") == 0) {
        json_t *content = json_loadb(w->part[PART_CONTENT].iov_base, w->part[PART_CONTENT].iov_len, 0, NULL);
        bool restart = json_is_true(json_object_get(content, "restart"));
        const char *answer = restart ? "{\"status\":\"ok\",\"restart\":true}" : "{\"status\":\"ok\",\"restart\":false}";
        json_decref(content);
        tell(k, KERNEL_CONTROL, "shutdown_reply", &w->part[PART_HEADER], answer);
        tell(k, KERNEL_IOPUB, "shutdown_reply", &w->part[PART_HEADER], answer);
        k->ending = true;
        return;
    }
    if (k->tells_home && strcmp(type, "execute_request") == 0)
        tell_home(k, w);
    buf_clear(&k->out);
    wire_to_v1(w, channel, &k->out);
    if (buf_error(&k->out) < 0 || wsclient_send(&k->socket, k->out.data, k->out.length) < 0)
        fputs("carrel: kernel: a message is too large, or the kernel does not read; it was dropped\n", stderr);
}

/* For a dead kernel the server answers pending requests with an error of the cell. A Jupyter program must see the death
 * of this process instead: nbclient then raises DeadKernelError, and no error of a cell. */
static bool tells_death(struct kernel_launch *k, const struct wire *w)
{
    static const char own[] = "\"session\":\"carrel\"", name[] = "\"DeadKernelError\"";
    const struct iovec *header = &w->part[PART_HEADER], *content = &w->part[PART_CONTENT];

    if (!memmem(header->iov_base, header->iov_len, own, strlen(own)) ||
        !memmem(content->iov_base, content->iov_len, name, strlen(name)))
        return false;
    json_t *said = json_loadb(content->iov_base, content->iov_len, 0, NULL);
    fprintf(stderr, "carrel: kernel: %s\n", parse_quote(text_of(said, "evalue")).text);
    json_decref(said);
    k->ending = true;
    k->status = 1;
    return true;
}

static void on_answer(const char *data, size_t size, void *arg)
{
    struct kernel_launch *k = arg;
    struct wire w;

    if (wire_from_v1(data, size, &w) < 0 || k->ending || tells_death(k, &w))
        return;
    zmq_tell(k->zmq, &w, k->id);
    /* The server would restart the kernel; but Jupyter's own programs watch this process, and decide. */
    const struct iovec *content = &w.part[PART_CONTENT];
    if (w.channel == KERNEL_IOPUB && w.part[PART_PARENT].iov_len <= 2 &&
        (memmem(content->iov_base, content->iov_len, "\"dead\"", 6) ||
         memmem(content->iov_base, content->iov_len, "\"restarting\"", 12))) {
        k->ending = true;
        k->status = 1;
    }
}

static void on_signal(struct kernel_launch *k)
{
    struct signalfd_siginfo info;
    struct err e;
    json_t *answer = NULL;
    char rest[] = "/kernels/default/interrupt";

    if (read(k->signals, &info, sizeof info) != sizeof info)
        return;
    if (info.ssi_signo != SIGINT) {
        k->ending = true;
        return;
    }
    if (client_ask(&k->client, "POST", target_box(k->box, rest), NULL, &answer, &e) >= 0)
        json_decref(answer);
}

/* ---- the loop ---- */

static int turn(struct kernel_launch *k, int wait_ms)
{
    enum { POLL_SOCKET = ZMQ_POLLS, POLL_SIGNALS, POLL_PARENT, POLLS };
    struct pollfd fds[POLLS];

    zmq_poll(k->zmq, fds);
    fds[POLL_SOCKET] = (struct pollfd){ .fd = k->socket.closed ? -1 : k->socket.x->fd,
                                        .events = k->socket.out.length ? POLLIN | POLLOUT : POLLIN };
    fds[POLL_SIGNALS] = (struct pollfd){ .fd = k->signals, .events = POLLIN };
    fds[POLL_PARENT] = (struct pollfd){ .fd = k->parent, .events = POLLIN };
    if (poll(fds, POLLS, wait_ms) < 0 && errno != EINTR)
        return -errno;
    zmq_work(k->zmq, fds);
    if (fds[POLL_SOCKET].revents & POLLOUT && wsclient_write(&k->socket) < 0)
        k->socket.closed = true;
    if (fds[POLL_SOCKET].revents & (POLLIN | POLLHUP | POLLERR) && wsclient_read(&k->socket, on_answer, k) < 0)
        k->socket.closed = true;
    if (fds[POLL_SIGNALS].revents)
        on_signal(k);
    if (fds[POLL_PARENT].revents) {
        k->ending = true;
        k->parent = fd_close(k->parent);
    }
    return 0;
}

static int serve(struct kernel_launch *k)
{
    while (!k->ending && !k->socket.closed)
        if (turn(k, -1) < 0)
            return EXIT_CLIENT;
    if (k->socket.closed && !k->ending) {
        tell(k, KERNEL_IOPUB, "status", NULL, "{\"execution_state\":\"dead\"}");
        fputs("carrel: kernel: the server has closed the connection\n", stderr);
        k->status = SERVER_GONE;
    }
    uint64_t end = clock_monotonic_us() + FLUSH_MS * 1000ull;
    while (!zmq_is_flushed(k->zmq) && clock_monotonic_us() < end)
        if (turn(k, 10) < 0)
            break;
    return k->status;
}

static int catch_signals(void)
{
    sigset_t ours;

    sigemptyset(&ours);
    sigaddset(&ours, SIGINT);
    sigaddset(&ours, SIGTERM);
    sigaddset(&ours, SIGHUP);
    return sigprocmask(SIG_BLOCK, &ours, NULL) < 0 ? -1 : signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Watches the whole parent process: PDEATHSIG fires when the thread that started us ends, and programs start kernels in
 * threads that live for one request. An orphan was meant to live on. */
static void watch_parent(struct kernel_launch *k)
{
    pid_t parent = getppid();

    k->parent = (int)syscall(SYS_pidfd_open, parent, 0);
    if (k->parent < 0 && errno != ESRCH)
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);     /* it is in another namespace, or Linux has no pidfds yet */
    if (getppid() != parent)
        k->ending = true;
}

static int run(struct kernel_launch *k)
{
    struct err e = { 0 };
    int status = EXIT_CLIENT;

    k->zmq->on_message = on_request;
    k->zmq->arg = k;
    buf_init(&k->out, ZMTP_MESSAGE_MOST);
    k->signals = catch_signals();
    watch_parent(k);
    if (zmq_open(k->zmq, k->file, &e) < 0)
        return client_complain(&e);
    if (k->signals < 0 || find_server(k, &e) < 0)
        (void)client_complain(&e);
    else if (make_box(k) == 0 && make_kernel(k) == 0)
        status = serve(k);
    delete_box(k);
    wsclient_done(&k->socket);
    zmq_close(k->zmq);
    private_server_end(&k->own);
    fd_close(k->signals);
    fd_close(k->parent);
    buf_done(&k->out);
    return status;
}

int client_kernel(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "f", 'f', true, set_file },
        { "python", 0, true, set_python },
        { "template", 0, true, set_template },
        { "memory", 'm', true, set_memory },
        { "cpus", 0, true, set_cpus },
        { "pids", 0, true, set_pids },
        { "disk", 0, true, set_disk },
        { "env", 'e', true, set_env },
        { "spec", 0, true, set_spec },
        { "no-mount", 0, false, set_no_mount },
        { "home", 0, false, set_home },
    };
    struct kernel_launch k = { .client = { .name = "kernel", .usage = usage, .may_lack_server = true },
                            .zmq = calloc(1, sizeof *k.zmq), .limits = json_object(), .env = json_object(),
                            .signals = -1, .parent = -1 };
    struct words words;
    argc = given_arguments(argc, argv, k.env);
    int status = client_begin(&k.client, argc, argv, flags, sizeof flags / sizeof *flags, &k, false, &words);

    if (status < 0 && (words.n > 0 || !k.file))
        status = client_misused(&k.client, words.n > 0 ? "'%s' is not an option" : "-f CONNECTION_FILE is missing%s",
                                words.n > 0 ? parse_quote(words.at[0]).text : "");
    if (status < 0) {
        given_environment(k.env, k.spec);
        status = k.zmq ? run(&k) : EXIT_CLIENT;
    }
    free(k.zmq);
    json_decref(k.limits);
    json_decref(k.env);
    return status;
}
