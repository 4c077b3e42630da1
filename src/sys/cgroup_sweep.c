/* Removes the leaves of dead owners.
 *
 * The name of a leaf identifies its owner: pid namespace, pid and start time. A leaf is touched only if its name has
 * exactly that form and its pid namespace is this process's. Its owner is gone if no process has the pid, or the
 * process with the pid started at another time or is a zombie. When in doubt (/proc hides the process, /proc belongs to
 * another pid namespace) the owner counts as alive.
 *
 * The pids directory of a family's leaf contains the leaves of its boxes. They have the owner of the family.
 *
 * All leaves are killed first and removed afterwards, so that they die in parallel and one deadline is enough for
 * all. */
#include "sys/cgroup_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum {
    SWEEP_TIMEOUT_US = 1000000,     /* a starting keeper waits for this; a janitor sweeps again */
    GC_TIMEOUT_US    = 30000000,    /* on a busy machine a box takes seconds to die, and no sweep follows a gc */
    AGAIN_US         = 500000,
    LEAVES_MAX       = 65536,
};

struct stale {
    char  name[80];
    pid_t owner;
};

struct stale_list {
    struct stale *item;
    size_t        count, capacity;
};

/* The next "-<number>" of a leaf's name, without signs, blanks or leading zeros, so that every leaf has one name. */
static bool take_number(const char **p, uint64_t most, uint64_t *ret)
{
    char *end;

    if (**p != '-' || (*p)[1] < '0' || (*p)[1] > '9' || ((*p)[1] == '0' && (*p)[2] >= '0' && (*p)[2] <= '9'))
        return false;
    errno = 0;
    *ret = strtoull(*p + 1, &end, 10);
    *p = end;
    return errno == 0 && *ret <= most;
}

static bool parse_name(const char *name, struct cgroup_owner *ret)
{
    const char *p = name + strlen("carrel");
    uint64_t namespace, pid, start, n;

    if (strncmp(name, "carrel-", 7) != 0 || strlen(name) >= sizeof(struct stale){ 0 }.name)
        return false;
    if (!take_number(&p, UINT64_MAX, &namespace) || !take_number(&p, INT32_MAX, &pid) ||
        !take_number(&p, UINT64_MAX, &start) || !take_number(&p, UINT32_MAX, &n) || *p || !pid)
        return false;
    *ret = (struct cgroup_owner){ .pid_namespace = namespace, .pid = (pid_t)pid, .start = start };
    return true;
}

static bool owner_is_gone(const struct cgroup_owner *owner, bool proc_is_ours)
{
    struct cgroup_process process;
    char who[16];

    if (kill(owner->pid, 0) < 0 && errno == ESRCH)
        return true;
    if (!proc_is_ours)
        return false;
    snprintf(who, sizeof who, "%d", (int)owner->pid);
    int r = cgroup_process_read(who, &process);
    if (r < 0) /* it may have died just now; kill() also finds a process that /proc hides */
        return kill(owner->pid, 0) < 0 && errno == ESRCH;
    return process.start != owner->start || process.dead;
}

static bool is_stale(const struct cgroup_host *host, const struct cgroup_owner *self, bool proc_is_ours, int owner_pid,
                     const struct cgroup_owner *owner)
{
    if (owner->pid_namespace != self->pid_namespace)
        return false;
    if (owner_pid == 0)
        return owner_is_gone(owner, proc_is_ours);
    if (owner->pid != owner_pid)
        return false;
    /* A janitor is a fork of the owner and inherited its exact identity; the pid may have been reused since. */
    return owner_pid != host->owner.pid || owner->start == host->owner.start;
}

static int add_name(struct stale_list *list, const char *name, pid_t owner)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->item[i].name, name) == 0)
            return 0;
    if (list->count == LEAVES_MAX)
        return -E2BIG;
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 32;
        struct stale *item = realloc(list->item, capacity * sizeof *item);
        if (!item)
            return -ENOMEM;
        list->item = item;
        list->capacity = capacity;
    }
    struct stale *item = &list->item[list->count++];
    item->owner = owner;
    memcpy(item->name, name, strlen(name) + 1); /* parse_name has checked the length */
    return 0;
}

static void collect(const struct cgroup_host *host, int base, int owner_pid, const struct cgroup_owner *self,
                    bool proc_is_ours, struct stale_list *list)
{
    struct cgroup_owner owner;
    struct dirent *entry;

    int fd = base < 0 ? -1 : openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        fd_close(fd);
        return;
    }
    while ((entry = readdir(dir)))
        if (parse_name(entry->d_name, &owner) && is_stale(host, self, proc_is_ours, owner_pid, &owner) &&
            add_name(list, entry->d_name, owner.pid) < 0)
            break; /* the next sweep takes the rest */
    closedir(dir);
}

/* Opens the parts of the leaf that exist. Also its v1 freezer where v2 could freeze: its maker may not have seen v2. */
static void open_leaf(const struct cgroup_host *host, const char *name, struct cgroup *ret)
{
    *ret = (struct cgroup){ .v2 = -1, .dir = CG_NONE, .tasks = CG_NONE };
    snprintf(ret->name, sizeof ret->name, "%s", name);
    if (host->v2 >= 0)
        ret->v2 = openat(host->v2, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++)
        if (host->v1[c] >= 0)
            ret->dir[c] = openat(host->v1[c], name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The leaves in a leaf's pids directory, which is their base. */
static void collect_inside(const struct cgroup *leaf, struct cgroup_host *ret_base, struct stale_list *list)
{
    struct cgroup_owner owner;
    struct dirent *entry;

    *ret_base = (struct cgroup_host){ .mode = CGROUP_V1, .v2 = -1, .v1 = CG_NONE };
    ret_base->v1[CG_PIDS] = leaf->dir[CG_PIDS];
    int fd = leaf->dir[CG_PIDS] < 0 ? -1 : openat(leaf->dir[CG_PIDS], ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        fd_close(fd);
        return;
    }
    while ((entry = readdir(dir)))
        if (parse_name(entry->d_name, &owner) && add_name(list, entry->d_name, owner.pid) < 0)
            break;
    closedir(dir);
}

static void end_leaf(const struct cgroup_host *host, const char *name)
{
    struct stale_list inside = { 0 };
    struct cgroup_host base;
    struct cgroup leaf;

    open_leaf(host, name, &leaf);
    collect_inside(&leaf, &base, &inside);
    for (size_t i = 0; i < inside.count; i++)
        end_leaf(&base, inside.item[i].name);
    free(inside.item);
    if (leaf.dir[CG_FREEZER] >= 0 || leaf.v2 < 0 || fd_write_file(leaf.v2, "cgroup.kill", "1") < 0)
        cgroup_kill_each(&leaf);
    cgroup_close(&leaf);
}

static int remove_leaf(const struct cgroup_host *host, const char *name, uint64_t deadline_us)
{
    struct stale_list inside = { 0 };
    struct cgroup_host base;
    struct cgroup leaf;
    bool is_late;
    int r;

    open_leaf(host, name, &leaf);
    collect_inside(&leaf, &base, &inside);
    for (size_t i = 0; i < inside.count; i++)
        (void)!remove_leaf(&base, inside.item[i].name, deadline_us);
    free(inside.item);
    do {
        uint64_t now = clock_monotonic_us();
        is_late = now >= deadline_us;
        r = cgroup_remove_until(host, &leaf, now + AGAIN_US < deadline_us ? now + AGAIN_US : deadline_us);
        /* It dies slowly, or is in a v1 directory only because its maker died between two joins. */
        if (r == -EBUSY) {
            cgroup_kill_each(&leaf);
            r = cgroup_remove_try(host, &leaf);
        }
    } while (r == -EBUSY && !is_late);
    cgroup_close(&leaf);
    return r;
}

int cgroup_sweep_each(const struct cgroup_host *host, int owner_pid,
                      void (*tell)(const char *name, pid_t owner, int result, void *data), void *data)
{
    struct cgroup_host all = *host;
    struct stale_list list = { 0 };
    struct cgroup_owner self;
    struct cgroup_process process;
    FD freezer = -1, cpuacct = -1;
    int removed = 0;

    if (cgroup_owner_self(&self) < 0)
        return 0;
    bool proc_is_ours = cgroup_process_read("self", &process) == 0 && process.pid == getpid();
    if (all.v1[CG_FREEZER] < 0 && all.mode != CGROUP_V2) {
        freezer = cgroup_open_usual_v1(CG_FREEZER);
        all.v1[CG_FREEZER] = freezer;
    }
    if (all.v1[CG_CPUACCT] < 0 && all.mode != CGROUP_V2) {
        cpuacct = cgroup_open_usual_v1(CG_CPUACCT);
        all.v1[CG_CPUACCT] = cpuacct;
    }

    collect(host, all.v2, owner_pid, &self, proc_is_ours, &list);
    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++)
        collect(host, all.v1[c], owner_pid, &self, proc_is_ours, &list);
    for (size_t i = 0; i < list.count; i++)
        end_leaf(&all, list.item[i].name);
    uint64_t deadline = clock_monotonic_us() + (owner_pid == 0 && tell ? GC_TIMEOUT_US : SWEEP_TIMEOUT_US);
    for (size_t i = 0; i < list.count; i++) {
        int r = remove_leaf(&all, list.item[i].name, deadline);
        removed += r == 0;
        if (tell)
            tell(list.item[i].name, list.item[i].owner, r, data);
    }
    free(list.item);
    return removed;
}

int cgroup_sweep(const struct cgroup_host *host, int owner_pid)
{
    return cgroup_sweep_each(host, owner_pid, NULL, NULL);
}
