#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"
#include "cli/commands.h"

static const struct command {
    const char *name;
    int       (*run)(int argc, char **argv);
    const char *summary;        /* NULL: hidden from help */
} commands[] = {
    { "run", run_main, "run a command in a fresh box" },
    { "plan", plan_main, "show the steps that a box would be made with" },
    { "doctor", doctor_main, "check what this host offers, what is missing and how to fix it" },
    { "gc", gc_main, "remove remains of a crash" },
    { "layer", layer_main, "make, list and remove packages that boxes have" },
    { "setup", setup_main, "make a Python environment for kernels, once" },
    { "keeper", keeper_main, NULL },
};

/* Commands of carrel-server: this program stays small and static, that one speaks HTTP. */
static const struct {
    const char *name, *summary;
} server_commands[] = {
    { "serve", "serve the API: boxes that live" },
    { "config", "check the server's configuration" },
    { "create", "make a box" },
    { "ps", "list boxes" },
    { "exec", "run a command in a box" },
    { "shell", "open a shell in a box" },
    { "cp", "copy files into and out of a box" },
    { "logs", "show a command's output" },
    { "jobs", "list the commands of a box" },
    { "wait", "wait for a command's end" },
    { "kill", "send a signal to a command" },
    { "events", "show the events of a box" },
    { "forward", "forward a local port into a box" },
    { "pause", "freeze a box" },
    { "resume", "let a frozen box go on" },
    { "stop", "end a box's processes, keep its files" },
    { "start", "start a stopped box" },
    { "rm", "delete boxes" },
    { "stats", "show the resource usage of boxes" },
    { "net", "show and change the network rules of a box" },
    { "service", "call functions of a live interpreter in a box" },
    { "grant", "give and revoke rights to call a service's functions" },
    { "token", "make, list and revoke tokens" },
    { "secret", "keep values that processes in boxes get" },
    { "volume", "make, list and remove directories that outlive boxes" },
    { "df", "show what takes disk" },
    { "py", "run Python in a box" },
    { "repl", "talk to Python in a box" },
    { "kernel", "be a kernel in a box for a Jupyter program" },
    { "kernelspec", "make Jupyter programs use such kernels" },
    { "mcp", "be an MCP server for a program that starts it" },
};

/* Beside this program, or in ../libexec; which: 0 or 1. */
bool cli_program_path(const char *name, int which, char *path, size_t size)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (n <= 0)
        return false;
    self[n] = '\0';
    int length = (int)(strrchr(self, '/') - self);
    snprintf(path, size, "%.*s/%s%s", length, self, which ? "../libexec/" : "", name);
    return true;
}

bool cli_has_program(const char *name)
{
    char path[4200];

    for (int i = 0; i < 2; i++)
        if (cli_program_path(name, i, path, sizeof path) && access(path, X_OK) == 0)
            return true;
    return false;
}

int cli_hand_over(char **argv)
{
    char path[4200] = "carrel";

    argv[0] = "carrel";
    for (int i = 0; i < 2; i++)
        if (cli_program_path("carrel-server", i, path, sizeof path))
            execv(path, argv);
    fprintf(stderr, "carrel: carrel-server is not installed beside this program (%s)\n", path);
    return EXIT_CARREL;
}

void cli_complain(const struct err *e)
{
    char text[512];

    err_text(e, text, sizeof text);
    fprintf(stderr, "carrel: %s\n", text);
}

static void usage(FILE *out)
{
    fputs("usage: carrel COMMAND [OPTIONS]\n\n", out);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (commands[i].summary)
            fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fputs("\nwith a server\n", out);
    for (size_t i = 0; i < sizeof server_commands / sizeof *server_commands; i++)
        fprintf(out, "  %-8s %s\n", server_commands[i].name, server_commands[i].summary);
    fputs("\n'carrel COMMAND --help' tells more; the manual is carrel(1).\n", out);
}

static int dispatch(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    for (size_t i = 0; i < sizeof server_commands / sizeof *server_commands; i++)
        if (strcmp(argv[1], server_commands[i].name) == 0)
            return cli_hand_over(argv);
    fprintf(stderr, "carrel: there is no command '%s'; 'carrel help' lists them\n", argv[1]);
    return EXIT_CARREL;
}

int main(int argc, char **argv)
{
    title_remember(argc, argv);
    signal(SIGCHLD, SIG_DFL);       /* a caller that ignores it would make our children disappear unreaped */
    if (fd_fill_standard() < 0) {
        fputs("carrel: standard input, output or error is closed and /dev/null cannot be opened instead\n", stderr);
        return EXIT_CARREL;
    }
    if (argc < 2) {
        usage(stderr);
        return EXIT_CARREL;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("carrel " CARREL_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || (strcmp(argv[1], "help") == 0 && argc == 2)) {
        usage(stdout);
        return 0;
    }
    char help[] = "--help", *asked[] = { argv[0], argv[2], help, NULL };
    if (strcmp(argv[1], "help") == 0)
        return dispatch(3, asked);
    return dispatch(argc, argv);
}
