/* The layout of a box.
 *
 * The root is a small tmpfs that is filled first and made read-only last; every mount point is made on it (or on the
 * scratch tmpfs) before a foreign tree is attached, so that no path is ever resolved in a tree that another user can
 * write (CVE-2024-45310, CVE-2026-87766 and their relatives). All files that the box writes are on one scratch tmpfs,
 * whose size is the disk limit: its folders appear as /tmp, /home/box and /dev/shm; and as /var/tmp, if something is
 * mounted there, else that is a link to /tmp. With a writable root the same scratch also holds the upper layers of an
 * overlay per top-level folder. */
#define _GNU_SOURCE
#include "box/plan.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "box/procfile.h"
#include "box/programs.h"
#include "proto/defaults.h"
#include "sys/mountfd.h"

#define PIP_USUAL "disable-pip-version-check = true\nbreak-system-packages = true\n"
#define PIP_ALONE "retries = 0\n"

/* Keeps the first error, so that the makers below can be called in a row without checks. */
struct maker {
    struct plan *plan;
    struct err  *e;
    int          failed;
};

static const char *keep(struct maker *m, const char *format, ...) PRINTF_LIKE(2, 3);

static const char *keep(struct maker *m, const char *format, ...)
{
    struct plan *p = m->plan;
    size_t room = sizeof p->text - p->text_used;
    char *text = p->text + p->text_used;
    va_list args;

    va_start(args, format);
    int length = vsnprintf(text, room, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= room) {
        m->failed = err_set(m->e, E2BIG, STEP_USAGE, "the box's layout has too many or too long paths");
        return "";
    }
    p->text_used += (size_t)length + 1;
    return text;
}

static void add_entry(struct maker *m, struct plan_entry entry)
{
    if (m->plan->n_entries == PLAN_ENTRIES) {
        m->failed =
            err_set(m->e, E2BIG, STEP_USAGE, "the box's layout has more than %d files and folders", PLAN_ENTRIES);
        return;
    }
    m->plan->entry[m->plan->n_entries++] = entry;
}

static void add_mount(struct maker *m, struct plan_mount mount)
{
    if (m->plan->n_mounts == PLAN_MOUNTS) {
        m->failed = err_set(m->e, E2BIG, STEP_USAGE, "the box's layout has more than %d mounts", PLAN_MOUNTS);
        return;
    }
    m->plan->mount[m->plan->n_mounts++] = mount;
}

static void add_rule(struct maker *m, const char *path, enum landlock_rights rights)
{
    if (m->plan->n_rules == PLAN_RULES) {
        m->failed = err_set(m->e, E2BIG, STEP_USAGE, "the box has more than %d writable places", PLAN_RULES);
        return;
    }
    m->plan->rule[m->plan->n_rules++] = (struct plan_rule){ path, rights };
}

static enum plan_owner owner_of_root(const struct plan *p)
{
    return p->writable_root ? OWNER_BOX_ROOT : OWNER_KEEPER;
}

static void dir(struct maker *m, const char *path)
{
    add_entry(m, (struct plan_entry){ .kind = PLAN_DIR, .path = path, .mode = 0755, .owner = owner_of_root(m->plan) });
}

static void scratch_dir(struct maker *m, const char *path, mode_t mode, enum plan_owner owner)
{
    add_entry(m,
              (struct plan_entry){ .kind = PLAN_DIR, .path = path, .mode = mode, .owner = owner, .on_scratch = true });
}

static void link_to(struct maker *m, const char *path, const char *target)
{
    add_entry(m, (struct plan_entry){ .kind = PLAN_LINK, .path = path, .text = target });
}

static void file(struct maker *m, const char *path, const char *text)
{
    add_entry(m, (struct plan_entry){ .kind = PLAN_FILE, .path = path, .text = text, .mode = 0644,
                                      .owner = owner_of_root(m->plan) });
}

static void program(struct maker *m, const char *path, const char *text)
{
    add_entry(m, (struct plan_entry){ .kind = PLAN_FILE, .path = path, .text = text, .mode = 0755,
                                      .owner = owner_of_root(m->plan) });
}

static const struct plan_entry *find_entry(const struct plan *p, const char *path, size_t length, bool on_scratch)
{
    for (size_t i = 0; i < p->n_entries; i++)
        if (p->entry[i].on_scratch == on_scratch && strlen(p->entry[i].path) == length
            && memcmp(p->entry[i].path, path, length) == 0)
            return &p->entry[i];
    return NULL;
}

static void folders_above(struct maker *m, const char *path, bool on_scratch)
{
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        const struct plan_entry *above = find_entry(m->plan, path, (size_t)(slash - path), on_scratch);
        /* A link would lead out of the new root, to the host's own files. */
        if (above && above->kind != PLAN_DIR)
            m->failed = err_set(m->e, ENOTDIR, STEP_USAGE,
                                "/%s cannot be a mount point: /%s is a %s in the box%s%s", path, above->path,
                                above->kind == PLAN_LINK ? "symbolic link" : "file",
                                above->kind == PLAN_LINK ? " to " : "", above->kind == PLAN_LINK ? above->text : "");
        if (!above) {
            const char *parent = keep(m, "%.*s", (int)(slash - path), path);
            add_entry(m, (struct plan_entry){ .kind = PLAN_DIR, .path = parent, .mode = 0755, .on_scratch = on_scratch,
                                              .owner = on_scratch ? OWNER_BOX_USER : owner_of_root(m->plan) });
        }
    }
}

/* Makes the folders above path and, at its end, a mount point. */
static void mount_point(struct maker *m, const char *path, bool is_file, bool on_scratch)
{
    folders_above(m, path, on_scratch);
    const struct plan_entry *there = find_entry(m->plan, path, strlen(path), on_scratch);
    if (there && (there->kind == PLAN_DIR) == is_file)
        m->failed = err_set(m->e, is_file ? EISDIR : ENOTDIR, STEP_USAGE,
                            "/%s is a %s in the box and cannot be mounted over with a %s", path,
                            there->kind == PLAN_DIR    ? "directory"
                            : there->kind == PLAN_LINK ? "symbolic link"
                                                       : "file",
                            is_file ? "file" : "directory");
    if (!there)
        add_entry(m, (struct plan_entry){ .kind = is_file ? PLAN_FILE : PLAN_DIR, .path = path, .text = "",
                                          .mode = is_file ? 0644 : 0755, .on_scratch = on_scratch });
}

static void bind_host(struct maker *m, const char *path, bool is_file, unsigned flags)
{
    mount_point(m, path, is_file, false);
    add_mount(m, (struct plan_mount){ .source = FROM_HOST, .path = path, .target = path, .flags = flags });
}

static void plan_devices(struct maker *m, const struct host_facts *facts)
{
    static const struct {
        const char *name;
        unsigned    major, minor;
    } nodes[] = { { "dev/null", 1, 3 },   { "dev/zero", 1, 5 },    { "dev/full", 1, 7 },
                  { "dev/random", 1, 9 }, { "dev/urandom", 1, 9 }, { "dev/tty", 5, 0 } };

    dir(m, "dev");
    dir(m, "dev/shm");
    /* A mount of its own, because only this folder may have devices: the root has nodev. */
    add_mount(m, (struct plan_mount){ .source = FROM_ROOT, .path = "dev", .target = "dev",
                                      .flags = TREE_NOSUID | TREE_NOEXEC |
                                               (m->plan->writable_root ? 0 : TREE_READONLY) });
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
        if (facts->can_mknod)
            add_entry(m, (struct plan_entry){ .kind = PLAN_NODE, .path = nodes[i].name, .mode = S_IFCHR | 0666,
                                              .device = makedev(nodes[i].major, nodes[i].minor) });
        else {
            mount_point(m, nodes[i].name, true, false);
            add_mount(m, (struct plan_mount){ .source = FROM_DEVICE, .path = nodes[i].name, .target = nodes[i].name,
                                              .flags = TREE_NOSUID | TREE_NOEXEC });
        }
    link_to(m, "dev/fd", "/proc/self/fd");
    link_to(m, "dev/stdin", "/proc/self/fd/0");
    link_to(m, "dev/stdout", "/proc/self/fd/1");
    link_to(m, "dev/stderr", "/proc/self/fd/2");
    dir(m, "dev/pts");
    link_to(m, "dev/ptmx", "pts/ptmx");
    add_mount(m, (struct plan_mount){ .source = FROM_DEVPTS, .target = "dev/pts", .flags = TREE_NOSUID | TREE_NOEXEC,
                                      .optional = !m->plan->terminal });
}

/* Files that programs in /usr need (box/etc.c). */
static void plan_host_etc(struct maker *m, const struct host_facts *facts)
{
    for (size_t i = 0; i < facts->n_etc; i++) {
        const struct facts_etc *of = &facts->etc[i];
        if (of->for_network && !m->plan->has_network)
            continue;
        const char *path = keep(m, "etc/%s", of->name);
        const struct plan_entry *there = find_entry(m->plan, path, strlen(path), false);

        if (there)
            continue;
        folders_above(m, path, false);
        if (of->link[0])
            link_to(m, path, of->link);
        else if (of->text)
            file(m, path, of->text);
        else {
            mount_point(m, path, !of->is_dir, false);
            add_mount(m, (struct plan_mount){ .source = FROM_HOST, .path = path, .target = path, .optional = true,
                                              .flags = TREE_READONLY | TREE_NOSUID | TREE_NODEV | TREE_NOEXEC });
        }
    }
}

/* Egress answers there; in a box without network init refuses at once. */
#define RESOLVER "nameserver 127.0.0.53\n"

enum { COVER_FLAGS = TREE_READONLY | TREE_NOSUID | TREE_NODEV | TREE_NOEXEC };

/* /etc of a box on the host's own /usr: written for the box, with harmless files of the host. */
static void plan_etc(struct maker *m, const struct box_spec *spec, const struct host_facts *facts)
{
    const char *name = spec->uid == 0 ? "root" : "box";
    const char *host = m->plan->hostname;

    dir(m, "etc");
    file(m, "etc/passwd",
         spec->uid == 0 ? "root:x:0:0:root:" BOX_HOME ":/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
                        : keep(m,
                               "root:x:0:0:root:/:/bin/sh\n%s:x:%u:%u:box:" BOX_HOME
                               ":/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
                               name, spec->uid, spec->gid));
    file(m, "etc/group", spec->gid == 0 ? "root:x:0:\nnogroup:x:65534:\n"
                                        : keep(m, "root:x:0:\n%s:x:%u:\nnogroup:x:65534:\n", name, spec->gid));
    file(m, "etc/hostname", keep(m, "%s\n", host));
    file(m, "etc/hosts", keep(m, "127.0.0.1\tlocalhost %s\n::1\tlocalhost\n", host));
    file(m, "etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
    file(m, "etc/resolv.conf", RESOLVER);
    /* Without a name git refuses to commit; without the second entry it refuses a mounted repository whose files belong
     * to no user of the box. */
    file(m, "etc/gitconfig", "[user]\n\tname = box\n\temail = box@localhost\n[safe]\n\tdirectory = *\n");
    /* The interpreter is the host's, but pip writes to the box's own files, so the host's need no protection. Without
     * network pip would try five times, for eight seconds. */
    file(m, "etc/pip.conf", !spec->has_network ? "[global]\n" PIP_USUAL PIP_ALONE
                            : keep(m, "[global]\n" PIP_USUAL "%s%s%s%s", facts->certificates ? "cert = " : "",
                                   facts->certificates ? facts->certificates : "", facts->certificates ? "\n" : "",
                                   facts->pip ? facts->pip : ""));
    link_to(m, "etc/mtab", "/proc/self/mounts");
    link_to(m, "etc/os-release", "../usr/lib/os-release");
    if (facts->zone[0])
        link_to(m, "etc/localtime", facts->zone);
    plan_host_etc(m, facts);
}

/* A root of its own has the resolver of its origin, if any. A link or a missing file is not covered. */
static void plan_resolver(struct maker *m)
{
    file(m, ".resolv.conf", RESOLVER);
    add_mount(m, (struct plan_mount){ .source = FROM_ROOT, .path = ".resolv.conf", .target = "etc/resolv.conf",
                                      .flags = COVER_FLAGS, .optional = true });
}

/* Programs ask for the name and the home of their user, and fail without. A writable root has the longer file as its
 * own; over a read-only one it is mounted. */
static void plan_accounts(struct maker *m, const struct box_spec *spec, const struct host_facts *facts)
{
    static const char *const files[] = { "passwd", "group" };
    bool has_upper = find_entry(m->plan, "upper-etc", strlen("upper-etc"), true);

    for (size_t i = 0; i < 2; i++) {
        const char *text = facts->accounts[i], *name = accounts_have(text, "box", 0) ? "boxuser" : "box";
        unsigned number = i ? spec->gid : spec->uid;
        if (!text[0] || accounts_have(text, NULL, number))
            continue;
        const char *gap = text[strlen(text) - 1] == '\n' ? "" : "\n";
        text = i ? keep(m, "%s%s%s:x:%u:\n", text, gap, name, number)
                 : keep(m, "%s%s%s:x:%u:%u:box:" BOX_HOME ":/bin/sh\n", text, gap, name, number, (unsigned)spec->gid);
        if (has_upper) {
            add_entry(m, (struct plan_entry){ .kind = PLAN_FILE, .path = keep(m, "upper-etc/%s", files[i]),
                                              .text = text, .mode = 0644, .on_scratch = true,
                                              .owner = OWNER_BOX_ROOT });
        } else if (!m->plan->writable_root) {
            file(m, keep(m, ".%s", files[i]), text);
            add_mount(m, (struct plan_mount){ .source = FROM_ROOT, .path = keep(m, ".%s", files[i]),
                                              .target = keep(m, "etc/%s", files[i]), .flags = COVER_FLAGS,
                                              .optional = true });
        }
    }
}

/* The top-level names of the box's root. */
static void plan_trees(struct maker *m, const struct host_facts *facts)
{
    for (size_t i = 0; i < facts->n_trees; i++) {
        const struct facts_tree *tree = &facts->tree[i];

        if (tree->link[0]) {
            link_to(m, tree->name, tree->link);
        } else if (m->plan->writable_root && !tree->is_file) {
            dir(m, tree->name);
            scratch_dir(m, keep(m, "upper-%s", tree->name), 0755, OWNER_BOX_ROOT);
            scratch_dir(m, keep(m, "work-%s", tree->name), 0755, OWNER_BOX_ROOT);
            add_mount(m, (struct plan_mount){ .source = FROM_OVERLAY, .path = tree->name, .target = tree->name,
                                              .flags = TREE_NOSUID | TREE_NODEV });
            add_rule(m, keep(m, "/%s", tree->name), LANDLOCK_WRITE);
        } else {
            bind_host(m, tree->name, tree->is_file, TREE_READONLY | TREE_NOSUID | TREE_NODEV);
        }
    }
}

/* World-readable files of /proc that describe the host. Files for the host's root only are closed to the box anyway,
 * because its users have no rights outside; strict shows nothing but the box's own processes. */
static void plan_proc(struct maker *m)
{
    static const char *const files[] = { "kallsyms", "keys",       "key-users",  "cmdline",
                                         "modules",  "timer_list", "sched_debug" };
    static const char *const dirs[] = { "acpi", "asound", "bus", "driver", "fs", "irq", "pressure", "scsi" };
    const struct limits *limits = &m->plan->limits;

    dir(m, "proc");
    if (m->plan->no_proc)
        return;
    add_mount(m, (struct plan_mount){ .source = FROM_PROC,
                                      .path = m->plan->profile == PROFILE_STRICT ? "subset=pid" : NULL,
                                      .target = "proc",
                                      .flags = TREE_NOSUID | TREE_NODEV | TREE_NOEXEC });
    if (m->plan->profile == PROFILE_STRICT)
        return;

    file(m, ".empty", "");
    dir(m, ".nothing");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        add_mount(m, (struct plan_mount){ .source = FROM_ROOT, .path = ".empty", .target = keep(m, "proc/%s", files[i]),
                                          .flags = COVER_FLAGS, .optional = true });
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        add_mount(m, (struct plan_mount){ .source = FROM_ROOT,
                                          .path = ".nothing",
                                          .target = keep(m, "proc/%s", dirs[i]),
                                          .flags = COVER_FLAGS,
                                          .optional = true });
    /* The box's root could write some of it. */
    if (m->plan->profile == PROFILE_SYSTEM)
        add_mount(m, (struct plan_mount){
                         .source = FROM_ROOT, .path = "proc/sys", .target = "proc/sys", .flags = COVER_FLAGS });
    if (limits->memory_bytes) {
        char text[512];
        procfile_meminfo(limits->memory_bytes, text, sizeof text);
        file(m, ".meminfo", keep(m, "%s", text));
        add_mount(m, (struct plan_mount){
                         .source = FROM_ROOT, .path = ".meminfo", .target = "proc/meminfo", .flags = COVER_FLAGS });
    }
    if (limits->cpu_milli) {
        char text[8192];
        procfile_cpuinfo((limits->cpu_milli + 999) / 1000, text, sizeof text);
        file(m, ".cpuinfo", keep(m, "%s", text));
        add_mount(m, (struct plan_mount){
                         .source = FROM_ROOT, .path = ".cpuinfo", .target = "proc/cpuinfo", .flags = COVER_FLAGS });
    }
}

/* Programs that size themselves by their limits look for them there. A limit that the box does not have has no
 * directory on v1, so its mount point stays empty. */
static void plan_leaf(struct maker *m, const struct host_facts *facts)
{
    static const struct { const char *target; enum leaf_view view; } v1[] = {
        { "sys/fs/cgroup/memory", LEAF_VIEW_MEMORY }, { "sys/fs/cgroup/pids", LEAF_VIEW_PIDS },
        { "sys/fs/cgroup/cpu", LEAF_VIEW_CPU },
    };

    if (facts->leaf == LEAF_UNSEEN || m->plan->profile == PROFILE_STRICT || m->plan->no_proc)
        return;
    dir(m, "sys");
    dir(m, "sys/fs");
    dir(m, "sys/fs/cgroup");
    if (facts->leaf == LEAF_V2) {
        add_mount(m, (struct plan_mount){ .source = FROM_LEAF, .fd = LEAF_VIEW_V2, .target = "sys/fs/cgroup",
                                          .flags = COVER_FLAGS, .optional = true });
        return;
    }
    for (size_t i = 0; i < sizeof v1 / sizeof *v1; i++) {
        dir(m, v1[i].target);
        add_mount(m, (struct plan_mount){ .source = FROM_LEAF, .fd = v1[i].view, .target = v1[i].target,
                                          .flags = COVER_FLAGS, .optional = true });
    }
    link_to(m, "sys/fs/cgroup/cpu,cpuacct", "cpu");
}

static void plan_scratch(struct maker *m, const struct box_spec *spec)
{
    enum { SHM = 2, SECRETS, VAR_TMP, PLACES };
    static const struct {
        const char *folder, *target, *path;
        mode_t      mode;
        unsigned    flags;
    } places[] = {
        { "tmp", "tmp", "/tmp", 01777, TREE_NOSUID | TREE_NODEV },
        { "home", "home/box", BOX_HOME, 0755, TREE_NOSUID | TREE_NODEV },
        { "shm", "dev/shm", "/dev/shm", 01777, TREE_NOSUID | TREE_NODEV | TREE_NOEXEC },
        { PLAN_SECRETS, BOX_SECRETS + 1, BOX_SECRETS, 0700, TREE_NOSUID | TREE_NODEV | TREE_NOEXEC },
        { "var-tmp", "var/tmp", "/var/tmp", 01777, TREE_NOSUID | TREE_NODEV },
    };
    bool has_var = find_entry(m->plan, "var", 3, false);
    /* Otherwise a link to /tmp is enough, and saves a mount. */
    bool has_var_tmp = !has_var && spec_uses_var_tmp(spec);

    dir(m, "tmp");
    dir(m, "home");
    dir(m, "home/box");
    if (!has_var)
        dir(m, "var");
    if (has_var_tmp)
        dir(m, "var/tmp");
    dir(m, "run");
    if (spec->has_secrets)
        dir(m, places[SECRETS].target);
    for (size_t i = 0; i < PLACES; i++) {
        if ((i == SECRETS && !spec->has_secrets) || (i == VAR_TMP && !has_var_tmp))
            continue;
        /* Neither shared memory nor secrets must become a file on disk. */
        bool in_memory = m->plan->on_store && (i == SHM || i == SECRETS);
        if (!in_memory)
            scratch_dir(m, places[i].folder, places[i].mode, OWNER_BOX_USER);
        add_mount(m, (struct plan_mount){ .source = in_memory ? FROM_MEMORY : FROM_SCRATCH, .path = places[i].folder,
                                          .target = places[i].target, .flags = places[i].flags });
        add_rule(m, places[i].path, LANDLOCK_WRITE);
    }
    if (!has_var && !has_var_tmp)
        link_to(m, "var/tmp", "/tmp");
    if (!has_var)
        link_to(m, "var/run", "/run");
}

/* Programs under common names that the root may lack: found last in PATH. A script and not a link, because an
 * interpreter finds its library by the path that it was started by. */
static void plan_programs(struct maker *m)
{
    folders_above(m, BOX_BIN "/" + 1, false);
    program(m, BOX_BIN "/python" + 1, "#!/bin/sh\nexec python3 \"$@\"\n");
    folders_above(m, BOX_FIRST "/" + 1, false);
    program(m, BOX_FIRST "/uv" + 1, programs_installer);
    link_to(m, BOX_FIRST "/npm" + 1, "uv");
    link_to(m, BOX_FIRST "/npx" + 1, "uv");
    folders_above(m, BOX_SITE "/" + 1, false);
    file(m, BOX_SITE "/sitecustomize.py" + 1, programs_sitecustomize);
}

/* The scratch folder that contains a path of the box, and the rest of the path; NULL if none does. */
static const char *scratch_part(const char *path, const char **ret_folder)
{
    static const char *const prefixes[][2] = {
        { "tmp/", "tmp" }, { "home/box/", "home" }, { "dev/shm/", "shm" }, { "var/tmp/", "var-tmp" }
    };

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t length = strlen(prefixes[i][0]);
        if (strncmp(path, prefixes[i][0], length) == 0) {
            *ret_folder = prefixes[i][1];
            return path + length;
        }
    }
    return NULL;
}

/* True if path lies in a foreign tree, where no mount point can be made: it must exist there. */
static bool lies_in_foreign_tree(const struct plan *p, const char *path)
{
    for (size_t i = 0; i < p->n_mounts; i++) {
        size_t length = strlen(p->mount[i].target);
        if (p->mount[i].source != FROM_SCRATCH && strncmp(path, p->mount[i].target, length) == 0 && path[length] == '/')
            return true;
    }
    return false;
}

/* A tree given as a descriptor. */
static void plan_foreign(struct maker *m, const struct mount_spec *mount)
{
    const char *target = mount->target + 1, *folder, *rest;
    bool is_volume = mount->kind == MOUNT_VOLUME, is_layer = mount->kind != MOUNT_HOST && !is_volume;
    bool writable = mount->writable && !is_layer;

    if (!lies_in_foreign_tree(m->plan, target)) {
        if ((rest = scratch_part(target, &folder)) != NULL)
            mount_point(m, keep(m, "%s/%s", folder, rest), mount->is_file, true);
        else
            mount_point(m, target, mount->is_file, false);
    }
    add_mount(m, (struct plan_mount){ .source = is_volume ? FROM_VOLUME : is_layer ? FROM_LAYER : FROM_CALLER,
                                      .fd = mount->fd, .path = mount->source, .target = target, .recursive = true,
                                      .fills_gap = mount->fills_gap,
                                      .flags = TREE_NOSUID | TREE_NODEV | (writable ? 0 : TREE_READONLY) });
    if (writable)
        add_rule(m, mount->target, LANDLOCK_WRITE);
}

/* A device of the host, beside those that every box has. A read-only mount would not prevent writes to a device; the
 * permissions of our own node do. */
static void plan_device(struct maker *m, const struct host_facts *facts, const struct mount_spec *mount)
{
    const char *target = mount->target + 1;

    if (find_entry(m->plan, target, strlen(target), false)) {
        m->failed = err_set(m->e, EEXIST, STEP_USAGE, "/%s is in every box and cannot be another device", target);
        return;
    }
    folders_above(m, target, false);
    if (facts->can_mknod) {
        add_entry(m, (struct plan_entry){
                         .kind = PLAN_NODE, .path = target, .device = mount->device,
                         .mode = (mount->is_block ? S_IFBLK : S_IFCHR) | (mount->writable ? 0666 : 0444) });
        return;
    }
    mount_point(m, target, true, false);
    add_mount(m, (struct plan_mount){ .source = FROM_NODE, .fd = mount->fd, .path = mount->source, .target = target,
                                      .flags = TREE_NOSUID | TREE_NOEXEC });
}

/* The root and the writable place are settled before: all further mounts follow, in the list's order. */
static void plan_mounts(struct maker *m, const struct box_spec *spec, const struct host_facts *facts)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct mount_spec *mount = &spec->mount[i];
        switch (mount->kind) {
        case MOUNT_HOST:
        case MOUNT_LAYER:
        case MOUNT_PACKAGES:
        case MOUNT_VOLUME:
            plan_foreign(m, mount);
            break;
        case MOUNT_DEVICE:
            plan_device(m, facts, mount);
            break;
        case MOUNT_ROOT:
        case MOUNT_TMPFS:
        case MOUNT_STORE:
        case MOUNT_KINDS:
            break;
        }
    }
}

int plan_make(const struct box_spec *spec, const struct host_facts *facts, struct plan *ret, struct err *e)
{
    struct plan *p = ret;
    struct maker m = { .plan = p, .e = e };
    const struct mount_spec *root = spec_find(spec, MOUNT_ROOT), *store = spec_find(spec, MOUNT_STORE);

    p->profile = spec->profile;
    p->limits = spec->limits;
    p->root = root && root->source ? root->source : "/";
    p->uid = spec->uid;
    p->gid = spec->gid;
    p->writable_root = root && root->writable;
    p->no_proc = spec->no_proc;
    p->terminal = spec->terminal;
    p->has_network = spec->has_network;
    p->on_store = store;
    p->store = store ? store->fd : -1;
    p->landlock_abi = facts->landlock_abi;
    p->trust_bytes = 0;
    p->n_entries = p->n_mounts = p->n_rules = p->text_used = 0;

    /* A copy: init overwrites its arguments. */
    p->hostname = keep(&m, "%s", spec->hostname ? spec->hostname : "box");
    add_rule(&m, "/", p->writable_root ? LANDLOCK_WRITE : LANDLOCK_READ);
    add_rule(&m, "/dev", LANDLOCK_DEVICE);
    add_rule(&m, "/proc", LANDLOCK_DEVICE);
    plan_trees(&m, facts);
    if (!root || !root->source)
        plan_etc(&m, spec, facts);
    else {
        plan_resolver(&m);
        plan_accounts(&m, spec, facts);
    }
    plan_proc(&m);
    plan_leaf(&m, facts);
    plan_devices(&m, facts);
    plan_scratch(&m, spec);
    plan_programs(&m);
    if (m.failed == 0)
        m.failed = plan_add_trust(p, &spec->trust, e);
    plan_mounts(&m, spec, facts);
    return m.failed;
}
