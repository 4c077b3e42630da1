/* A whole conversation with the file helper, in a folder of its own. Half of the inputs are taken as they are; of the
 * others requests are made that fit, with the rest as their upload, and tar headers get their sums. Nothing outside of
 * the folder may change. */
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/files.h"
#include "files/serve.h"

static char folder[64], inner[80], victim[80];
static int  root, null;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)type;
    (void)where;
    return remove(path);
}

static int open_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st;
    (void)where;
    return type == FTW_D || type == FTW_DNR ? chmod(path, 0700) : 0;
}

static void remove_folder(void)
{
    nftw(folder, open_one, 16, FTW_PHYS);
    nftw(folder, remove_one, 16, FTW_PHYS | FTW_DEPTH);
}

static void prepare(void)
{
    struct rlimit small = { .rlim_cur = 1 << 20, .rlim_max = 1 << 20 };

    /* A file of exbibytes would be read for ever. */
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    snprintf(folder, sizeof folder, "%s/carrel-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    HOLDS(mkdtemp(folder));
    snprintf(victim, sizeof victim, "%s/victim", folder);
    snprintf(inner, sizeof inner, "%s/inner", folder);
    int fd = open(victim, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    HOLDS(fd >= 0 && write(fd, "safe", 4) == 4);
    close(fd);
    null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    atexit(remove_folder);
}

static void fix_sums(uint8_t *data, size_t size)
{
    for (size_t at = 0; at + 512 <= size; at += 512) {
        unsigned sum = 0;
        memcpy(data + at + 257, "ustar\0" "00", 8);
        memset(data + at + 148, ' ', 8);
        for (size_t i = 0; i < 512; i++)
            sum += data[at + i];
        snprintf((char *)data + at + 148, 8, "%06o", sum);
    }
}

static void put(int fd, const void *data, size_t size)
{
    HOLDS(write(fd, data, size) == (ssize_t)size);
}

static void put_head(int fd, uint16_t type, size_t size)
{
    struct files_head head = { .type = type, .size = (uint32_t)size };
    put(fd, &head, sizeof head);
}

/* Requests of eight bytes each, then the upload of those that take one. */
static void build(int fd, const uint8_t *data, size_t size)
{
    static const char *const paths[] = { "/", "/a",         "/a/b",      "/a/b/c",  "",
                                         "x", "/../victim", "/l/victim", "/a/../b", "/l" };

    for (; size >= 8; data += 8, size -= 8) {
        struct files_request q = { .op = (uint16_t)(data[0] % (FILES_OP_COUNT + 1)),
                                   .flags = data[1],
                                   .mode = data[2] * 16u,
                                   .offset = data[3] == 255 ? UINT64_MAX : data[3] * 1000u,
                                   .length = data[4] * 100u,
                                   .limit = data[5] };
        const char *path = paths[data[6] % 10], *other = q.op == FILES_MOVE ? paths[data[7] % 10] : "";
        q.path_size = (uint16_t)strlen(path);
        q.other_size = (uint16_t)strlen(other);
        put_head(fd, FILES_REQUEST, sizeof q + q.path_size + q.other_size);
        put(fd, &q, sizeof q);
        put(fd, path, q.path_size);
        put(fd, other, q.other_size);
        if (q.op != FILES_WRITE && q.op != FILES_UNPACK)
            continue;
        size_t part = q.op == FILES_UNPACK ? (size - 8) / 512 * 512 : (size - 8) % 64;
        if (part > 0) {
            uint8_t *copy = malloc(part);
            memcpy(copy, data + 8, part);
            if (q.op == FILES_UNPACK)
                fix_sums(copy, part);
            put_head(fd, FILES_DATA, part);
            put(fd, copy, part);
            free(copy);
            data += part;
            size -= part;
        }
        put_head(fd, data[7] == 77 ? FILES_ABORT : FILES_END, 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stat st;

    if (!folder[0])
        prepare();
    if (mkdir(inner, 0700) < 0) {
        nftw(inner, open_one, 16, FTW_PHYS);
        nftw(inner, remove_one, 16, FTW_PHYS | FTW_DEPTH);
        HOLDS(mkdir(inner, 0700) == 0);
    }
    root = open(inner, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int in = memfd_create("fuzz", MFD_CLOEXEC);
    HOLDS(root >= 0 && in >= 0);
    if (size > 0 && data[0] & 1)
        build(in, data + 1, size - 1);
    else if (size > 0)
        put(in, data + 1, size - 1);
    lseek(in, 0, SEEK_SET);
    files_converse(in, null, root);
    close(in);
    close(root);
    HOLDS(stat(victim, &st) == 0 && st.st_size == 4 && st.st_nlink == 1 && (st.st_mode & 07777) == 0600);
    HOLDS(stat(folder, &st) == 0 && (st.st_mode & 07777) == 0700);
    rmdir(inner);
    return 0;
}
