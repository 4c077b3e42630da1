/* A stock kernel in a box: it speaks ZeroMQ on sockets in a private directory, and the bridge translates to the link.
 *
 *   front <-- link: seqpacket, v1 messages --> bridge <-- ZMTP over unix sockets --> kernel
 *
 * usage: carrel-bridge [--interrupt-by-message] -- COMMAND … {connection_file} …
 *
 * The link is standard input. The kernel is a child in the bridge's own process group, so a signal for the group
 * reaches it; the bridge itself ignores SIGINT, or turns it into a message for kernels that want one. Until the kernel
 * has answered on its shell and on iopub nothing is read from the link: a subscription takes a moment, and messages
 * published before it are lost. When the kernel ends, so does the bridge, in the same way. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "proto/kernel.h"
#include "zmtp/wire.h"

enum {
    RETRY_MS = 20,
    NUDGE_MS = 100,
    START_MS = 120000,
    OWN_FD = 10,            /* the link, at a number that the kernel's own descriptors do not use */
    LAST_PIECES = 256,      /* of a channel, after the kernel's end; its buffer is one or two */
};

static const int ports[KERNEL_CHANNELS] = {
    [KERNEL_SHELL] = 1, [KERNEL_IOPUB] = 2, [KERNEL_STDIN] = 3, [KERNEL_CONTROL] = 4
};

static struct {
    int             link, signals, kernel;      /* kernel: its pidfd */
    pid_t           pid;
    char            folder[64], file[96];
    struct wire_key key;
    struct {
        int         fd;                         /* -1: not connected yet */
        struct zmtp zmtp;
    } channel[KERNEL_CHANNELS];
    bool            by_message;
    bool            answered, published;        /* the kernel has, to our request */
    unsigned        questions;
    char            session[33];
    struct buf      message;                    /* from the link, the received part */
    uint32_t        total;                      /* of it; 0: none has begun */
    struct buf      out;
} bridge;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "carrel-bridge: %s: %s\n", what, strerror(errno));
    exit(125);
}

static bool is_ready(void)
{
    return bridge.answered && bridge.published;
}

/* ---- to the front ---- */

static void send_packets(const char *data, size_t size)
{
    static char packet[sizeof(struct link_packet) + LINK_PACKET];

    for (size_t at = 0; at < size;) {
        struct link_packet head = { .total = htole32((uint32_t)size), .offset = htole32((uint32_t)at) };
        size_t piece = size - at < LINK_PACKET ? size - at : LINK_PACKET;
        memcpy(packet, &head, sizeof head);
        memcpy(packet + sizeof head, data + at, piece);
        ssize_t n;
        while ((n = send(bridge.link, packet, sizeof head + piece, MSG_NOSIGNAL)) < 0 && errno == EINTR)
            ;
        if (n < 0)
            exit(0);        /* the front is gone, and the kernel ends with us */
        at += piece;
    }
}

static void tell(const struct wire *w, enum kernel_channel channel)
{
    buf_clear(&bridge.out);
    wire_to_v1(w, channel, &bridge.out);
    if (buf_error(&bridge.out) < 0) {
        fprintf(stderr, "carrel-bridge: the kernel's message is too large and was dropped\n");
        return;
    }
    send_packets(bridge.out.data, bridge.out.length);
}

/* ---- messages of our own ---- */

static struct iovec text_part(const char *text)
{
    return (struct iovec){ (void *)(uintptr_t)text, strlen(text) };
}

static void make_header(char *header, size_t size, const char *type)
{
    struct timespec now;
    struct tm utc;
    char date[32];

    clock_gettime(CLOCK_REALTIME, &now);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(header, size,
             "{\"msg_id\":\"%s_%u\",\"session\":\"%s\",\"username\":\"carrel\",\"date\":\"%s.%06ldZ\","
             "\"msg_type\":\"%s\",\"version\":\"5.3\"}",
             bridge.session, ++bridge.questions, bridge.session, date, now.tv_nsec / 1000, type);
}

static void send_kernel(int channel, const struct wire *w)
{
    struct iovec part[ZMTP_PARTS];
    char signature[HMAC_HEX + 1];
    int n = wire_to_zmq(&bridge.key, w, signature, part);

    if (n < 0 || zmtp_send(&bridge.channel[channel].zmtp, part, (size_t)n) < 0)
        fprintf(stderr, "carrel-bridge: the kernel does not read; a message was dropped\n");
}

static void ask(int channel, const char *type)
{
    char header[256];

    make_header(header, sizeof header, type);
    struct wire w = { .part = { text_part(header), text_part("{}"), text_part("{}"), text_part("{}") } };
    send_kernel(channel, &w);
}

/* The front expects the status idle as a kernel's first message. */
static void tell_ready(void)
{
    char header[256];

    make_header(header, sizeof header, "status");
    struct wire w = { .part = { text_part(header), text_part("{}"), text_part("{}"),
                                text_part("{\"execution_state\":\"idle\"}") } };
    tell(&w, KERNEL_IOPUB);
}

/* ---- from the kernel ---- */

static void on_kernel_message(struct zmtp *z, const struct iovec *part, size_t n, void *arg)
{
    int channel = (int)(intptr_t)arg;
    bool was_ready = is_ready();
    struct wire w;

    (void)z;
    if (wire_from_zmq(&bridge.key, part, n, &w) < 0) {
        fprintf(stderr, "carrel-bridge: a message of the kernel's without a right signature was dropped\n");
        return;
    }
    if (channel == KERNEL_IOPUB)
        bridge.published = true;
    bool is_ours = memmem(w.part[PART_PARENT].iov_base, w.part[PART_PARENT].iov_len, bridge.session,
                          strlen(bridge.session)) != NULL;
    if (channel == KERNEL_SHELL && is_ours)
        bridge.answered = true;
    /* Welcome messages are ZeroMQ's business, and not every client knows them. */
    bool is_welcome = channel == KERNEL_IOPUB && memmem(w.part[PART_HEADER].iov_base, w.part[PART_HEADER].iov_len,
                                                        "\"iopub_welcome\"", 15);
    if (!is_ours && !is_welcome)
        tell(&w, channel);
    if (!was_ready && is_ready())
        tell_ready();
}

static bool connect_channel(int channel)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        fail("socket");
    snprintf(address.sun_path, sizeof address.sun_path, "%s/k-%d", bridge.folder, ports[channel]);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        fd_close(fd);
        return false;
    }
    /* The same identity on both channels lets the kernel pair questions on stdin with shell requests. */
    zmtp_open(&bridge.channel[channel].zmtp, channel == KERNEL_IOPUB ? ZMTP_SUB : ZMTP_DEALER, bridge.session,
              channel == KERNEL_IOPUB ? 0 : strlen(bridge.session));
    bridge.channel[channel].fd = fd;
    return true;
}

/* False: the kernel has closed it. */
static bool read_channel(int channel)
{
    static char data[256 << 10];
    ssize_t n = read(bridge.channel[channel].fd, data, sizeof data);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0)
        return false;
    int r = zmtp_feed(&bridge.channel[channel].zmtp, data, (size_t)n, on_kernel_message, (void *)(intptr_t)channel);
    if (r < 0) {
        errno = -r;
        fail("the kernel's ZeroMQ");
    }
    return true;
}

static void write_channel(int channel)
{
    struct zmtp *z = &bridge.channel[channel].zmtp;
    ssize_t n = send(bridge.channel[channel].fd, z->out.data, z->out.length, MSG_NOSIGNAL);

    if (n > 0)
        zmtp_sent(z, (size_t)n);
}

/* ---- from the front ---- */

static void take_message(void)
{
    struct wire w;

    if (wire_from_v1(bridge.message.data, bridge.message.length, &w) < 0)
        return;
    if (w.channel != KERNEL_IOPUB)
        send_kernel(w.channel, &w);
}

static void read_link(void)
{
    static char data[sizeof(struct link_packet) + LINK_PACKET];
    struct link_packet head;
    ssize_t n = recv(bridge.link, data, sizeof data, 0);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0)
        exit(0);
    if ((size_t)n < sizeof head)
        return;
    memcpy(&head, data, sizeof head);
    uint32_t total = le32toh(head.total), offset = le32toh(head.offset);
    if (offset == 0) {
        buf_clear(&bridge.message);
        bridge.total = total <= LINK_MESSAGE_MOST ? total : 0;
    }
    if (bridge.total == 0 || total != bridge.total || offset != bridge.message.length)
        return;         /* the rest of a message whose beginning was not for us */
    buf_add(&bridge.message, data + sizeof head, (size_t)n - sizeof head);
    if (bridge.message.length < bridge.total && buf_error(&bridge.message) == 0)
        return;
    if (bridge.message.length == bridge.total)
        take_message();
    bridge.total = 0;
}

/* ---- the kernel ---- */

static void random_hex(char *text, size_t digits)
{
    unsigned char bytes[32];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        fail("random numbers");
    for (size_t i = 0; i < digits; i++)
        text[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 * 4) & 15];
    text[digits] = '\0';
}

static void remove_files(void)
{
    char path[128];

    for (int i = 1; i <= 5; i++) {
        snprintf(path, sizeof path, "%s/k-%d", bridge.folder, i);
        unlink(path);
    }
    unlink(bridge.file);
    rmdir(bridge.folder);
}

static void make_files(void)
{
    const char *place = getenv("TMPDIR");

    if (!place || place[0] != '/' || strlen(place) > 24)
        place = "/tmp";
    snprintf(bridge.folder, sizeof bridge.folder, "%s/.kernel-XXXXXX", place);
    if (!mkdtemp(bridge.folder))
        fail(bridge.folder);
    atexit(remove_files);
    snprintf(bridge.file, sizeof bridge.file, "%s/connection.json", bridge.folder);
    random_hex(bridge.key.text, 64);
    bridge.key.size = 64;
    random_hex(bridge.session, 32);
    FD fd = open(bridge.file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || dprintf(fd,
                          "{\"transport\":\"ipc\",\"ip\":\"%s/k\",\"shell_port\":1,\"iopub_port\":2,\"stdin_port\":3,"
                          "\"control_port\":4,\"hb_port\":5,\"key\":\"%s\",\"signature_scheme\":\"hmac-sha256\","
                          "\"kernel_name\":\"\"}\n",
                          bridge.folder, bridge.key.text) < 0)
        fail(bridge.file);
}

static char **with_file(char **argv)
{
    static const char word[] = "{connection_file}";

    for (char **a = argv; *a; a++) {
        char *at = strstr(*a, word), *text;
        if (!at)
            continue;
        if (asprintf(&text, "%.*s%s%s", (int)(at - *a), *a, bridge.file, at + sizeof word - 1) < 0)
            fail("memory");
        *a = text;
    }
    return argv;
}

static void start_kernel(char **argv)
{
    pid_t parent = getpid();

    bridge.pid = fork();
    if (bridge.pid < 0)
        fail("fork");
    if (bridge.pid == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGINT, SIG_DFL);
        /* Interrupted twice, by the signal and by its message, a kernel may lose the answer that it was about to
         * send. */
        if (bridge.by_message)
            (void)setpgid(0, 0);
        unsetenv("JPY_PARENT_PID");     /* a pid from outside would look like a dead parent */
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent)
            execvp(argv[0], argv);
        fprintf(stderr, "carrel-bridge: %s: %s\n", argv[0], strerror(errno));
        _exit(errno == ENOENT ? 127 : 126);
    }
    bridge.kernel = (int)syscall(SYS_pidfd_open, bridge.pid, 0);
    if (bridge.kernel < 0)
        fail("pidfd");
}

/* Exits as the kernel did, once all its messages were passed on. */
static _Noreturn void end_with_kernel(void)
{
    const struct rlimit none = { 0, 0 };
    int status;

    for (int i = 0; i < KERNEL_CHANNELS; i++) {
        struct pollfd p = { .fd = bridge.channel[i].fd, .events = POLLIN };
        /* Its messages are here by now. The end of the channel is not waited for: processes that the kernel has forked
         * may hold the other side open for ever, or write on. */
        for (int n = 0; p.fd >= 0 && n < LAST_PIECES && poll(&p, 1, 0) > 0 && read_channel(i); n++)
            ;
    }
    while (waitpid(bridge.pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status))
        exit(WEXITSTATUS(status));
    remove_files();
    (void)setrlimit(RLIMIT_CORE, &none);
    sigset_t all;
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
}

/* ---- the loop ---- */

static void connect_all(void)
{
    for (int i = 0; i < KERNEL_CHANNELS; i++)
        if (bridge.channel[i].fd < 0)
            (void)connect_channel(i);
}

static bool all_open(void)
{
    for (int i = 0; i < KERNEL_CHANNELS; i++)
        if (bridge.channel[i].fd < 0 || bridge.channel[i].zmtp.state != ZMTP_OPEN)
            return false;
    return true;
}

/* Steps that are repeated until the kernel answers. Returns how long to wait for it. */
static int prepare(uint64_t began_us)
{
    static uint64_t asked_us;

    if (is_ready())
        return -1;
    if (clock_monotonic_us() - began_us > START_MS * 1000ull) {
        fprintf(stderr, "carrel-bridge: the kernel has not answered within %d s\n", START_MS / 1000);
        exit(125);
    }
    connect_all();
    if (all_open() && clock_monotonic_us() - asked_us > NUDGE_MS * 1000ull) {
        ask(KERNEL_SHELL, "kernel_info_request");
        asked_us = clock_monotonic_us();
    }
    return RETRY_MS;
}

static _Noreturn void serve(void)
{
    enum { POLL_LINK = KERNEL_CHANNELS, POLL_KERNEL, POLL_SIGNALS, POLLS };
    uint64_t began_us = clock_monotonic_us();
    struct pollfd poll_fds[POLLS];

    for (;;) {
        int wait_ms = prepare(began_us);
        for (int i = 0; i < KERNEL_CHANNELS; i++)
            poll_fds[i] = (struct pollfd){ .fd = bridge.channel[i].fd,
                                           .events = bridge.channel[i].zmtp.out.length ? POLLIN | POLLOUT : POLLIN };
        poll_fds[POLL_LINK] = (struct pollfd){ .fd = bridge.link, .events = is_ready() ? POLLIN : 0 };
        poll_fds[POLL_KERNEL] = (struct pollfd){ .fd = bridge.kernel, .events = POLLIN };
        poll_fds[POLL_SIGNALS] = (struct pollfd){ .fd = bridge.signals, .events = POLLIN };
        if (poll(poll_fds, POLLS, wait_ms) < 0 && errno != EINTR)
            fail("poll");
        for (int i = 0; i < KERNEL_CHANNELS; i++) {
            if (poll_fds[i].revents & POLLOUT)
                write_channel(i);
            if (poll_fds[i].revents & (POLLIN | POLLHUP | POLLERR) && !read_channel(i)) {
                zmtp_close(&bridge.channel[i].zmtp);
                bridge.channel[i].fd = fd_close(bridge.channel[i].fd);
            }
        }
        if (poll_fds[POLL_KERNEL].revents)
            end_with_kernel();
        if (poll_fds[POLL_SIGNALS].revents) {
            struct signalfd_siginfo info;
            if (read(bridge.signals, &info, sizeof info) == sizeof info)
                ask(KERNEL_CONTROL, "interrupt_request");
        }
        if (poll_fds[POLL_LINK].revents)
            read_link();
    }
}

int main(int argc, char **argv)
{
    sigset_t interrupt;
    int first = 1;

    bridge.by_message = argc > 1 && strcmp(argv[1], BRIDGE_BY_MESSAGE) == 0;
    first += bridge.by_message;
    if (first + 1 >= argc || strcmp(argv[first], BRIDGE_COMMAND) != 0) {
        fprintf(stderr, "usage: " BRIDGE_PROGRAM " [" BRIDGE_BY_MESSAGE "] " BRIDGE_COMMAND
                        " COMMAND … {connection_file} …\n");
        return 125;
    }
    bridge.link = fcntl(LINK_FD, F_DUPFD_CLOEXEC, OWN_FD);
    FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (bridge.link < 0 || null < 0 || dup2(null, LINK_FD) < 0)
        fail("standard input");
    buf_init(&bridge.message, LINK_MESSAGE_MOST);
    buf_init(&bridge.out, LINK_MESSAGE_MOST);
    for (int i = 0; i < KERNEL_CHANNELS; i++)
        bridge.channel[i].fd = -1;
    bridge.signals = -1;
    signal(SIGPIPE, SIG_IGN);
    if (bridge.by_message) {
        sigemptyset(&interrupt);
        sigaddset(&interrupt, SIGINT);
        sigprocmask(SIG_BLOCK, &interrupt, NULL);
        bridge.signals = signalfd(-1, &interrupt, SFD_CLOEXEC);
    } else {
        signal(SIGINT, SIG_IGN);
    }
    make_files();
    start_kernel(with_file(argv + first + 1));
    serve();
}
