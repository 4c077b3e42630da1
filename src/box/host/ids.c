#define _GNU_SOURCE
#include "box/host/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/host/rundir.h"
#include "sys/process.h"
#include "sys/rights.h"

enum {
    SIZE_FULL = 65536,
    SIZE_SMALL = 1024,                  /* of a user's 65,536 ids, so that there can be many boxes */
    LAST_SMALL = SIZE_SMALL - 1,
    NOBODY = 65534,
    DEFAULT_FIRST = 1879048192,         /* above what systemd gives to containers */
    DEFAULT_COUNT = 268435456,
    FAMILY_FIRST = 1 << 20,             /* what the family's namespace calls the first id of the reserve */
};

/* The `carrel` line of /etc/subuid, if there is one: "carrel:first:count". */
static void read_reserve(uint32_t *first, uint32_t *count)
{
    char text[16384];

    if (fd_read_file(AT_FDCWD, "/etc/subuid", text, sizeof text) < 0)
        return;
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "carrel:", 7) != 0)
            continue;
        char *end;
        unsigned long from = strtoul(line + 7, &end, 10);
        unsigned long many = *end == ':' ? strtoul(end + 1, NULL, 10) : 0;
        if (from && many >= SIZE_FULL && from + many <= UINT32_MAX) {
            *first = (uint32_t)from;
            *count = (uint32_t)many;
        }
        return;
    }
}

int ids_host_open(struct ids_host *ret, bool rootless, uint32_t mapped, struct err *e)
{
    ret->lock = -1;
    ret->last = (uint32_t)getpid();
    memset(ret->taken, 0, sizeof ret->taken);
    if (rootless) {
        ret->first = mapped > 1 ? 1 : 0;
        ret->count = mapped > 1 ? mapped - 1 : 1;
        ret->size = mapped > SIZE_SMALL ? SIZE_SMALL : 1;
        if (ret->size == 1)
            return 0;
    } else {
        ret->first = DEFAULT_FIRST;
        ret->count = DEFAULT_COUNT;
        ret->size = SIZE_FULL;
        read_reserve(&ret->first, &ret->count);
    }

    FD dir = -1;
    int r = rundir_open(&dir, e);
    if (r < 0)
        return r;
    ret->lock = openat(dir, "ids", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return ret->lock < 0 ? err_at(e, errno, STEP_IDS, 0, "the lock file 'ids' in the run directory") : 0;
}

void ids_host_close(struct ids_host *host)
{
    host->lock = fd_close(host->lock);
}

int ids_take(struct ids_host *host, struct ids *ret, struct err *e)
{
    if (host->size == 1) {
        *ret = (struct ids){ .base = 0, .size = 1, .held = true };
        return 0;
    }
    uint32_t slots = host->count / host->size;
    if (slots > IDS_SLOTS_MAX)
        slots = IDS_SLOTS_MAX;
    for (uint32_t i = 1; i <= slots; i++) {
        uint32_t slot = (host->last + i) % slots;
        if (host->taken[slot / 8] >> slot % 8 & 1)
            continue;
        struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };
        if (fcntl(host->lock, F_OFD_SETLK, &lock) < 0) {
            if (errno == EAGAIN || errno == EACCES)
                continue;
            return err_at(e, errno, STEP_IDS, slot, "locking an id range");
        }
        host->taken[slot / 8] |= (uint8_t)(1 << slot % 8);
        host->last = slot;
        *ret = (struct ids){ .slot = slot, .base = host->first + slot * host->size, .size = host->size, .held = true };
        return 0;
    }
    return err_set(e, EAGAIN, STEP_IDS,
                   "all %u id ranges are in use: end some boxes, or give carrel more ids in /etc/subuid", slots);
}

void ids_release(struct ids_host *host, struct ids *ids)
{
    if (!ids->held)
        return;
    ids->held = false;
    if (ids->size == 1)
        return;
    struct flock lock = { .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = ids->slot, .l_len = 1 };
    (void)fcntl(host->lock, F_OFD_SETLK, &lock);
    host->taken[ids->slot / 8] &= (uint8_t)~(1 << ids->slot % 8);
}

/* A small range has the ids below LAST_SMALL and, at its end, 65534 (nobody). */
void ids_map_text(const struct ids *ids, uint32_t inside, bool keep_own, uint32_t shift, char text[IDS_MAP_TEXT])
{
    uint32_t base = ids->base + shift;

    if (ids->size == 1) {
        snprintf(text, IDS_MAP_TEXT, "%u %u 1\n", inside, shift);
        return;
    }
    uint32_t low = ids->size == SIZE_FULL ? SIZE_FULL : LAST_SMALL;
    int n;
    if (keep_own && inside < low && inside > 0)
        n = snprintf(text, IDS_MAP_TEXT, "0 %u %u\n%u %u 1\n%u %u %u\n", base, inside, inside, shift, inside + 1,
                     base + inside + 1, low - inside - 1);
    else if (keep_own && inside < low)
        n = snprintf(text, IDS_MAP_TEXT, "0 %u 1\n1 %u %u\n", shift, base + 1, low - 1);
    else
        n = snprintf(text, IDS_MAP_TEXT, "0 %u %u\n", base, low);
    if (ids->size == SIZE_SMALL)
        snprintf(text + n, IDS_MAP_TEXT - (size_t)n, "%u %u 1\n", NOBODY, base + LAST_SMALL);
}

uint32_t ids_family_shift(const struct ids_host *host, uint32_t inside)
{
    return host->size == 1 ? inside : FAMILY_FIRST - host->first;
}

void ids_family_text(const struct ids_host *host, const struct ids *ids, uint32_t inside, char text[IDS_MAP_TEXT])
{
    uint32_t shift = ids_family_shift(host, inside), end = host->first + host->count, after = ids->base + ids->size;

    ids_map_text(ids, inside, false, 0, text);
    if (ids->size == 1)
        return;
    size_t n = strlen(text);
    /* A user's reserve begins after the user's own id, which a box may need; the two are not contiguous in our parent's
     * map. */
    if (host->first == 1)
        n += (size_t)snprintf(text + n, IDS_MAP_TEXT - n, "%u 0 1\n", shift);
    if (ids->base > host->first)
        n += (size_t)snprintf(text + n, IDS_MAP_TEXT - n, "%u %u %u\n", host->first + shift, host->first,
                              ids->base - host->first);
    if (end > after)
        snprintf(text + n, IDS_MAP_TEXT - n, "%u %u %u\n", after + shift, after, end - after);
}

bool ids_holds(const struct ids *ids, uint32_t inside)
{
    /* The only id can stand for any. */
    return ids->size == 1 || inside < (ids->size == SIZE_FULL ? SIZE_FULL : LAST_SMALL) || inside == NOBODY;
}

uint32_t ids_outside(const struct ids *ids, uint32_t inside, bool keep_own)
{
    if (ids->size == 1 || keep_own)
        return 0;
    if (ids->size == SIZE_SMALL && inside == NOBODY)
        return ids->base + LAST_SMALL;
    return ids->base + inside;
}

/* It must not outlive the keeper, nor hold any of its descriptors. */
static _Noreturn void hold_namespace(int keeper)
{
    if (rights_die_with(keeper) < 0 || syscall(SYS_close_range, 0, ~0u, 0) < 0)
        _exit(1);
    for (;;)
        pause();
}

int ids_namespace(int keeper, const char *uid_map, const char *gid_map)
{
    struct process holder = { .pidfd = -1 };
    int r = process_clone(CLONE_NEWUSER, -1, -1, &holder);
    if (r < 0)
        return r;
    if (r == 0)
        hold_namespace(keeper);

    int fd = -1;
    r = process_map_ids(holder.pid, uid_map, gid_map, 0);
    if (r == 0) {
        char path[48];
        snprintf(path, sizeof path, "/proc/%d/ns/user", (int)holder.pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        r = fd < 0 ? -errno : 0;
    }
    struct process_end end;
    if (process_signal(&holder, SIGKILL) < 0)
        kill(holder.pid, SIGKILL);      /* our unreaped child, so the pid cannot be reused */
    if (process_reap(&holder, 1, &end) < 0)
        r = r < 0 ? r : -EIO;
    return r < 0 ? (fd_close(fd), r) : fd;
}
