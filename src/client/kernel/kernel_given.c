/* Jupyter starts a kernel as a process with an environment: its own present one, with `env` of kernel.json and
 * start_kernel(env=...) added. A stock kernel has all of that. A box must not, because a shell's environment is
 * private, above all its tokens. So only variables given to this kernel are passed on: those that its kernelspec names,
 * and those that differ from the environment with which our parent was itself started. A variable that is the same
 * there was not clearly meant for the kernel.
 *
 * Unless the kernelspec names them, paths on this machine and our own variables are not passed on. */
#define _GNU_SOURCE
#include "client/kernel/kernel_given.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"

/* The kernel in the box removes it from its environment again (guest/kernel: start.py). */
#define ARGUMENTS "CARREL_IPYTHON_ARGUMENTS"

enum { ENVIRON_MOST = 2 << 20, VALUE_MOST = 32768 };

extern char **environ;

static bool is_of_this_machine(const char *variable)
{
    static const char *const names[] = { "HOME=", "PWD=", "OLDPWD=", "SHLVL=", "_=", "TMPDIR=", "JPY_PARENT_PID=",
                                         "IPYTHONDIR=", "CARREL_", "JUPYTER_", "XDG_" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* A name that the server accepts. */
static bool is_name(const char *name, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_letter = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') || name[i] == '_';
        if (!is_letter && (i == 0 || !(name[i] >= '0' && name[i] <= '9')))
            return false;
    }
    return n > 0 && n < 256;
}

static void hand_on(json_t *env, const char *variable)
{
    size_t n = strcspn(variable, "=");
    char name[256];

    if (variable[n] != '=' || !is_name(variable, n))
        return;
    snprintf(name, sizeof name, "%.*s", (int)n, variable);
    if (json_object_get(env, name))
        return;
    const char *value = variable + n + 1;
    if (strlen(value) > VALUE_MOST || json_object_set_new(env, name, json_string(value)) < 0)
        fprintf(stderr, "carrel: kernel: variable %s is too long or not UTF-8, and is not handed on\n", name);
}

static void hand_on_spec(json_t *env, const char *folder)
{
    char path[4096];
    const char *name;
    json_t *value, *spec;

    if (snprintf(path, sizeof path, "%s/kernel.json", folder) >= (int)sizeof path)
        return;
    spec = json_load_file(path, 0, NULL);
    json_object_foreach(json_object_get(spec, "env"), name, value) {
        /* Jupyter has expanded variables in its values, so the value in our environment counts. */
        for (char **v = environ; *v; v++)
            if (strncmp(*v, name, strlen(name)) == 0 && (*v)[strlen(name)] == '=')
                hand_on(env, *v);
    }
    json_decref(spec);
}

/* NUL-separated; NULL: unreadable or overwritten. */
static char *read_parent(size_t *ret_size)
{
    char path[48], *text = malloc(ENVIRON_MOST);

    snprintf(path, sizeof path, "/proc/%d/environ", (int)getppid());
    FD fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t size = 0;
    for (ssize_t n = 1; text && fd >= 0 && n > 0 && size < ENVIRON_MOST - 1; size += (size_t)n)
        if ((n = read(fd, text + size, ENVIRON_MOST - 1 - size)) < 0)
            n = 0;
    bool has_path = false;
    if (text)
        text[size] = '\0';
    for (size_t at = 0; text && at < size; at += strlen(text + at) + 1)
        has_path |= strncmp(text + at, "PATH=", 5) == 0;
    /* A program may overwrite it with a title; then all variables would seem new. */
    if (!has_path || size == ENVIRON_MOST - 1) {
        free(text);
        return NULL;
    }
    *ret_size = size;
    return text;
}

void given_environment(json_t *env, const char *spec)
{
    size_t size = 0;

    if (spec)
        hand_on_spec(env, spec);
    AUTO_FREE char *parent = read_parent(&size);
    if (!parent) {
        fputs("carrel: kernel: the environment of the program that starts this kernel cannot be read; of this one's "
              "only variables that the kernelspec names are passed on\n", stderr);
        return;
    }
    for (char **v = environ; *v; v++) {
        bool is_new = !is_of_this_machine(*v);
        for (size_t at = 0; is_new && at < size; at += strlen(parent + at) + 1)
            is_new = strcmp(parent + at, *v) != 0;
        if (is_new)
            hand_on(env, *v);
    }
}

/* Jupyter programs append options for IPython to a kernelspec's command: options of its classes
 * (--HistoryManager.hist_file=:memory:), short names, and files to run. */
static bool is_for_ipython(const char *word)
{
    static const char *const names[] = {
        "profile", "profile-dir", "ipython-dir", "matplotlib", "pylab", "gui", "ext", "colors", "debug", "log-level",
        "cache-size", "autoindent", "no-autoindent", "pprint", "no-pprint", "quick", "i", "c", "m"
    };

    if (word[0] != '-')
        return true;
    if (word[1] != '-')
        return false;
    size_t n = strcspn(word + 2, "=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && memcmp(names[i], word + 2, n) == 0)
            return true;
    return word[2] >= 'A' && word[2] <= 'Z';
}

int given_arguments(int argc, char **argv, json_t *env)
{
    int n = argc;
    bool after_file = false;
    json_t *words = json_array();

    while (n > 0 && is_for_ipython(argv[n - 1]))
        n--;
    for (int i = 0; i < n; i++)
        after_file |= strcmp(argv[i], "-f") == 0;
    if (n < argc)
        n++;        /* the word after one of our options is its value */
    for (int i = n; after_file && i < argc; i++) {
        bool is_value = i > n && argv[i - 1][0] == '-' && !strchr(argv[i - 1], '=');
        if (argv[i][0] == '-' || is_value)
            json_array_append_new(words, json_string(argv[i]));
        else
            fprintf(stderr, "carrel: kernel: '%s' is not handed on to the kernel in the box\n",
                    parse_quote(argv[i]).text);
    }
    char *text = json_array_size(words) ? json_dumps(words, JSON_COMPACT) : NULL;
    if (text)
        json_object_set_new(env, ARGUMENTS, json_string(text));
    free(text);
    json_decref(words);
    if (!after_file)
        return argc;
    argv[n] = NULL;
    return n;
}
