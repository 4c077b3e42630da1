#include "proto/walls.h"

#include <stdio.h>

static const struct {
    const char *name, *means[2];
} held[WALL_LIMITS] = {
    [WALL_MEMORY] = { "memory", { "cgroup v1 memory", "cgroup v2 memory" } },
    [WALL_PIDS] = { "pids", { "cgroup v1 pids", "cgroup v2 pids" } },
    [WALL_CPUS] = { "cpus", { "cgroup v1 cpu", "cgroup v2 cpu" } },
};

/* Programs read the first word. */
static const char *const networks[] = {
    [WALL_NET_NONE] = "none: network namespace with loopback only",
    [WALL_NET_HOLD] =
        "hold: every connection goes through carrel-egress by rules, and succeeds only if the server's did",
    [WALL_NET_TPROXY] = "tproxy: every connection goes through carrel-egress by rules",
    [WALL_NET_UNKNOWN] = "none: carrel-egress does not answer at the moment, so nothing is reached",
};

static bool is_limited(const struct walls *w, enum wall_limit which)
{
    return which == WALL_MEMORY ? w->limits.memory_bytes > 0 : which == WALL_PIDS ? w->limits.pids > 0
                                                                                  : w->limits.cpu_milli > 0;
}

void walls_write(struct jsonout *j, const struct walls *w)
{
    char text[64];

    jsonout_open_object(j, "enforced");
    for (enum wall_limit i = 0; i < WALL_LIMITS; i++)
        if (is_limited(w, i))
            jsonout_string(j, held[i].name, held[i].means[w->host.is_v2 >> i & 1]);
    if (w->limits.cpu_request_milli)
        jsonout_string(j, "cpu_share", held[WALL_CPUS].means[w->host.is_v2 >> WALL_CPUS & 1]);
    jsonout_string(j, "disk", w->on_disk ? "size of the store" : "tmpfs size");
    if (w->volumes == WALL_VOLUMES_LIMITED)
        jsonout_string(j, "volumes", "size of the images");
    snprintf(text, sizeof text, "landlock abi %u", w->host.landlock_abi);
    jsonout_string(j, "files", w->host.landlock_abi ? text : "mount namespace");
    snprintf(text, sizeof text, "seccomp %s", profile_name(w->profile));
    jsonout_string(j, "syscalls", text);
    snprintf(text, sizeof text, "user namespace with %u ids", w->host.n_ids);
    jsonout_string(j, "users", text);
    jsonout_string(j, "processes", "pid namespace");
    jsonout_string(j, "network", networks[w->network]);
    jsonout_string(j, "root", w->writable_root ? "overlay" : "read-only mounts");
    jsonout_string(j, "nesting", "user.max_user_namespaces");
    jsonout_close(j);

    jsonout_open_object(j, "not_enforced");
    for (enum wall_limit i = 0; i < WALL_LIMITS; i++)
        if (!is_limited(w, i))
            jsonout_string(j, held[i].name,
                           w->host.can >> i & 1 ? "not asked for"
                           : w->why[i]          ? w->why[i]
                                                : "the server's host cannot; 'carrel doctor' there says why");
    if (w->network == WALL_NET_TPROXY)
        jsonout_string(j, "connect",
                       "this kernel lacks nfnetlink_log: connect() succeeds before the server has answered");
    if (w->volumes == WALL_VOLUMES_FREE)
        jsonout_string(j, "volumes", "without root a volume is a directory, and its size is no limit");
    if (w->no_proc)
        jsonout_string(j, "proc", "--no-proc: /proc is empty");
    if (!w->host.landlock_abi)
        jsonout_string(j, "landlock", "this kernel has none");
    jsonout_close(j);
}
