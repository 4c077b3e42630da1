/* Boxes whose files are on disk. */
#define _GNU_SOURCE
#include "scene.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "box/payload.h"

static void test_the_limit_holds_and_is_not_the_memory_limit(void **state)
{
    (void)state;
    struct request_create frame = create_frame(0);
    struct frame_end end;

    frame_mount_add(&frame.mounts, MOUNT_STORE, 7);
    frame.limits.memory_bytes = 64 * MB;
    frame.limits.disk_bytes = 256 * MB;
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.type, EVENT_READY);
    assert_int_equal(store_size(7), 256 * MB);

    char out[256];
    end = box_sh(0, 0, "head -c 1G /dev/zero >/tmp/fill 2>/dev/null; echo $?; stat -c %s /tmp/fill; exit 3", out,
                 sizeof out);
    assert_int_equal(end.code, 3);
    assert_int_equal(end.outcome, OUTCOME_DISK);
    char *size = strstr(out, "\n");
    assert_non_null(size);
    uint64_t written = strtoull(size, NULL, 10);
    if (written < 232 * MB || written > 256 * MB)
        fail_msg("could write %llu bytes: %s", (unsigned long long)written, out);
    assert_in_range(end.usage.disk_bytes, 232 * MB, 256 * MB);
    assert_int_equal(end.usage.oom_kills, 0);
    assert_true(store_taken(7) <= 257 * MB);

    /* Inodes end, too, and the box still works. */
    (void)say(0, "rm /tmp/fill; echo still here");
    box_end(0);
    assert_true(store_is_clean(7));
    assert_int_equal(store_forget(7), 0);
}

static void test_files_survive_with_their_owners(void **state)
{
    (void)state;
    struct request_create frame = create_frame(1);

    frame_mount_add(&frame.mounts, MOUNT_STORE, 8);
    frame.uid = frame.gid = 0;
    frame.profile = PROFILE_SYSTEM;
    frame.limits.disk_bytes = 32 * MB;
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.type, EVENT_READY);
    (void)say(1, "cd /home/box; for i in 0 1 1000 65534; do echo $i >f$i; chown $i:$i f$i; done; ln -s f1 link; mkdir "
                 "-m 700 d; echo t >/tmp/t");
    (void)say(1, "echo shared >/dev/shm/s");
    char *map = strdup(say(1, "cat /proc/self/uid_map"));
    box_end(1);

    frame.head.box = 2;
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.type, EVENT_READY);
    assert_string_not_equal(say(2, "cat /proc/self/uid_map"), map);
    free(map);
    assert_string_equal(
        say(2, "cd /home/box; stat -c '%n %u %g %a' f* d; readlink link; cat f1000 /tmp/t; ls /dev/shm"),
        "f0 0 0 644\nf1 1 1 644\nf1000 1000 1000 644\nf65534 65534 65534 644\nd 0 0 700\nf1\n1000\nt\n");
    /* The image's own root has an id that no box can have. */
    assert_string_equal(say(2, "stat -c '%u %g %a' /home/box /tmp /dev/shm"), "0 0 755\n0 0 1777\n0 0 1777\n");
    box_end(2);

    /* Another user is another user. */
    frame.uid = frame.gid = 1000;
    frame.profile = PROFILE_STANDARD;
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.type, EVENT_READY);
    assert_string_equal(say(2, "cd /home/box; cat f1; (echo x >f1) 2>/dev/null || echo no; echo more >>f1000; cat "
                               "f1000; cat d/x 2>&1 | tail -c 18"),
                        "1\nno\n1000\nmore\nPermission denied\n");
    box_end(2);
    assert_int_equal(store_forget(8), 0);
}

static void test_a_writable_root_survives(void **state)
{
    (void)state;
    struct request_create frame = create_frame(0);

    frame_mount_add(&frame.mounts, MOUNT_STORE, 9);
    frame_mount_add(&frame.mounts, MOUNT_ROOT, 0)->writable = 1;
    frame.uid = frame.gid = 0;
    frame.profile = PROFILE_SYSTEM;
    frame.limits.disk_bytes = 64 * MB;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.type, EVENT_READY);
        (void)say(0, "echo one >>/usr/local/mine; rm -f /usr/bin/awk; test ! -e /usr/bin/awk");
        assert_int_equal(strtol(say(0, "wc -l </usr/local/mine"), NULL, 10), i + 1);
        box_end(0);
    }
    assert_int_equal(store_forget(9), 0);
}

/* Synced data is there, and the file system is clean, although it was not unmounted explicitly. */
static void test_kill_9_of_the_keeper_in_the_middle_of_writing(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        int out[2];
        store_make(0, 11, 128 * MB);
        assert_return_code(pipe2(out, O_CLOEXEC), errno);
        struct run run = {
            .script =
                "cd /home/box; echo kept >kept; sync kept; echo ready; i=0; "
                "while :; do head -c 3M /dev/urandom >big$((i % 20)); mkdir -p d$i; echo $i >d$i/x; i=$((i + 1)); done",
            .out = out[1]
        };
        assert_int_equal(box_run(0, 0, run).event.head.result, 0);
        close(out[1]);
        read_until(out[0], "ready");
        usleep(100000 * (unsigned)round);       /* nothing is waited for: other moments are to be met */
        scene_kill();
        close(out[0]);
        wait_for(loops_in_use() == 0);
        assert_true(store_is_clean(11));
        scene_start("root");
        store_make(0, 11, 128 * MB);
        assert_string_equal(say(0, "cat /home/box/kept; rm -rf /home/box/*"), "kept\n");
        box_end(0);
    }
    /* At once after the death, when the old mount may still be there. */
    store_make(0, 11, 128 * MB);
    assert_int_equal(
        box_run(0, 0,
                (struct run){
                    .script = "head -c 60M /dev/urandom >/home/box/big; echo kept >/home/box/kept; sync /home/box/*; "
                              "while :; do head -c 20M /dev/urandom >/home/box/more; done" })
            .event.head.result,
        0);
    wait_for(store_taken(11) > 62 * MB);
    scene_kill();
    scene_start("root");
    store_make(0, 11, 128 * MB);
    assert_string_equal(say(0, "stat -c %s /home/box/big; cat /home/box/kept"), "62914560\nkept\n");
    box_end(0);
    assert_true(store_is_clean(11));
    assert_int_equal(store_forget(11), 0);
}

/* An image as a crash of the host leaves it: a copy of one that is mounted. */
static void test_a_crashed_image_is_mended(void **state)
{
    (void)state;
    char from[128], to[128], command[400];
    store_make(0, 12, 64 * MB);
    (void)say(
        0, "cd /home/box; for i in $(seq 200); do echo $i >f$i; done; sync -f .; for i in $(seq 100); do rm f$i; done");
    snprintf(from, sizeof from, "%s/12.img", scene_dir);
    snprintf(to, sizeof to, "%s/13.img", scene_dir);
    snprintf(command, sizeof command, "cp --sparse=always %s %s", from, to);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(99);
    }
    wait_for(store_size(13) == 64 * MB && !is_running(pid));
    assert_true(store_needs_replay(13));
    store_make(1, 13, 64 * MB);
    assert_string_equal(say(1, "cat /home/box/f150 /home/box/f200"), "150\n200\n");
    box_end(1);
    assert_true(store_is_clean(13));
    box_end(0);
    assert_int_equal(store_forget(12), 0);
    assert_int_equal(store_forget(13), 0);
}

static void test_twenty_at_once(void **state)
{
    (void)state;
    enum { MANY = 20 };
    uint32_t serial[MANY];
    uint64_t before = clock_monotonic_us();

    for (uint32_t i = 0; i < MANY; i++) {
        struct request_create frame = create_frame(i);
        frame_mount_add(&frame.mounts, MOUNT_STORE, 100 + i);
        frame.limits.disk_bytes = 1024 * MB;
        serial[i] = front_send(&frame, sizeof frame, NULL, 0);
    }
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(front_answer(serial[i]).event.head.type, EVENT_READY);
    printf("store: %d boxes of 1 GB at once in %.0f ms\n", MANY, (double)(clock_monotonic_us() - before) / 1000);
    assert_int_equal(loops_in_use(), MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        char script[64];
        snprintf(script, sizeof script, "echo %u >/home/box/me", i);
        (void)say(i, script);
    }
    for (uint32_t i = 0; i < MANY; i++)
        box_end(i);
    wait_for(loops_in_use() == 0);
    for (uint32_t i = 0; i < MANY; i++) {
        before = clock_monotonic_us();
        store_make(i, 100 + i, 1024 * MB);
        if (i == 0)
            printf("store: an existing one in %.1f ms\n", (double)(clock_monotonic_us() - before) / 1000);
        assert_int_equal(strtol(say(i, "cat /home/box/me"), NULL, 10), i);
        box_end(i);
        assert_int_equal(store_forget(100 + i), 0);
    }
    before = clock_monotonic_us();
    store_make(0, 99, 1024 * MB);
    printf("store: a new one of 1 GB in %.1f ms\n", (double)(clock_monotonic_us() - before) / 1000);
    box_end(0);
    assert_int_equal(store_forget(99), 0);
}

static void test_what_cannot_be_held_is_refused(void **state)
{
    (void)state;
    struct statvfs disk;

    assert_int_equal(statvfs(scene_dir, &disk), 0);
    /* Others write and remove while we look: every size here is far from the border. */
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize / (100 * MB) * 100 * MB;
    struct told told = store_try(0, 20, room + room / 2 + 1024 * MB);
    assert_int_equal(told.event.head.result, -ENOSPC);
    assert_non_null(strstr(told.event.done.err.what, "free"));
    assert_int_equal(store_try(0, 20, UINT64_MAX).event.head.result, -EINVAL);
    assert_int_equal(store_try(0, 20, 1 * MB).event.head.result, -EINVAL);
    assert_int_equal(names_in_dir(), 0);

    /* What was promised counts, though nothing was written. */
    uint64_t most = room * 6 / 10 / MB * MB;
    if (most > 4096 * 1024 * MB)
        most = 4096 * 1024 * MB;
    store_make(0, 20, most);
    assert_true(store_taken(20) < 64 * MB);
    uint64_t rest = (room - most / 2) / MB * MB;
    assert_int_equal(store_try(1, 21, rest).event.head.result, -ENOSPC);
    box_end(0);
    assert_int_equal(store_try(1, 21, rest).event.head.result, -ENOSPC);
    assert_int_equal(store_forget(20), 0);

    /* It has the size that it has. */
    store_make(0, 22, 32 * MB);
    box_end(0);
    assert_int_equal(store_try(0, 22, 64 * MB).event.head.result, -EINVAL);
    assert_int_equal(store_try(0, 22, 16 * MB).event.head.result, -EINVAL);
    assert_int_equal(store_forget(22), 0);
}

static void test_what_is_deleted_goes_back_to_the_host(void **state)
{
    (void)state;
    store_make(0, 30, 256 * MB);
    (void)say(0, "head -c 100M /dev/urandom >/tmp/x; sync /tmp/x");
    wait_for(store_taken(30) >= 100 * MB);
    (void)say(0, "rm /tmp/x; sync -f /tmp");
    wait_for(store_taken(30) < 20 * MB);
    box_end(0);
    assert_int_equal(store_forget(30), 0);
    assert_int_equal(store_forget(30), 0);
}

static void test_a_store_has_one_box(void **state)
{
    (void)state;
    store_make(0, 40, 16 * MB);
    assert_int_equal(store_try(1, 40, 16 * MB).event.head.result, -EBUSY);
    assert_int_equal(store_forget(40), -EBUSY);
    assert_int_equal(say(0, "echo fine")[0], 'f');

    /* A second keeper finds the directory locked and does not start. */
    char *argv[] = { getenv("CARREL"), "keeper", "--listen", "/tmp/carrel-second.sock", NULL };
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, 2);
        execv(argv[0], argv);
        _exit(99);
    }
    wait_for(!is_running(pid));
    box_end(0);
    assert_int_equal(store_forget(40), 0);
}

static void test_a_box_can_be_destroyed_while_its_store_is_made(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        struct request_create frame = create_frame(0);
        struct request_head end = { .type = REQUEST_DESTROY, .box = 0 };
        frame_mount_add(&frame.mounts, MOUNT_STORE, 50);
        frame.limits.disk_bytes = 64 * MB;
        uint32_t create = front_send(&frame, sizeof frame, NULL, 0);
        usleep((unsigned)i * 1000);             /* other moments */
        uint32_t destroy = front_send(&end, sizeof end, NULL, 0);
        struct told told = front_answer(create);
        assert_true(told.event.head.type == EVENT_READY || told.event.head.result == -ECANCELED);
        told = front_answer(destroy);
        assert_int_equal(told.event.head.type, EVENT_GONE);
        assert_int_equal(store_forget(50), 0);
    }
    /* And a keeper that is killed then. */
    for (int i = 0; i < 10; i++) {
        struct request_create frame = create_frame(0);
        frame_mount_add(&frame.mounts, MOUNT_STORE, 51);
        frame.limits.disk_bytes = 64 * MB;
        front_send(&frame, sizeof frame, NULL, 0);
        usleep((unsigned)i * 3000);
        scene_kill();
        scene_start("root");
        wait_for(loops_in_use() == 0);
        assert_int_equal(store_forget(51), 0);
        assert_int_equal(names_in_dir(), 0);
    }
}

static int tell_stores(uint64_t wanted)
{
    int n = 0;

    front_close();
    front_connect();
    for (;;) {
        struct told told = front_next();
        told_close(&told);
        if (told.event.head.type == EVENT_SYNCED)
            return n;
        n += told.event.head.type == EVENT_STORE && told.event.store.store == wanted;
    }
}

static void test_a_new_front_is_told_of_stores(void **state)
{
    (void)state;
    store_make(0, 60, 16 * MB);
    assert_int_equal(tell_stores(60), 1);
    box_end(0);
    assert_int_equal(tell_stores(60), 1);
    assert_int_equal(store_forget(60), 0);
    assert_int_equal(tell_stores(60), 0);
}

/* A directory as the keeper takes it: sent into a socket pair that the caller has made. */
static int envelope(const char *path)
{
    int pair[2];
    FD dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_return_code(dir, errno);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(link_send(pair[0], "m", 1, &dir, 1), 0);
    close(pair[0]);
    return pair[1];
}

/* The second box's mount point lies where the first could put what it liked. */
static void test_a_planted_link_leads_nowhere(void **state)
{
    (void)state;
    char outside[] = "/tmp/carrel-outside-XXXXXX", mine[] = "/tmp/carrel-mine-XXXXXX", script[200];

    assert_non_null(mkdtemp(outside));
    assert_non_null(mkdtemp(mine));
    store_make(0, 70, 16 * MB);
    snprintf(script, sizeof script, "cd /home/box; ln -s %s data; mkdir real; ln -s %s real/sub; echo x >file", outside,
             outside);
    (void)say(0, script);
    box_end(0);
    const char *targets[] = { "/home/box/data", "/home/box/data/in", "/home/box/real/sub/in", "/home/box/file",
                              "/home/box/file/in" };
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        struct request_create frame = create_frame(0);
        frame_mount_add(&frame.mounts, MOUNT_STORE, 70);
        frame.limits.disk_bytes = 16 * MB;
        memcpy(frame_mount_add(&frame.mounts, MOUNT_HOST, 0)->target, targets[i], strlen(targets[i]));
        int source = envelope(mine);
        struct told told = front_answer(front_send(&frame, sizeof frame, &source, 1));
        close(source);
        if (told.event.head.result >= 0)
            fail_msg("%s was mounted over", targets[i]);
    }
    assert_int_equal(rmdir(outside), 0);        /* empty */
    /* A good one works, twice. */
    for (int i = 0; i < 2; i++) {
        struct request_create frame = create_frame(0);
        frame_mount_add(&frame.mounts, MOUNT_STORE, 70);
        frame.limits.disk_bytes = 16 * MB;
        memcpy(frame_mount_add(&frame.mounts, MOUNT_HOST, 0)->target, "/home/box/real/good", 20);
        int source = envelope(mine);
        assert_int_equal(front_answer(front_send(&frame, sizeof frame, &source, 1)).event.head.type, EVENT_READY);
        close(source);
        assert_string_equal(say(0, "grep -c real/good /proc/self/mounts; stat -c %u /home/box/real"), "1\n1000\n");
        box_end(0);
    }
    assert_int_equal(rmdir(mine), 0);
    assert_int_equal(store_forget(70), 0);
}

/* Writing back hundreds of megabytes is the dying box's business. */
static void test_the_keeper_answers_while_a_box_is_written_back(void **state)
{
    (void)state;
    struct limits large = usual;
    struct request_create frame = create_frame(0);
    uint64_t worst = 0, begin;

    frame_mount_add(&frame.mounts, MOUNT_STORE, 80);
    frame.limits.memory_bytes = 1024 * MB;
    frame.limits.disk_bytes = 1024 * MB;
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.type, EVENT_READY);
    box_make(1, &large);
    (void)say(0, "head -c 400M /dev/zero >/tmp/dirty");
    struct request_head end = { .type = REQUEST_DESTROY, .box = 0 };
    begin = clock_monotonic_us();
    uint32_t serial = front_send(&end, sizeof end, NULL, 0);
    for (;;) {
        uint64_t asked = clock_monotonic_us();
        assert_int_equal(box_ask(REQUEST_USAGE, 1, 0).event.head.result, 0);
        uint64_t took = clock_monotonic_us() - asked;
        worst = took > worst ? took : worst;
        bool gone = false;
        for (size_t i = 0; i < front.n_queued; i++)
            gone |= front.queue[i].event.head.serial == serial;
        if (gone)
            break;
    }
    printf("store: 400 MB written back in %.0f ms, the keeper's slowest answer meanwhile %.1f ms\n",
           (double)(clock_monotonic_us() - begin) / 1000, (double)worst / 1000);
    /* A keeper that waits for the disk is silent for nearly all of that time; a slow machine is not. */
    assert_true(worst < 500000 || worst < (clock_monotonic_us() - begin) / 2);
    assert_int_equal(front_answer(serial).event.head.type, EVENT_GONE);
    box_end(1);
    assert_true(store_is_clean(80));
    assert_int_equal(store_forget(80), 0);
}

static void test_without_stores_it_is_refused(void **state)
{
    (void)state;
    const char *flavours[] = { "none", "rootless" };

    scene_stop();
    for (size_t i = 0; i < 2; i++) {
        scene_start(flavours[i]);
        struct request_create frame = create_frame(0);
        frame_mount_add(&frame.mounts, MOUNT_STORE, 90);
        frame.limits = (struct limits){ .disk_bytes = 16 * MB };
        struct told told = front_answer(front_send(&frame, sizeof frame, NULL, 0));
        assert_int_equal(told.event.head.result, -ENOTSUP);
        assert_non_null(strstr(told.event.done.err.what, i ? "root" : "--stores"));
        assert_int_equal(store_forget(90), -ENOTSUP);
        scene_stop();
    }
}

static int volume_ask(enum volume_operation operation, uint64_t volume, uint64_t bytes)
{
    struct request_volume q = { .head = { .type = REQUEST_VOLUME }, .volume = volume, .bytes = bytes,
                                .operation = operation };
    return front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result;
}

static int volume_box(uint32_t box, uint64_t first, uint64_t second, uint32_t family)
{
    struct request_create q = create_frame(box);

    frame_mount_add(&q.mounts, MOUNT_VOLUME, first)->writable = 1;
    snprintf(q.mounts.at[0].target, 16, "/data");
    if (second)
        snprintf(frame_mount_add(&q.mounts, MOUNT_VOLUME, second)->target, 16, "/more");
    q.family = family;
    return front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result;
}

static void test_a_front_cannot_damage_volumes(void **state)
{
    (void)state;
    assert_int_equal(volume_ask(VOLUME_OP_MAKE, 0, 64 * MB), -EINVAL);
    assert_int_equal(volume_ask(VOLUME_OP_MAKE, 5, 64 * MB + 4096), -EINVAL);
    assert_int_equal(volume_ask(VOLUME_OP_MAKE, 5, 0), -EINVAL);
    assert_int_equal(volume_ask(VOLUME_OP_MAKE, 5, UINT64_MAX), -EINVAL);
    assert_int_equal(volume_ask(VOLUME_OP_COUNT, 5, 64 * MB), -EINVAL);
    assert_int_equal(volume_ask(VOLUME_OP_LOOK, 5, 0), -ENOENT);
    assert_int_equal(volume_ask(VOLUME_OP_GROW, 5, 64 * MB), -ENOENT);
    assert_int_equal(volume_ask(VOLUME_OP_REMOVE, 5, 0), 0);
    assert_int_equal(volume_box(0, 5, 0, 0), -ENOENT);
    assert_int_equal(volume_ask(VOLUME_OP_MAKE, 5, 64 * MB), 0);
    assert_int_equal(volume_ask(VOLUME_OP_MAKE, 5, 64 * MB), -EEXIST);
    assert_int_equal(volume_ask(VOLUME_OP_GROW, 5, 32 * MB), -EINVAL);
    assert_int_equal(volume_box(0, 5, 5, 0), -EINVAL);
    assert_int_equal(volume_box(0, 5, 0, 1), -EINVAL);          /* a zygote reaches what is in its boxes */
    assert_int_equal(volume_box(0, 5, 0, 0), 0);
    assert_string_equal(say(0, "echo x >/data/f; cat /data/f"), "x\n");
    assert_int_equal(volume_ask(VOLUME_OP_REMOVE, 5, 0), -EBUSY);
    assert_int_equal(volume_ask(VOLUME_OP_GROW, 5, 128 * MB), -EBUSY);
    assert_int_equal(volume_box(1, 5, 0, 0), 0);                /* whether two may write is the front's decision */
    assert_string_equal(say(1, "cat /data/f; echo y >/data/f"), "x\n");
    assert_string_equal(say(0, "cat /data/f"), "y\n");
    assert_int_equal(loops_in_use(), 1);
    box_end(0);
    box_end(1);
    assert_int_equal(volume_ask(VOLUME_OP_GROW, 5, 128 * MB), 0);
    assert_int_equal(volume_ask(VOLUME_OP_REMOVE, 5, 0), 0);
    assert_int_equal(volume_box(0, 5, 0, 0), -ENOENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_test_begin, scene_test_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_limit_holds_and_is_not_the_memory_limit),
        TEST(test_files_survive_with_their_owners),
        TEST(test_a_writable_root_survives),
        TEST(test_kill_9_of_the_keeper_in_the_middle_of_writing),
        TEST(test_a_crashed_image_is_mended),
        TEST(test_twenty_at_once),
        TEST(test_what_cannot_be_held_is_refused),
        TEST(test_what_is_deleted_goes_back_to_the_host),
        TEST(test_a_store_has_one_box),
        TEST(test_a_box_can_be_destroyed_while_its_store_is_made),
        TEST(test_a_new_front_is_told_of_stores),
        TEST(test_a_planted_link_leads_nowhere),
        TEST(test_the_keeper_answers_while_a_box_is_written_back),
        TEST(test_a_front_cannot_damage_volumes),
        TEST(test_without_stores_it_is_refused),
    };

    alarm(560);     /* nothing here may hang */
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (geteuid() != 0) {
        printf("store: skipped, needs root\n");
        return 0;
    }
    if (access("/dev/loop-control", R_OK | W_OK) < 0) {
        printf("store: skipped, this host has no loop devices\n");
        return 0;
    }
    return cmocka_run_group_tests_name("stores", tests, scene_make, scene_remove);
}
