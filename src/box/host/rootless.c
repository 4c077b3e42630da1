/* Only newuidmap and newgidmap can map the user's range in /etc/subuid and /etc/subgid, and they must run outside the
 * new user namespace: a child forked before stays there and runs them on us. */
#define _GNU_SOURCE
#include "box/host/rootless.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/apparmor.h"
#include "sys/rights.h"

struct range {
    unsigned long first, count;
};

bool rootless_needed(void)
{
    return geteuid() != 0 || rights_lacking() != NULL;
}

/* The user's line in /etc/subuid or /etc/subgid: "name:first:count" or "uid:first:count". */
static struct range read_range(const char *path)
{
    char text[16384], uid[16];
    struct passwd *user = getpwuid(getuid());

    snprintf(uid, sizeof uid, "%u", getuid());
    if (fd_read_file(AT_FDCWD, path, text, sizeof text) < 0)
        return (struct range){ 0 };
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        char *colon = strchr(line, ':');
        if (!colon)
            break;
        size_t length = (size_t)(colon - line);
        bool mine = (user && strlen(user->pw_name) == length && strncmp(line, user->pw_name, length) == 0)
                 || (strlen(uid) == length && strncmp(line, uid, length) == 0);
        if (mine) {
            struct range range = { .first = strtoul(colon + 1, &colon, 10) };
            range.count = *colon == ':' ? strtoul(colon + 1, NULL, 10) : 0;
            return range;
        }
    }
    return (struct range){ 0 };
}

static int run_mapper(const char *program, pid_t pid, unsigned own, struct range range)
{
    char target[16], inside[16], first[24], count[24];

    snprintf(target, sizeof target, "%d", (int)pid);
    snprintf(inside, sizeof inside, "%u", own);
    snprintf(first, sizeof first, "%lu", range.first);
    snprintf(count, sizeof count, "%lu", range.count);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, 1);
        dup2(null, 2);
        execlp(program, program, target, "0", inside, "1", "1", first, count, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* Runs outside; reads one byte when the new namespace exists; exits 0 if the ranges were mapped. */
static _Noreturn void map_from_outside(int go, pid_t pid, uid_t uid, gid_t gid, struct range uids, struct range gids)
{
    char byte;
    if (read(go, &byte, 1) != 1)
        _exit(1);
    _exit(run_mapper("newgidmap", pid, gid, gids) < 0 || run_mapper("newuidmap", pid, uid, uids) < 0);
}

static bool is_apparmors(int code)
{
    return (code == EPERM || code == EACCES) && apparmor_restricts("/proc");
}

static int blame_apparmor(int code, struct err *e)
{
    char command[APPARMOR_COMMAND];

    apparmor_command(command);
    return err_set(e, code, STEP_USAGE, "AppArmor forbids user namespaces to this program; once: %s", command);
}

/* A namespace without capabilities is detected by a request that changes nothing: "/" already receives mounts from the
 * host and sends none. */
static int check_rights(struct err *e)
{
    if (!apparmor_restricts("/proc") || mount(NULL, "/", NULL, MS_SLAVE, NULL) == 0)
        return 0;
    int code = errno;
    return code == EPERM || code == EACCES ? blame_apparmor(code, e) : 0;
}

static int map_own_id(uid_t uid, gid_t gid, struct err *e)
{
    char map[32];
    int r = fd_write_file(AT_FDCWD, "/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1\n", gid);
    if (r == 0)
        r = fd_write_file(AT_FDCWD, "/proc/self/gid_map", map);
    snprintf(map, sizeof map, "0 %u 1\n", uid);
    if (r == 0)
        r = fd_write_file(AT_FDCWD, "/proc/self/uid_map", map);
    if (r < 0 && is_apparmors(-r))
        return blame_apparmor(-r, e);
    return r < 0 ? err_at(e, -r, STEP_IDMAP, 0, "the user's own id") : 0;
}

int rootless_enter(uint32_t *ret_ids, struct err *e)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    struct range uids = read_range("/etc/subuid"), gids = read_range("/etc/subgid");
    bool mapped = false;
    pid_t mapper = -1;
    int go[2] = { -1, -1 };

    if (uids.count > gids.count)
        uids.count = gids.count;
    gids.count = uids.count;
    if (uids.count > 1024 && pipe2(go, O_CLOEXEC) == 0) {
        pid_t self = getpid();
        mapper = fork();
        if (mapper == 0)
            map_from_outside((close(go[1]), go[0]), self, uid, gid, uids, gids);
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
        int code = errno;
        fd_close(go[0]);
        fd_close(go[1]);
        while (mapper > 0 && waitpid(mapper, NULL, 0) < 0 && errno == EINTR)
            ;
        if (is_apparmors(code))
            return blame_apparmor(code, e);
        return err_set(e, code, STEP_CLONE, "user namespaces are closed to ordinary users here; see 'carrel doctor'");
    }
    if (mapper > 0) {
        int status = -1;
        (void)!write(go[1], "g", 1);
        go[1] = fd_close(go[1]);        /* if the byte was lost, the closed pipe has the same effect */
        while (waitpid(mapper, &status, 0) < 0 && errno == EINTR)
            ;
        mapped = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    fd_close(go[0]);
    fd_close(go[1]);
    if (!mapped) {
        int r = map_own_id(uid, gid, e);
        if (r < 0)
            return r;
    }
    int r = check_rights(e);
    if (r < 0)
        return r;
    *ret_ids = mapped ? (uint32_t)uids.count + 1 : 1;
    return 0;
}
