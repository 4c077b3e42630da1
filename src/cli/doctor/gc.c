/* `carrel gc`: ends and removes the cgroups of boxes whose keeper was killed, and layers of packages that are not
 * finished, or unused for long. Everything else of a box (processes, mounts, namespaces, id ranges) dies with its
 * keeper. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "sys/cgroup.h"

static const char gc_help[] =
    "usage: carrel gc [--unused 30d] [--json]\n"
    "\n"
    "Removes the cgroups, and processes still in them, of boxes whose carrel process was killed. Live boxes are not\n"
    "touched. Removes layers of packages, too: unfinished ones, and those that no box has used for 30 days or the\n"
    "time that --unused names. The exit status is 1 if something could not be removed.\n";

struct gc_sweep {
    bool        is_json;
    struct jsonout json;
    int         failed;
    uint64_t    unused_ms;
    unsigned    layers;
};

static void tell(const char *name, pid_t owner, int result, void *data)
{
    struct gc_sweep *sweep = data;

    sweep->failed += result < 0;
    if (sweep->is_json) {
        jsonout_open_object(&sweep->json, NULL);
        jsonout_string(&sweep->json, "cgroup", name);
        jsonout_signed(&sweep->json, "owner", owner);
        jsonout_bool(&sweep->json, "removed", result == 0);
        jsonout_string(&sweep->json, "error", result < 0 ? strerror(-result) : NULL);
        jsonout_close(&sweep->json);
    } else if (result < 0) {
        fprintf(stderr, "carrel: cannot remove cgroup %s of process %d, which is gone: %s\n", name, (int)owner,
                strerror(-result));
    } else {
        printf("removed cgroup %s of process %d, which is gone\n", name, (int)owner);
    }
}

static void tell_layer(const char *layer, uint64_t bytes, void *arg)
{
    struct gc_sweep *sweep = arg;

    sweep->layers++;
    if (sweep->is_json) {
        jsonout_open_object(&sweep->json, NULL);
        jsonout_string(&sweep->json, "layer", layer[0] ? layer : NULL);
        jsonout_unsigned(&sweep->json, "bytes", bytes);
        jsonout_close(&sweep->json);
    } else if (layer[0]) {
        printf("removed unused layer %.12s, %s\n", layer, parse_show_size(bytes & ~UINT64_C(1048575)).text);
    } else {
        puts("removed an unfinished layer");
    }
}

static int sweep_run(struct gc_sweep *sweep, struct buf *out, struct err *e)
{
    struct cgroup_host host;

    int r = cgroup_host_open(&host, e);
    if (r < 0)
        return r;
    if (sweep->is_json) {
        jsonout_init(&sweep->json, out);
        jsonout_open_object(&sweep->json, NULL);
        jsonout_open_array(&sweep->json, "cgroups");
    }
    int removed = cgroup_sweep_each(&host, 0, tell, sweep);
    cgroup_host_close(&host);
    if (sweep->is_json) {
        jsonout_close(&sweep->json);
        jsonout_open_array(&sweep->json, "layers");
    }
    r = cli_collect_layers(sweep->unused_ms, tell_layer, sweep, e);
    if (r < 0)
        return r;
    if (sweep->is_json) {
        jsonout_close(&sweep->json);
        jsonout_signed(&sweep->json, "removed", removed);
        jsonout_signed(&sweep->json, "failed", sweep->failed);
        jsonout_close(&sweep->json);
        r = jsonout_finish(&sweep->json);
        if (r < 0)
            return err_at(e, -r, STEP_MEMORY, 0, "the list of cgroups");
        printf("%s\n", buf_string(out));
    } else if (removed == 0 && sweep->failed == 0 && sweep->layers == 0) {
        puts("nothing to remove");
    }
    return fflush(stdout) == 0 ? 0 : err_at(e, errno, STEP_STDIO, 0, "standard output");
}

int gc_main(int argc, char **argv)
{
    struct gc_sweep sweep = { .unused_ms = UINT64_C(30) * 24 * 3600 * 1000 };
    struct err e = { 0 };
    struct buf out;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            sweep.is_json = true;
        } else if (strcmp(argv[i], "--unused") == 0 && argv[i + 1]) {
            i++;
            if (strcmp(argv[i], "0") == 0) {
                sweep.unused_ms = 0;
            } else if (parse_duration("--unused", argv[i], &sweep.unused_ms, &e) < 0) {
                cli_complain(&e);
                return EXIT_CARREL;
            }
        } else if (strcmp(argv[i], "--help") == 0) {
            fputs(gc_help, stdout);
            return 0;
        } else {
            err_set(&e, EINVAL, STEP_USAGE, "gc takes no argument '%s'; see 'carrel gc --help'", argv[i]);
            cli_complain(&e);
            return EXIT_CARREL;
        }
    }
    buf_init(&out, 1 << 24);
    int r = sweep_run(&sweep, &out, &e);
    buf_done(&out);
    if (r < 0) {
        cli_complain(&e);
        return EXIT_CARREL;
    }
    return sweep.failed ? 1 : 0;
}
