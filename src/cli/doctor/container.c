/* Containers remove what boxes need in different ways: a seccomp profile without namespaces, files mounted over parts
 * of /proc (the kernel then allows no fresh one inside), a read-only /proc/sys. Each is checked separately, so that the
 * advice names only what is missing. */
#define _GNU_SOURCE
#include "cli/doctor/container.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"

/* The kernel's own mounts do not count. */
static bool covers_proc(const char *line)
{
    const char *at = strstr(line, " /proc/");
    const char *end = strchr(line, '\n');

    return at && (!end || at < end) && strncmp(at, " /proc/sys/fs/binfmt_misc ", 26) != 0;
}

void container_look(struct container *ret)
{
    static char text[1 << 16];
    struct statvfs sys;

    *ret = (struct container){ 0 };
    ret->is_one = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0
               || getenv("KUBERNETES_SERVICE_HOST") || getenv("container");
    if (fd_read_file(AT_FDCWD, "/proc/self/status", text, sizeof text) > 0) {
        const char *mode = strstr(text, "\nSeccomp:\t");
        ret->has_seccomp = mode && mode[10] == '2';
    }
    if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", text, sizeof text) > 0)
        for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line ? 1 : 0)
            ret->has_covered_proc |= covers_proc(line);
    ret->has_readonly_sys = statvfs("/proc/sys", &sys) == 0 && sys.f_flag & ST_RDONLY;
    if (fd_read_file(AT_FDCWD, "/proc/self/attr/current", text, sizeof text) > 0)
        ret->has_apparmor = strstr(text, "(enforce)") != NULL;
    ret->is_one |= ret->has_covered_proc || ret->has_readonly_sys || ret->has_seccomp;
}

bool container_is_to_blame(const struct container *c, const struct err *e)
{
    bool is_refusal = e->code == EPERM || e->code == EROFS || e->code == ENOSYS;
    bool is_making = e->step >= STEP_ROOT && e->step <= STEP_SECCOMP;
    bool is_known = c->has_seccomp || c->has_apparmor || c->has_covered_proc || c->has_readonly_sys;

    return c->is_one && is_refusal && is_making && is_known;
}

void container_advise(const struct container *c, struct buf *out)
{
    bool proc = c->has_covered_proc || c->has_readonly_sys;

    buf_add_text(out, "This is a container (or a service with a profile of its own) that does not let boxes be made:");
    if (c->has_seccomp)
        buf_add_text(out, " its seccomp profile forbids namespaces, mounts or keyrings;");
    if (c->has_apparmor)
        buf_add_text(out, " its AppArmor profile forbids mounts;");
    if (c->has_covered_proc)
        buf_add_text(out, " parts of /proc are covered, so there is no fresh one for a box;");
    if (c->has_readonly_sys)
        buf_add_text(out, " /proc/sys is read-only;");
    if (!c->has_seccomp && !c->has_apparmor && !proc)
        buf_add_text(out, " it lacks capabilities or user namespaces;");
    if (c->has_covered_proc && !c->has_readonly_sys && !c->has_seccomp && !c->has_apparmor)
        buf_add_text(out, "\n'carrel run --no-proc' makes boxes without /proc, or");
    bool unknown = !c->has_seccomp && !c->has_apparmor && !proc;
    const char *seccomp = c->has_seccomp ? " --security-opt seccomp=unconfined" : "";
    const char *rest = c->has_apparmor ? " --security-opt apparmor=unconfined" : unknown ? " --privileged" : "";
    buf_printf(out, "\nstart it with\n  docker:%s%s%s\n  podman:%s%s%s\n", seccomp,
               proc ? " --security-opt systempaths=unconfined" : "", rest, seccomp,
               proc ? " --security-opt unmask=ALL" : "", rest);
    if (unknown)
        buf_add_text(out, "  a pod:  securityContext: {privileged: true}\n");
    else
        buf_printf(out, "  a pod:  spec: {hostUsers: false}, securityContext: {%s%s%s}\n",
                   proc ? "procMount: Unmasked" : "", proc && c->has_seccomp ? ", " : "",
                   c->has_seccomp ? "seccompProfile: {type: Unconfined}" : "");
}
