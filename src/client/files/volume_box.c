/* `carrel cp` with a volume: a small box has it for the time of the copy. A child deletes the box when this process
 * ends, however it ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "client/files/transfer.h"

#define PREFIX "volume:"
#define PLACE "/volume"

enum { PATIENCE = 30 };     /* tenths of a second */

bool volume_is_named(const char *word)
{
    return strncmp(word, PREFIX, sizeof PREFIX - 1) == 0;
}

/* "volume:NAME/PATH", or "volume:OWNER/NAME:/PATH". */
static int split(const char *word, char **ret_name, char **ret_path)
{
    const char *rest = word + sizeof PREFIX - 1, *colon = strstr(rest, ":/"), *slash = strchr(rest, '/');
    const char *end = colon ? colon : slash ? slash : rest + strlen(rest);
    const char *path = colon ? colon + 1 : slash ? slash : "";

    *ret_name = strndup(rest, (size_t)(end - rest));
    return *ret_name && asprintf(ret_path, PLACE "%s", path) >= 0 ? 0 : -ENOMEM;
}

/* Deletes the box of this name when the other end of the pipe is closed. A byte says that there is none. If the copy
 * was killed while it requested the box, the box may still be on its way. */
static _Noreturn void delete_later(const struct client *c, const char *name, int end)
{
    const struct timespec pause = { .tv_nsec = 100 * 1000000L };
    struct err ignored;
    char byte;
    ssize_t n;

    (void)setsid();     /* Ctrl-C is for the copy */
    while ((n = read(end, &byte, 1)) < 0 && errno == EINTR)
        ;
    for (int i = 0; n == 0 && i < PATIENCE; i++) {
        json_t *answer = NULL;
        int status = client_ask(c, "DELETE", target_box(name, ""), NULL, &answer, &ignored);
        json_decref(answer);
        if (status >= 200 && status < 300)
            break;
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

/* Before the box is made, so that there is no moment in which it would stay. */
static int start_deleter(struct volume_box *v, const struct client *c)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    fflush(stdout);
    v->deleter = fork();
    if (v->deleter == 0) {
        close(pair[1]);
        delete_later(c, v->name, pair[0]);
    }
    close(pair[0]);
    v->end = pair[1];
    return v->deleter < 0 ? -errno : 0;
}

static bool choose_name(char *name, size_t size)
{
    uint64_t random;

    if (getrandom(&random, sizeof random, 0) != sizeof random)
        return false;
    snprintf(name, size, "cp-%016llx", (unsigned long long)random);
    return true;
}

int volume_box_make(struct volume_box *v, const struct client *c, const char *word, bool to_read)
{
    char *name = NULL;
    json_t *answer = NULL;

    *v = (struct volume_box){ .end = -1 };
    if (split(word, &name, &v->path) < 0) {
        free(name);
        return EXIT_CLIENT;
    }
    /* It ends with the deleter; the idle timeout is for a machine that loses that, too. */
    json_t *body = !choose_name(v->name, sizeof v->name) ? NULL
                   : json_pack("{s:s,s:[{s:s,s:s,s:b}],s:s,s:{s:s}}", "name", v->name, "volumes", "name", name, "path",
                               PLACE, "read_only", to_read, "idle_timeout", "1h", "labels", "made-for", "cp");
    free(name);
    if (!body) {
        fprintf(stderr, "carrel: %s is not UTF-8\n", show_text(word));
        return EXIT_CLIENT;
    }
    int r = start_deleter(v, c);
    if (r < 0) {
        fprintf(stderr, "carrel: %s\n", strerror(-r));
        json_decref(body);
        return EXIT_CLIENT;
    }
    if (client_call(c, "POST", "/v1/boxes", body, &answer) < 0) {
        (void)!write(v->end, "", 1);
        return EXIT_CLIENT;
    }
    v->id = strdup(text_of(answer, "id"));
    json_decref(answer);
    return v->id ? 0 : EXIT_CLIENT;
}

void volume_box_done(struct volume_box *v)
{
    if (v->end >= 0)
        close(v->end);
    while (v->deleter > 0 && waitpid(v->deleter, NULL, 0) < 0 && errno == EINTR)
        ;
    free(v->id);
    free(v->path);
}
