/* From findings to conclusions. No system calls here: tests feed it made-up hosts. */
#include "cli/doctor/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char boxes[] = "boxes", limits[] = "limits", users[] = "users", walls[] = "walls", host[] = "host",
                  kernels[] = "kernels";

static struct doctor_row *add(struct doctor *d, const char *group, const char *name, enum doctor_state state)
{
    struct doctor_row *row = &d->row[d->n_rows < DOCTOR_ROWS ? d->n_rows++ : DOCTOR_ROWS - 1];

    *row = (struct doctor_row){ .group = group, .name = name, .state = state };
    return row;
}

PRINTF_LIKE(3, 4) static void say(char *text, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text, size, format, args);
    va_end(args);
}
#define SAY(field, ...) say((field), sizeof(field), __VA_ARGS__)

static void judge_kernel(struct doctor *d)
{
    const struct features *f = &d->features;
    bool is_old = f->major < 5 || (f->major == 5 && f->minor < 12);
    bool is_aging = f->major < 5 || (f->major == 5 && f->minor < 19);
    struct doctor_row *row = add(d, boxes, "kernel", is_old ? DOCTOR_MISSING : is_aging ? DOCTOR_LIMITED : DOCTOR_OK);

    SAY(row->found, "%s", f->release);
    if (is_old)
        SAY(row->cost, "no box can be made: mount_setattr came with Linux 5.12");
    else if (is_aging)
        SAY(row->cost, "the peak of memory is not counted on cgroup v2 (5.19); killing a box takes longer before 5.14");
    if (is_aging)
        SAY(row->fix, "install a newer kernel");
}

/* Why user namespaces, or operations in them, are refused. */
static void explain_namespace(const struct doctor *d, struct doctor_row *row)
{
    const struct features *f = &d->features;

    if (f->setting[SETTING_MAX_USER_NAMESPACES] == 0)
        SAY(row->fix, "sysctl -w user.max_user_namespaces=15000");
    else if (!f->is_keeper_root && f->setting[SETTING_USERNS_CLONE] == 0)
        SAY(row->fix, "sysctl -w kernel.unprivileged_userns_clone=1, or run carrel as root");
    else if (!f->is_keeper_root && d->apparmor[0])
        SAY(row->fix, "AppArmor wants a profile for this program; once: %s", d->apparmor);
    else
        SAY(row->fix,
            "inside a container: allow user namespaces there (seccomp, --privileged); else see the kernel's log");
}

static void judge_needed(struct doctor *d)
{
    static const enum feature needed[] = {
        FEATURE_USER_NAMESPACE, FEATURE_MOUNT_NAMESPACE, FEATURE_PID_NAMESPACE, FEATURE_IPC_NAMESPACE,
        FEATURE_UTS_NAMESPACE,  FEATURE_NET_NAMESPACE,   FEATURE_CLONE3,    FEATURE_MOUNT_API,
        FEATURE_PROC,           FEATURE_LOOPBACK,
    };
    const struct features *f = &d->features;

    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        int code = f->error[needed[i]];
        struct doctor_row *row = add(d, boxes, feature_name(needed[i]), code ? DOCTOR_MISSING : DOCTOR_OK);
        if (!code)
            continue;
        SAY(row->found, "%s", strerror(code));
        SAY(row->cost, "no box can be made");
        if (code == ENOSYS || code == EINVAL || code == ENODEV)
            SAY(row->fix, "this kernel does not have it; install one that does");
        else if (needed[i] == FEATURE_PROC && !f->error[FEATURE_PID_NAMESPACE])
            SAY(row->fix,
                "parts of /proc are covered, as in most containers; start that container with an uncovered /proc "
                "(docker: --security-opt systempaths=unconfined)");
        else
            explain_namespace(d, row);
    }
}

/* If user namespaces are missing, features that need one get no remedy of their own. */
static void explain_inside(const struct doctor *d, struct doctor_row *row, const char *fix)
{
    if (d->features.error[FEATURE_USER_NAMESPACE])
        explain_namespace(d, row);
    else
        SAY(row->fix, "%s", fix);
}

static void judge_optional(struct doctor *d)
{
    const struct features *f = &d->features;
    int code = f->error[FEATURE_DEVPTS];
    struct doctor_row *row = add(d, boxes, feature_name(FEATURE_DEVPTS), code ? DOCTOR_LIMITED : DOCTOR_OK);

    if (code) {
        SAY(row->found, "%s", strerror(code));
        SAY(row->cost, "'-t' is refused");
        explain_inside(d, row, "a kernel with CONFIG_UNIX98_PTYS, 4.7 or newer");
    }
    code = f->error[FEATURE_OVERLAY];
    row = add(d, boxes, feature_name(FEATURE_OVERLAY), code ? DOCTOR_LIMITED : DOCTOR_OK);
    if (code) {
        SAY(row->found, "%s", strerror(code));
        SAY(row->cost, "'--writable-root' is refused");
        explain_inside(d, row, "modprobe overlay; inside user namespaces it needs Linux 5.11");
    }
    code = f->error[FEATURE_ID_MAPPED];
    row = add(d, boxes, feature_name(FEATURE_ID_MAPPED), code && f->is_keeper_root ? DOCTOR_LIMITED : DOCTOR_OK);
    if (!f->is_keeper_root) {
        SAY(row->found, "not needed without root");
    } else if (code) {
        SAY(row->found, "%s", strerror(code));
        SAY(row->cost, "files of a mounted host directory may show no owner inside a box");
        SAY(row->fix, "a file system that can be idmapped (ext4, xfs, btrfs; tmpfs since 6.3)");
    }
}

static void judge_trial(struct doctor *d)
{
    struct doctor_row *row = add(d, boxes, "a box", d->trial[0] ? DOCTOR_MISSING : DOCTOR_OK);

    SAY(row->found, "%s", d->trial[0] ? d->trial : "made and ended");
    if (d->trial[0]) {
        SAY(row->cost, "no box can be made");
        SAY(row->fix, "see the other rows; where they are all right, it is a seccomp profile or a security module that "
                      "refuses one step: the word before the first colon");
    }
}

static void judge_network(struct doctor *d)
{
    const struct doctor_network *n = &d->network;
    bool is_held = strncmp(n->way, "hold", 4) == 0;

    if (d->trial[0])
        return;
    struct doctor_row *row = add(d, boxes, "network by rules", is_held ? DOCTOR_OK : DOCTOR_LIMITED);
    SAY(row->found, "%s", n->way[0] ? n->way : n->why);
    if (!n->way[0])
        SAY(row->cost, "boxes have no network: --allow and --net are refused");
    else if (!is_held)
        SAY(row->cost, "connect() in a box succeeds before the server has answered");
    if (!is_held)
        SAY(row->fix, "modprobe -a nf_tables nft_tproxy nft_reject_inet nft_log nfnetlink_log (as root)");
}

static void judge_limits(struct doctor *d)
{
    static const struct {
        const char *name, *cost;
    } texts[CG_CPUACCT] = {
        [CG_MEMORY] = { "memory limit", "'--memory' is refused; a box can use all memory that its user may use" },
        [CG_PIDS] = { "process limit", "'--pids' is refused; a fork bomb is stopped only by the user's own limit" },
        [CG_CPU] = { "cpu limit", "'--cpus' is refused" },
        [CG_FREEZER] = { "freezing", "boxes cannot be frozen" },
    };
    static const char *const modes[] = { "none", "v1", "hybrid: limits on v1, killing and freezing on v2", "v2" };
    struct doctor_row *row = add(d, limits, "cgroups", d->cgroups.mode == CGROUP_NONE ? DOCTOR_LIMITED : DOCTOR_OK);

    SAY(row->found, "%s", modes[d->cgroups.mode]);
    for (enum cgroup_controller c = 0; c < CG_CPUACCT; c++) {
        row = add(d, limits, texts[c].name, d->cgroups.can[c] ? DOCTOR_OK : DOCTOR_LIMITED);
        SAY(row->found, "%s", cgroup_means(&d->cgroups, c));
        if (!d->cgroups.can[c]) {
            SAY(row->cost, "%s", texts[c].cost);
            SAY(row->fix, "%s", d->cgroups.why[c]);
        }
    }
    int code = d->features.error[FEATURE_TMPFS_SIZE];
    row = add(d, limits, "disk limit", code ? DOCTOR_MISSING : DOCTOR_OK);
    SAY(row->found, "%s", code ? strerror(code) : "tmpfs with a size, counted as memory");
    if (code) {
        SAY(row->cost, "no box can be made: all that it writes goes there");
        explain_inside(d, row, "a kernel with CONFIG_TMPFS; see also the row 'mount namespace'");
    }
}

static void judge_ids(struct doctor *d)
{
    const struct features *f = &d->features;
    const struct features_ids *ids = &f->ids;
    uint64_t count = ids->uid_count < ids->gid_count ? ids->uid_count : ids->gid_count;
    struct doctor_row *row = add(d, users, "rights", DOCTOR_OK);

    bool weak = f->uid == 0 && !f->is_keeper_root;
    SAY(row->found, "%s%s%s", f->is_keeper_root ? "root" : weak ? "root without " : "an ordinary user",
        weak && f->lacks ? f->lacks : "", f->is_first_user_namespace ? "" : ", inside a user namespace");
    row = add(d, users, "id ranges", DOCTOR_OK);
    if (f->is_keeper_root && !ids->owner[0]) {
        SAY(row->found, "default range; reserve one with a line 'carrel:FIRST:COUNT' in /etc/subuid and /etc/subgid");
    } else if (f->is_keeper_root) {
        SAY(row->found, "%s:%llu:%llu", ids->owner, (unsigned long long)ids->uid_first, (unsigned long long)count);
        if (count < 65536) {
            row->state = DOCTOR_LIMITED;
            SAY(row->cost, "the line is too short for one box and is not used");
            SAY(row->fix, "give carrel at least 65536 ids in /etc/subuid and /etc/subgid");
        }
    } else if (ids->owner[0] && ids->has_mappers) {
        SAY(row->found, "%s:%llu:%llu", ids->owner, (unsigned long long)ids->uid_first, (unsigned long long)count);
    } else {
        row->state = DOCTOR_LIMITED;
        SAY(row->found, "%s",
            ids->owner[0] ? "newuidmap or newgidmap is not installed" : "no line in /etc/subuid and /etc/subgid");
        SAY(row->cost, "a box has one user only, and all boxes of this user share it");
        SAY(row->fix, "%s",
            ids->owner[0] ? "install the package uidmap (shadow-utils)"
                          : "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 NAME");
    }
}

static void judge_walls(struct doctor *d)
{
    const struct features *f = &d->features;
    int code = f->error[FEATURE_SECCOMP];
    struct doctor_row *row = add(d, walls, feature_name(FEATURE_SECCOMP), code ? DOCTOR_MISSING : DOCTOR_OK);

    if (code) {
        SAY(row->found, "%s", strerror(code));
        SAY(row->cost, "no box can be made: its system calls would not be filtered");
        SAY(row->fix, "a kernel with CONFIG_SECCOMP_FILTER");
    }
    code = f->error[FEATURE_NO_NESTING];
    row = add(d, walls, feature_name(FEATURE_NO_NESTING), code ? DOCTOR_MISSING : DOCTOR_OK);
    if (code) {
        SAY(row->found, "%s", strerror(code));
        SAY(row->cost, "no box can be made: user namespaces inside it could not be forbidden");
        explain_inside(d, row,
                       "/proc/sys must be writable where carrel runs (in containers it is often mounted read-only)");
    }
    row = add(d, walls, "Landlock", f->landlock_abi >= 3 ? DOCTOR_OK : DOCTOR_LIMITED);
    if (f->landlock_abi)
        SAY(row->found, "ABI %d", f->landlock_abi);
    else
        SAY(row->found, "not available");
    if (f->landlock_abi < 3) {
        SAY(row->cost, "%s",
            f->landlock_abi ? "the second wall around files does not cover truncation (ABI 3)"
                            : "the second wall around files is absent; mounts and ids are the only one");
        SAY(row->fix, "Linux 6.2 or newer with 'landlock' in lsm= of the kernel's command line");
    }
}

static void judge_settings(struct doctor *d)
{
    static const struct {
        enum setting setting;
        long         least, most;
        const char  *cost;
    } rules[] = {
        { SETTING_LEGACY_TIOCSTI, 0, 0,
          "programs outside of boxes can push input into terminals; boxes' filters refuse it" },
        { SETTING_DMESG_RESTRICT, 1, 1, "everybody on this host reads the kernel's log; boxes' filters refuse it" },
        { SETTING_KPTR_RESTRICT, 1, 2, "kernel addresses are easier to learn" },
        { SETTING_BPF_DISABLED, 1, 2, "ordinary users may load BPF; boxes' filters refuse it" },
        { SETTING_PERF_PARANOID, 2, 4, "ordinary users may profile the kernel; boxes' filters refuse it" },
        { SETTING_PROTECTED_SYMLINKS, 1, 1, "links planted in /tmp can mislead programs of the host" },
        { SETTING_PROTECTED_HARDLINKS, 1, 1, "users can make hard links to files of others" },
        { SETTING_KSM, 0, 0, "merging equal pages lets one box find out by timing which pages another has in memory" },
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        long value = d->features.setting[rules[i].setting];
        if (value == SETTING_ABSENT)
            continue;
        bool good = value >= rules[i].least && value <= rules[i].most;
        const char *name = setting_name(rules[i].setting);
        struct doctor_row *row = add(d, host, name, good ? DOCTOR_OK : DOCTOR_LIMITED);
        SAY(row->found, "%ld", value);
        if (good)
            continue;
        SAY(row->cost, "%s", rules[i].cost);
        if (name[0] == '/')
            SAY(row->fix, "echo %ld >%s", rules[i].least, name);
        else
            SAY(row->fix, "sysctl -w %s=%ld", name, rules[i].least);
    }
}

/* Boxes work without kernels. */
static void judge_kernels(struct doctor *d)
{
    const struct doctor_kernels *k = &d->kernels;
    bool is_whole = k->has_server && k->has_files;
    struct doctor_row *row = add(d, kernels, "Python kernels", is_whole && k->has_python ? DOCTOR_OK : DOCTOR_LIMITED);

    if (is_whole && k->has_python) {
        SAY(row->found, "%s", k->python);
        return;
    }
    SAY(row->found, "%s", is_whole ? "no Python with ipykernel" : "not installed");
    SAY(row->cost,
        "'carrel py', 'carrel repl', notebooks and Box().run() have no kernel; commands run in boxes all the same");
    if (is_whole)
        SAY(row->fix, "carrel setup");
    else
        SAY(row->fix, "%s: install carrel whole (make install, or the wheel)",
            k->has_server ? "its guest files are missing" : "carrel-server is not beside this program");
}

static void judge_rest(struct doctor *d)
{
    const struct features *f = &d->features;
    bool is_pipe = f->core_pattern[0] == '|';
    struct doctor_row *row = add(d, host, "kernel.core_pattern", is_pipe ? DOCTOR_LIMITED : DOCTOR_OK);

    SAY(row->found, "%s", f->core_pattern);
    if (is_pipe) {
        SAY(row->cost,
            "a crash inside a box starts this program on the host, as root, with the box's memory as its input");
        SAY(row->fix, "sysctl -w kernel.core_pattern=core");
    }
    row = add(d, host, "/dev/shm", DOCTOR_OK);
    SAY(row->found, "%s", f->has_dev_shm ? "there; boxes have their own" : "none on the host; boxes have their own");
}

static void judge_devices(struct doctor *d)
{
    const struct doctor_devices *v = &d->devices;
    bool is_whole = v->n_refused == 0 && v->n_wrong == 0;
    struct doctor_row *row = add(d, host, "devices (CDI)", is_whole ? DOCTOR_OK : DOCTOR_LIMITED);

    if (v->n == 0)
        SAY(row->found, "none for boxes: no specification in /etc/cdi or /var/run/cdi%s",
            is_whole ? "" : " can be used");
    else
        SAY(row->found, "%u for boxes: %s", v->n, v->names);
    if (!is_whole) {
        SAY(row->cost, "%s", v->why);
        SAY(row->fix, "generate the specification again, without hooks (nvidia-ctk cdi generate --disable-hook=all)");
    }
}

void doctor_judge(struct doctor *doctor)
{
    doctor->n_rows = 0;
    judge_kernel(doctor);
    judge_needed(doctor);
    judge_optional(doctor);
    judge_trial(doctor);
    judge_network(doctor);
    judge_limits(doctor);
    judge_ids(doctor);
    judge_walls(doctor);
    judge_kernels(doctor);
    judge_settings(doctor);
    judge_rest(doctor);
    judge_devices(doctor);
}

bool doctor_can_make_boxes(const struct doctor *doctor)
{
    for (size_t i = 0; i < doctor->n_rows; i++)
        if (doctor->row[i].state == DOCTOR_MISSING)
            return false;
    return true;
}
