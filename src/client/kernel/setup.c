/* carrel setup: an environment with what the default template imports, made once, of wheels only.
 *
 * Debian's interpreter may not be given packages (it is "externally managed"), and a user's own may lack them; so
 * kernels get an environment that belongs to nobody else. It is filled in place and marked when it is whole: a server
 * that runs already shows the same folder to its boxes. Two that set up at once wait for each other, and the second
 * finds it done. */
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

/* What the default template imports (front/config/config_template.c), and what makes a kernel of an interpreter. */
#define PACKAGES "ipykernel>=6.17", "numpy", "pandas", "matplotlib"
enum { PACKAGES_MOST = 64, CHECK_IMPORTS = 512 };

static const char usage[] =
    "usage: carrel setup [OPTIONS] [PACKAGE...]\n"
    "\n"
    "Makes a Python environment for kernels, once: ipykernel, numpy, pandas and matplotlib, and the packages that are\n"
    "named. Only wheels are installed, so nothing is compiled and no package runs a program. 'carrel py',\n"
    "'carrel serve' and kernelspecs use it wherever no other interpreter was chosen; no other Python is changed.\n"
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
    bool          has_ensurepip;    /* else the base's own pip installs */
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

/* Its standard output comes to us; quiet: nobody sees what it complains about. -1: it could not be started. */
static pid_t start(const char *const *argv, bool quiet, FILE **ret)
{
    int ends[2];

    *ret = NULL;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(ends[1], STDOUT_FILENO) < 0 ||
            (quiet && dup2(null, STDERR_FILENO) < 0))
            _exit(127);
        execvp(argv[0], (char **)(uintptr_t)argv);
        _exit(127);
    }
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

static const char probe[] =
    "import sys\n"
    "from importlib.util import find_spec\n"
    "def has(name):\n"
    "    found = find_spec(name)\n"
    "    return bool(found and found.origin)\n"
    "way = 'old' if sys.version_info < (3, 9) else 'venv' if has('venv') and has('ensurepip') else "
    "'pip' if has('venv') and has('pip') else 'none'\n"
    "print(sys.executable, way, sep='\\n')\n";

/* Whether an environment can be made from this interpreter; why not, in words. */
static bool try_base(struct setup *s, const char *python, const char **ret_why)
{
    const char *argv[] = { python, "-I", "-c", probe, NULL };
    char way[16] = "";
    FILE *from;

    pid_t pid = start(argv, true, &from);
    bool told = from && fgets(s->base, sizeof s->base, from) && fgets(way, sizeof way, from);
    int status = finish(pid, from);
    s->base[strcspn(s->base, "\n")] = '\0';
    way[strcspn(way, "\n")] = '\0';
    if (status != 0 || !told)
        *ret_why = "it does not run";
    else if (strcmp(way, "old") == 0)
        *ret_why = "it is older than 3.9";
    else if (strcmp(way, "none") == 0)
        *ret_why = "it can make no environments: it has neither ensurepip nor pip";
    else {
        s->has_ensurepip = strcmp(way, "venv") == 0;
        return true;
    }
    return false;
}

static int find_base(struct setup *s)
{
    const char *why = NULL, *first = NULL;
    const char *const candidates[] = { "/usr/bin/python3", "python3" };

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

/* ---- progress ---- */

/* One line on a terminal, which is written anew; else one line each. */
static void say(const char *format, ...) PRINTF_LIKE(1, 2);

static void say(const char *format, ...)
{
    bool talks = isatty(STDERR_FILENO);
    va_list args;

    fputs(talks ? "\r\033[K  " : "  ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputs(talks ? "" : "\n", stderr);
    fflush(stderr);
}

static void say_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* "  Downloading numpy-2.4.0-cp311-…whl (16.9 MB)", "Installing collected packages: a, b" */
static void show_line(const char *line, unsigned *count)
{
    const char *at = line + strspn(line, " "), *size = strrchr(at, '(');

    if (strncmp(at, "Downloading ", 12) == 0 || strncmp(at, "Using cached ", 13) == 0) {
        const char *name = at + (at[0] == 'D' ? 12 : 13), *dash = strchr(name, '-');
        if (!dash || strstr(name, ".metadata"))
            return;
        size_t length = (size_t)(dash - name) + 1;
        length += strcspn(name + length, "- (\n");
        say("%u: %s %s", ++*count, show_text(show_format("%.*s", (int)length, name)), size ? size : "");
    } else if (strncmp(at, "Installing collected", 20) == 0) {
        say("installing");
    }
}

static int run_shown(const char *const *argv)
{
    char *line = NULL;
    size_t room = 0;
    unsigned count = 0;
    FILE *from;
    pid_t pid = start(argv, false, &from);

    for (ssize_t n; from && (n = getline(&line, &room, from)) >= 0;) {
        line[strcspn(line, "\n")] = '\0';
        show_line(line, &count);
    }
    free(line);
    int status = finish(pid, from);
    say_end();
    return status;
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

static int make_environment(const struct setup *s)
{
    const char *argv[8] = { s->base, "-I", "-m", "venv", "--clear" };
    size_t n = 5;

    if (!may_empty(s->place)) {
        fprintf(stderr, "carrel: setup: %s is there and is no environment; it is left as it is\n", s->place);
        return EXIT_CLIENT;
    }
    say("an environment of %s", s->base);
    if (!s->has_ensurepip)
        argv[n++] = "--without-pip";
    argv[n++] = s->place;
    int status = run_shown(argv);
    if (status != 0)
        fprintf(stderr, "carrel: setup: %s -m venv %s failed (status %d)\n", s->base, s->place, status);
    return status ? EXIT_CLIENT : 0;
}

static int install(const struct setup *s, const char *python, char *const *more, size_t n_more)
{
    static const char *const options[] = { "install", "--disable-pip-version-check", "--no-input", "--no-user",
                                           "--progress-bar", "off", "--only-binary", ":all:" };
    static const char *const packages[] = { PACKAGES };
    const char *argv[PACKAGES_MOST + 32];
    size_t n = 0;

    argv[n++] = s->has_ensurepip ? python : s->base;
    argv[n++] = "-I";
    argv[n++] = "-m";
    argv[n++] = "pip";
    if (!s->has_ensurepip) {
        argv[n++] = "--python";
        argv[n++] = python;
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        argv[n++] = options[i];
    if (s->upgrade)
        argv[n++] = "--upgrade";
    argv[n++] = "--";
    for (size_t i = 0; i < sizeof packages / sizeof *packages; i++)
        argv[n++] = packages[i];
    for (size_t i = 0; i < n_more; i++)
        argv[n++] = more[i];
    argv[n] = NULL;
    int status = run_shown(argv);
    if (status != 0)
        fprintf(stderr,
                "carrel: setup: the packages could not be installed (pip left with status %d; it says why above). What "
                "is there is kept: 'carrel setup' goes on\n", status);
    return status ? EXIT_CLIENT : 0;
}

static int check_and_mark(const struct setup *s, const char *python)
{
    const char *argv[] = { python, "-I", "-c", "import ipykernel, IPython, numpy, pandas, matplotlib.pyplot", NULL };
    char path[PATH_MAX];

    say("trying it");
    int status = run_shown(argv);
    if (status != 0) {
        fprintf(stderr, "carrel: setup: what was installed in %s cannot be imported (status %d)\n", s->place, status);
        return EXIT_CLIENT;
    }
    snprintf(path, sizeof path, "%s/carrel-setup", s->place);
    FD mark = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (mark >= 0)
        return 0;
    fprintf(stderr, "carrel: setup: %s: %s\n", path, strerror(errno));
    return EXIT_CLIENT;
}

/* Nobody else sets up here while the descriptor is open. */
static int lock(const struct setup *s)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s.lock", s->place);
    FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
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
    char python[PATH_MAX];

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
    fprintf(stderr, "carrel: setting up a Python for kernels in %s\n", s->place);
    if ((r = find_base(s)) != 0)
        return r;
    if (!is_there)
        r = make_environment(s);
    if (r == 0)
        r = install(s, python, more, n_more);
    if (r == 0)
        r = check_and_mark(s, python);
    if (r == 0 && !is_there && strncmp(s->base, "/usr/", 5) != 0)
        fprintf(stderr, "carrel: setup: %s is not below /usr: start a server that runs already anew\n", s->base);
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
