#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

struct cgroup_host host;

struct process enter(const struct cgroup *leaf, int (*work)(volatile uint64_t *shared), volatile uint64_t *shared)
{
    struct process process;
    int r = process_clone(0, leaf->v2, -1, &process);

    if (r == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        r = cgroup_join_self(leaf);
        _exit(r < 0 ? 200 : work(shared));
    }
    assert_int_equal(r, 1);
    return process;
}

struct process_end reap(struct process *process)
{
    struct process_end end;
    struct pollfd p = { .fd = process->pidfd, .events = POLLIN };

    assert_int_equal(poll(&p, 1, DEADLINE_US / 1000), 1);
    assert_int_equal(process_reap(process, 1, &end), 1);
    return end;
}

int places(const char *name)
{
    int n = host.v2 >= 0 && faccessat(host.v2, name, F_OK, 0) == 0;

    for (int c = 0; c < CG_CONTROLLERS; c++)
        n += host.v1[c] >= 0 && faccessat(host.v1[c], name, F_OK, 0) == 0;
    return n;
}

void make_places(const char *name)
{
    if (host.v2 >= 0)
        assert_return_code(mkdirat(host.v2, name, 0755), errno);
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (host.v1[c] >= 0)
            assert_return_code(mkdirat(host.v1[c], name, 0755), errno);
}

void remove_places(const char *name)
{
    if (host.v2 >= 0)
        unlinkat(host.v2, name, AT_REMOVEDIR);
    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (host.v1[c] >= 0)
            unlinkat(host.v1[c], name, AT_REMOVEDIR);
}

const char *leaf_text(int dir, const char *file)
{
    static char text[4][512];
    static unsigned next;
    char *t = text[next++ % 4];

    assert_true(fd_read_file(dir, file, t, sizeof text[0]) > 0);
    t[strcspn(t, "\n")] = 0;
    return t;
}

volatile uint64_t *shared_new(void)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(p, MAP_FAILED);
    return p;
}

int open_fds(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

int work_count(volatile uint64_t *shared)
{
    for (;;)
        shared[0]++;
}

int work_pause(volatile uint64_t *shared)
{
    shared[0] = 1;
    for (;;)
        pause();
}

int work_fork_bomb(volatile uint64_t *shared)
{
    for (;;) {
        if (fork() >= 0)
            __atomic_add_fetch(&shared[0], 1, __ATOMIC_RELAXED);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    }
}
