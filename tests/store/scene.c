#define _GNU_SOURCE
#include "scene.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

char        scene_dir[64];
static char wrapper[80], program[4096];

int scene_make(void **state)
{
    (void)state;
    const char *own = getenv("CARREL");
    if (!own || !realpath(own, program))
        return -1;
    snprintf(scene_dir, sizeof scene_dir, "/var/tmp/carrel-stores-XXXXXX");
    if (!mkdtemp(scene_dir))
        return -1;
    snprintf(wrapper, sizeof wrapper, "%s.sh", scene_dir);
    return setenv("CARREL", wrapper, 1);
}

static void clear_dir(void);

int scene_remove(void **state)
{
    (void)state;
    (void)unlink(wrapper);
    clear_dir();
    return rmdir(scene_dir);
}

/* The engine's own support starts $CARREL with fixed arguments; this adds ours. */
static void write_wrapper(const char *flavour)
{
    char text[8192];
    const char *user = strcmp(flavour, "rootless") == 0
                           ? "setpriv --reuid 65533 --regid 65533 --clear-groups env XDG_RUNTIME_DIR=/tmp "
                           : "";
    FD fd = open(wrapper, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

    assert_return_code(fd, errno);
    if (strcmp(flavour, "none") == 0)
        snprintf(text, sizeof text, "#!/bin/sh\nexec %s \"$@\"\n", program);
    else
        snprintf(text, sizeof text, "#!/bin/sh\nexec %s%s \"$@\" --stores %s\n", user, program, scene_dir);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
}

void scene_start(const char *flavour)
{
    void *none = NULL;

    write_wrapper(flavour);
    if (strcmp(flavour, "rootless") == 0) {
        assert_int_equal(setup_private(&none), 0);
        return;
    }
    assert_int_equal(setup_listening(&none), 0);
    front_connect();
    front_expect(EVENT_SYNCED, 0, -1);
}

void scene_stop(void)
{
    void *none = NULL;
    assert_int_equal(teardown(&none), 0);
}

void scene_kill(void)
{
    kill(front.keeper, SIGKILL);
    front_close();
    keeper_wait();
    unlink(front.path);
}

/* A test that failed leaves its files; they are not the next one's fault. */
static void clear_dir(void)
{
    DIR *dir = opendir(scene_dir);

    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));)
        if (d->d_name[0] != '.')
            (void)unlinkat(dirfd(dir), d->d_name, strcmp(d->d_name, "volumes") == 0 ? AT_REMOVEDIR : 0);
    closedir(dir);
}

int scene_test_begin(void **state)
{
    (void)state;
    clear_dir();
    scene_start("root");
    return 0;
}

int scene_test_end(void **state)
{
    (void)state;
    if (front.keeper)
        scene_stop();
    wait_for(loops_in_use() == 0);
    assert_int_equal(names_in_dir(), 0);
    return 0;
}

struct told store_try(uint32_t box, uint64_t store, uint64_t bytes)
{
    struct request_create frame = create_frame(box);

    frame_mount_add(&frame.mounts, MOUNT_STORE, store);
    frame.limits.disk_bytes = bytes;
    return front_answer(front_send(&frame, sizeof frame, NULL, 0));
}

void store_make(uint32_t box, uint64_t store, uint64_t bytes)
{
    char text[300];
    struct told told = store_try(box, store, bytes);

    if (told.event.head.result < 0) {
        err_text(&told.event.done.err, text, sizeof text);
        fail_msg("box %u on store %llu: %d %s", box, (unsigned long long)store, told.event.head.result, text);
    }
    assert_int_equal(told.event.head.type, EVENT_READY);
}

int store_forget(uint64_t store)
{
    struct request_store frame = { .head = { .type = REQUEST_STORE_REMOVE }, .store = store };
    return front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.result;
}

const char *say(uint32_t box, const char *script)
{
    static char text[65536];
    struct frame_end end = box_sh(box, 0, script, text, sizeof text);

    if (end.code != 0)
        fail_msg("%s: code %d, signal %d, outcome %u: %s", script, end.code, end.signal, end.outcome, text);
    return text;
}

static bool look(uint64_t store, struct stat *status)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%llu.img", scene_dir, (unsigned long long)store);
    return stat(path, status) == 0;
}

uint64_t store_size(uint64_t store)
{
    struct stat status;
    return look(store, &status) ? (uint64_t)status.st_size : 0;
}

uint64_t store_taken(uint64_t store)
{
    struct stat status;
    return look(store, &status) ? (uint64_t)status.st_blocks * 512 : 0;
}

int loops_in_use(void)
{
    char path[300], text[4096];
    DIR *dir = opendir("/sys/block");
    int n = 0;

    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));) {
        snprintf(path, sizeof path, "/sys/block/%s/loop/backing_file", d->d_name);
        n += strncmp(d->d_name, "loop", 4) == 0 && fd_read_file(AT_FDCWD, path, text, sizeof text) > 0 &&
             strstr(text, scene_dir);
    }
    closedir(dir);
    return n;
}

int names_in_dir(void)
{
    DIR *dir = opendir(scene_dir);
    int n = 0;

    assert_non_null(dir);
    for (struct dirent *d; (d = readdir(dir));)
        n += d->d_name[0] != '.' && strcmp(d->d_name, "volumes") != 0;
    closedir(dir);
    return n;
}

bool store_needs_replay(uint64_t store)
{
    char path[128];
    uint8_t flags = 0;

    snprintf(path, sizeof path, "%s/%llu.img", scene_dir, (unsigned long long)store);
    FD fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, &flags, 1, 1024 + 0x60), 1);
    return flags & 4;
}

bool store_is_clean(uint64_t store)
{
    char path[128];
    int status = -1;

    snprintf(path, sizeof path, "%s/%llu.img", scene_dir, (unsigned long long)store);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        execl("/usr/sbin/e2fsck", "e2fsck", "-f", "-n", path, (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
