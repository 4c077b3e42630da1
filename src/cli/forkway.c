#define _GNU_SOURCE
#include "cli/forkway.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/defaults.h"

int forkway_open(struct forkway *way, const struct run_options *options, struct err *e)
{
    const char *slash = options->zygote ? strrchr(options->zygote, '/') : NULL;
    int length;

    way->program = -1;
    way->has_family = false;
    if (!options->zygote)
        return 0;
    if (slash)
        length = snprintf(way->path, sizeof way->path, "/run/%s", slash + 1);
    else
        length = snprintf(way->path, sizeof way->path, "%s", options->zygote);
    if (length >= (int)sizeof way->path || (slash && !slash[1]))
        return err_set(e, EINVAL, STEP_USAGE, "--zygote: not a program: %s", options->zygote);
    if (slash && (way->program = open(options->zygote, O_PATH | O_CLOEXEC)) < 0)
        return err_set(e, errno, STEP_USAGE, "--zygote %s: %s", options->zygote, strerror(errno));
    return 0;
}

static int make_family(struct forkway *way, struct box_host *host, const struct run_options *options, int log,
                       struct err *e)
{
    struct box_spec spec = options->box;
    char *argv[] = { way->path, NULL };
    char *env[] = { "PATH=" BOX_PATH, "HOME=" BOX_HOME, "LANG=" BOX_LANG, "LC_ALL=" BOX_LANG, NULL };
    struct command_spec command = { .argv = argv, .env = env };
    struct start start = { .command = &command, .stdio = { -1, -1, log } };

    spec.limits = (struct limits){ .pids = host->cgroups.can[CG_PIDS] ? FAMILY_PIDS_DEFAULT : 0 };
    spec.terminal = false;
    spec.n_mounts = 0;
    if (spec_root(&options->box))
        spec.mount[spec.n_mounts++] = (struct mount_spec){ .kind = MOUNT_ROOT, .source = spec_root(&options->box) };
    if (way->program >= 0)
        spec.mount[spec.n_mounts++] = (struct mount_spec){
            .source = options->zygote, .target = way->path, .is_file = true, .fd = way->program
        };
    int r = plan_make(&spec, &host->facts, &way->plan, e);
    if (r < 0)
        return r;
    family_plan(&way->plan);
    r = family_create(host, &way->plan, &start, &way->family, e);
    way->has_family = r == 0;
    if (r == 0)
        r = family_ready(&way->family, FAMILY_READY_MS, e);
    if (r == 0)
        r = err_set(e, ETIMEDOUT, STEP_CLONE, "the zygote was not ready within %d s", FAMILY_READY_MS / 1000);
    /* A command that could not be run is another error. */
    if (r < 0 && e->step == STEP_EXEC)
        r = err_set(e, e->code, STEP_USAGE, "--zygote %s: %s", options->zygote, strerror(e->code));
    return r;
}

int forkway_create(struct forkway *way, struct box_host *host, const struct run_options *options,
                   const struct plan *plan, const struct start *start, struct engine_box *ret,
                   struct payload *ret_payload, struct err *e)
{
    struct process_end end;
    int r = make_family(way, host, options, STDERR_FILENO, e);

    if (r > 0)
        r = family_box_create(host, &way->family, plan, false, ret, e);
    if (r == 0) {
        r = box_ready(ret, true, e);
        if (r > 0)
            r = box_start_payload(ret, start, ret_payload, e);
        if (r < 0)
            box_destroy(host, ret, &end);
    }
    if (r < 0)
        forkway_close(way, host);
    return r;
}

void forkway_close(struct forkway *way, struct box_host *host)
{
    if (way->has_family)
        family_destroy(host, &way->family);
    way->has_family = false;
    way->program = fd_close(way->program);
}
