/* `carrel keeper`: the privileged half of the server, started by `carrel serve` or by its service unit. */
#define _GNU_SOURCE
#include "keeper/families.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "box/layer.h"
#include "cli/commands.h"

static const char usage[] =
    "usage: carrel keeper --fd N [--stores DIR] [--devices KINDS] [--root DIR]... [--template NAME=DIR:DIR...]...\n"
    "       carrel keeper --listen PATH --front-uid UID [--stores DIR] [--lock-fd N] [--root DIR]...\n"
    "                     [--template NAME=DIR:DIR...]...\n"
    "\n"
    "Makes and ends boxes for a front that speaks on an inherited socket (and ends with it), or connects to PATH.\n"
    "Roots and templates are named by their place on this command line, from 1.\n"
    "A template's directories are in its boxes at their own path, read-only.\n"
    "--devices KIND,KIND...: boxes may have devices of these kinds, as the host's CDI specifications describe them.\n"
    "--python PATH: the interpreter that packages are installed for, of each template in turn; '': the usual one.\n"
    "--egress PATH: boxes may have network; carrel-egress listens there.\n"
    "Files of boxes that outlive them are kept in the directory of --stores, which must be root's own; volumes, too.\n"
    "--lock-fd N: keeps an inherited descriptor, and with it its lock, until this process has ended.\n";

struct keeper_options {
    int         fd;             /* -1: none */
    int         lock_fd;        /* -1: none; held as long as this process lives */
    const char *path;           /* NULL: none */
    const char *stores;         /* NULL: none */
    uint32_t    front_uid;
    size_t      n_templates;
    const char *template[KEEPER_TEMPLATES];
    size_t      n_pythons;
    char       *python[KEEPER_TEMPLATES];   /* owned */
};

static int read_options(int argc, char **argv, struct keeper *keeper, struct keeper_options *o, struct err *e)
{
    uint32_t number;

    for (int i = 1; i < argc; i += 2) {
        const char *value = argv[i + 1];
        if (!value)
            return err_set(e, EINVAL, STEP_USAGE, "%s wants a value; 'carrel keeper --help' shows how", argv[i]);
        if (strcmp(argv[i], "--fd") == 0) {
            int r = parse_count("--fd", value, 3, 1 << 20, &number, e);
            if (r < 0)
                return r;
            o->fd = (int)number;
        } else if (strcmp(argv[i], "--lock-fd") == 0) {
            int r = parse_count("--lock-fd", value, 3, 1 << 20, &number, e);
            if (r < 0)
                return r;
            o->lock_fd = (int)number;
        } else if (strcmp(argv[i], "--listen") == 0) {
            o->path = value;
        } else if (strcmp(argv[i], "--stores") == 0) {
            o->stores = value;
        } else if (strcmp(argv[i], "--egress") == 0 && strlen(value) < sizeof((struct sockaddr_un *)0)->sun_path) {
            keeper->egress.path = value;
        } else if (strcmp(argv[i], "--devices") == 0) {
            keeper->device_kinds = value;
        } else if (strcmp(argv[i], "--front-uid") == 0) {
            int r = parse_count("--front-uid", value, 0, UINT32_MAX - 1, &o->front_uid, e);
            if (r < 0)
                return r;
        } else if (strcmp(argv[i], "--root") == 0 && keeper->n_roots < KEEPER_ROOTS) {
            keeper->root[keeper->n_roots++] = value;
        } else if (strcmp(argv[i], "--template") == 0 && o->n_templates < KEEPER_TEMPLATES) {
            o->template[o->n_templates++] = value;
        } else if (strcmp(argv[i], "--python") == 0 && o->n_pythons < KEEPER_TEMPLATES) {
            /* A copy: a child overwrites the arguments when it sets its title. */
            if (!(o->python[o->n_pythons++] = strdup(value)))
                return err_at(e, ENOMEM, STEP_MEMORY, 0, "keeper");
        } else {
            return err_set(e, EINVAL, STEP_USAGE, "keeper: unknown option %s", argv[i]);
        }
    }
    if ((o->fd < 0) == !o->path)
        return err_set(e, EINVAL, STEP_USAGE, "keeper: give either --fd or --listen");
    return 0;
}

static int listen_at(const char *path, uint32_t uid, int *ret, struct err *e)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat there;

    if (strlen(path) >= sizeof address.sun_path)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "keeper: --listen %s", path);
    memcpy(address.sun_path, path, strlen(path));
    /* Replacing a live keeper's socket would hide its boxes from every front. */
    FD probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe >= 0 && (connect(probe, (struct sockaddr *)&address, sizeof address) == 0 || errno == EAGAIN))
        return err_set(e, EADDRINUSE, STEP_USAGE, "another keeper listens at %s: end it, or give this one another path",
                       path);
    FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lstat(path, &there) == 0 && !S_ISSOCK(there.st_mode))
        return err_set(e, EEXIST, STEP_USAGE, "keeper: %s is there already, and is no socket", path);
    (void)unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || chmod(path, 0600) < 0
        || chown(path, uid, (gid_t)-1) < 0 || listen(fd, 8) < 0)
        return err_set(e, errno, STEP_HOST, "keeper: listening at %s", path);
    *ret = TAKE_FD(fd);
    return 0;
}

int keeper_main(int argc, char **argv)
{
    static struct keeper keeper = { .stores.dir = -1, .volumes.dir = -1, .egress = { .link = -1, .job.link = -1 } };
    static char layers_at[LAYER_PATH];
    struct keeper_options o = { .fd = -1, .lock_fd = -1, .front_uid = getuid() };
    struct err e = { 0 };
    FD listener = -1;

    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    int r = read_options(argc, argv, &keeper, &o, &e);
    if (r == 0 && o.fd >= 0 && fcntl(o.fd, F_SETFD, FD_CLOEXEC) < 0)
        r = err_file(&e, errno, "keeper: --fd %d", o.fd);
    if (r == 0 && o.lock_fd >= 0 && fcntl(o.lock_fd, F_SETFD, FD_CLOEXEC) < 0)
        r = err_file(&e, errno, "keeper: --lock-fd %d", o.lock_fd);
    if (r == 0 && o.path)
        cgroup_settle();
    /* Both before this process enters a user namespace, in which it is root. */
    layers_place(layers_at);
    keeper.layers_place = layers_at;
    keeper.clerk.link = -1;
    if (r == 0 && o.n_pythons)
        r = clerk_start(&keeper.clerk, (const char *const *)o.python, o.n_pythons, &e);
    if (r == 0)
        r = box_host_open(&keeper.host, &e);
    if (r == 0) {
        /* Removes leaves of an earlier keeper whose janitor was killed, too. */
        (void)cgroup_sweep(&keeper.host.cgroups, 0);
        r = stores_open(o.stores, keeper.host.rootless, &keeper.stores, &e);
        if (r == 0)
            r = volumes_open(o.stores, keeper.host.rootless, &keeper.stores, &keeper.volumes, &e);
        for (size_t i = 0; i < o.n_templates && r == 0; i++)
            r = keeper_add_template(&keeper, o.template[i], &e);
        if (r == 0 && o.path)
            r = listen_at(o.path, o.front_uid, &listener, &e);
    }
    if (r == 0) {
        signal(SIGPIPE, SIG_IGN);
        keeper.end_with_front = o.fd >= 0;
        r = keeper_run(&keeper, o.fd, listener, o.front_uid, &e);
    }
    for (size_t i = 0; i < o.n_pythons; i++)
        free(o.python[i]);
    volumes_close(&keeper.volumes);
    stores_close(&keeper.stores);
    box_host_close(&keeper.host);
    if (r < 0)
        cli_complain(&e);
    return r < 0 ? EXIT_CARREL : 0;
}
