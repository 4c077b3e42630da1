/* Lets a Python test have kernels in real boxes of a family, without a server: makes the family with its layers, then
 * does what it is asked on descriptor 3. $DRIVER_PROFILE may be strict.
 *
 *   driver LAYER[:LAYER...] PROGRAM [ARGUMENT...]     the zygote's command
 *
 *   park         a box whose payload is forked, warmed, and waits       -> slot
 *   start, exec  gives a box its command: the waiting payload, or the program executed; with stdin, stdout, stderr
 *                                                                        -> pid
 *   end          destroys a box                                          -> 0
 *
 * Each answer has -errno, and the reason, in case of failure. When descriptor 3 is closed, all ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/family/family.h"
#include "box/payload.h"

enum { CONTROL = 3, BOXES = 128, STRINGS = 32, TEXT = 4000 };
enum { ASK_PARK, ASK_START, ASK_EXEC, ASK_END };

struct ask {
    int32_t kind, slot;
    int32_t argc, envc;
    char    strings[TEXT];          /* argv, then env, each with its NUL */
};

struct answer {
    int64_t value, us;
    char    text[200];
};

static struct box_host host;
static struct family   family;
static struct plan     plan, tree;
static struct engine_box      box[BOXES];
static struct payload  payload[BOXES];

static _Noreturn void fail(const char *what, const struct err *e)
{
    char text[300];
    err_text(e, text, sizeof text);
    fprintf(stderr, "driver: %s: %s\n", what, text);
    exit(1);
}

static void make_family(char *layers, char **argv)
{
    struct box_spec spec = { .profile = PROFILE_STANDARD, .uid = 1000, .gid = 1000, .limits.disk_bytes = 64 << 20 };
    char *env[] = { "PATH=/usr/bin:/bin", "HOME=/home/box", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", NULL };
    struct command_spec command = { .argv = argv, .env = env };
    struct start start = { .command = &command, .stdio = { -1, -1, 2 } };
    struct err e = { 0 };
    const char *profile = getenv("DRIVER_PROFILE");

    if (profile && strcmp(profile, "strict") == 0)
        spec.profile = PROFILE_STRICT;
    for (char *path = strsep(&layers, ":"); path; path = strsep(&layers, ":")) {
        int layer = open(path, O_PATH | O_CLOEXEC);
        if (spec.n_mounts == SPEC_MOUNTS_MAX || layer < 0)
            fail(path, &(struct err){ .code = errno });
        spec.mount[spec.n_mounts++] = (struct mount_spec){
            .kind = MOUNT_LAYER, .source = path, .target = path, .fd = layer
        };
    }
    if (box_host_open(&host, &e) < 0 || facts_read_root(&host.facts, NULL, false, &e) < 0
        || plan_make(&spec, &host.facts, &plan, &e) < 0 || plan_make(&spec, &host.facts, &tree, &e) < 0)
        fail("plan", &e);
    family_plan(&tree);
    if (family_create(&host, &tree, &start, &family, &e) < 0)
        fail("family", &e);
    if (family_ready(&family, FAMILY_READY_MS, &e) != 1)
        fail("the zygote is not ready", &e);
}

static int park(int64_t *ret_slot, struct err *e)
{
    for (int i = 0; i < BOXES; i++)
        if (box[i].state == BOX_NONE) {
            int r = family_box_create(&host, &family, &plan, false, &box[i], e);
            if (r == 0 && (r = box_ready(&box[i], true, e)) < 0)
                box_destroy(&host, &box[i], &(struct process_end){ 0 });
            *ret_slot = i;
            return r < 0 ? r : 0;
        }
    return -ENOSPC;
}

static int start(const struct ask *ask, const int stdio[3], int64_t *ret_pid, struct err *e)
{
    char *strings[STRINGS + 2] = { 0 };
    const char *p = ask->strings;
    struct engine_box *b = &box[ask->slot];

    if (ask->argc < 1 || ask->argc + ask->envc > STRINGS)
        return -E2BIG;
    for (int i = 0; i < ask->argc + ask->envc; i++, p += strlen(p) + 1)
        strings[i + (i >= ask->argc)] = (char *)(uintptr_t)p;
    struct command_spec command = { .argv = strings, .env = strings + ask->argc + 1 };
    struct start order = {
        .command = &command, .stdio = { stdio[0], stdio[1], stdio[2] }, .fresh = ask->kind == ASK_EXEC
    };
    int r = box_start_payload(b, &order, &payload[ask->slot], e);
    *ret_pid = payload[ask->slot].process.pid;
    return r;
}

static void end_box(int i)
{
    struct process_end end;

    box_kill(&box[i]);
    while (payload[i].process.pidfd >= 0 && payload_reap(&payload[i], &end) == 0) {
        struct pollfd ended = { .fd = payload[i].process.pidfd, .events = POLLIN };
        (void)poll(&ended, 1, 100);
    }
    payload_done(&payload[i]);
    box_destroy(&host, &box[i], &end);
    box[i] = (struct engine_box){ 0 };
    payload[i] = (struct payload){ .process.pidfd = -1, .link = -1, .terminal = -1 };
}

static void serve(void)
{
    struct ask ask;
    int stdio[3] = { -1, -1, -1 };

    while (link_receive(CONTROL, &ask, sizeof ask, stdio, 3, true) >= 0) {
        struct answer answer = { 0 };
        struct err e = { 0 };
        int64_t before = (int64_t)clock_monotonic_us();
        int r = -EINVAL;

        if (ask.kind == ASK_PARK)
            r = park(&answer.value, &e);
        else if (ask.slot >= 0 && ask.slot < BOXES && box[ask.slot].state != BOX_NONE) {
            if (ask.kind == ASK_END)
                end_box(ask.slot), r = 0;
            else
                r = start(&ask, stdio, &answer.value, &e);
        }
        if (r < 0) {
            answer.value = r;
            err_text(&e, answer.text, sizeof answer.text);
        }
        for (int i = 0; i < 3; i++)
            stdio[i] = fd_close(stdio[i]);
        answer.us = (int64_t)clock_monotonic_us() - before;
        if (send(CONTROL, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
            break;
    }
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    for (int i = 0; i < BOXES; i++)
        payload[i] = (struct payload){ .process.pidfd = -1, .link = -1, .terminal = -1 };
    make_family(argv[1], argv + 2);
    (void)!send(CONTROL, &(struct answer){ 0 }, sizeof(struct answer), MSG_NOSIGNAL);
    serve();
    for (int i = 0; i < BOXES; i++)
        if (box[i].state != BOX_NONE)
            end_box(i);
    family_destroy(&host, &family);
    return 0;
}
