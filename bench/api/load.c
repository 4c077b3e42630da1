/* The load of the API benchmark. Each command measures one thing and prints a line per series: its name, then the
 * samples in microseconds. Things that are compared are taken in turns, so that a busy moment of the machine meets them
 * all.
 *
 *   load create ROUNDS SOCKET...                   create and delete a box, in turns on each server
 *   load exec ROUNDS SOCKET BOX [NAME COMMAND ;]   `true` in a live box, in turns with the commands
 *   load proxy ROUNDS SOCKET BOX PORT NETNS        a request through the server, and the same inside the box's network
 *   load cycle SECONDS SOCKET FLIGHT [BODY]        create, exec, delete, on FLIGHT connections: how many per second
 *   load many COUNT SOCKET                         boxes that stay
 *   load list ROUNDS SOCKET PATH                   GET
 *   load read|write ROUNDS SOCKET PATH BYTES       a file */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "measure.h"

enum { SERVERS_MAX = 4, PEERS_MAX = 4, FLIGHT_MAX = 32, COMMAND_DEADLINE_US = 20000000 };

static const char box_small[] = "{\"limits\":{\"memory\":\"256M\",\"disk\":\"64M\",\"pids\":128,\"cpus\":1}}";
static const char run_true[] = "{\"argv\":[\"/bin/true\"]}";

static void add(struct series *s, uint64_t us)
{
    struct sample sample = { .wall_us = us };

    if (series_add(s, &sample) < 0)
        client_die("no memory");
}

static void print(const char *name, const struct series *s)
{
    printf("%s", name);
    for (size_t i = 0; i < s->count; i++)
        printf(" %llu", (unsigned long long)s->sample[i].wall_us);
    putchar('\n');
}

static void expect(struct client *c, int got, int wanted, const char *what)
{
    if (got != wanted)
        client_die("%s: status %d: %s", what, got, c->body);
}

static void box_path(struct client *c, char path[64])
{
    char id[32];
    snprintf(path, 64, "/v1/boxes/%s", client_string(c, "id", id, sizeof id));
}

/* Its outcome must be "ok". */
static void exec_true(struct client *c, const char *path)
{
    char text[96];

    snprintf(text, sizeof text, "%s/exec", path);
    expect(c, client_ask(c, "POST", text, run_true), 200, "exec");
    if (strcmp(client_string(c, "outcome", text, sizeof text), "ok") != 0)
        client_die("/bin/true: %s", c->body);
}

/* ---- create ---- */

static void create(unsigned rounds, char **sockets, unsigned n)
{
    struct client *c[SERVERS_MAX];
    static struct series made[SERVERS_MAX], missed[SERVERS_MAX], gone[SERVERS_MAX];
    char path[64], name[32], from[8];

    for (unsigned k = 0; k < n; k++)
        c[k] = client_unix(sockets[k]);
    for (unsigned i = 0; i < rounds; i++)
        for (unsigned k = 0; k < n; k++) {
            /* The pool fills itself behind our back; a round waits long enough that it may. */
            clock_wait_us(15000);
            uint64_t start = clock_now_us();
            expect(c[k], client_ask(c[k], "POST", "/v1/boxes", "{}"), 201, "create");
            uint64_t us = clock_now_us() - start;
            bool hit = strstr(c[k]->body, "\"from_pool\"") &&
                       strcmp(client_string(c[k], "from_pool", from, sizeof from), "true") == 0;
            add(hit || k > 0 ? &made[k] : &missed[k], us);
            box_path(c[k], path);
            start = clock_now_us();
            expect(c[k], client_ask(c[k], "DELETE", path, NULL), 204, "delete");
            add(&gone[k], clock_now_us() - start);
        }
    for (unsigned k = 0; k < n; k++) {
        snprintf(name, sizeof name, "create%u", k);
        print(name, &made[k]);
        snprintf(name, sizeof name, "missed%u", k);
        print(name, &missed[k]);
        snprintf(name, sizeof name, "delete%u", k);
        print(name, &gone[k]);
    }
}

/* ---- exec ---- */

static void exec(unsigned rounds, const char *socket, const char *box, int argc, char **argv)
{
    struct client *c = client_unix(socket);
    struct series api = { 0 }, peer[PEERS_MAX] = { 0 };
    char **command[PEERS_MAX], *name[PEERS_MAX], path[64];
    unsigned n = 0;

    for (int i = 0; i < argc; i++) {
        if (n == PEERS_MAX)
            client_die("too many commands");
        name[n] = argv[i++];
        command[n++] = argv + i;
        while (i < argc && strcmp(argv[i], ";") != 0)
            i++;
        if (i < argc)
            argv[i] = NULL;
    }
    if (measure_init() < 0)
        client_die("cannot be a subreaper");
    snprintf(path, sizeof path, "/v1/boxes/%s", box);
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t start = clock_now_us();
        exec_true(c, path);
        add(&api, clock_now_us() - start);
        for (unsigned k = 0; k < n; k++) {
            struct sample s;
            int r = measure_command(command[k], STDERR_FILENO, COMMAND_DEADLINE_US, &s);
            if (r < 0 || s.status != 0)
                client_die("%s failed", name[k]);
            if (series_add(&peer[k], &s) < 0)
                client_die("no memory");
        }
    }
    print("api", &api);
    for (unsigned k = 0; k < n; k++)
        print(name[k], &peer[k]);
}

/* ---- proxy ---- */

static void proxy(unsigned rounds, const char *socket, const char *box, unsigned port, const char *netns)
{
    struct client *through = client_unix(socket), *kept = client_new(client_connect_in(netns, port));
    struct series proxied = { 0 }, fresh = { 0 }, alive = { 0 };
    char path[96];

    snprintf(path, sizeof path, "/v1/boxes/%s/ports/%u/hello", box, port);
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t start = clock_now_us();
        expect(through, client_ask(through, "GET", path, NULL), 200, "through the proxy");
        add(&proxied, clock_now_us() - start);
        start = clock_now_us();
        expect(kept, client_ask(kept, "GET", "/hello", NULL), 200, "kept connection");
        add(&alive, clock_now_us() - start);
        start = clock_now_us();
        struct client *once = client_new(client_connect_in(netns, port));
        expect(once, client_ask(once, "GET", "/hello", NULL), 200, "new connection");
        add(&fresh, clock_now_us() - start);
        client_free(once);
    }
    print("proxied", &proxied);
    print("kept", &alive);
    print("fresh", &fresh);
}

/* ---- many at once ---- */

struct runner {
    pthread_t     thread;
    const char   *socket, *body;
    uint64_t      until;
    unsigned      done;
    struct series cycle;
};

static void *cycle_one(void *arg)
{
    struct runner *r = arg;
    struct client *c = client_unix(r->socket);
    char path[64];

    while (clock_now_us() < r->until) {
        uint64_t start = clock_now_us();
        expect(c, client_ask(c, "POST", "/v1/boxes", r->body), 201, "create");
        box_path(c, path);
        exec_true(c, path);
        expect(c, client_ask(c, "DELETE", path, NULL), 204, "delete");
        add(&r->cycle, clock_now_us() - start);
        r->done++;
    }
    client_free(c);
    return NULL;
}

static void cycle(unsigned seconds, const char *socket, unsigned flight, const char *body)
{
    static struct runner r[FLIGHT_MAX];
    struct series all = { 0 };
    unsigned done = 0;

    if (flight > FLIGHT_MAX)
        client_die("at most %d in flight", FLIGHT_MAX);
    uint64_t start = clock_now_us();
    for (unsigned i = 0; i < flight; i++) {
        r[i] = (struct runner){ .socket = socket, .body = body, .until = start + seconds * 1000000u };
        if (pthread_create(&r[i].thread, NULL, cycle_one, &r[i]) != 0)
            client_die("no thread");
    }
    for (unsigned i = 0; i < flight; i++) {
        pthread_join(r[i].thread, NULL);
        done += r[i].done;
        for (size_t k = 0; k < r[i].cycle.count; k++)
            if (series_add(&all, &r[i].cycle.sample[k]) < 0)
                client_die("no memory");
    }
    printf("rate %.1f\n", (double)done * 1e6 / (double)(clock_now_us() - start));
    print("cycle", &all);
}

static void many(unsigned count, const char *socket)
{
    struct client *c = client_unix(socket);
    struct series made = { 0 };

    for (unsigned i = 0; i < count; i++) {
        uint64_t start = clock_now_us();
        expect(c, client_ask(c, "POST", "/v1/boxes", box_small), 201, "create");
        add(&made, clock_now_us() - start);
    }
    print("made", &made);
}

static void list(unsigned rounds, const char *socket, const char *path)
{
    struct client *c = client_unix(socket);
    struct series all = { 0 };

    for (unsigned i = 0; i < rounds; i++) {
        uint64_t start = clock_now_us();
        client_download(c, path);
        add(&all, clock_now_us() - start);
    }
    print("list", &all);
}

static void file(bool read, unsigned rounds, const char *socket, const char *path, uint64_t size)
{
    struct client *c = client_unix(socket);
    struct series all = { 0 };

    for (unsigned i = 0; i < rounds; i++) {
        uint64_t start = clock_now_us();
        if (!read)
            client_upload(c, path, size);
        else if (client_download(c, path) != size)
            client_die("the file has another size");
        add(&all, clock_now_us() - start);
    }
    print(read ? "read" : "write", &all);
}

int main(int argc, char **argv)
{
    const char *what = argc > 3 ? argv[1] : "";
    unsigned n = argc > 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;

    if (n == 0)
        client_die("usage: load COMMAND COUNT SOCKET ...");
    if (strcmp(what, "create") == 0 && argc - 3 <= SERVERS_MAX)
        create(n, argv + 3, (unsigned)argc - 3);
    else if (strcmp(what, "exec") == 0 && argc >= 5)
        exec(n, argv[3], argv[4], argc - 5, argv + 5);
    else if (strcmp(what, "proxy") == 0 && argc == 7)
        proxy(n, argv[3], argv[4], (unsigned)strtoul(argv[5], NULL, 10), argv[6]);
    else if (strcmp(what, "cycle") == 0 && argc >= 5)
        cycle(n, argv[3], (unsigned)strtoul(argv[4], NULL, 10), argc > 5 ? argv[5] : "{}");
    else if (strcmp(what, "many") == 0)
        many(n, argv[3]);
    else if (strcmp(what, "list") == 0 && argc == 5)
        list(n, argv[3], argv[4]);
    else if ((strcmp(what, "read") == 0 || strcmp(what, "write") == 0) && argc == 6)
        file(what[0] == 'r', n, argv[3], argv[4], strtoull(argv[5], NULL, 10));
    else
        client_die("unknown command %s", what);
    return 0;
}
