/* Makes a layer.
 *
 *   this process                            the worker box: `carrel run` of this very program
 *   ------------                            ---------------
 *   look: may reach the index         --->  guest/layer/carrel_layer.py look: which hosts have the index's files?
 *   build: may reach those, too; the  --->  carrel_layer.py build: fetches uv, resolves, prints the versions,
 *   new layer is mounted for writing        installs
 *   watches the disk
 *   names the layer by the output
 *
 * The box can use nothing else of the machine. It first takes wheels only: then no code of a package has run when the
 * versions are printed, and they can be believed. If a package has no wheel, a second box may build it. Its output may
 * be forged, so the name of that layer is also made from the list of packages; no other list can lead to it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/guest.h"
#include "base/parse.h"
#include "base/prefix.h"
#include "base/rmtree.h"
#include "cli/layers/layers.h"

enum {
    WORDS_MOST = 96,
    HOSTS_MOST = 16,
    LINE_BYTES = 1024,
    LOCK_BYTES = 1 << 20,
    DISK_MS = 100,              /* how often the disk is checked */
    PLACES_BYTES = 2048,
};
static const uint64_t disk_reserve = UINT64_C(512) << 20;
/* Packages in every layer: for kernels, and pip to inspect a layer. */
static const char *const usual[][2] = { { "ipykernel", "also ipykernel>=6.17\n" }, { "pip", "also pip\n" } };
static const char script[] = "carrel_layer.py";

enum worker_step { LOOK, BUILD, TRY };

/* One worker box. */
struct worker {
    const struct layer_build *build;
    enum worker_step          step;
    const struct layer_stage *stage;    /* not for LOOK */
    char        index[INDEX_MAX];
    size_t      n_hosts;
    char        host[HOSTS_MOST][INDEX_MAX];
    char        guest[GUEST_PATH];
    char        places[PLACES_BYTES];   /* of the interpreter */
    bool        may_build;

    pid_t       pid;
    int         output;                 /* owned */
    char        line[LINE_BYTES];
    size_t      line_length;
    struct buf  lock;                   /* "NAME==VERSION DIGEST\n" each */
    bool        is_locked, is_done, is_enough;
    char        kind[16];               /* of failure; "": none was reported */
    char        why[LINE_BYTES];
    uint64_t    free_at_start;
};

/* ---- its command line ---- */

struct worker_words {
    const char *at[WORDS_MOST];
    size_t      n;
    char        text[WORDS_MOST * 256];
    size_t      used;
};

static void word(struct worker_words *w, const char *text)
{
    if (w->n < WORDS_MOST - 1)
        w->at[w->n++] = text;
}

static void option(struct worker_words *w, const char *name, const char *format, ...) PRINTF_LIKE(3, 4);

static void option(struct worker_words *w, const char *name, const char *format, ...)
{
    va_list args;
    char *at = w->text + w->used;
    size_t room = sizeof w->text - w->used;

    va_start(args, format);
    int n = vsnprintf(at, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room)
        return;
    w->used += (size_t)n + 1;
    word(w, name);
    word(w, at);
}

static void write_words(struct worker_words *w, const struct worker *worker)
{
    const struct layer_build *build = worker->build;
    static const char *const verbs[] = { "look", "build", "try" };
    static const char *const fixed[] = { "carrel", "run", "-i", "--timeout", "60m" };

    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        word(w, fixed[i]);
    for (size_t i = 0; i < worker->n_hosts; i++)
        option(w, "--allow", "%s", worker->host[i]);
    option(w, "--mount", "%s:%s:ro", worker->guest, worker->guest);
    const char *place = build->at ? build->at : PACKAGES_PLACE;
    for (const char *at = worker->places; *at; at += strcspn(at, ":"), at += *at == ':') {
        int n = (int)strcspn(at, ":");
        option(w, "--mount", "%.*s:%.*s:ro", n, at, n, at);
    }
    if (worker->stage)
        option(w, "--mount", "%s/%s:%s:%s", build->layers->path, worker->stage->name, place,
               worker->step == BUILD ? "rw" : "ro");
    word(w, "--");
    word(w, build->python);
    word(w, "-I");
    option(w, "-B", "%s/%s", worker->guest, script);
    word(w, verbs[worker->step]);
    word(w, worker->step == TRY ? build->trial : worker->index);
    if (worker->stage)
        word(w, place);
    if (worker->may_build && worker->step == BUILD)
        word(w, "--build");
    w->at[w->n] = NULL;
}

/* A memfd with the list. */
static int write_list(const struct layer_build *build, int *ret)
{
    const struct packages *packages = build->packages;
    FD fd = memfd_create("packages", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : 0;

    for (size_t i = 0; i < packages->n && r == 0; i++)
        if ((r = fd_write_all(fd, packages->line[i], strlen(packages->line[i]))) == 0)
            r = fd_write_all(fd, "\n", 1);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && r == 0; i++)
        if (!packages_has(packages, usual[i][0], strlen(usual[i][0])))
            r = fd_write_all(fd, usual[i][1], strlen(usual[i][1]));
    if (r == 0 && build->kept)
        r = fd_write_all(fd, build->kept, strlen(build->kept));
    if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
        r = -errno;
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}

static _Noreturn void become_worker(const struct worker_words *words, pid_t parent, int input, int output)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    /* Ctrl-C goes to us; our end ends it. */
    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent || null < 0 || dup2(input, 0) < 0
        || dup2(output, 1) < 0)
        _exit(125);
    (void)unsetenv("CARREL_URL");
    execv("/proc/self/exe", (char **)(uintptr_t)words->at);
    _exit(127);
}

static int start(struct worker *w, struct err *e)
{
    static struct worker_words words;
    int pair[2];

    words.n = words.used = 0;
    write_words(&words, w);
    FD list = -1;
    int r = write_list(w->build, &list);
    if (r < 0 || pipe2(pair, O_CLOEXEC) < 0)
        return err_at(e, r < 0 ? -r : errno, STEP_STDIO, 0, "installing packages");
    FD theirs = pair[1];
    w->output = pair[0];
    fflush(NULL);
    pid_t self = getpid();
    w->pid = fork();
    if (w->pid == 0)
        become_worker(&words, self, list, theirs);
    return w->pid < 0 ? err_at(e, errno, STEP_CLONE, 0, "installing packages") : 0;
}

/* ---- its output ---- */

static const char *after(const char *line, const char *first)
{
    size_t length = strlen(first);
    return strncmp(line, first, length) == 0 ? line + length : NULL;
}

/* A line from the box. The script makes it printable; but package code in the same box may forge it. */
static void hear_line(struct worker *w)
{
    const char *rest;

    w->line[w->line_length] = '\0';
    for (char *c = w->line; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            *c = '?';
    w->line_length = 0;
    if ((rest = after(w->line, "say "))) {
        w->build->say(rest, w->build->arg);
    } else if ((rest = after(w->line, "host ")) && w->step == LOOK && w->n_hosts < HOSTS_MOST) {
        if (strspn(rest, "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") == strlen(rest))
            snprintf(w->host[w->n_hosts++], INDEX_MAX, "%.300s", rest);
    } else if ((rest = after(w->line, "lock ")) && !w->is_locked) {
        buf_add(&w->lock, rest, strlen(rest));
        buf_add_char(&w->lock, '\n');
    } else if (strcmp(w->line, "locked") == 0) {
        w->is_locked = true;
    } else if (strcmp(w->line, "done") == 0) {
        w->is_done = true;
    } else if ((rest = after(w->line, "fail ")) && !w->kind[0]) {
        size_t length = strcspn(rest, " ");
        snprintf(w->kind, sizeof w->kind, "%.*s", (int)length, rest);
        snprintf(w->why, sizeof w->why, "%s", rest + length + (rest[length] == ' '));
    }
}

/* 1: there may be more; 0: it has ended. */
static int hear(struct worker *w)
{
    char text[4096];
    ssize_t n = read(w->output, text, sizeof text);

    if (n < 0 && errno == EINTR)
        return 1;
    for (ssize_t i = 0; i < n; i++)
        if (text[i] == '\n' || w->line_length == sizeof w->line - 1)
            hear_line(w);
        else
            w->line[w->line_length++] = text[i];
    return n > 0;
}

/* A folder has no size limit, so usage is polled: the disk's free space often, and the layer's size when the disk has
 * lost that much. */
static bool is_too_much(struct worker *w)
{
    struct statvfs disk;

    if (!w->stage || fstatvfs(w->stage->fd, &disk) < 0)
        return false;
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (room < disk_reserve) {
        snprintf(w->kind, sizeof w->kind, "disk");
        snprintf(w->why, sizeof w->why, "the disk of %s is full", w->build->layers->path);
        return true;
    }
    if (w->free_at_start < room + w->build->most_bytes)
        return false;
    w->free_at_start = room + w->build->most_bytes;     /* count again after the next step */
    if (rmtree_bytes(w->build->layers->dir, w->stage->name, w->build->most_bytes) <= w->build->most_bytes)
        return false;
    snprintf(w->kind, sizeof w->kind, "disk");
    snprintf(w->why, sizeof w->why, "they take more than %s", parse_show_size(w->build->most_bytes).text);
    return true;
}

/* Returns the worker's exit status. enough: called when the versions are known; true ends the worker. */
static int listen(struct worker *w, bool (*enough)(struct worker *w, void *arg), void *arg)
{
    struct statvfs disk;
    int status = 0;

    if (w->stage && fstatvfs(w->stage->fd, &disk) == 0)
        w->free_at_start = (uint64_t)disk.f_bavail * disk.f_frsize;
    for (bool asked = false;;) {
        struct pollfd watch = { .fd = w->output, .events = POLLIN };
        int n = poll(&watch, 1, DISK_MS);
        if (n > 0 && hear(w) == 0)
            break;
        if (is_too_much(w) || (w->is_locked && !asked && enough && (w->is_enough = enough(w, arg)))) {
            (void)kill(w->pid, SIGTERM);        /* carrel run ends its box first */
            break;
        }
        asked = w->is_locked;
    }
    w->output = fd_close(w->output);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- the layer ---- */

static void name_layer(const struct worker *w, const char *key, char ret[LAYER_NAME])
{
    char real[4096];
    struct sha256 sha;
    uint8_t digest[SHA256_BYTES];

    if (!realpath(w->build->python, real))
        real[0] = '\0';
    sha256_begin(&sha);
    sha256_add(&sha, "2\n", 2);
    sha256_add(&sha, real, strlen(real) + 1);
    sha256_add(&sha, buf_string(&w->lock), w->lock.length);
    if (w->may_build)
        sha256_add(&sha, key, strlen(key));
    sha256_end(&sha, digest);
    sha256_hex(digest, ret);
}

struct wanted {
    const char *key;
    char        digest[LAYER_NAME];
};

/* Whether a layer with the same files exists. */
static bool is_there(struct worker *w, void *arg)
{
    struct wanted *wanted = arg;
    int fd;

    name_layer(w, wanted->key, wanted->digest);
    if (layer_open(w->build->layers, wanted->digest, &fd) < 0)
        return false;
    fd_close(fd);
    return true;
}

static int explain(const struct worker *w, int status, struct err *e)
{
    static const struct {
        const char *kind, *text;
        int         code;
    } kinds[] = {
        { "missing", "there is no such package, or no such version", ENOENT },
        { "conflict", "the packages do not go together", EINVAL },
        { "python", NULL, ENOEXEC },
        { "hash", "the hashes of the list do not fit", EINVAL },
        { "wheel", "a package can only be built from its source, and that failed", EINVAL },
        { "index", "the index of packages does not answer", EHOSTUNREACH },
        { "import", "what was installed cannot be imported", EINVAL },
        { "disk", "there is no room for the packages", ENOSPC },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].kind, w->kind) == 0)
            return kinds[i].text ? err_set(e, kinds[i].code, STEP_USAGE, "%s: %s", kinds[i].text, w->why)
                                 : err_set(e, kinds[i].code, STEP_USAGE, "%.160s", w->why);
    if (w->why[0])
        return err_set(e, EINVAL, STEP_USAGE, "the packages cannot be installed: %s", w->why);
    return err_set(e, EIO, STEP_USAGE, "the box that installs the packages ended with status %d", status);
}

static void describe(const struct worker *w, struct buf *info)
{
    const struct layer_build *build = w->build;
    char line[64];

    buf_add_text(info, "python ");
    buf_add_text(info, build->python);
    for (size_t i = 0; i < build->packages->n; i++) {
        buf_add_text(info, "\nasked ");
        buf_add_text(info, build->packages->line[i]);
    }
    for (const char *at = buf_string(&w->lock); *at; at += strcspn(at, "\n") + 1) {
        buf_add_text(info, "\nlock ");
        buf_add(info, at, strcspn(at, " \n"));
    }
    snprintf(line, sizeof line, "\nbytes %llu\n",
             (unsigned long long)rmtree_bytes(build->layers->dir, w->stage->name, UINT64_MAX));
    buf_add_text(info, line);
}

/* One worker box, from start to end. enough: as for listen(). */
static int work(struct worker *w, bool (*enough)(struct worker *w, void *arg), void *arg, struct err *e)
{
    w->kind[0] = w->why[0] = '\0';
    w->is_locked = w->is_done = w->is_enough = false;
    w->line_length = 0;
    if (w->step == BUILD)
        w->lock.length = 0;
    int r = start(w, e);
    int status = r < 0 ? 0 : listen(w, enough, arg);
    bool is_whole = w->step == LOOK || (w->is_done && (w->step == TRY || w->is_locked));
    if (r == 0 && !w->is_enough && (status != 0 || !is_whole))
        r = explain(w, status, e);
    return r;
}

/* Fills the folder; again, in another box, if a package must be built from its source. */
static int fill(struct worker *w, struct layer_stage *stage, bool (*enough)(struct worker *w, void *arg), void *arg,
                struct err *e)
{
    w->step = BUILD;
    w->stage = stage;
    int r = work(w, enough, arg, e);
    if (r < 0 && strcmp(w->kind, "wheel") == 0 && !w->may_build) {
        w->build->say("a package has no wheel that fits; building it", w->build->arg);
        w->may_build = true;
        r = work(w, enough, arg, e);
    }
    return r;
}

/* Finds the hosts that packages come from. */
static int begin(struct worker *w, const struct layer_build *build, struct err *e)
{
    *w = (struct worker){ .build = build, .output = -1, .step = LOOK };
    buf_init(&w->lock, LOCK_BYTES);
    guest_find_files(w->guest, sizeof w->guest);
    if (!w->guest[0])
        return err_set(e, ENOENT, STEP_HOST,
                       "the files that install packages are not beside this program; $CARREL_GUEST "
                       "can name their folder");
    int r = index_find(w->index, e);
    if (r == 0)
        r = prefix_add_python(build->python, w->places, sizeof w->places, e);
    if (r == 0)
        r = index_rule(w->index, w->host[0], sizeof w->host[0], e);
    w->n_hosts = 1;
    return r == 0 ? work(w, NULL, NULL, e) : r;
}

int layer_make(const struct layer_build *build, const char *key, char ret[LAYER_NAME], struct err *e)
{
    static struct worker w;
    struct layer_stage stage = { .fd = -1 };
    struct wanted wanted = { .key = key };
    struct buf info;

    int r = begin(&w, build, e);
    if (r == 0)
        r = layer_stage(build->layers, &stage, e);
    if (r == 0)
        r = fill(&w, &stage, is_there, &wanted, e);
    if (r == 0 && !w.is_enough) {
        buf_init(&info, LOCK_BYTES * 2);
        describe(&w, &info);
        r = layer_keep(build->layers, &stage, wanted.digest, buf_string(&info), e);
        buf_done(&info);
    }
    layer_drop(build->layers, &stage);
    if (r == 0)
        r = layer_name(build->layers, key, wanted.digest, e);
    if (r == 0)
        memcpy(ret, wanted.digest, LAYER_NAME);
    buf_done(&w.lock);
    return r;
}

int layer_fill(const struct layer_build *build, struct layer_stage *stage, struct buf *info, struct err *e)
{
    static struct worker w;

    int r = begin(&w, build, e);
    if (r == 0)
        r = fill(&w, stage, NULL, NULL, e);
    if (r == 0)
        r = interpreter_place(stage->fd, build->python, e);
    if (r == 0 && build->trial) {
        build->say("trying it", build->arg);
        w.step = TRY;
        r = work(&w, NULL, NULL, e);
    }
    if (r == 0)
        describe(&w, info);
    buf_done(&w.lock);
    return r;
}
