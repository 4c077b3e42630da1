#define _GNU_SOURCE
#include "client/wire/heed.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

int heed_pending(void)
{
    static const int endings[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
    sigset_t waiting;

    if (sigpending(&waiting) < 0)
        return 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (sigismember(&waiting, endings[i]) == 1)
            return endings[i];
    return 0;
}

bool heed_stop_for_signal(void *arg, uint64_t stalled_us)
{
    (void)arg;
    return stalled_us >= HEED_SLICE_MS * 1000 && heed_pending();
}

/* When poll reports room, a pipe takes PIPE_BUF bytes without blocking; a file takes all. */
int heed_write(int fd, const char *data, size_t size, heed_stop *stop, void *arg)
{
    struct stat status;
    bool is_file = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    uint64_t since = clock_monotonic_us();

    while (size > 0) {
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        int ready = poll(&p, 1, HEED_SLICE_MS);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (stop(arg, ready > 0 ? 0 : clock_monotonic_us() - since))
            return -EINTR;
        if (ready <= 0)
            continue;
        ssize_t n = write(fd, data, is_file || size < PIPE_BUF ? size : PIPE_BUF);
        if (n == 0)
            return -EIO;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n > 0) {
            data += n;
            size -= (size_t)n;
            since = clock_monotonic_us();
        }
    }
    return 0;
}
