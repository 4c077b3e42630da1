/* Checks whether a child from a zygote really is a sealed payload of its box. The zygote runs the tenant's code and may
 * be hostile, so the keeper checks from outside, through /proc. It reads properties that a process can only lose or
 * gain for good: capabilities, no_new_privs, filters. Once those are right for the only thread, the child can no longer
 * change its ids, its namespaces or its cgroup either, so these are read afterwards.
 *
 * It is not visible from outside which filter the child has loaded; the zygote's own, which the keeper's code set
 * before exec, is as narrow as the profile, except for calls that need capabilities. Landlock is not visible either: a
 * hostile child may lack it, in its box. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/family/family_impl.h"
#include "policy/policy.h"

enum { STATUS_MAX = 8192, CHILDREN_MAX = 65536 };

/* The text after "key:\t" in a status file, or NULL. */
static const char *find(const char *status, const char *key)
{
    size_t length = strlen(key);

    for (const char *line = status; line; line = (line = strchr(line, '\n')) ? line + 1 : NULL)
        if (strncmp(line, key, length) == 0 && line[length] == ':')
            return line + length + 1 + strspn(line + length + 1, "\t ");
    return NULL;
}

static bool has_number(const char *status, const char *key, int base, uint64_t wanted)
{
    const char *text = find(status, key);
    return text && strtoull(text, NULL, base) == wanted;
}

/* Real, effective, saved and file system id. */
static bool has_ids(const char *status, const char *key, uint32_t wanted)
{
    const char *text = find(status, key);
    char *end;

    for (int i = 0; i < 4; i++, text = end)
        if (!text || strtoul(text, &end, 10) != wanted || end == text)
            return false;
    return true;
}

unsigned family_count_filters(void)
{
    char status[STATUS_MAX];

    if (fd_read_file(AT_FDCWD, "/proc/self/status", status, sizeof status) < 0)
        return UINT_MAX;
    const char *text = find(status, "Seccomp_filters");
    return text ? (unsigned)strtoul(text, NULL, 10) : UINT_MAX;
}

/* Returns the fault, or NULL. */
static const char *look_at_rights(const struct engine_box *box, const char *status)
{
    static const char *const sets[] = { "CapPrm", "CapEff", "CapBnd" };
    uint64_t keep = policy_capabilities(box->profile);

    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        if (!has_number(status, sets[i], 16, keep))
            return "it has capabilities";
    if (!has_number(status, "CapInh", 16, 0) || !has_number(status, "CapAmb", 16, 0))
        return "it has capabilities to inherit";
    if (!has_number(status, "NoNewPrivs", 10, 1))
        return "it could gain privileges";
    const char *filters = find(status, "Seccomp_filters");
    if (!has_number(status, "Seccomp", 10, 2) || (filters && strtoul(filters, NULL, 10) < box->family->filters))
        return "it has no filter of its own";
    if (!has_ids(status, "Uid", ids_outside(&box->ids, box->uid, box->keep_own))
        || !has_ids(status, "Gid", ids_outside(&box->ids, box->gid, box->keep_own)))
        return "it is another user";
    const char *groups = find(status, "Groups");
    if (box->can_setgroups && (!groups || (*groups != '\n' && *groups != ' ')))
        return "it is in groups";
    return NULL;
}

static const char *look_at_process(const char *status, pid_t pid)
{
    if (!has_number(status, "Threads", 10, 1))
        return "it has threads";
    if (!has_number(status, "TracerPid", 10, 0))
        return "it is traced";
    return getpgid(pid) != pid || getsid(pid) != pid ? "it is in a foreign session" : NULL;
}

static const char *look_at_namespaces(const struct engine_box *box, int dir)
{
    const struct {
        const char *name;
        int         fd;
    } list[] = { { "ns/user", box->ns.user }, { "ns/mnt", box->ns.mount }, { "ns/pid", box->ns.pid },
                 { "ns/ipc", box->ns.ipc },   { "ns/uts", box->ns.uts },   { "ns/net", box->ns.net } };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct stat its, boxs;
        if (fstatat(dir, list[i].name, &its, 0) < 0 || fstat(list[i].fd, &boxs) < 0 || its.st_dev != boxs.st_dev
            || its.st_ino != boxs.st_ino)
            return "it is not in the box's namespaces";
    }
    struct stat root;
    return fstatat(dir, "root", &root, 0) < 0 || root.st_dev != box->root_device ? "it is not on the box's root" : NULL;
}

/* Lines "number:controller,...:path"; v2 has no controllers. */
static const char *look_at_cgroup(const struct engine_box *box, int dir)
{
    static const char *const names[CG_CONTROLLERS] = {
        [CG_MEMORY] = "memory", [CG_PIDS] = "pids", [CG_CPU] = "cpu", [CG_FREEZER] = "freezer",
        [CG_CPUACCT] = "cpuacct"
    };
    char text[STATUS_MAX];
    size_t length = strlen(box->leaf.name);

    if (!box->has_leaf)
        return NULL;
    if (fd_read_file(dir, "cgroup", text, sizeof text) < 0)
        return "its cgroup cannot be read";
    for (size_t i = 0; i <= CG_CONTROLLERS; i++) {
        bool inside = i < CG_CONTROLLERS ? box->leaf.tasks[i] < 0 : box->leaf.v2 < 0;
        char *save = NULL, copy[STATUS_MAX];
        memcpy(copy, text, sizeof copy);
        for (char *line = strtok_r(copy, "\n", &save); line && !inside; line = strtok_r(NULL, "\n", &save)) {
            char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL,
                 *last = path ? strrchr(path, '/') : NULL;
            if (!last || strncmp(last + 1, box->leaf.name, length + 1) != 0)
                continue;
            *path = '\0';
            if (i == CG_CONTROLLERS)
                inside = list[1] == '\0';
            for (char *word = list + 1; i < CG_CONTROLLERS && *word; word += strcspn(word, ","), word += *word == ',') {
                size_t n = strcspn(word, ",");
                inside |= strlen(names[i]) == n && strncmp(word, names[i], n) == 0;
            }
        }
        if (!inside)
            return "it is not in the box's cgroup";
    }
    return NULL;
}

int family_is_child(pid_t pid)
{
    siginfo_t info;
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 ? -errno : 0;
}

int family_check(const struct engine_box *box, pid_t pid, struct process *ret, struct err *e)
{
    char path[32], status[STATUS_MAX];
    const char *wrong = NULL;

    /* A child of ours keeps its pid until we reap it. */
    if (pid <= 0 || family_is_child(pid) < 0)
        return err_at(e, EPERM, STEP_RIGHTS, 0, "the zygote's child was refused: it is not the keeper's child");
    FD pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    FD dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (pidfd < 0 || dir < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "the zygote's child");

    /* Twice: with a second thread around, the first check would prove nothing about the remaining thread. */
    for (int i = 0; i < 2 && !wrong; i++) {
        if (fd_read_file(dir, "status", status, sizeof status) < 0)
            return err_at(e, EIO, STEP_RIGHTS, 0, "the zygote's child cannot be looked at");
        wrong = look_at_rights(box, status);
        if (!wrong)
            wrong = look_at_process(status, pid);
    }
    if (!wrong)
        wrong = look_at_namespaces(box, dir);
    if (!wrong)
        wrong = look_at_cgroup(box, dir);
    if (wrong)
        return err_set(e, EPERM, STEP_RIGHTS, "the zygote's child was refused: %s", wrong);
    *ret = (struct process){ .pid = pid, .pidfd = TAKE_FD(pidfd) };
    return 0;
}

/* 1, 0 or -errno. */
static int is_in_namespace(pid_t pid, const struct stat *namespace)
{
    char path[40];
    struct stat its;

    snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
    return stat(path, &its) < 0 ? -errno : its.st_dev == namespace->st_dev && its.st_ino == namespace->st_ino;
}

/* Calls back for every child; children beyond the buffer come in a later round. */
static void each_child(void (*call)(pid_t pid, void *arg), void *arg)
{
    static char text[CHILDREN_MAX];

    FD fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return;
    text[n] = '\0';
    char *at = text, *end;
    for (long pid; (pid = strtol(at, &end, 10)) > 0 && end != at; at = end)
        call((pid_t)pid, arg);
}

struct family_sweep_job {
    const struct engine_box *box;
    struct stat       namespace;
    unsigned          depth;        /* of the namespace */
    bool            (*is_known)(pid_t pid, void *arg);
    void             *arg;
};

static bool has_ended(pid_t pid)
{
    siginfo_t info = { 0 };
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 && info.si_pid == pid;
}

/* The depth of pid namespaces that a process is in, from its status file. */
static unsigned count_numbers(const char *status)
{
    unsigned n = 0;
    char *end;

    for (const char *text = find(status, "NSpid"); text && *text != '\n' && *text; text = end + (*end == '\t'), n++)
        if (strtoul(text, &end, 10) == 0)
            return 0;
    return n;
}

/* Whether it is PID 1 in the innermost of them. */
static bool is_first(const char *status)
{
    const char *text = find(status, "NSpid");
    size_t length = text ? strcspn(text, "\n") : 0;

    return length >= 2 && text[length - 1] == '1' && text[length - 2] == '\t';
}

struct init_search {
    dev_t root;
    pid_t found;
};

static void look_for_init(pid_t pid, void *arg)
{
    struct init_search *s = arg;
    char path[40], status[STATUS_MAX];
    struct stat root;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (s->found || fd_read_file(AT_FDCWD, path, status, sizeof status) < 0 || !is_first(status))
        return;
    /* Only inits are examined: we chose their root, so this cannot block. */
    snprintf(path, sizeof path, "/proc/%d/root", (int)pid);
    if (stat(path, &root) == 0 && root.st_dev == s->root)
        s->found = pid;
}

pid_t family_find_init(dev_t root)
{
    struct init_search s = { .root = root };

    each_child(look_for_init, &s);
    return s.found;
}

static bool is_of(const struct engine_box *box, uint32_t id)
{
    return (id == 0 && (box->keep_own || box->ids.size == 1)) || id - box->ids.base < box->ids.size;
}

/* On recent kernels a zombie that was not dumpable shows its namespaces to the host's root only. Its origin is then
 * told by its depth and its ids: those of the box, or of the family as long as it is not sealed. Children that the
 * keeper itself waits for have neither: other boxes and families have other ids, and the zygote is less deep than a
 * box. With a single id, another box's payload may be mistaken for it; losing its exit status is better than a box that
 * never ends. */
static bool looks_like_ours(pid_t pid, const struct family_sweep_job *s)
{
    const struct family *family = s->box->family;
    char path[40], status[STATUS_MAX];

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (fd_read_file(AT_FDCWD, path, status, sizeof status) < 0 || s->depth == 0 || count_numbers(status) != s->depth)
        return false;
    const char *uid = find(status, "Uid");
    uint32_t id = uid ? (uint32_t)strtoul(uid, NULL, 10) : UINT32_MAX;
    return is_of(s->box, id) || (family && is_of(&family->box, id));
}

static void sweep_namespace(pid_t pid, void *arg)
{
    const struct family_sweep_job *s = arg;
    int r = pid == s->box->init.pid ? 0 : is_in_namespace(pid, &s->namespace);

    if (r == -EACCES)
        r = has_ended(pid) && looks_like_ours(pid, s);
    if (r > 0)
        (void)waitpid(pid, NULL, WNOHANG | __WALL);
}

void family_sweep(const struct engine_box *box)
{
    struct family_sweep_job s = { .box = box };
    char path[40], status[STATUS_MAX];

    snprintf(path, sizeof path, "/proc/%d/status", (int)box->init.pid);
    if (fd_read_file(AT_FDCWD, path, status, sizeof status) > 0)
        s.depth = count_numbers(status);
    if (box->ns.pid >= 0 && fstat(box->ns.pid, &s.namespace) == 0)
        each_child(sweep_namespace, &s);
}

static void sweep_one(pid_t pid, void *arg)
{
    const struct family_sweep_job *s = arg;

    if (has_ended(pid) && !s->is_known(pid, s->arg))
        (void)waitpid(pid, NULL, WNOHANG | __WALL);
}

void family_sweep_unknown(bool (*is_known)(pid_t pid, void *arg), void *arg)
{
    each_child(sweep_one, &(struct family_sweep_job){ .is_known = is_known, .arg = arg });
}
