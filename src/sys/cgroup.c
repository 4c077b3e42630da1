/* One box's leaf in every hierarchy that it needs: making, joining, freezing, counting, killing, removing.
 *
 * A limit is written where its controller lives: on v1 into the leaf's directory there, on v2 into the v2 leaf. A
 * directory is made only where a limit needs it, because a mkdir and rmdir cost more than all the writes together. So
 * on a hybrid host only a box that can be frozen has a v2 leaf; payloads are then born in it, and it kills, freezes and
 * counts cpu time.
 *
 * cgroup.kill kills at once, frozen or not. Without it (v1, or v2 before Linux 5.14) the leaf is frozen so that no
 * process can fork and escape, every member gets SIGKILL, and the leaf is thawed in any case: on v1 a frozen task does
 * not die. */
#include "sys/cgroup_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum {
    TCP_PART           = 8,         /* of the memory limit */
    FREEZE_TIMEOUT_US  = 2000000,
    KILL_TIMEOUT_US    = 1000000,
    REMOVE_TIMEOUT_US  = 1000000,
};

static const struct cgroup leaf_empty = {
    .v2 = -1, .dir = CG_NONE, .tasks = CG_NONE, .cpu_period_us = CGROUP_CPU_PERIOD_US,
};

/* Reading small files. */

/* One read: the kernel gives such a file whole or not at all. */
static bool read_text(int dir, const char *file, char *text, size_t size)
{
    FD fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

static bool read_number(int dir, const char *file, uint64_t *ret)
{
    char text[32];

    if (!read_text(dir, file, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return false;
    *ret = strtoull(text, NULL, 10);
    return true;
}

/* The number after "key " at the start of a line. */
static bool find_key(const char *text, const char *key, uint64_t *ret)
{
    size_t length = strlen(key);

    for (const char *line = text; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            *ret = strtoull(line + length + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

static bool read_key(int dir, const char *file, const char *key, uint64_t *ret)
{
    char text[1024];

    return read_text(dir, file, text, sizeof text) && find_key(text, key, ret);
}

/* Writing limits. */

int cgroup_write_number(int dir, const char *file, uint64_t value, struct err *e)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, value);
    int r = fd_write_file(dir, file, text);
    return r < 0 ? err_at(e, -r, STEP_CGROUP, 0, file) : 0;
}

/* v1 holds memory <= memory+swap at every moment, so the direction of the change decides which is written first. */
static int write_memory_v1(int dir, uint64_t bytes, struct err *e)
{
    char text[24];

    snprintf(text, sizeof text, "%" PRIu64, bytes);
    int r = fd_write_file(dir, "memory.limit_in_bytes", text);
    bool raised = r == -EINVAL;
    if (r < 0 && !raised)
        return err_at(e, -r, STEP_CGROUP, 0, "memory.limit_in_bytes");
    r = fd_write_file(dir, "memory.memsw.limit_in_bytes", text); /* or the box could continue into swap */
    if (r < 0 && r != -ENOENT && r != -EOPNOTSUPP)
        return err_at(e, -r, STEP_CGROUP, 0, "memory.memsw.limit_in_bytes");
    /* v1 counts TCP buffers separately and, without a limit, not at all. */
    snprintf(text, sizeof text, "%" PRIu64, bytes / TCP_PART);
    r = fd_write_file(dir, "memory.kmem.tcp.limit_in_bytes", text);
    if (r < 0 && r != -ENOENT)
        return err_at(e, -r, STEP_CGROUP, 0, "memory.kmem.tcp.limit_in_bytes");
    return raised ? cgroup_write_number(dir, "memory.limit_in_bytes", bytes, e) : 0;
}

static int write_memory_v2(int dir, uint64_t bytes, struct err *e)
{
    int r = cgroup_write_number(dir, "memory.max", bytes, e);
    if (r < 0)
        return r;
    r = fd_write_file(dir, "memory.swap.max", "0");
    if (r < 0 && r != -ENOENT) /* a kernel without swap accounting */
        return err_at(e, -r, STEP_CGROUP, 0, "memory.swap.max");
    r = fd_write_file(dir, "memory.oom.group", "1");
    return r < 0 ? err_at(e, -r, STEP_CGROUP, 0, "memory.oom.group") : 0;
}

static int write_limits(struct cgroup *leaf, const struct cgroup_limits *limits, struct err *e)
{
    int r = 0, pids = leaf->dir[CG_PIDS] >= 0 ? leaf->dir[CG_PIDS] : leaf->v2;

    if (limits->memory_bytes)
        r = leaf->dir[CG_MEMORY] >= 0 ? write_memory_v1(leaf->dir[CG_MEMORY], limits->memory_bytes, e)
                                      : write_memory_v2(leaf->v2, limits->memory_bytes, e);
    if (r == 0 && limits->pids)
        r = cgroup_write_number(pids, "pids.max", limits->pids, e);
    if (r == 0)
        r = cgroup_write_cpu(leaf, limits, e);
    return r;
}

/* Making. */

static bool is_wanted(const struct cgroup_limits *limits, enum cgroup_controller c)
{
    switch (c) {
    case CG_MEMORY:  return limits->memory_bytes != 0;
    case CG_PIDS:    return limits->pids != 0;
    case CG_CPU:     return limits->cpu_milli || limits->cpu_request_milli;
    case CG_FREEZER:
    case CG_CPUACCT: return limits->freezer;
    default:         return false;
    }
}

static int check_possible(const struct cgroup_host *host, const struct cgroup_limits *limits, struct err *e)
{
    for (enum cgroup_controller c = 0; c <= CG_FREEZER; c++)
        if (is_wanted(limits, c) && !host->can[c])
            return err_set(e, EOPNOTSUPP, STEP_CGROUP, "cannot %s: %s",
                           c == CG_MEMORY ? "limit memory" : c == CG_PIDS ? "limit processes" :
                           c == CG_CPU ? "limit cpu" : "freeze", host->why[c]);
    return 0;
}

bool cgroup_needs_birth(const struct cgroup_host *host, const struct cgroup_limits *limits)
{
    return host->v2 >= 0 && (host->v2_controllers || host->mode == CGROUP_V2 || limits->freezer);
}

static int make_directory(int base, const char *name, int *ret, struct err *e)
{
    if (mkdirat(base, name, 0755) < 0)
        return err_at(e, errno, STEP_CGROUP, 0, name);
    *ret = openat(base, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*ret < 0) {
        int code = errno;
        unlinkat(base, name, AT_REMOVEDIR);
        return err_at(e, code, STEP_CGROUP, 0, name);
    }
    return 0;
}

static int make_directories(const struct cgroup_host *host, const struct cgroup_limits *limits, struct cgroup *leaf,
                            struct err *e)
{
    int r = cgroup_needs_birth(host, limits) ? make_directory(host->v2, leaf->name, &leaf->v2, e) : 0;

    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS && r == 0; c++) {
        if (!is_wanted(limits, c) || host->v1[c] < 0)
            continue;
        r = make_directory(host->v1[c], leaf->name, &leaf->dir[c], e);
        if (r < 0)
            break;
        /* Opened here: the kernel checks the right to write against the opener, and the payload has none. */
        leaf->tasks[c] = openat(leaf->dir[c], "tasks", O_WRONLY | O_CLOEXEC);
        if (leaf->tasks[c] < 0)
            r = err_at(e, errno, STEP_CGROUP, c, "tasks");
    }
    return r;
}

int cgroup_create(const struct cgroup_host *host, uint32_t n, const struct cgroup_limits *limits, struct cgroup *ret,
                  struct err *e)
{
    struct cgroup leaf = leaf_empty;
    struct cgroup_owner owner = host->owner;

    int r = check_possible(host, limits, e);
    if (r < 0)
        return r;
    if (owner.pid != getpid()) { /* opened before a fork: the leaf belongs to this process, not to its parent */
        r = cgroup_owner_self(&owner);
        if (r < 0)
            return err_at(e, -r, STEP_CGROUP, 0, "/proc/self");
    }
    snprintf(leaf.name, sizeof leaf.name, "carrel-%" PRIu64 "-%d-%" PRIu64 "-%" PRIu32, owner.pid_namespace,
             (int)owner.pid, owner.start, n);
    r = make_directories(host, limits, &leaf, e);
    if (r == 0)
        r = write_limits(&leaf, limits, e);
    if (r < 0) {
        cgroup_remove_try(host, &leaf);
        cgroup_close(&leaf);
        return r;
    }
    *ret = leaf;
    return 0;
}

int cgroup_update(const struct cgroup_host *host, struct cgroup *leaf, const struct cgroup_limits *limits,
                  struct err *e)
{
    int r = check_possible(host, limits, e);
    if (r < 0)
        return r;
    for (enum cgroup_controller c = 0; c < CG_FREEZER; c++)
        if (is_wanted(limits, c) && (host->v1[c] >= 0 ? leaf->dir[c] < 0 : leaf->v2 < 0))
            return err_set(e, EOPNOTSUPP, STEP_CGROUP, "the box was made without a %s limit",
                           cgroup_controller_names[c]);
    return write_limits(leaf, limits, e);
}

int cgroup_join_self(const struct cgroup *leaf)
{
    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++) {
        if (leaf->tasks[c] < 0)
            continue;
        while (write(leaf->tasks[c], "0", 1) < 0)
            if (errno != EINTR)
                return -errno;
    }
    return 0;
}

/* Freezing. */

static void pause_us(uint64_t us)
{
    struct timespec ts = { .tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000 };

    nanosleep(&ts, NULL);
}

/* Waits until a key of cgroup.events has a value. 0, -ETIMEDOUT or -errno. */
static int wait_event_v2(int dir, const char *key, uint64_t wanted, uint64_t deadline_us)
{
    char text[256];
    uint64_t value;

    FD fd = openat(dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t n = pread(fd, text, sizeof text - 1, 0); /* also arms the poll */
        if (n < 0)
            return -errno;
        text[n] = 0;
        if (!find_key(text, key, &value))
            return -ENOENT;
        if (value == wanted)
            return 0;
        uint64_t now = clock_monotonic_us();
        if (now >= deadline_us)
            return -ETIMEDOUT;
        struct pollfd p = { .fd = fd, .events = POLLPRI };
        if (poll(&p, 1, (int)((deadline_us - now) / 1000) + 1) < 0 && errno != EINTR)
            return -errno;
    }
}

static int freeze_v2(int dir, bool frozen, uint64_t deadline_us)
{
    int r = fd_write_file(dir, "cgroup.freeze", frozen ? "1" : "0");
    return r < 0 ? r : wait_event_v2(dir, "frozen", frozen, deadline_us);
}

/* v1 has no event for it; writing again catches a task that was forking. */
static int freeze_v1(int dir, bool frozen, uint64_t deadline_us)
{
    const char *wanted = frozen ? "FROZEN" : "THAWED";
    char state[32];

    for (uint64_t pause = 50;; pause = pause < 2000 ? 2 * pause : pause) {
        int r = fd_write_file(dir, "freezer.state", wanted);
        if (r < 0)
            return r;
        ssize_t n = fd_read_file(dir, "freezer.state", state, sizeof state);
        if (n < 0)
            return (int)n;
        if (strncmp(state, wanted, strlen(wanted)) == 0)
            return 0;
        if (clock_monotonic_us() >= deadline_us)
            return -ETIMEDOUT;
        pause_us(pause);
    }
}

static int freeze_until(const struct cgroup *leaf, bool frozen, uint64_t deadline_us)
{
    /* The v1 freezer first: a leaf has it only if there is no v2 tree, or in a sweep. */
    if (leaf->dir[CG_FREEZER] >= 0)
        return freeze_v1(leaf->dir[CG_FREEZER], frozen, deadline_us);
    return leaf->v2 >= 0 ? freeze_v2(leaf->v2, frozen, deadline_us) : -EOPNOTSUPP;
}

static void thaw(const struct cgroup *leaf)
{
    if (leaf->dir[CG_FREEZER] >= 0)
        (void)fd_write_file(leaf->dir[CG_FREEZER], "freezer.state", "THAWED");
    if (leaf->v2 >= 0)
        (void)fd_write_file(leaf->v2, "cgroup.freeze", "0");
}

static int cannot_freeze(int r, const char *what, struct err *e)
{
    if (r == -EOPNOTSUPP)
        return err_set(e, EOPNOTSUPP, STEP_USAGE, "no cgroup here can freeze a box; see 'carrel doctor', row freezing");
    return err_at(e, -r, STEP_CGROUP, 0, what);
}

int cgroup_freeze_step(const struct cgroup *leaf, uint64_t wait_us, struct err *e)
{
    int r = freeze_until(leaf, true, clock_monotonic_us() + wait_us);
    return r == -ETIMEDOUT ? 0 : r < 0 ? cannot_freeze(r, "freezing the box", e) : 1;
}

int cgroup_freeze(struct cgroup *leaf, bool frozen, struct err *e)
{
    int r = freeze_until(leaf, frozen, clock_monotonic_us() + FREEZE_TIMEOUT_US);
    if (r == 0)
        return 0;
    if (frozen)
        thaw(leaf); /* a half-frozen leaf is useless */
    return cannot_freeze(r, frozen ? "freezing the box" : "thawing the box", e);
}

/* Counting. */

static void read_memory(const struct cgroup *leaf, bool is_live, struct cgroup_usage *ret)
{
    bool v1 = leaf->dir[CG_MEMORY] >= 0;
    int dir = v1 ? leaf->dir[CG_MEMORY] : leaf->v2;
    const char *now = v1 ? "memory.usage_in_bytes" : "memory.current";

    if (dir < 0 || (is_live && !read_number(dir, now, &ret->memory_bytes)))
        return;
    ret->has_memory = true;
    /* v2 has no peak before Linux 5.19 */
    if (!read_number(dir, v1 ? "memory.max_usage_in_bytes" : "memory.peak", &ret->memory_peak_bytes)
        && !read_number(dir, now, &ret->memory_peak_bytes))
        ret->has_memory = is_live;
    read_key(dir, v1 ? "memory.oom_control" : "memory.events", "oom_kill", &ret->oom_kills);
}

static void read_pids(const struct cgroup *leaf, bool is_live, struct cgroup_usage *ret)
{
    int dir = leaf->dir[CG_PIDS] >= 0 ? leaf->dir[CG_PIDS] : leaf->v2;
    uint64_t number;

    if (dir < 0 || (is_live && !read_number(dir, "pids.current", &number)))
        return;
    ret->has_pids = is_live;
    ret->pids = is_live ? (uint32_t)number : 0;
    if ((ret->has_pids_peak = read_number(dir, "pids.peak", &number))) /* since Linux 6.1 */
        ret->pids_peak = (uint32_t)number;
    read_key(dir, "pids.events", "max", &ret->pids_refused);
}

void cgroup_peaks_read(const struct cgroup *leaf, struct cgroup_usage *ret)
{
    *ret = (struct cgroup_usage){ 0 };
    read_memory(leaf, false, ret);
    read_pids(leaf, false, ret);
}

void cgroup_refusals_read(const struct cgroup *leaf, uint64_t *ret_oom_kills, uint64_t *ret_pids_refused)
{
    bool v1 = leaf->dir[CG_MEMORY] >= 0;
    int memory = v1 ? leaf->dir[CG_MEMORY] : leaf->v2, pids = leaf->dir[CG_PIDS] >= 0 ? leaf->dir[CG_PIDS] : leaf->v2;

    if (memory >= 0)
        (void)read_key(memory, v1 ? "memory.oom_control" : "memory.events", "oom_kill", ret_oom_kills);
    if (pids >= 0)
        (void)read_key(pids, "pids.events", "max", ret_pids_refused);
}

bool cgroup_cpu_read(const struct cgroup *leaf, uint64_t *ret_us)
{
    uint64_t ns;

    if (leaf->v2 >= 0)
        return read_key(leaf->v2, "cpu.stat", "usage_usec", ret_us);
    int dir = leaf->dir[CG_CPUACCT] >= 0 ? leaf->dir[CG_CPUACCT] : leaf->dir[CG_CPU];
    if (dir < 0 || !read_number(dir, "cpuacct.usage", &ns))
        return false;
    *ret_us = ns / 1000;
    return true;
}

void cgroup_usage_read(const struct cgroup *leaf, struct cgroup_usage *ret)
{
    *ret = (struct cgroup_usage){ 0 };
    read_memory(leaf, true, ret);
    read_pids(leaf, true, ret);
    ret->has_cpu = cgroup_cpu_read(leaf, &ret->cpu_us);
}

void cgroup_open_meter(const struct cgroup *leaf, int *ret_cpu, bool *ret_is_ns, int *ret_peak)
{
    bool v1 = leaf->dir[CG_MEMORY] >= 0;
    int memory = v1 ? leaf->dir[CG_MEMORY] : leaf->v2;

    *ret_cpu = *ret_peak = -1;
    *ret_is_ns = leaf->v2 < 0;
    if (leaf->v2 >= 0)
        *ret_cpu = openat(leaf->v2, "cpu.stat", O_RDONLY | O_CLOEXEC);
    else if (leaf->dir[CG_CPUACCT] >= 0 || leaf->dir[CG_CPU] >= 0)
        *ret_cpu = openat(leaf->dir[CG_CPUACCT] >= 0 ? leaf->dir[CG_CPUACCT] : leaf->dir[CG_CPU], "cpuacct.usage",
                          O_RDONLY | O_CLOEXEC);
    if (memory >= 0)
        *ret_peak = openat(memory, v1 ? "memory.max_usage_in_bytes" : "memory.peak", O_RDONLY | O_CLOEXEC);
}


/* Killing. */

/* Kills one process if it is still in the leaf. A pid from a list may have been reused by now; a pidfd cannot be. */
static void kill_member(pid_t pid, const char *name)
{
    char path[48], groups[4096];

    FD pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return;
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    if (fd_read_file(AT_FDCWD, path, groups, sizeof groups) > 0 && strstr(groups, name))
        syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}

/* Returns how many processes the directory listed. */
static size_t kill_listed(int dir, const char *name)
{
    size_t listed = 0;
    int pid;

    int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file) {
        fd_close(fd);
        return 0;
    }
    while (fscanf(file, "%d", &pid) == 1) {
        listed++;
        if (pid > 0 && pid != getpid()) /* 0: not visible from this pid namespace */
            kill_member(pid, name);
    }
    fclose(file);
    return listed;
}

size_t cgroup_kill_pass(const struct cgroup *leaf)
{
    size_t listed = leaf->v2 >= 0 ? kill_listed(leaf->v2, leaf->name) : 0;

    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++)
        if (leaf->dir[c] >= 0)
            listed += kill_listed(leaf->dir[c], leaf->name);
    return listed;
}

void cgroup_kill_each(struct cgroup *leaf)
{
    char pids_max[32] = "";
    uint64_t deadline = clock_monotonic_us() + KILL_TIMEOUT_US;
    bool still = freeze_until(leaf, true, deadline - KILL_TIMEOUT_US / 2) == 0;

    if (!still && leaf->dir[CG_PIDS] >= 0) { /* second best: at least no process can fork */
        if (fd_read_file(leaf->dir[CG_PIDS], "pids.max", pids_max, sizeof pids_max) > 0)
            (void)fd_write_file(leaf->dir[CG_PIDS], "pids.max", "0");
    }
    size_t listed = cgroup_kill_pass(leaf);
    thaw(leaf);
    while (!still && listed && clock_monotonic_us() < deadline) {
        pause_us(200);
        listed = cgroup_kill_pass(leaf);
    }
    if (pids_max[0])
        (void)fd_write_file(leaf->dir[CG_PIDS], "pids.max", pids_max);
}

void cgroup_kill(struct cgroup *leaf)
{
    if (leaf->v2 < 0 || fd_write_file(leaf->v2, "cgroup.kill", "1") < 0)
        cgroup_kill_each(leaf);
}

/* Removing. */

int cgroup_remove_try(const struct cgroup_host *host, const struct cgroup *leaf)
{
    int r = 0;

    if (leaf->v2 >= 0 && unlinkat(host->v2, leaf->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = -errno;
    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++)
        if (leaf->dir[c] >= 0 && unlinkat(host->v1[c], leaf->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            r = -errno;
    return r;
}

int cgroup_remove_until(const struct cgroup_host *host, const struct cgroup *leaf, uint64_t deadline_us)
{
    int r = cgroup_remove_try(host, leaf);

    /* A dying process leaves all hierarchies at the same moment; v2 reports it. */
    if (r == -EBUSY && leaf->v2 >= 0 && wait_event_v2(leaf->v2, "populated", 0, deadline_us) != -ETIMEDOUT)
        r = cgroup_remove_try(host, leaf);
    for (uint64_t pause = 50; r == -EBUSY && clock_monotonic_us() < deadline_us;
         pause = pause < 5000 ? 2 * pause : pause) {
        pause_us(pause);
        r = cgroup_remove_try(host, leaf);
    }
    return r;
}

int cgroup_remove_early(const struct cgroup_host *host, struct cgroup *leaf)
{
    int r = cgroup_remove_until(host, leaf, clock_monotonic_us() + REMOVE_TIMEOUT_US);

    if (r != -EBUSY)
        cgroup_close(leaf);
    return r;
}

int cgroup_remove(const struct cgroup_host *host, struct cgroup *leaf)
{
    int r = cgroup_remove_early(host, leaf);

    cgroup_close(leaf);
    return r;
}

void cgroup_close(struct cgroup *leaf)
{
    leaf->v2 = fd_close(leaf->v2);
    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++) {
        leaf->dir[c] = fd_close(leaf->dir[c]);
        leaf->tasks[c] = fd_close(leaf->tasks[c]);
    }
}
