/* Start-to-exit time of /bin/true, bare, in carrel and in its peers, side by side.
 *
 * All commands of a round run one after the other in a random order, so that a disturbance of the machine hits all of
 * them and no command always follows the same neighbour. Two passes: back to back, and with an idle pause before every
 * command, because joining a cgroup can cost milliseconds on a kernel that was idle. A command that fails before the
 * rounds is left out with a note; one that fails during the rounds makes the whole bench fail.
 *
 * runc and crun do not accept a host with v1 controllers and a v2 tree beside them; they get a mount namespace, made
 * once, in which the v2 tree is not mounted. The bench steps into it and out again outside the measured time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

enum { ARGS_MAX = 32, PASSES = 2, DEADLINE_S = 20 };

static const char *const PASS_NAME[PASSES] = { "back to back", "after idle" };

struct row {
    const char *name;
    bool        hide_v2;            /* runs in the mount namespace without the v2 tree */
    bool        fresh_id;           /* the last argument is a container's name, new each time */
    char       *argv[ARGS_MAX];
    bool        out;                /* left out: not there or not working */
    struct series  series[PASSES];
    struct figures figures[PASSES];
};

struct options {
    const char *carrel, *bundle, *state, *json, *only;
    unsigned    rounds, idle_ms;
};

static char id_text[64];
static unsigned id_number;

#define LIMITS "--memory", "256M", "--pids", "128", "--cpus", "1", "--disk", "64M"

enum { ROW_BARE, ROW_BWRAP_ROOT, ROW_BWRAP, ROW_CRUN, ROW_RUNC, ROW_CARREL, ROWS };

static struct row rows[ROWS] = {
    [ROW_BARE] = { .name = "/bin/true", .argv = { "/bin/true" } },
    [ROW_BWRAP_ROOT] = { .name = "bwrap, host root",
        .argv = { "bwrap", "--unshare-all", "--ro-bind", "/", "/", "/bin/true" } },
    [ROW_BWRAP] = { .name = "bwrap, own root",
        .argv = { "bwrap", "--unshare-all", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
                  "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--symlink", "usr/sbin", "/sbin",
                  "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true" } },
    [ROW_CRUN] = { .name = "crun run", .hide_v2 = true, .fresh_id = true,
        .argv = { "crun", "--root", "@state", "run", "--bundle", "@bundle", id_text } },
    [ROW_RUNC] = { .name = "runc run", .hide_v2 = true, .fresh_id = true,
        .argv = { "runc", "--root", "@state", "run", "--bundle", "@bundle", id_text } },
    [ROW_CARREL] = { .name = "carrel run", .argv = { "@carrel", "run", LIMITS, "--", "/bin/true" } },
};

static int host_ns = -1, peer_ns = -1;
static int errors_fd = -1;         /* what a command says on stderr; shown only if it fails */

static int namespaces_open(void)
{
    host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (host_ns < 0 || unshare(CLONE_NEWNS) < 0)
        return -errno;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    if (umount2("/sys/fs/cgroup/unified", MNT_DETACH) < 0 && errno != EINVAL && errno != ENOENT)
        return -errno;
    peer_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    if (peer_ns < 0 || setns(host_ns, CLONE_NEWNS) < 0)
        return -errno;
    return 0;
}

/* One run. If it fails, says how and returns a negative number. */
static int row_measure(struct row *row, struct sample *ret)
{
    char text[1024] = "";
    if (row->fresh_id)
        snprintf(id_text, sizeof id_text, "bench-%d-%u", (int)getpid(), id_number++);
    if (row->hide_v2 && setns(peer_ns, CLONE_NEWNS) < 0)
        return -errno;
    if (ftruncate(errors_fd, 0) < 0 || lseek(errors_fd, 0, SEEK_SET) < 0)
        return -errno;
    int r = measure_command(row->argv, errors_fd, DEADLINE_S * 1000000ull, ret);
    if (row->hide_v2 && setns(host_ns, CLONE_NEWNS) < 0)
        return -errno;
    if (r == 0 && ret->status == 0)
        return 0;
    ssize_t n = pread(errors_fd, text, sizeof text - 1, 0);
    fprintf(stderr, "bench: %s: %s, wait status 0x%x: %s\n", row->name, r < 0 ? strerror(-r) : "failed",
            r < 0 ? 0u : (unsigned)ret->status, n > 0 ? text : "(silent)");
    return r < 0 ? r : -EPROTO;
}

/* Fills in the options, drops rows that were not asked for, tries each of the others three times. */
static void rows_prepare(const struct options *o)
{
    for (struct row *row = rows; row < rows + ROWS; row++) {
        for (char **arg = row->argv; *arg; arg++) {
            if (strcmp(*arg, "@bundle") == 0)
                *arg = (char *)o->bundle;
            if (strcmp(*arg, "@carrel") == 0)
                *arg = (char *)o->carrel;
            if (strcmp(*arg, "@state") == 0)
                *arg = (char *)o->state;
        }
        if (o->only && row != &rows[ROW_BARE] && !strstr(row->name, o->only) && row != &rows[ROW_CARREL]) {
            row->out = true;
            continue;
        }
        if (row->hide_v2 && peer_ns < 0) {
            fprintf(stderr, "bench: left out: %s: needs root\n", row->name);
            row->out = true;
        }
        for (int i = 0; i < 3 && !row->out; i++) {
            struct sample sample = { 0 };
            if (row_measure(row, &sample) < 0) {
                fprintf(stderr, "bench: left out: %s\n", row->name);
                row->out = true;
            }
        }
    }
}

static void shuffle(unsigned *order, unsigned count)
{
    for (unsigned i = count; i > 1; i--) {
        unsigned j = (unsigned)random() % i, t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
}

static int pass_run(const struct options *o, int pass)
{
    unsigned order[ROWS];
    for (unsigned i = 0; i < ROWS; i++)
        order[i] = i;
    for (unsigned round = 0; round < o->rounds; round++) {
        shuffle(order, ROWS);
        for (unsigned i = 0; i < ROWS; i++) {
            struct row *row = &rows[order[i]];
            struct sample sample;
            if (row->out)
                continue;
            if (pass == 1)
                clock_wait_us(o->idle_ms * 1000ull);
            int r = row_measure(row, &sample);
            if (r == 0)
                r = series_add(&row->series[pass], &sample);
            if (r < 0)
                return r;
        }
    }
    for (struct row *row = rows; row < rows + ROWS; row++)
        series_figures(&row->series[pass], &row->figures[pass]);
    return 0;
}

static void pass_print(const struct options *o, int pass)
{
    const struct figures *own = &rows[ROW_CARREL].figures[pass];
    if (pass == 1)
        printf("\n%s (%u ms before each command), %u rounds\n", PASS_NAME[pass], o->idle_ms, o->rounds);
    else
        printf("\n%s, %u rounds\n", PASS_NAME[pass], o->rounds);
    printf("  %-20s %10s %10s %10s %10s   %s\n", "", "median ms", "p99 ms", "settled ms", "CPU ms",
           "carrel / this: median, p99, CPU");
    for (const struct row *row = rows; row < rows + ROWS; row++) {
        const struct figures *f = &row->figures[pass];
        if (row->out)
            continue;
        printf("  %-20s %10.2f %10.2f %10.2f %10.2f", row->name, f->median_ms, f->p99_ms, f->settled_ms, f->cpu_ms);
        if (row != &rows[ROW_CARREL] && !rows[ROW_CARREL].out)
            printf("   %5.2f %5.2f %5.2f", own->median_ms / f->median_ms, own->p99_ms / f->p99_ms,
                   f->cpu_ms > 0 ? own->cpu_ms / f->cpu_ms : 0.0);
        printf("\n");
    }
}

static int json_write(const struct options *o)
{
    FILE *file = fopen(o->json, "we");
    if (!file)
        return -errno;
    fprintf(file, "{\n  \"rounds\": %u,\n  \"idle_ms\": %u,\n  \"passes\": {\n", o->rounds, o->idle_ms);
    for (int pass = 0; pass < PASSES; pass++) {
        const struct figures *own = &rows[ROW_CARREL].figures[pass];
        const char *comma = "";
        fprintf(file, "    \"%s\": {\n", PASS_NAME[pass]);
        for (const struct row *row = rows; row < rows + ROWS; row++) {
            const struct figures *f = &row->figures[pass];
            if (row->out)
                continue;
            fprintf(file, "%s      \"%s\": {\"median_ms\": %.3f, \"p99_ms\": %.3f, ", comma, row->name,
                    f->median_ms, f->p99_ms);
            fprintf(file, "\"settled_ms\": %.3f, \"cpu_ms\": %.3f", f->settled_ms, f->cpu_ms);
            if (!rows[ROW_CARREL].out)
                fprintf(file, ", \"carrel_ratio\": %.3f", own->median_ms / f->median_ms);
            fprintf(file, "}");
            comma = ",\n";
        }
        fprintf(file, "\n    }%s\n", pass + 1 < PASSES ? "," : "");
    }
    fprintf(file, "  }\n}\n");
    return fclose(file) == 0 ? 0 : -errno;
}

static void usage(void)
{
    fprintf(stderr, "usage: run --carrel FILE --bundle DIR --state DIR --json FILE\n"
            "           [--rounds N] [--idle MS] [--only NAME]\n"
            "All paths are absolute: changing the mount namespace loses the working directory.\n");
    exit(2);
}

static unsigned number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || value == 0 || value > 1000000)
        usage();
    return (unsigned)value;
}

static void options_read(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        { "carrel", required_argument, NULL, 'c' }, { "bundle", required_argument, NULL, 'b' },
        { "json", required_argument, NULL, 'j' }, { "rounds", required_argument, NULL, 'r' },
        { "idle", required_argument, NULL, 'i' }, { "only", required_argument, NULL, 'o' },
        { "state", required_argument, NULL, 's' }, { 0 }
    };
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case 'c': o->carrel = optarg; break;
        case 'b': o->bundle = optarg; break;
        case 's': o->state = optarg; break;
        case 'j': o->json = optarg; break;
        case 'o': o->only = *optarg ? optarg : NULL; break;
        case 'r': o->rounds = number(optarg); break;
        case 'i': o->idle_ms = number(optarg); break;
        default: usage();
        }
    }
    const char *paths[] = { o->carrel, o->bundle, o->state, o->json };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!paths[i] || paths[i][0] != '/')
            usage();
    if (optind != argc)
        usage();
}

int main(int argc, char **argv)
{
    struct options o = { .rounds = 100, .idle_ms = 300 };
    options_read(argc, argv, &o);
    errors_fd = memfd_create("stderr", MFD_CLOEXEC);
    int r = errors_fd < 0 ? -errno : measure_init();
    if (r == 0 && geteuid() == 0)
        r = namespaces_open();
    if (r < 0) {
        fprintf(stderr, "bench: %s\n", strerror(-r));
        return 1;
    }
    rows_prepare(&o);
    for (int pass = 0; pass < PASSES && r == 0; pass++) {
        r = pass_run(&o, pass);
        if (r == 0) {
            pass_print(&o, pass);
            fflush(stdout);
        }
    }
    if (r == 0)
        r = json_write(&o);
    if (r < 0)
        fprintf(stderr, "bench: %s\n", strerror(-r));
    for (struct row *row = rows; row < rows + ROWS; row++)
        for (int pass = 0; pass < PASSES; pass++)
            series_done(&row->series[pass]);
    return r < 0 || rows[ROW_CARREL].out;
}
