/* carrel setup: an environment with what the default template imports, made once, of wheels only.
 *
 * Debian's interpreter may not be given packages (it is "externally managed"), and a user's own may lack them; so
 * kernels get an environment that belongs to nobody else. It is filled in place and marked when it is whole: a server
 * that runs already shows the same folder to its boxes. Two that set up at once wait for each other, and the second
 * finds it done.
 *
 * Here is who makes it, of which interpreter and where; guest/setup/carrel_setup.py does it. The environment's own
 * interpreter is started nowhere but in a box: it would run what its packages want to be run (.pth files). */
#define _GNU_SOURCE
#include "client/kernel/setup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest.h"
#include "base/parse.h"
#include "client/commands.h"

enum { PACKAGES_MOST = 64 };

static const char usage[] =
    "usage: carrel setup [OPTIONS] [PACKAGE...]\n"
    "\n"
    "Makes a Python environment for kernels, once: ipykernel, numpy, pandas and matplotlib, and the packages that are\n"
    "named (a name, with or without versions, or a wheel). Only wheels are installed, so nothing is compiled; whether\n"
    "they can be imported is tried in a box, and nothing of them runs elsewhere. 'carrel py', 'carrel serve' and\n"
    "kernelspecs use it wherever no other interpreter was chosen; no other Python is changed.\n"
    "\n"
    "  --python PROGRAM        the interpreter that it is made from [/usr/bin/python3, then python3 on PATH]\n"
    "  --upgrade               install the newest versions of what is there\n"
    "\n"
    "It is in ~/.local/share/carrel/python, root's in /usr/local/lib/carrel/python; CARREL_ENVIRONMENT names another\n"
    "place. To be rid of it, remove that folder.\n";

struct setup {
    struct client client;
    const char   *python;           /* --python */
    bool          upgrade;
    char          place[GUEST_PATH - 32];
    char          base[PATH_MAX];   /* the interpreter that it is made from */
    char          pip[8];           /* whose installs: "own" of ensurepip, or the base's */
};

static int set_python(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct setup *)into)->python = value;
    return 0;
}

static int set_upgrade(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct setup *)into)->upgrade = true;
    return 0;
}

/* ---- other programs ---- */

/* ret: its standard output comes to us, and nobody sees what it complains about; NULL: it has ours. -1: it could not be
 * started. */
static pid_t start(const char *const *argv, FILE **ret)
{
    int ends[2] = { -1, -1 };

    if (ret && pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0 ||
            (ret && (dup2(ends[1], STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0)))
            _exit(127);
        execvp(argv[0], (char **)(uintptr_t)argv);
        _exit(127);
    }
    if (!ret)
        return pid;
    fd_close(ends[1]);
    *ret = pid > 0 ? fdopen(ends[0], "re") : NULL;
    if (!*ret)
        fd_close(ends[0]);
    return pid;
}

/* 0, or what it left with; 128 and more if a signal ended it. */
static int finish(pid_t pid, FILE *from)
{
    int status = 0;

    if (from)
        fclose(from);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid < 0 ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether an interpreter is the environment's: it lies there, whatever its links lead to. */
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

/* With -S, so that no .pth file is run before it is known whose interpreter this is. */
static const char probe[] =
    "import sys\n"
    "from importlib.util import find_spec\n"
    "way = 'old' if sys.version_info < (3, 9) else 'none' if not find_spec('venv') else "
    "'own' if find_spec('ensurepip') and find_spec('ensurepip').origin else 'base'\n"
    "print(sys.executable, way, sep='\\n')\n";
static const char probe_pip[] = "from importlib.util import find_spec\nexit(not find_spec('pip.__main__'))\n";

static bool has_pip(const char *python)
{
    const char *argv[] = { python, "-I", "-c", probe_pip, NULL };
    FILE *from = NULL;
    pid_t pid = start(argv, &from);

    return finish(pid, from) == 0;
}

/* Whether an environment can be made from this interpreter; why not, in words. */
static bool try_base(struct setup *s, const char *python, const char **ret_why)
{
    const char *argv[] = { python, "-I", "-S", "-c", probe, NULL };
    FILE *from = NULL;

    pid_t pid = start(argv, &from);
    bool told = from && fgets(s->base, sizeof s->base, from) && fgets(s->pip, sizeof s->pip, from);
    int status = finish(pid, from);
    s->base[strcspn(s->base, "\n")] = '\0';
    s->pip[strcspn(s->pip, "\n")] = '\0';
    if (status != 0 || !told)
        *ret_why = "it does not run";
    else if (strcmp(s->pip, "old") == 0)
        *ret_why = "it is older than 3.9";
    else if (is_own(s, s->base))
        *ret_why = "it is of the environment itself";
    else if (strcmp(s->pip, "none") == 0 || (strcmp(s->pip, "base") == 0 && !has_pip(s->base)))
        *ret_why = "it can make no environments: it has neither ensurepip nor pip";
    else
        return true;
    return false;
}

/* is_there: of which it was made is told by a link, which no package can have replaced. */
static int find_base(struct setup *s, bool is_there, const char *python)
{
    const char *why = NULL, *first = NULL;
    const char *const candidates[] = { "/usr/bin/python3", "python3" };
    char real[PATH_MAX];

    if (!s->python && is_there && realpath(python, real) && !is_own(s, real) && try_base(s, real, &why))
        return 0;
    if (s->python) {
        if (try_base(s, s->python, &why))
            return 0;
        fprintf(stderr, "carrel: setup: --python %s: %s\n", show_text(s->python), why);
        return EXIT_CLIENT;
    }
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        if (try_base(s, candidates[i], &why))
            return 0;
        first = first ? first : why;
    }
    fprintf(stderr,
            "carrel: setup: no environment can be made from /usr/bin/python3 (%s), nor from python3 on PATH (%s); on "
            "Debian this helps: sudo apt-get install python3-venv\n", first, why);
    return EXIT_CLIENT;
}

/* ---- the environment ---- */

static int make_folders(const char *path)
{
    char part[PATH_MAX];

    for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", slash ? (int)(slash - path) : (int)strlen(path), path);
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return -errno;
        if (!slash)
            return 0;
    }
}

/* Making it anew empties the folder: only one that is empty, or an environment. */
static bool may_empty(const char *place)
{
    char path[PATH_MAX];
    DIR *dir = opendir(place);
    size_t n = 0;

    snprintf(path, sizeof path, "%s/pyvenv.cfg", place);
    if (!dir || access(path, F_OK) == 0) {
        if (dir)
            closedir(dir);
        return true;
    }
    while (readdir(dir))
        n++;
    closedir(dir);
    return n <= 2;
}

/* guest/setup does the rest, with that interpreter. */
static int fill(const struct setup *s, const char *guest, bool is_there, char *const *more, size_t n_more)
{
    char script[GUEST_PATH + 32], carrel[PATH_MAX];
    const char *argv[PACKAGES_MOST + 16] = { s->base, "-I", script };
    size_t n = 3;

    snprintf(script, sizeof script, "%s/carrel_setup.py", guest);
    guest_find_program(carrel, sizeof carrel);
    argv[n++] = "--pip";
    argv[n++] = s->pip;
    if (!is_there)
        argv[n++] = "--fresh";
    if (s->upgrade)
        argv[n++] = "--upgrade";
    argv[n++] = "--";
    argv[n++] = s->place;
    argv[n++] = carrel;
    for (size_t i = 0; i < n_more; i++)
        argv[n++] = more[i];
    argv[n] = NULL;
    return finish(start(argv, NULL), NULL) == 0 ? 0 : EXIT_CLIENT;
}

/* Nobody else sets up here while the descriptor is open. */
static int lock(const struct setup *s)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s.lock", s->place);
    /* Inherited: what we start goes on if we are killed. */
    FD fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        fputs("carrel: setup: another 'carrel setup' is at work; waiting for it\n", stderr);
        while (flock(fd, LOCK_EX) < 0)
            if (errno != EINTR)
                return -errno;
    }
    return TAKE_FD(fd);
}

/* Tells everything itself. */
static int set_up(struct setup *s, char *const *more, size_t n_more)
{
    char python[PATH_MAX], guest[GUEST_PATH];

    umask(022);     /* a box has a user of its own */
    guest_setup_place(s->place, sizeof s->place);
    if (!s->place[0]) {
        fputs("carrel: setup: there is no place for it: HOME is not set, or its path is too long\n", stderr);
        return EXIT_CLIENT;
    }
    snprintf(python, sizeof python, "%s/bin/python", s->place);
    int r = make_folders(s->place);
    FD held = r < 0 ? r : lock(s);
    if (held < 0) {
        fprintf(stderr, "carrel: setup: %s: %s\n", s->place, strerror(-held));
        return EXIT_CLIENT;
    }
    bool is_there = guest_is_set_up(s->place) && guest_has_ipykernel(python);
    if (is_there && n_more == 0 && !s->upgrade)
        return 0;
    guest_find_files(guest, sizeof guest);
    if (!guest[0]) {
        fputs("carrel: setup: its files are not installed: neither beside carrel-server nor in "
              "/usr/local/lib/carrel/guest; $CARREL_GUEST can name them\n", stderr);
        return EXIT_CLIENT;
    }
    fprintf(stderr, "carrel: setting up a Python for kernels in %s\n", s->place);
    if ((r = find_base(s, is_there, python)) != 0)
        return r;
    if (!is_there && !may_empty(s->place)) {
        fprintf(stderr, "carrel: setup: %s is there and is no environment; it is left as it is\n", s->place);
        return EXIT_CLIENT;
    }
    r = fill(s, guest, is_there, more, n_more);
    if (r == 0 && !is_there && strncmp(s->base, "/usr/", 5) != 0)
        fprintf(stderr, "carrel: setup: %s is not below /usr: restart any running server\n", s->base);
    return r;
}

int client_setup(int argc, char **argv)
{
    static const struct flag flags[] = { { "python", 0, true, set_python }, { "upgrade", 0, false, set_upgrade } };
    struct setup s = { .client = { .name = "setup", .usage = usage, .may_lack_server = true } };
    struct words words;
    int status = client_begin(&s.client, argc, argv, flags, sizeof flags / sizeof *flags, &s, false, &words);

    if (status >= 0)
        return status;
    if (words.n > PACKAGES_MOST)
        return client_misused(&s.client, "it takes at most %d packages", PACKAGES_MOST);
    status = set_up(&s, words.at, (size_t)words.n);
    if (status == 0)
        printf("%s/bin/python\n", s.place);
    return status;
}

/* ---- the offer ---- */

bool setup_would_help(const struct client *c, const json_t *end)
{
    struct stat status;

    /* front/kernels/kernel_end.c says so. */
    return strstr(text_of(end, "reason"), "'carrel setup'") && c->server.is_unix &&
           stat(c->server.address, &status) == 0 && status.st_uid == geteuid();
}

static bool is_wanted(const struct setup *s)
{
    char answer[16];

    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return false;
    fprintf(stderr, "Make it now, in %s (about 300 MB)? [Y/n] ", s->place);
    if (!fgets(answer, sizeof answer, stdin))
        return false;
    return answer[0] == '\n' || answer[0] == 'y' || answer[0] == 'Y';
}

int setup_offer(bool yes)
{
    const char *asked = getenv("CARREL_SETUP");
    struct setup s = { .client = { .name = "setup" } };

    guest_setup_place(s.place, sizeof s.place);
    if (!yes && !(asked && strcmp(asked, "yes") == 0)) {
        fputs("carrel: there is no Python for kernels on this machine yet; 'carrel setup' makes one, once\n", stderr);
        if (!is_wanted(&s))
            return EXIT_CLIENT;
    }
    return set_up(&s, NULL, 0);
}
