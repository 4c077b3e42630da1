/* carrel kernelspec: makes Jupyter programs on this machine start their kernels in boxes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/kernel/setup.h"

static const char usage[] =
    "usage: carrel kernelspec install [OPTIONS]\n"
    "       carrel kernelspec remove [OPTIONS]\n"
    "\n"
    "Writes a kernelspec, so that JupyterLab, nbconvert, papermill and others offer a kernel in a box.\n"
    "\n"
    "  --name NAME             of the kernelspec; 'python3' takes the place of the usual one [carrel]\n"
    "  --display-name TEXT     [Python 3 (Carrel)]\n"
    "  --user                  for this user: ~/.local/share/jupyter (the default)\n"
    "  --prefix DIR            into DIR/share/jupyter: a virtual environment, /usr/local\n"
    "  --python PROGRAM        the interpreter, and with it the packages, of the kernel; else a template of the "
    "server's\n"
    "  --memory 2G  --cpus 2   limits of its boxes\n"
    "  --home                  a kernel that is started in the home directory may read and change all of it; without\n"
    "                          this option a kernel has its notebook's folder, but not if that is the home directory\n"
    "\n"
    "If there is no Python for kernels yet, 'carrel setup' makes it; with -y or --yes, its failure is an error.\n";

struct spec {
    struct client client;
    const char   *name, *display, *prefix, *python, *memory, *cpus;
    bool          yes, with_home;
};

#define TEXT(function, member)                                                     \
    static int function(void *into, const char *value, struct err *e)             \
    {                                                                              \
        (void)e;                                                                   \
        ((struct spec *)into)->member = value;                                     \
        return 0;                                                                  \
    }
TEXT(set_name, name)
TEXT(set_display, display)
TEXT(set_prefix, prefix)
TEXT(set_python, python)

static int set_user(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct spec *)into)->prefix = NULL;
    return 0;
}

static int set_yes(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct spec *)into)->yes = true;
    return 0;
}

static int set_home(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct spec *)into)->with_home = true;
    return 0;
}

/* Reports wrong values now and not when a notebook is opened. */
static int set_memory(void *into, const char *value, struct err *e)
{
    json_t *unused = json_object();
    int r = take_size("--memory", value, unused, "memory", e);

    json_decref(unused);
    ((struct spec *)into)->memory = value;
    return r;
}

static int set_cpus(void *into, const char *value, struct err *e)
{
    json_t *unused = json_object();
    int r = take_cpus("--cpus", value, unused, "cpus", e);

    json_decref(unused);
    ((struct spec *)into)->cpus = value;
    return r;
}

static int make_folders(char *path)
{
    for (char *at = path + 1;; at++) {
        if (*at && *at != '/')
            continue;
        char kept = *at;
        *at = '\0';
        int r = mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
        *at = kept;
        if (r < 0 || !kept)
            return r;
    }
}

static int place_of(const struct spec *s, char path[4096])
{
    const char *data = getenv("JUPYTER_DATA_DIR"), *home = getenv("HOME");
    int n;

    if (s->prefix)
        n = snprintf(path, 4000, "%s/share/jupyter/kernels/%s", s->prefix, s->name);
    else if (data && data[0] == '/')
        n = snprintf(path, 4000, "%s/kernels/%s", data, s->name);
    else
        n = snprintf(path, 4000, "%s/.local/share/jupyter/kernels/%s", home ? home : "", s->name);
    return path[0] == '/' && n < 4000 ? 0 : -1;
}

static json_t *make_spec(const struct spec *s)
{
    char program[4096];
    json_t *argv;

    guest_find_program(program, sizeof program);
    argv = json_pack("[s,s,s,s]", program, "kernel", "--spec", "{resource_dir}");
    const char *const options[][2] = { { "--python", s->python }, { "--memory", s->memory }, { "--cpus", s->cpus } };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i][1]) {
            json_array_append_new(argv, json_string(options[i][0]));
            json_array_append_new(argv, json_string(options[i][1]));
        }
    if (s->with_home)
        json_array_append_new(argv, json_string("--home"));
    json_array_append_new(argv, json_string("-f"));
    json_array_append_new(argv, json_string("{connection_file}"));
    return json_pack("{s:o,s:s,s:s,s:s,s:{s:b}}", "argv", argv, "display_name", s->display, "language", "python",
                     "interrupt_mode", "signal", "metadata", "debugger", 0);
}

static int install(const struct spec *s)
{
    char path[4096], python[GUEST_PATH];
    json_t *spec = make_spec(s);
    int r = place_of(s, path);

    if (r == 0 && (r = make_folders(path)) == 0) {
        size_t n = strlen(path);
        snprintf(path + n, sizeof path - n, "/kernel.json");
        r = spec && json_dump_file(spec, path, JSON_INDENT(1)) == 0 ? 0 : -(errno ? errno : EINVAL);
    }
    json_decref(spec);
    if (r < 0) {
        fprintf(stderr, "carrel: kernelspec: %s: %s\n", path,
                r == -1 ? "--prefix must be an absolute path" : strerror(-r));
        return EXIT_CLIENT;
    }
    puts(path);
    /* The kernelspec is written and works with a server's kernels; kernels of this machine may still need a setup. */
    if (!s->python && !guest_find_python(python, sizeof python) && setup_make() != 0 && s->yes)
        return EXIT_CLIENT;
    return 0;
}

static int take_away(const struct spec *s)
{
    char path[4096], file[4200];
    int r = place_of(s, path);

    snprintf(file, sizeof file, "%s/kernel.json", path);
    if (r == 0 && unlink(file) == 0 && rmdir(path) == 0)
        return 0;
    fprintf(stderr, "carrel: kernelspec: %s: %s\n", file,
            r < 0 ? "--prefix must be an absolute path" : strerror(errno));
    return EXIT_CLIENT;
}

int client_kernelspec(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "name", 0, true, set_name },     { "display-name", 0, true, set_display },
        { "user", 0, false, set_user },    { "prefix", 0, true, set_prefix },
        { "python", 0, true, set_python }, { "memory", 'm', true, set_memory },
        { "cpus", 0, true, set_cpus },     { "yes", 'y', false, set_yes },
        { "home", 0, false, set_home },
    };
    struct spec s = { .client = { .name = "kernelspec", .usage = usage, .may_lack_server = true },
                      .name = "carrel", .display = "Python 3 (Carrel)" };
    struct words words;
    int status = client_begin(&s.client, argc, argv, flags, sizeof flags / sizeof *flags, &s, false, &words);

    if (status >= 0)
        return status;
    if (words.n != 1)
        return client_misused(&s.client, "install or remove?%s", "");
    if (s.name[strspn(s.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] ||
        s.name[0] == '.' || !s.name[0])
        return client_misused(&s.client, "--name may have letters, digits and ._-%s", "");
    if (strcmp(words.at[0], "install") == 0)
        return install(&s);
    if (strcmp(words.at[0], "remove") == 0)
        return take_away(&s);
    return client_misused(&s.client, "install or remove, not '%s'", parse_quote(words.at[0]).text);
}
