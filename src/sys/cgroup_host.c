/* The cgroups that this host gives to this process.
 *
 * Three layouts. Pure v2: /sys/fs/cgroup is a cgroup2 file system. Hybrid: it is a tmpfs with one directory for each v1
 * controller and a cgroup2 tree at `unified`, which often has no controllers but still kills, freezes and counts cpu
 * time. v1: the same without `unified`. The usual places are tried first, because every start of `carrel run` pays for
 * this; /proc/self/mountinfo is read only if something was missing there.
 *
 * Root works directly below the root of each hierarchy, or in the part of v2 that a service was given (cgroup_given.c).
 * An ordinary user can only use v2, and only below a directory that was delegated to the user; the search goes upwards
 * from the own cgroup. A cgroup that holds processes cannot give controllers to its children, so the own cgroup itself
 * seldom qualifies. */
#include "sys/cgroup_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fd.h"

const char *const cgroup_controller_names[CG_CONTROLLERS] = {
    [CG_MEMORY] = "memory", [CG_PIDS] = "pids", [CG_CPU] = "cpu", [CG_FREEZER] = "freezer", [CG_CPUACCT] = "cpuacct",
};

/* If this file is writable, the directory is this controller's and ours. The root of pids has no file of its own. */
static const char *const v1_probe[CG_CONTROLLERS] = {
    [CG_MEMORY] = "memory.limit_in_bytes", [CG_PIDS] = "tasks", [CG_CPU] = "cpu.cfs_quota_us", [CG_FREEZER] = "tasks",
    [CG_CPUACCT] = "tasks",
};

static const char *const v1_usual[CG_CONTROLLERS][3] = {
    [CG_MEMORY]  = { "/sys/fs/cgroup/memory" },
    [CG_PIDS]    = { "/sys/fs/cgroup/pids" },
    [CG_CPU]     = { "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpuacct,cpu" },
    [CG_FREEZER] = { "/sys/fs/cgroup/freezer" },
    [CG_CPUACCT] = { "/sys/fs/cgroup/cpuacct" },
};

enum { LIMITED = 1 << CG_MEMORY | 1 << CG_PIDS | 1 << CG_CPU };

/* During the search: the obstacle as errno; 0 = the hierarchy is not mounted. */
struct search {
    int  v1[CG_CONTROLLERS];
    int  v2;
    char v2_path[PATH_MAX];
    int  v2_error;      /* of the base directory */
    int  enable_error;  /* of cgroup.subtree_control */
    bool is_root;
};

int cgroup_process_read(const char *who, struct cgroup_process *ret)
{
    enum { STATE = 3, THREADS = 20, START = 22 }; /* field numbers of proc(5) */
    const char *field[START + 1];
    char path[64], text[1024], *p;

    snprintf(path, sizeof path, "/proc/%s/stat", who);
    ssize_t n = fd_read_file(AT_FDCWD, path, text, sizeof text);
    if (n < 0)
        return (int)n;
    long pid = strtol(text, NULL, 10);
    p = strrchr(text, ')'); /* the command name may hold anything, also spaces and parentheses */
    for (int i = STATE; i <= START; i++) {
        p = p ? strchr(p, ' ') : NULL;
        if (!p)
            return -EBADMSG;
        field[i] = ++p;
    }
    if (pid <= 0 || pid > INT_MAX)
        return -EBADMSG;
    char state = field[STATE][0];
    *ret = (struct cgroup_process){
        .pid = (pid_t)pid,
        .start = strtoull(field[START], NULL, 10),
        .dead = (state == 'Z' || state == 'X') && strtol(field[THREADS], NULL, 10) <= 1,
    };
    return 0;
}

int cgroup_owner_self(struct cgroup_owner *ret)
{
    struct cgroup_process self;
    struct stat st;

    int r = cgroup_process_read("self", &self);
    if (r < 0)
        return r;
    if (stat("/proc/self/ns/pid", &st) < 0)
        return -errno;
    *ret = (struct cgroup_owner){ .pid_namespace = st.st_ino, .start = self.start, .pid = getpid() };
    return 0;
}

/* Opens the directory if it is a cgroup file system of that kind. */
static int open_tree_root(const char *path, long magic, int *ret)
{
    struct statfs fs;

    FD fd = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC); /* musl's open() adds an fcntl */
    if (fd < 0)
        return -errno;
    if (fstatfs(fd, &fs) < 0)
        return -errno;
    if ((long)fs.f_type != magic)
        return -ENOENT;
    *ret = TAKE_FD(fd);
    return 0;
}

static int check_writable(int dir, const char *file)
{
    return faccessat(dir, file, W_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static void try_v1(struct cgroup_host *host, struct search *search, enum cgroup_controller c, const char *path)
{
    FD fd = -1;

    if (open_tree_root(path, CGROUP_SUPER_MAGIC, &fd) < 0)
        return;
    int r = search->is_root ? check_writable(fd, v1_probe[c]) : -EACCES;
    search->v1[c] = r < 0 ? -r : 0;
    if (r == 0)
        host->v1[c] = TAKE_FD(fd);
}

static void try_v1_usual(struct cgroup_host *host, struct search *search, enum cgroup_controller c)
{
    for (size_t i = 0; i < 3 && v1_usual[c][i] && host->v1[c] < 0 && search->v1[c] == ENOENT; i++)
        try_v1(host, search, c, v1_usual[c][i]);
}

int cgroup_open_usual_v1(enum cgroup_controller controller)
{
    struct cgroup_host host = { .v1 = CG_NONE };
    struct search search = { .is_root = geteuid() == 0 };

    search.v1[controller] = ENOENT;
    try_v1_usual(&host, &search, controller);
    return host.v1[controller];
}

static void try_v2(struct search *search, const char *path)
{
    if (search->v2 < 0 && open_tree_root(path, CGROUP2_SUPER_MAGIC, &search->v2) == 0)
        snprintf(search->v2_path, sizeof search->v2_path, "%s", path);
}

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void unescape_path(char *path)
{
    char *to = path;

    for (const char *p = path; *p; p++) {
        if (p[0] == '\\' && p[1] >= '0' && p[1] <= '3' && p[2] >= '0' && p[2] <= '7' && p[3] >= '0' && p[3] <= '7') {
            *to++ = (char)((p[1] - '0') << 6 | (p[2] - '0') << 3 | (p[3] - '0'));
            p += 3;
        } else {
            *to++ = *p;
        }
    }
    *to = 0;
}

/* Whether list, split at any character of separators, contains word. */
static bool has_word(const char *list, const char *word, const char *separators)
{
    size_t length = strlen(word);

    for (const char *p = list; *p; p += strcspn(p, separators), p += strspn(p, separators))
        if (strncmp(p, word, length) == 0 && (!p[length] || strchr(separators, p[length])))
            return true;
    return false;
}

static void scan_line(struct cgroup_host *host, struct search *search, char *line)
{
    char *path = line, *end, *rest = strstr(line, " - ");

    for (int field = 0; field < 4 && path; field++)
        path = (path = strchr(path, ' ')) ? path + 1 : NULL;
    if (!path || !rest || rest < path)
        return;
    end = strchr(path, ' ');
    *end = 0;
    unescape_path(path);
    rest += 3;
    if (strncmp(rest, "cgroup2 ", 8) == 0) {
        try_v2(search, path);
    } else if (strncmp(rest, "cgroup ", 7) == 0) {
        for (enum cgroup_controller c = 0; c < CG_CPUACCT; c++)
            if (host->v1[c] < 0 && search->v1[c] == ENOENT && has_word(rest, cgroup_controller_names[c], ", \n"))
                try_v1(host, search, c, path);
    }
}

static void scan_mounts(struct cgroup_host *host, struct search *search)
{
    AUTO_FREE char *line = NULL;
    size_t size = 0;

    FILE *file = fopen("/proc/self/mountinfo", "re");
    if (!file)
        return;
    while (getline(&line, &size, file) > 0)
        scan_line(host, search, line);
    fclose(file);
}

/* Which of the wanted controllers (a bit mask) can limit children of this directory; enables those that can be
 * enabled. */
static unsigned v2_enable(int dir, unsigned want, int *ret_error)
{
    char enabled[512], offered[512], text[24];
    unsigned have = 0;

    if (fd_read_file(dir, "cgroup.subtree_control", enabled, sizeof enabled) < 0)
        return 0;
    for (enum cgroup_controller c = 0; c < CG_FREEZER; c++)
        if (want & 1U << c && has_word(enabled, cgroup_controller_names[c], " \n"))
            have |= 1U << c;
    if (have == want || fd_read_file(dir, "cgroup.controllers", offered, sizeof offered) < 0)
        return have;
    for (enum cgroup_controller c = 0; c < CG_FREEZER; c++) {
        if (!(want & ~have & 1U << c) || !has_word(offered, cgroup_controller_names[c], " \n"))
            continue;
        /* One write for each: a refused controller must not make the others fail. */
        snprintf(text, sizeof text, "+%s", cgroup_controller_names[c]);
        int r = fd_write_file(dir, "cgroup.subtree_control", text);
        if (r == 0)
            have |= 1U << c;
        else
            *ret_error = -r;
    }
    return have;
}

/* Whether this process may make leaves here and clone into them, which needs cgroup.procs of the common ancestor. */
static int v2_check_base(int dir)
{
    int r = check_writable(dir, "cgroup.procs");
    return r < 0 ? r : check_writable(dir, ".");
}

/* Searches from the own cgroup upwards while the directories are ours: the nearest that gives all wanted controllers,
 * else the one that gives most. */
static unsigned v2_find_delegated(struct search *search, unsigned want, int *ret_base)
{
    char path[2 * PATH_MAX];
    unsigned best = 0;
    size_t root = strlen(search->v2_path);

    if (cgroup_own_path(search->v2_path, path, sizeof path) < 0)
        return 0;
    for (;;) {
        FD dir = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int r = dir < 0 ? -errno : v2_check_base(dir);
        if (r < 0) {
            search->v2_error = -r;
            if (r != -ENOENT) /* a deleted own cgroup: its parents may still be there */
                break;
        } else {
            unsigned have = v2_enable(dir, want, &search->enable_error);
            if (*ret_base < 0 || __builtin_popcount(have) > __builtin_popcount(best)) {
                fd_close(*ret_base);
                *ret_base = TAKE_FD(dir);
                best = have;
            }
            if (best == want)
                break;
        }
        char *slash = strrchr(path + root, '/');
        if (!slash)
            break;
        *slash = 0;
    }
    if (*ret_base >= 0)
        search->v2_error = 0;
    return best;
}

/* A service that was given a part of the tree stays in it, if that part offers as much as the whole tree. */
static bool v2_take_given(struct cgroup_host *host, struct search *search, unsigned want, unsigned *ret_have)
{
    FD given = search->is_root ? cgroup_open_given(search->v2_path) : -1;
    int ignored = 0;

    if (given < 0 || v2_check_base(given) < 0)
        return false;
    *ret_have = v2_enable(given, want, &ignored);
    if (*ret_have != want && *ret_have != v2_enable(search->v2, want, &ignored))
        return false;
    host->v2 = TAKE_FD(given);
    return true;
}

static unsigned v2_choose_base(struct cgroup_host *host, struct search *search, unsigned want)
{
    unsigned have = 0;

    int r = v2_check_base(search->v2);
    if (r == 0) {
        host->v2 = TAKE_FD(search->v2);
        if (want)
            have = v2_enable(host->v2, want, &search->enable_error);
    }
    /* The root of a container's tree holds processes like any other cgroup; a directory further down may work. */
    if (r < 0 || (have != want && search->enable_error)) {
        int base = -1;
        search->v2_error = -r;
        unsigned lower = v2_find_delegated(search, want, &base);
        if (host->v2 < 0 || __builtin_popcount(lower) > __builtin_popcount(have)) {
            fd_close(host->v2);
            host->v2 = base;
            have = lower;
        } else {
            fd_close(base);
        }
    }
    return have;
}

/* Chooses the base in the v2 tree and sets can[] for the wanted controllers. */
static void choose_v2(struct cgroup_host *host, struct search *search, unsigned want)
{
    unsigned have = 0;

    if (search->v2 < 0)
        return;
    if (!v2_take_given(host, search, want, &have))
        have = v2_choose_base(host, search, want);
    for (enum cgroup_controller c = 0; c < CG_FREEZER; c++)
        if (have & 1U << c)
            host->can[c] = host->v2_controllers = true;
}

static void explain(struct cgroup_host *host, const struct search *search, enum cgroup_controller c)
{
    const char *name = cgroup_controller_names[c];
    char *why = host->why[c];
    size_t size = sizeof host->why[c];
    bool v2 = search->v2_path[0] && search->v1[c] == ENOENT;
    int code = v2 ? search->v2_error : search->v1[c];

    if (code == EROFS)
        snprintf(why, size, "/sys/fs/cgroup is mounted read-only; mount it writable (in a container: --privileged)");
    else if (v2 && host->v2 < 0 &&
             (!search->is_root || code == EACCES)) /* root of a user namespace is an ordinary user here */
        snprintf(why, size, "this user has no delegated cgroup; start it with: "
                 "systemd-run --user --scope -p Delegate=yes carrel ...");
    else if (v2 && host->v2 < 0)
        snprintf(why, size, "no writable cgroup: %s", strerror(code ? code : EACCES));
    else if (v2 && search->enable_error == EBUSY)
        snprintf(why, size, "'%s' cannot be enabled: processes live in the cgroup above; move them into a child of it "
                 "(systemd: DelegateSubgroup=)", name);
    else if (v2 && search->enable_error)
        snprintf(why, size, "'%s' cannot be enabled in cgroup.subtree_control: %s", name,
                 strerror(search->enable_error));
    else if (v2 && !search->is_root)
        snprintf(why, size, "'%s' is not delegated to this user; add it to Delegate= of user@.service", name);
    else if (v2)
        snprintf(why, size,
                 "cgroup v2 does not offer '%s' here; see the kernel options cgroup_disable= and cgroup_no_v1=", name);
    else if (code == EACCES || code == EPERM)
        snprintf(why, size,
                 "cgroup v1 '%s' is for root only; boot with systemd.unified_cgroup_hierarchy=1 for cgroup v2", name);
    else if (host->mode == CGROUP_NONE)
        snprintf(why, size, "no cgroup file system is mounted; mount cgroup2 at /sys/fs/cgroup");
    else
        snprintf(why, size, "cgroup v1 '%s' is not mounted", name);
}

/* Looks at the usual places, then at all mounts if something is missing. */
static void find_trees(struct cgroup_host *host, struct search *search)
{
    struct statfs fs;
    bool missing = false;

    if (statfs("/sys/fs/cgroup", &fs) == 0 && (long)fs.f_type == CGROUP2_SUPER_MAGIC)
        try_v2(search, "/sys/fs/cgroup");
    if (search->v2 >= 0)
        return;
    try_v2(search, "/sys/fs/cgroup/unified");
    for (enum cgroup_controller c = 0; c < CG_CPUACCT; c++) {
        if (c == CG_FREEZER && search->v2 >= 0)
            continue; /* v2 freezes better */
        try_v1_usual(host, search, c);
        missing |= search->v1[c] == ENOENT;
    }
    if (missing || search->v2 < 0)
        scan_mounts(host, search);
    if (search->v2 >= 0)
        host->v1[CG_FREEZER] = fd_close(host->v1[CG_FREEZER]);
}

int cgroup_host_open(struct cgroup_host *ret, struct err *e)
{
    struct search search = {
        .v1 = { ENOENT, ENOENT, ENOENT, ENOENT, ENOENT }, .v2 = -1, .is_root = geteuid() == 0,
    };
    struct cgroup_host host = { .v2 = -1, .v1 = CG_NONE };
    unsigned want = LIMITED;
    bool any_v1 = false;

    int r = cgroup_owner_self(&host.owner);
    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "/proc of this process cannot be read");
    find_trees(&host, &search);
    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++) {
        host.can[c] = host.v1[c] >= 0;
        any_v1 |= search.v1[c] != ENOENT;
        if (search.v1[c] != ENOENT)
            want &= ~(1U << c); /* a controller is in one hierarchy only */
    }
    choose_v2(&host, &search, want);
    if (host.v2 >= 0) {
        host.can[CG_FREEZER] = true;
        host.mode = any_v1 ? CGROUP_HYBRID : CGROUP_V2;
    } else if (host.v1[CG_MEMORY] >= 0 || host.v1[CG_PIDS] >= 0 || host.v1[CG_CPU] >= 0 || host.v1[CG_FREEZER] >= 0) {
        host.mode = CGROUP_V1;
    }
    for (enum cgroup_controller c = 0; c < CG_CPUACCT; c++)
        if (!host.can[c])
            explain(&host, &search, c);
    fd_close(search.v2);
    *ret = host;
    return 0;
}

static int duplicate(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

bool cgroup_host_for_joining(const struct cgroup_host *host, struct cgroup_host *ret)
{
    struct cgroup_host view = *host;

    if (host->mode != CGROUP_HYBRID || host->v2_controllers || host->v1[CG_CPU] < 0)
        return false;
    view.mode = CGROUP_V1;
    view.v2 = -1;
    for (enum cgroup_controller c = 0; c < CG_FREEZER; c++)
        view.v1[c] = duplicate(host->v1[c]);
    view.v1[CG_FREEZER] = cgroup_open_usual_v1(CG_FREEZER);
    /* Often cpu and cpuacct are one hierarchy. */
    bool is_counted = faccessat(host->v1[CG_CPU], "cpuacct.usage", F_OK, 0) == 0;
    view.v1[CG_CPUACCT] = is_counted ? -1 : cgroup_open_usual_v1(CG_CPUACCT);
    if (view.v1[CG_FREEZER] < 0 || (!is_counted && view.v1[CG_CPUACCT] < 0)) {
        cgroup_host_close(&view);
        return false;
    }
    *ret = view;
    return true;
}

void cgroup_host_close(struct cgroup_host *host)
{
    host->v2 = fd_close(host->v2);
    for (enum cgroup_controller c = 0; c < CG_CONTROLLERS; c++)
        host->v1[c] = fd_close(host->v1[c]);
}

const char *cgroup_means(const struct cgroup_host *host, enum cgroup_controller controller)
{
    static const char *const means[2][CG_CONTROLLERS] = {
        { "cgroup v1 memory", "cgroup v1 pids", "cgroup v1 cpu", "cgroup v1 freezer", "cgroup v1 cpuacct" },
        { "cgroup v2 memory", "cgroup v2 pids", "cgroup v2 cpu", "cgroup v2 freeze", "cgroup v2 cpu" },
    };

    if (!host->can[controller])
        return "none";
    return means[host->v1[controller] < 0][controller];
}
