/* A server on this host sends a secret word to every client. It listens on a port of the loopback that the rule of a
 * box allows, on another that it does not allow, on IPv6's loopback, and on an address of the host of each family. The
 * box tries them, and more; it must receive the word from the first only. A second box, without rules, must not receive
 * it at all.
 *
 *   doctor --- child: sends the word
 *          --- carrel run --allow doctor.localhost:PORT -- carrel doctor --net-probe TARGET...   (net_probe.c) */
#define _GNU_SOURCE
#include "cli/doctor/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/jsonout.h"
#include "base/jsonscan.h"
#include "cli/commands.h"

#define IN_BOX "/opt/carrel-doctor"

enum place { ALLOWED, OTHER_PORT, OWN_ADDRESS, LOOPBACK6, OWN_ADDRESS6, PLACES };
enum { TRIALS = 10, WORDS = 32, SAID = 8192, REPORT = 65536 };

struct trial {
    const char *meaning;        /* shown after the target */
    char        target[80];     /* for the probe */
    bool        must_reach;
    char        found[160];     /* "reached TOKEN", "failed Network is unreachable"; "": not tried */
    bool        holds;
};

struct net_doctor {
    char                  token[NET_TOKEN];
    int                   listener[PLACES];
    uint16_t              port[PLACES];
    char                  own[INET_ADDRSTRLEN], own6[INET6_ADDRSTRLEN];     /* "": only loopback's */
    pid_t                 server;
    struct doctor_network network;
    char                  rule[64];
    size_t                n;
    struct trial          trial[2][TRIALS];         /* of the box with the rule, and of the one without */
};

/* ---- the server ---- */

static int listen_at(const char *address, uint16_t *ret_port)
{
    struct addrinfo *at = NULL;
    const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_PASSIVE, .ai_socktype = SOCK_STREAM };
    struct sockaddr_in6 bound;      /* the port is at the same place in both families */
    socklen_t size = sizeof bound;

    if (!address[0] || getaddrinfo(address, "0", &hints, &at) != 0)
        return -1;
    FD fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool listens = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 16) == 0 &&
                   getsockname(fd, (struct sockaddr *)&bound, &size) == 0;
    freeaddrinfo(at);
    if (!listens)
        return -1;
    *ret_port = ntohs(bound.sin6_port);
    return TAKE_FD(fd);
}

/* The first that is neither loopback's nor one of a single link. */
static void find_own_address(int family, char *ret, size_t size)
{
    struct ifaddrs *all = NULL;

    ret[0] = '\0';
    if (getifaddrs(&all) < 0)
        return;
    for (const struct ifaddrs *one = all; one && !ret[0]; one = one->ifa_next) {
        const struct sockaddr_in6 *v6 = (const void *)one->ifa_addr;
        if (!v6 || v6->sin6_family != family || one->ifa_flags & IFF_LOOPBACK || !(one->ifa_flags & IFF_UP) ||
            (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)))
            continue;
        const void *address = family == AF_INET6 ? (const void *)&v6->sin6_addr
                                                 : &((const struct sockaddr_in *)(const void *)one->ifa_addr)->sin_addr;
        (void)!inet_ntop(family, address, ret, (socklen_t)size);
    }
    freeifaddrs(all);
}

static _Noreturn void serve(const struct net_doctor *d, pid_t parent)
{
    struct pollfd wait[PLACES];

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(1);
    for (size_t i = 0; i < PLACES; i++)
        wait[i] = (struct pollfd){ .fd = d->listener[i], .events = POLLIN };
    while (poll(wait, PLACES, -1) > 0 || errno == EINTR)
        for (size_t i = 0; i < PLACES; i++)
            if (wait[i].revents & POLLIN) {
                int fd = accept4(wait[i].fd, NULL, NULL, SOCK_CLOEXEC);
                (void)!send(fd, d->token, strlen(d->token), MSG_NOSIGNAL);
                fd_close(fd);
            }
    _exit(1);
}

static int open_server(struct net_doctor *d)
{
    unsigned char bytes[(NET_TOKEN - 1) / 2];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -1;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(d->token + 2 * i, 3, "%02x", bytes[i]);
    find_own_address(AF_INET, d->own, sizeof d->own);
    find_own_address(AF_INET6, d->own6, sizeof d->own6);
    d->listener[ALLOWED] = listen_at("127.0.0.1", &d->port[ALLOWED]);
    d->listener[OTHER_PORT] = listen_at("127.0.0.1", &d->port[OTHER_PORT]);
    d->listener[OWN_ADDRESS] = listen_at(d->own, &d->port[OWN_ADDRESS]);
    d->listener[LOOPBACK6] = listen_at("::1", &d->port[LOOPBACK6]);
    d->listener[OWN_ADDRESS6] = listen_at(d->own6, &d->port[OWN_ADDRESS6]);
    if (d->listener[ALLOWED] < 0 || d->listener[OTHER_PORT] < 0)
        return -1;
    pid_t self = getpid();
    fflush(stdout);
    d->server = fork();
    if (d->server == 0)
        serve(d, self);
    return d->server < 0 ? -1 : 0;
}

static void close_server(struct net_doctor *d)
{
    for (size_t i = 0; i < PLACES; i++)
        d->listener[i] = fd_close(d->listener[i]);
    if (d->server <= 0)
        return;
    (void)kill(d->server, SIGKILL);
    while (waitpid(d->server, NULL, 0) < 0 && errno == EINTR)
        ;
}

/* ---- boxes ---- */

static _Noreturn void become(char **argv, int out, int err)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0)
        execv("/proc/self/exe", argv);
    _exit(EXIT_CARREL);
}

/* Runs this program; out and err are memfds. The exit status, or -1. */
static int run_self(char **argv, int out, int err)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0)
        become(argv, out, err);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void read_all(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);

    text[n > 0 ? n : 0] = '\0';
}

/* A text member of the report of `carrel run --json`, or of its member `within`; "" if missing. */
static void take_text(int report, const char *within, const char *name, char *ret, size_t size)
{
    static char text[REPORT];

    read_all(report, text, sizeof text);
    struct jsonslice all = { text, strlen(text) };
    ret[0] = '\0';
    if (!jsonscan_is_object(all.data, all.size))
        return;
    struct jsonslice value = jsonscan_find(within ? jsonscan_find(all, within) : all, name);
    if (!value.data || !jsonscan_text(value, ret, size))
        ret[0] = '\0';
}

/* The first line that carrel printed, without its name. */
static void take_complaint(int err, char *ret, size_t size)
{
    char text[1024];

    read_all(err, text, sizeof text);
    const char *said = strncmp(text, "carrel: ", 8) == 0 ? text + 8 : text;
    snprintf(ret, size, "%.*s", (int)strcspn(said, "\n"), said[0] ? said : "a child could not be started");
}

static int make_file(void)
{
    return memfd_create("carrel-doctor", MFD_CLOEXEC);
}

void net_look(struct doctor_network *ret)
{
    FD out = make_file(), err = make_file();
    char *argv[] = { "carrel", "run", "--json", "--timeout", "60s", "--allow", "doctor.localhost:9",
                     "--", "/bin/true", NULL };
    int status = run_self(argv, out, err);

    *ret = (struct doctor_network){ .way = "" };
    take_text(out, "enforced", "network", ret->way, sizeof ret->way);
    if (!ret->way[0] || (status != 0 && status != EXIT_CANNOT_RUN && status != EXIT_NOT_FOUND)) {
        ret->way[0] = '\0';
        take_complaint(err, ret->why, sizeof ret->why);
    }
}

/* ---- trials ---- */

static void add_trial(struct net_doctor *d, const char *meaning, bool must_reach, const char *target)
{
    struct trial one = { .meaning = meaning, .must_reach = must_reach };

    snprintf(one.target, sizeof one.target, "%s", target);
    d->trial[0][d->n] = one;
    one.must_reach = false;
    d->trial[1][d->n++] = one;
}

static void plan_trials(struct net_doctor *d)
{
    char target[80];

    snprintf(d->rule, sizeof d->rule, "doctor.localhost:%u", d->port[ALLOWED]);
    snprintf(target, sizeof target, "tcp:%s", d->rule);
    add_trial(d, "what the rule allows", true, target);
    snprintf(target, sizeof target, "tcp:other.localhost:%u", d->port[ALLOWED]);
    add_trial(d, "another name for the same server", false, target);
    snprintf(target, sizeof target, "tcp:doctor.localhost:%u", d->port[OTHER_PORT]);
    add_trial(d, "another port of the name", false, target);
    snprintf(target, sizeof target, "tcp:127.0.0.1:%u", d->port[ALLOWED]);
    add_trial(d, "the host's loopback by its address", false, target);
    if (d->listener[LOOPBACK6] >= 0) {
        snprintf(target, sizeof target, "tcp:[::1]:%u", d->port[LOOPBACK6]);
        add_trial(d, "the same in IPv6", false, target);
    }
    if (d->listener[OWN_ADDRESS] >= 0) {
        snprintf(target, sizeof target, "tcp:%s:%u", d->own, d->port[OWN_ADDRESS]);
        add_trial(d, "an address of this host", false, target);
    }
    if (d->listener[OWN_ADDRESS6] >= 0) {
        snprintf(target, sizeof target, "tcp:[%s]:%u", d->own6, d->port[OWN_ADDRESS6]);
        add_trial(d, "the same in IPv6", false, target);
    }
    add_trial(d, "where clouds keep credentials", false, "tcp:169.254.169.254:80");
    add_trial(d, "the same in IPv6", false, "tcp:[fd00:ec2::254]:80");
    add_trial(d, "UDP", false, "udp:192.0.2.1:443");
}

/* One box for all trials. False: it could not be made; network.why has the reason. */
static bool try_box(struct net_doctor *d, const char *mount, bool with_rule)
{
    static char text[SAID];
    struct trial *trials = d->trial[with_rule ? 0 : 1];
    char *argv[WORDS] = { "carrel", "run", "--json", "--timeout", "180s", "--mount",
                          (char *)(uintptr_t)mount };
    size_t n = 0;
    FD out = make_file(), err = make_file();

    while (argv[n])
        n++;
    if (with_rule) {
        argv[n++] = "--allow";
        argv[n++] = d->rule;
    }
    argv[n++] = "--";
    argv[n++] = IN_BOX;
    argv[n++] = "doctor";
    argv[n++] = "--net-probe";
    for (size_t i = 0; i < d->n; i++)
        argv[n++] = trials[i].target;
    int status = run_self(argv, out, err);
    take_text(out, NULL, "stdout", text, sizeof text);
    if (with_rule)
        take_text(out, "enforced", "network", d->network.way, sizeof d->network.way);
    char *line = text;
    for (size_t i = 0; i < d->n; i++) {
        size_t length = strcspn(line, "\n");
        bool is_reached = strncmp(line, "reached ", 8) == 0;
        bool is_token = is_reached && length - 8 == strlen(d->token) && memcmp(line + 8, d->token, length - 8) == 0;
        snprintf(trials[i].found, sizeof trials[i].found, "%.*s", (int)length, line);
        trials[i].holds = trials[i].must_reach ? is_token : strncmp(line, "failed ", 7) == 0;
        line += length + (line[length] == '\n');
    }
    if (status != 0)
        take_complaint(err, d->network.why, sizeof d->network.why);
    return status == 0;
}

/* ---- output ---- */

static bool all_hold(const struct net_doctor *d)
{
    for (size_t i = 0; i < d->n; i++)
        if (!d->trial[0][i].holds || !d->trial[1][i].holds)
            return false;
    return d->n > 0;
}

static const char *words_of(const struct trial *t)
{
    return strncmp(t->found, "failed ", 7) == 0    ? t->found + 7
           : strncmp(t->found, "reached ", 8) == 0 ? t->must_reach && !t->holds ? "something else answered" : "reached"
                                                   : "it was not tried";
}

static void print_words(const struct net_doctor *d)
{
    for (size_t box = 0; box < 2; box++) {
        if (box == 0)
            printf("a box with --allow %s (%s)\n", d->rule, d->network.way);
        else
            printf("\na box without rules\n");
        for (size_t i = 0; i < d->n; i++) {
            const struct trial *t = &d->trial[box][i];
            printf("  %-8s %-28s %s; %s\n", t->holds ? "ok" : t->must_reach ? "broken" : "OPEN", t->target + 4,
                   words_of(t), t->meaning);
        }
    }
    puts(all_hold(d) ? "\nThe walls of the network hold here."
                     : "\nThe network of boxes does NOT hold here: see above.");
}

static void print_objects(const struct net_doctor *d)
{
    struct buf out;
    struct jsonout j;

    buf_init(&out, 1 << 16);
    jsonout_init(&j, &out);
    jsonout_open_object(&j, NULL);
    jsonout_bool(&j, "holds", all_hold(d));
    jsonout_string(&j, "network", d->network.way);
    jsonout_open_array(&j, "trials");
    for (size_t i = 0; i < 2 * d->n; i++) {
        const struct trial *t = i < d->n ? &d->trial[0][i] : &d->trial[1][i - d->n];
        jsonout_open_object(&j, NULL);
        jsonout_string(&j, "rule", i < d->n ? d->rule : NULL);
        jsonout_string(&j, "target", t->target);
        jsonout_string(&j, "meaning", t->meaning);
        jsonout_bool(&j, "must_reach", t->must_reach);
        jsonout_string(&j, "found", words_of(t));
        jsonout_bool(&j, "holds", t->holds);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    jsonout_close(&j);
    if (jsonout_finish(&j) == 0)
        puts(buf_string(&out));
    buf_done(&out);
}

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "carrel: the network of boxes cannot be tried: %s%s%s\n", what, why[0] ? ": " : "", why);
    return 1;
}

int net_main(bool json)
{
    static struct net_doctor d = { .listener = { -1, -1, -1, -1, -1 } };
    char self[PATH_MAX], mount[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    int status = 1;

    self[n > 0 ? n : 0] = '\0';
    if (strchr(self, ':'))
        return fail("there is a colon in the path of this program", self);
    snprintf(mount, sizeof mount, "%s:" IN_BOX, self);
    if (open_server(&d) < 0) {
        status = fail("no server on the loopback of this host", strerror(errno));
    } else {
        plan_trials(&d);
        if (!try_box(&d, mount, true) || !try_box(&d, mount, false)) {
            status = fail("a box ended early", d.network.why);
        } else {
            if (json) {
                print_objects(&d);
            } else {
                print_words(&d);
                cli_print_indexes();
            }
            status = all_hold(&d) && fflush(stdout) == 0 ? 0 : 1;
        }
    }
    close_server(&d);
    return status;
}
