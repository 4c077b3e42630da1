#define _GNU_SOURCE
#include "box/plan.h"
#include "sys/mountfd.h"

static void print_flags(unsigned flags, FILE *out)
{
    static const struct {
        unsigned    flag;
        const char *name;
    } names[] = {
        { TREE_READONLY, "ro" }, { TREE_NOSUID, "nosuid" }, { TREE_NODEV, "nodev" }, { TREE_NOEXEC, "noexec" }
    };
    const char *separator = " (";

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (flags & names[i].flag) {
            fprintf(out, "%s%s", separator, names[i].name);
            separator = ",";
        }
    fputs(flags ? ")\n" : "\n", out);
}

static void print_entry(const struct plan_entry *entry, FILE *out)
{
    const char *where = entry->on_scratch ? "scratch:" : "";

    switch (entry->kind) {
    case PLAN_DIR:
        fprintf(out, "  dir    %s/%s %04o\n", where, entry->path, entry->mode);
        break;
    case PLAN_LINK:
        fprintf(out, "  link   %s/%s -> %s\n", where, entry->path, entry->text);
        break;
    case PLAN_FILE:
        fprintf(out, "  file   %s/%s\n", where, entry->path);
        break;
    case PLAN_NODE:
        fprintf(out, "  node   %s/%s\n", where, entry->path);
        break;
    }
}

static void print_mount(const struct plan *plan, const struct plan_mount *mount, FILE *out)
{
    static const char *const sources[] = {
        [FROM_HOST] = "bind",       [FROM_DEVICE] = "bind",  [FROM_CALLER] = "bind",
        [FROM_LAYER] = "layer",     [FROM_NODE] = "device",  [FROM_VOLUME] = "volume",
        [FROM_SCRATCH] = "scratch", [FROM_MEMORY] = "tmpfs", [FROM_ROOT] = "cover",
        [FROM_OVERLAY] = "overlay", [FROM_PROC] = "proc",    [FROM_DEVPTS] = "devpts",
        [FROM_LEAF] = "cgroup",
    };
    const char *slash = mount->source == FROM_HOST ? (plan->root[1] ? "/" : "") : "";

    fprintf(out, "  %-7s /%s", sources[mount->source], mount->target);
    if (mount->path)
        fprintf(out, " <- %s%s%s", mount->source == FROM_HOST ? plan->root : "", slash, mount->path);
    print_flags(mount->flags, out);
}

void plan_print(const struct plan *plan, FILE *out)
{
    static const char *const rights[] = {
        [LANDLOCK_READ] = "read", [LANDLOCK_DEVICE] = "device", [LANDLOCK_WRITE] = "write"
    };
    const struct limits *limits = &plan->limits;

    fputs("keeper\n  take   a free range of ids\n  tmpfs  root\n", out);
    fprintf(out, "  %s scratch, %llu bytes\n", plan->on_store ? "store " : "tmpfs ",
            (unsigned long long)limits->disk_bytes);
    for (size_t i = 0; i < plan->n_entries; i++)
        print_entry(&plan->entry[i], out);
    fputs("  clone  init: user, mount, pid, ipc, uts namespaces\n  clone  payload, into init's pid namespace\n"
          "  map    ids\n  cgroup", out);
    if (limits->memory_bytes)
        fprintf(out, " memory=%llu", (unsigned long long)limits->memory_bytes);
    if (limits->pids)
        fprintf(out, " pids=%u", limits->pids);
    if (limits->cpu_milli)
        fprintf(out, " cpus=%u.%03u", limits->cpu_milli / 1000, limits->cpu_milli % 1000);
    if (limits->cpu_request_milli)
        fprintf(out, " request-cpus=%u.%03u", limits->cpu_request_milli / 1000, limits->cpu_request_milli % 1000);
    fputs("\ninit\n  write  user.max_user_namespaces=0\n  private propagation\n", out);
    for (size_t i = 0; i < plan->n_mounts; i++)
        print_mount(plan, &plan->mount[i], out);
    fprintf(out, "  pivot  new root\n%s  hostname %s\n  drop   ids, capabilities; filter; reap\n",
            plan->writable_root ? "" : "  root   read-only\n", plan->hostname);
    fprintf(out,
            "payload\n  join   user, mount, ipc, uts namespaces\n  new    network namespace, lo up\n  join   cgroup; "
            "new cgroup namespace\n"
            "  rlimits, uid %u, gid %u, capabilities of profile %s, fresh keyring, no_new_privs\n  seccomp %s\n",
            plan->uid, plan->gid, profile_name(plan->profile), profile_name(plan->profile));
    for (size_t i = 0; i < plan->n_rules && plan->landlock_abi; i++)
        fprintf(out, "  landlock %-6s %s\n", rights[plan->rule[i].rights], plan->rule[i].path);
    fputs("  exec\n", out);
}
