/* Processor time: the most that a leaf gets (a quota in each period), and what it is guaranteed (a weight).
 *
 * The leaves of all boxes lie in one directory, beside the host's own groups, so their weights are compared with each
 * other. A processor that is requested weighs ten times as much as a leaf without a request, which keeps the kernel's
 * usual weight: so a request holds beside many boxes that requested nothing, and the host's own programs are not
 * starved. The range of weights ends at 10,000; on a host with more than ten processors each weighs less, and so does a
 * leaf without a request. */
#include "sys/cgroup_impl.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    CPU_PERIOD_LONG_US = 1000000,   /* for shares below the smallest quota, 1 ms */
    WEIGHT_USUAL       = 100,       /* the kernel's default */
    WEIGHT_MOST        = 10000,
    WEIGHT_REQUESTED   = 1000,      /* of a whole processor */
    WITHOUT_REQUEST    = 10,        /* the part of that which a leaf without a request weighs */
    SHARES_USUAL       = 1024,      /* v1's word for the usual weight */
    PARENTS_MOST       = 64,
};

uint32_t cgroup_cpu_weight(uint32_t request_milli, uint32_t processors)
{
    uint64_t whole = WEIGHT_REQUESTED, milli = request_milli;

    if (processors > WEIGHT_MOST / WEIGHT_REQUESTED)
        whole = WEIGHT_MOST / processors;
    if (!milli)
        return (uint32_t)(whole / WITHOUT_REQUEST ? whole / WITHOUT_REQUEST : 1);
    uint64_t weight = (milli * whole + 500) / 1000;
    return (uint32_t)(weight < 1 ? 1 : weight > WEIGHT_MOST ? WEIGHT_MOST : weight);
}

static int write_quota(struct cgroup *leaf, uint32_t cpu_milli, struct err *e)
{
    uint32_t period = cpu_milli < 10 ? CPU_PERIOD_LONG_US : CGROUP_CPU_PERIOD_US;
    uint64_t quota = (uint64_t)cpu_milli * (period / 1000);

    if (leaf->dir[CG_CPU] < 0) {
        char text[48];
        snprintf(text, sizeof text, "%" PRIu64 " %" PRIu32, quota, period);
        int r = fd_write_file(leaf->v2, "cpu.max", text);
        return r < 0 ? err_at(e, -r, STEP_CGROUP, 0, "cpu.max") : 0;
    }
    if (leaf->cpu_period_us != period) {
        int r = cgroup_write_number(leaf->dir[CG_CPU], "cpu.cfs_period_us", period, e);
        if (r < 0)
            return r;
        leaf->cpu_period_us = period;
    }
    return cgroup_write_number(leaf->dir[CG_CPU], "cpu.cfs_quota_us", quota, e);
}

static int write_weight(struct cgroup *leaf, uint32_t request_milli, struct err *e)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t weight = cgroup_cpu_weight(request_milli, processors > 0 ? (uint32_t)processors : 1);

    if (weight == WEIGHT_USUAL && !request_milli)
        return 0;       /* a new leaf has it already */
    if (leaf->dir[CG_CPU] < 0)
        return cgroup_write_number(leaf->v2, "cpu.weight", weight, e);
    uint64_t shares = (weight * SHARES_USUAL + WEIGHT_USUAL / 2) / WEIGHT_USUAL;
    return cgroup_write_number(leaf->dir[CG_CPU], "cpu.shares", shares, e);
}

int cgroup_write_cpu(struct cgroup *leaf, const struct cgroup_limits *limits, struct err *e)
{
    int r = limits->cpu_milli ? write_quota(leaf, limits->cpu_milli, e) : 0;

    if (r == 0 && (limits->cpu_request_milli || (limits->cpu_milli && !leaf->has_weight)))
        r = write_weight(leaf, limits->cpu_request_milli, e);
    leaf->has_weight = true;
    return r;
}

static uint64_t smaller(uint64_t a, uint64_t b)     /* 0: none */
{
    return !a ? b : !b ? a : a < b ? a : b;
}

/* A number, or "max". */
static uint64_t read_bound(int dir, const char *file)
{
    char text[32];
    uint64_t value = 0;

    if (fd_read_file(dir, file, text, sizeof text) <= 0 || sscanf(text, "%" SCNu64, &value) != 1)
        return 0;
    return value;
}

/* memory.max of the base and of every group above it that this process can see. */
static uint64_t bound_v2(int base)
{
    uint64_t bound = 0;
    struct stat here, above;
    FD dir = openat(base, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; i < PARENTS_MOST && dir >= 0 && fstat(dir, &here) == 0; i++) {
        bound = smaller(bound, read_bound(dir, "memory.max"));
        FD up = openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || fstat(up, &above) < 0 || above.st_dev != here.st_dev || above.st_ino == here.st_ino)
            break;
        fd_close(dir);
        dir = TAKE_FD(up);
    }
    return bound;
}

uint64_t cgroup_memory_bound(const struct cgroup_host *host)
{
    char text[4096];
    uint64_t value = 0;
    const char *line;

    if (host->v1[CG_MEMORY] < 0)
        return host->v2 >= 0 && host->can[CG_MEMORY] ? bound_v2(host->v2) : 0;
    if (fd_read_file(host->v1[CG_MEMORY], "memory.stat", text, sizeof text) <= 0 ||
        !(line = strstr(text, "hierarchical_memory_limit ")) ||
        sscanf(line, "hierarchical_memory_limit %" SCNu64, &value) != 1)
        return 0;
    return value < (uint64_t)INT64_MAX / 2 ? value : 0;     /* v1's word for none is the largest number of pages */
}
