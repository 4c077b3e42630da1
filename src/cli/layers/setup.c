/* `carrel setup`: the Python environment of kernels for which no other interpreter was chosen. It is made as a layer is
 * (build.c), and lies at a place of its own, where all users of the machine may read root's:
 *
 *   PLACE/bin, lib, pyvenv.cfg ...   the environment
 *   PLACE/carrel-setup               it is complete; its description, as of a layer. Older ones are empty
 *   PLACE/.new, .old                 the next one, in the making; the parts of the last one, until they are removed
 *   PLACE.lock                       held by the setup that is at work
 *
 * A running server shows PLACE to its boxes, so the folder stays and its parts are exchanged. Present packages are
 * asked for again with those that are added, and keep their versions where these allow it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/rmtree.h"
#include "cli/commands.h"
#include "cli/layers/layers.h"

enum { INFO_MOST = 1 << 20, NAMES_MOST = 256 };

static const char mark[] = "carrel-setup", fresh[] = ".new", former[] = ".old";
/* What the default template imports (front/config/config_template.c). */
static const char usual[] = "numpy pandas matplotlib";
static const char trial[] = "import ipykernel, IPython, numpy, pandas, matplotlib.pyplot";

static const char setup_help[] =
    "usage: carrel setup [OPTIONS] [PACKAGE...]\n"
    "\n"
    "Makes a Python environment for kernels, once: ipykernel, pip, numpy, pandas and matplotlib, and the packages\n"
    "that are named, with or without versions. They are installed in a box that may only reach the index of packages.\n"
    "'carrel py', 'carrel serve' and kernelspecs use it wherever no other interpreter was chosen; 'carrel py' makes\n"
    "a missing one by itself, unless CARREL_SETUP is 'no'. No other Python is changed.\n"
    "\n"
    "  --python PROGRAM        the interpreter that it is made from: a path or a version (3.12) [/usr/bin/python3]\n"
    "  --upgrade               install the newest versions of the present packages\n"
    "\n"
    "It is in ~/.local/share/carrel/python, root's in /usr/local/lib/carrel/python; CARREL_ENVIRONMENT names another\n"
    "place. To be rid of it, remove that folder.\n";

struct setup {
    const char     *python;         /* --python */
    bool            upgrade;
    struct packages added, asked;
    char            place[GUEST_PATH - 32];
    struct layers   folder;         /* of the place, as the maker of layers wants it */
    struct buf      kept;
    char            info[INFO_MOST];    /* of the present one */
};

/* ---- the present environment ---- */

static int make_place(const char *path, struct err *e)
{
    char part[GUEST_PATH];

    for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_set(e, errno, STEP_HOST, "%s", part);
        if (!slash)
            return 0;
    }
}

/* Excludes other setups while the descriptor is open. */
static int lock_place(const struct setup *s, int *ret, struct err *e)
{
    char path[GUEST_PATH];

    snprintf(path, sizeof path, "%s.lock", s->place);
    FD fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, errno, STEP_HOST, "%s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        fputs("carrel: setup: another 'carrel setup' is at work; waiting for it\n", stderr);
        while (flock(fd, LOCK_EX) < 0)
            if (errno != EINTR)
                return err_set(e, errno, STEP_HOST, "%s", path);
    }
    *ret = TAKE_FD(fd);
    return 0;
}

/* Only an empty folder and an environment may be filled. */
static int check_folder(const struct setup *s, struct err *e)
{
    FD copy = openat(s->folder.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    bool is_empty = list != NULL;

    copy = list ? -1 : copy;
    for (struct dirent *d; list && (d = readdir(list));)
        is_empty &= strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || strcmp(d->d_name, fresh) == 0
                    || strcmp(d->d_name, former) == 0;
    if (list)
        closedir(list);
    if (is_empty || faccessat(s->folder.dir, "pyvenv.cfg", F_OK, 0) == 0)
        return 0;
    return err_set(e, EEXIST, STEP_USAGE, "%s is there and is no environment; it is left as it is", s->place);
}

static int ask_for(struct setup *s, const char *requirement, size_t length, struct err *e)
{
    char line[PACKAGES_LINE];
    size_t name = packages_name_length(requirement);

    if (packages_has(&s->added, requirement, name < length ? name : length))
        return 0;
    snprintf(line, sizeof line, "%.*s", (int)length, requirement);
    return packages_add(&s->asked, mark, line, e);
}

static void keep_version(struct setup *s, const char *name, size_t length, const char *version, size_t version_length)
{
    if (!s->upgrade && !packages_has(&s->added, name, length))
        buf_printf(&s->kept, "keep %.*s==%.*s\n", (int)length, name, (int)version_length, version);
}

/* An environment of an earlier version of carrel tells its packages by their folders: NAME-VERSION.dist-info. */
static int read_folders(struct setup *s, struct err *e)
{
    FD lib = openat(s->folder.dir, "lib", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = lib < 0 ? NULL : fdopendir(lib);
    int r = 0;

    lib = list ? -1 : lib;
    for (struct dirent *d; list && r == 0 && (d = readdir(list));) {
        char site[NAMES_MOST + 32];
        snprintf(site, sizeof site, "%s/site-packages", d->d_name);
        FD fd = d->d_name[0] == '.' ? -1 : openat(dirfd(list), site, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *packages = fd < 0 ? NULL : fdopendir(fd);
        fd = packages ? -1 : fd;
        for (struct dirent *p; packages && r == 0 && (p = readdir(packages));) {
            const char *dash = strchr(p->d_name, '-'), *end = strstr(p->d_name, ".dist-info");
            if (!dash || !end || end[10] || end < dash)
                continue;
            r = ask_for(s, p->d_name, (size_t)(dash - p->d_name), e);
            keep_version(s, p->d_name, (size_t)(dash - p->d_name), dash + 1, (size_t)(end - dash - 1));
        }
        if (packages)
            closedir(packages);
    }
    if (list)
        closedir(list);
    return r;
}

static int read_present(struct setup *s, struct err *e)
{
    ssize_t n = fd_read_file(s->folder.dir, mark, s->info, sizeof s->info - 1);
    int r = 0;

    s->info[n > 0 ? n : 0] = '\0';
    if (n == 0)
        return read_folders(s, e);
    for (const char *at = s->info; *at && r == 0; at += strcspn(at, "\n"), at += *at == '\n') {
        const char *rest = at + strcspn(at, " \n"), *equals = strstr(at, "==");
        size_t length = strcspn(at, "\n");
        if (strncmp(at, "asked ", 6) == 0)
            r = ask_for(s, rest + 1, length - 6, e);
        else if (strncmp(at, "lock ", 5) == 0 && equals && equals < at + length)
            keep_version(s, rest + 1, (size_t)(equals - at) - 5, equals + 2, length - (size_t)(equals - at) - 2);
    }
    return r;
}

/* ---- the next one ---- */

static bool stays(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, fresh) == 0 || strcmp(name, former) == 0;
}

static int move_all(int from, int to)
{
    FD copy = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    int r = list ? 0 : -errno;

    copy = list ? -1 : copy;
    for (struct dirent *d; list && r == 0 && (d = readdir(list));)
        if (!stays(d->d_name) && renameat(from, d->d_name, to, d->d_name) < 0)
            r = -errno;
    if (list)
        closedir(list);
    return r;
}

static int exchange(const struct setup *s, int stage, const char *info, struct err *e)
{
    int dir = s->folder.dir;

    int r = unlinkat(dir, mark, 0) < 0 && errno != ENOENT ? -errno : 0;
    if (r == 0)
        r = rmtree(stage, mark);
    if (r == 0)
        r = rmtree(dir, former);
    if (r == 0 && mkdirat(dir, former, 0700) < 0)
        r = -errno;
    FD old = r < 0 ? -1 : openat(dir, former, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r == 0)
        r = old < 0 ? -errno : move_all(dir, old);
    if (r == 0)
        r = move_all(stage, dir);
    FD file = r < 0 ? -1 : openat(dir, mark, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (r == 0)
        r = file < 0 ? -errno : fd_write_all(file, info, strlen(info));
    if (r == 0)
        r = rmtree(dir, former);
    return r < 0 ? err_set(e, -r, STEP_HOST, "putting the environment into %s", s->place) : 0;
}

static int fill_place(struct setup *s, const char *python, struct err *e)
{
    struct layer_stage stage = { .fd = -1 };
    struct layer_build build = { .layers = &s->folder, .python = python, .packages = &s->asked, .at = s->place,
                                 .most_bytes = UINT64_C(16) << 30, .kept = buf_string(&s->kept), .trial = trial,
                                 .say = layer_show };
    struct buf info;

    snprintf(stage.name, sizeof stage.name, "%s", fresh);
    int r = rmtree(s->folder.dir, fresh);
    if (r == 0 && mkdirat(s->folder.dir, fresh, 0755) < 0)
        r = -errno;
    stage.fd = r < 0 ? -1 : openat(s->folder.dir, fresh, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (stage.fd < 0)
        return err_set(e, r < 0 ? -r : errno, STEP_HOST, "%s", s->place);
    buf_init(&info, INFO_MOST);
    r = layer_fill(&build, &stage, &info, e);
    layer_show_end();
    if (r == 0)
        r = exchange(s, stage.fd, buf_string(&info), e);
    buf_done(&info);
    layer_drop(&s->folder, &stage);
    return r;
}

/* ---- the command ---- */

/* The list: what was added, what was asked for before, and what every environment has. */
static int settle_list(struct setup *s, bool is_there, struct err *e)
{
    int r = is_there ? read_present(s, e) : 0;

    for (const char *at = usual; *at && r == 0; at += strcspn(at, " "), at += *at == ' ')
        if (!packages_has(&s->asked, at, strcspn(at, " ")))
            r = ask_for(s, at, strcspn(at, " "), e);
    for (size_t i = 0; i < s->added.n && r == 0; i++)
        r = packages_add(&s->asked, "setup", s->added.line[i], e);
    packages_sort(&s->asked);
    return r;
}

/* Whether an interpreter lies in the environment, wherever its links lead. */
static bool is_own(const struct setup *s, const char *python)
{
    char folder[PATH_MAX], real[PATH_MAX], place[PATH_MAX];

    snprintf(folder, sizeof folder, "%s", python);
    guest_cut(folder, 1);
    if (!realpath(folder, real) || !realpath(s->place, place))
        return false;
    size_t length = strlen(place);
    return strncmp(real, place, length) == 0 && (real[length] == '/' || real[length] == '\0');
}

static int set_up(struct setup *s, struct err *e)
{
    char python[GUEST_PATH], base[PYTHON_MAX];

    umask(022);     /* a box's user must be able to read it */
    guest_setup_place(s->place, sizeof s->place);
    if (!s->place[0])
        return err_set(e, ENOENT, STEP_USAGE, "there is no place for it: HOME is not set, or its path is too long");
    FD held = -1;
    int r = make_place(s->place, e);
    if (r == 0)
        r = lock_place(s, &held, e);
    if (r < 0)
        return r;
    s->folder.dir = open(s->place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(s->folder.path, sizeof s->folder.path, "%s", s->place);
    snprintf(python, sizeof python, "%s/bin/python", s->place);
    bool is_there = guest_is_set_up(s->place) && guest_has_ipykernel(python);
    if (is_there && s->added.n == 0 && !s->upgrade)
        return 0;
    r = s->folder.dir < 0 ? err_set(e, errno, STEP_HOST, "%s", s->place) : check_folder(s, e);
    if (r == 0)
        r = settle_list(s, is_there, e);
    /* The one that it was made from, unless another is named: no package can have replaced what the mark says. */
    bool is_known = !s->python && strncmp(s->info, "python /", 8) == 0;
    if (is_known)
        s->info[strcspn(s->info, "\n")] = '\0';
    if (r == 0)
        r = interpreter_find(is_known ? s->info + 7 : s->python, base, e);
    if (r == 0 && is_own(s, base))
        r = err_set(e, EINVAL, STEP_USAGE, "%s is of the environment itself; name another one with --python", base);
    if (r < 0)
        return r;
    fprintf(stderr, "carrel: setting up a Python for kernels in %s, once\n", s->place);
    uint64_t start_us = clock_monotonic_us();
    r = fill_place(s, base, e);
    if (r == 0)
        fprintf(stderr, "carrel: set up in %.1f s\n", (double)(clock_monotonic_us() - start_us) / 1e6);
    if (r == 0 && !is_there && strncmp(base, "/usr/", 5) != 0)
        fprintf(stderr, "carrel: setup: %s is not below /usr: restart any running server\n", base);
    return r;
}

static int setup_misused(const char *text)
{
    fprintf(stderr, "carrel: setup: %s; 'carrel setup --help' tells more\n", text);
    return EXIT_CARREL;
}

int setup_main(int argc, char **argv)
{
    static struct setup s = { .folder = { .dir = -1 } };
    struct err e = { 0 };
    bool are_options = true;
    int r = 0;

    buf_init(&s.kept, INFO_MOST);
    for (int i = 1; i < argc && r == 0; i++) {
        if (are_options && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            fputs(setup_help, stdout);
            return 0;
        }
        if (are_options && strcmp(argv[i], "--python") == 0) {
            if (!argv[i + 1])
                return setup_misused("--python lacks its value");
            s.python = argv[++i];
        } else if (are_options && strcmp(argv[i], "--upgrade") == 0) {
            s.upgrade = true;
        } else if (are_options && strcmp(argv[i], "--") == 0) {
            are_options = false;
        } else if (are_options && argv[i][0] == '-') {
            return setup_misused("it takes --python and --upgrade");
        } else {
            r = packages_add(&s.added, "setup", argv[i], &e);
        }
    }
    if (r == 0)
        r = set_up(&s, &e);
    if (r < 0) {
        char why[512];
        err_text(&e, why, sizeof why);
        fprintf(stderr, "carrel: setup: %s\n", why);
        return EXIT_CARREL;
    }
    printf("%s/bin/python\n", s.place);
    return 0;
}
