/* Stands in for an interpreter: warms some memory and serves. A child runs one of the commands below, whose names begin
 * with '@', or executes the given command, so that everything that is tested over exec can be tested over fork. Called
 * zygote-NAME, it is hostile (hostile.c). */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/zygote/hostile.h"
#include "zygote.h"

enum { WARM_BYTES = 8 << 20 };

static char *warm;

static int at_echo(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        printf("%s%s", argv[i], i + 1 < argc ? " " : "");
    putchar('\n');
    return 0;
}

static int at_sleep(int argc, char **argv)
{
    puts("sleeping");
    fflush(stdout);
    return sleep(argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1) != 0;
}

static int at_exit(int argc, char **argv)
{
    return argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
}

static int at_abort(int argc, char **argv)
{
    (void)argc, (void)argv;
    abort();
}

/* What a fork must not share: random numbers. */
static int at_random(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("%d %ld\n", rand(), random());
    return 0;
}

/* Which descriptors are open; asked one by one, because a listing would open one. */
static int at_fds(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf("%d ", fd);
    putchar('\n');
    return 0;
}

/* Writes to memory that the zygote has warmed: the copies are the box's. */
static int at_touch(int argc, char **argv)
{
    size_t bytes = argc > 1 ? (size_t)strtoul(argv[1], NULL, 10) << 20 : 1 << 20;
    char *more = malloc(bytes);

    memset(warm, 'c', WARM_BYTES);
    if (!more)
        return 1;
    memset(more, 'c', bytes);
    printf("touched %c%c\n", warm[WARM_BYTES / 2], more[bytes / 2]);
    return 0;
}

static int at_cat(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "r") : stdin;
    int c;

    if (!file)
        return 1;
    while ((c = getc(file)) != EOF)
        putchar(c);
    return 0;
}

static const struct {
    const char *name;
    int       (*run)(int argc, char **argv);
} commands[] = {
    { "@echo", at_echo },     { "@sleep", at_sleep }, { "@exit", at_exit },   { "@abort", at_abort },
    { "@random", at_random }, { "@fds", at_fds },     { "@touch", at_touch }, { "@cat", at_cat },
};

static int run_command(struct zygote_child *child)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(child->argv[0], commands[i].name) == 0) {
            zygote_running();
            int status = commands[i].run(child->argc, child->argv);
            fflush(stdout);
            return status;
        }
    zygote_exec(child->argv, child->env);
    return 125;
}

int main(int argc, char **argv)
{
    struct zygote_child child;
    const char *hostile = argc > 0 ? strstr(argv[0], "zygote-") : NULL;

    warm = malloc(WARM_BYTES);
    if (!warm)
        return 1;
    memset(warm, 'z', WARM_BYTES);
    srand(1);
    srandom(1);
    if (hostile)
        return hostile_serve(hostile + strlen("zygote-"));
    if (zygote_serve(NULL, NULL, &child) < 0)
        return 0;
    return run_command(&child);
}
