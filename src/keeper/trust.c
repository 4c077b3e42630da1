#define _GNU_SOURCE
#include "keeper/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, FILE_MOST = 4 << 20 };

static int map_sealed(int fd, const char **ret, size_t *ret_size)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &status) < 0 || status.st_size <= 0 ||
        status.st_size > FILE_MOST)
        return -EINVAL;
    void *at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return -errno;
    *ret = at;
    *ret_size = (size_t)status.st_size;
    return 0;
}

int keeper_take_trust(const int fds[2], struct box_trust *ret, struct err *e)
{
    struct box_trust trust = { .pem = NULL };
    int r = map_sealed(fds[0], &trust.pem, &trust.pem_size);

    if (r == 0)
        r = map_sealed(fds[1], &trust.java, &trust.java_size);
    if (r < 0) {
        keeper_drop_trust(&trust);
        return err_at(e, -r, STEP_PROTOCOL, 0, "the box's certificates");
    }
    *ret = trust;
    return 0;
}

void keeper_drop_trust(struct box_trust *trust)
{
    if (trust->pem)
        (void)munmap((void *)(uintptr_t)trust->pem, trust->pem_size);
    if (trust->java)
        (void)munmap((void *)(uintptr_t)trust->java, trust->java_size);
    *trust = (struct box_trust){ .pem = NULL };
}
