#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "base/title.h"
#include "cli/commands.h"

static const struct command {
    const char *name;
    int       (*run)(int argc, char **argv);
    const char *summary;        /* NULL: not for people */
} commands[] = {
    { "run", run_main, "run a command in a fresh box" },
    { "plan", plan_main, "show the steps that a box would be made with" },
    { "doctor", doctor_main, "say what this host gives, what is missing and how to fix it" },
    { "gc", gc_main, "remove what a crash has left" },
    { "keeper", keeper_main, NULL },
};

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
    fputs("\n'carrel COMMAND --help' tells more; the manual is carrel(1).\n", out);
}

int main(int argc, char **argv)
{
    title_remember(argc, argv);
    if (fd_fill_standard() < 0)
        return EXIT_CARREL;
    if (argc < 2) {
        usage(stderr);
        return EXIT_CARREL;
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts("carrel " CARREL_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        usage(stdout);
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "carrel: there is no command '%s'; 'carrel help' lists them\n", argv[1]);
    return EXIT_CARREL;
}
