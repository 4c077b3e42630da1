/* Runs attacks from inside a box.
 *
 *   probe list                       one line "GROUP NAME" for each attack
 *   probe all GROUP [KEY=VALUE]...   every attack of a group, each in a forked child; one JSON line per attack
 *   probe one NAME [KEY=VALUE]...    a single attack
 *   probe bomb NAME [ARG]...         something that would hurt its neighbours: gets a box of its own, and is its
 * command
 *
 * The parent only forks, waits with a deadline and prints; so an attack may crash, hang or be killed by a filter, and
 * is still judged. Nothing but `list` runs in the initial user namespace: there these programs could hurt the machine.
 */
#include "probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ATTACK_DEADLINE_MS = 30000 };

static const struct topic *const topics[] = { &topic_process, &topic_identity, &topic_procfs, &topic_files,
                                              &topic_mounts,  &topic_network,  &topic_kernel, &topic_cpu,
                                              &topic_memory,  &topic_misc };

static char **settings; /* KEY=VALUE, NULL-terminated */
static int verdict_fd = -1;
static char notes[1200];

const char *arg_get(const char *key)
{
    size_t length = strlen(key);
    for (char **s = settings; s && *s; s++)
        if (strncmp(*s, key, length) == 0 && (*s)[length] == '=')
            return *s + length + 1;
    return NULL;
}

uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void note(const char *format, ...)
{
    size_t used = strlen(notes);
    if (used + 2 >= sizeof(notes))
        return;
    if (used)
        notes[used++] = ' ';
    va_list args;
    va_start(args, format);
    vsnprintf(notes + used, sizeof(notes) - used, format, args);
    va_end(args);
}

static _Noreturn void report(char verdict, const char *format, va_list args)
{
    char detail[800], text[2048];
    vsnprintf(detail, sizeof(detail), format, args);
    int n = snprintf(text, sizeof(text), "%c%s%s%s", verdict, detail, detail[0] && notes[0] ? "; " : "", notes);
    ssize_t ignored = write(verdict_fd, text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
    (void)ignored;
    _exit(0);
}

void held(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report('+', format, args);
}

void broken(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report('-', format, args);
}

void skipped(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report('?', format, args);
}

void expect_failure(const char *what, int error, const int *accepted)
{
    if (error == 0)
        broken("%s succeeded", what);
    for (const int *a = accepted; *a; a++)
        if (*a == error)
            return;
    broken("%s: %s", what, errno_name(error));
}

ssize_t read_text(const char *path, char *text, size_t size)
{
    text[0] = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    size_t have = 0;
    while (have + 1 < size) {
        ssize_t n = read(fd, text + have, size - 1 - have);
        if (n < 0 && have == 0) {
            int error = errno;
            close(fd);
            return -error;
        }
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    text[have] = 0;
    close(fd);
    return (ssize_t)have;
}

int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return n < 0 ? -1 : 0;
}

void read_status(const char *key, char *text, size_t size)
{
    char all[8192];
    read_text("/proc/self/status", all, sizeof(all));
    char *line = strstr(all, key);
    if (!line)
        broken("/proc/self/status has no %s", key);
    line += strlen(key);
    line += strspn(line, " \t");
    snprintf(text, size, "%.*s", (int)strcspn(line, "\n"), line);
}

int in_child(void (*run)(void *data), void *data)
{
    pid_t pid = fork();
    if (pid < 0)
        broken("fork: %s", errno_name(errno));
    if (pid == 0) {
        run(data);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

void say(const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text) - 1, format, args);
    va_end(args);
    if (n < 0)
        return;
    size_t length = (size_t)n < sizeof(text) - 1 ? (size_t)n : sizeof(text) - 2;
    text[length] = '\n';
    ssize_t ignored = write(STDOUT_FILENO, text, length + 1);
    (void)ignored;
}

static void print_verdict(const char *name, const char *verdict, const char *detail)
{
    char safe[2600];
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)detail; *p && n + 8 < sizeof(safe); p++) {
        if (*p < 0x20 || *p >= 0x7f || *p == '"' || *p == '\\')
            n += (size_t)snprintf(safe + n, sizeof(safe) - n, "\\u%04x", *p);
        else
            safe[n++] = (char)*p;
    }
    safe[n] = 0;
    say("{\"attack\":\"%s\",\"verdict\":\"%s\",\"detail\":\"%s\"}", name, verdict, safe);
}

static _Noreturn void attack_child(const struct attack *attack, int fd)
{
    verdict_fd = fd;
    setpgid(0, 0);
    attack->run();
    held("%s", "");
}

/* A death by SIGSYS is a refusal: the filter's hardest answer. */
static void judge_death(const struct attack *attack, int status)
{
    char text[80];
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) {
        print_verdict(attack->name, "held", "killed by SIGSYS");
        return;
    }
    if (WIFSIGNALED(status))
        snprintf(text, sizeof(text), "no verdict: signal %d", WTERMSIG(status));
    else
        snprintf(text, sizeof(text), "no verdict: exit %d", WEXITSTATUS(status));
    print_verdict(attack->name, "broken", text);
}

static void run_attack(const struct attack *attack)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0) {
        print_verdict(attack->name, "broken", "pipe failed");
        return;
    }
    pid_t pid = fork();
    if (pid < 0) {
        print_verdict(attack->name, "broken", "fork failed");
        close(pipes[0]);
        close(pipes[1]);
        return;
    }
    if (pid == 0) {
        close(pipes[0]);
        attack_child(attack, pipes[1]);
    }
    close(pipes[1]);
    char text[2100];
    struct pollfd wait = { .fd = pipes[0], .events = POLLIN };
    int ready = poll(&wait, 1, ATTACK_DEADLINE_MS);
    ssize_t n = ready > 0 ? read(pipes[0], text, sizeof(text) - 1) : -1;
    close(pipes[0]);
    if (ready == 0)
        kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    if (ready == 0) {
        print_verdict(attack->name, "broken", "hung");
    } else if (n <= 0) {
        judge_death(attack, status);
    } else {
        text[n] = 0;
        print_verdict(attack->name, text[0] == '+' ? "held" : text[0] == '?' ? "skipped" : "broken", text + 1);
    }
}

static int run_all(const char *group)
{
    for (size_t g = 0; g < COUNT(topics); g++) {
        if (strcmp(topics[g]->name, group) != 0)
            continue;
        for (size_t i = 0; i < topics[g]->count; i++)
            run_attack(&topics[g]->attacks[i]);
        return 0;
    }
    return 2;
}

static int run_one(const char *name)
{
    for (size_t g = 0; g < COUNT(topics); g++)
        for (size_t i = 0; i < topics[g]->count; i++)
            if (strcmp(topics[g]->attacks[i].name, name) == 0) {
                run_attack(&topics[g]->attacks[i]);
                return 0;
            }
    return 2;
}

static int run_bomb(const struct bomb *table, size_t count, int argc, char **argv)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(table[i].name, argv[0]) == 0)
            return table[i].run(argc - 1, argv + 1);
    return -1;
}

static void list_attacks(void)
{
    for (size_t g = 0; g < COUNT(topics); g++)
        for (size_t i = 0; i < topics[g]->count; i++)
            say("%s %s", topics[g]->name, topics[g]->attacks[i].name);
}

/* True in the initial user namespace, and when that is unknown. */
static int on_the_host(void)
{
    char map[256];
    unsigned long inside = 0, outside = 0, length = 0;
    if (read_text("/proc/self/uid_map", map, sizeof(map)) < 0)
        return getuid() == 0;
    return sscanf(map, "%lu %lu %lu", &inside, &outside, &length) != 3 || length == 4294967295UL;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        list_attacks();
        return 0;
    }
    if (on_the_host()) {
        fprintf(stderr, "probe: this is the host's user namespace; the attacks run only inside a box\n");
        return 2;
    }
    if (argc >= 3 && strcmp(argv[1], "all") == 0) {
        settings = argv + 3;
        return run_all(argv[2]);
    }
    if (argc >= 3 && strcmp(argv[1], "one") == 0) {
        settings = argv + 3;
        return run_one(argv[2]);
    }
    if (argc >= 3 && strcmp(argv[1], "bomb") == 0) {
        int status = run_bomb(bombs, bombs_count, argc - 2, argv + 2);
        if (status < 0)
            status = run_bomb(more_bombs, more_bombs_count, argc - 2, argv + 2);
        if (status < 0)
            status = run_bomb(socket_bombs, socket_bombs_count, argc - 2, argv + 2);
        if (status < 0)
            status = run_bomb(scenes, scenes_count, argc - 2, argv + 2);
        return status < 0 ? 2 : status;
    }
    fprintf(stderr, "usage: probe list | all GROUP | one NAME | bomb NAME\n");
    return 2;
}
