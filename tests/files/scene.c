#include "scene.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files/serve.h"

int         helper = -1, top = -1;
const char *top_path;

static pid_t child;
static char  folder[64];

int scene_setup(void **state)
{
    int pair[2];

    (void)state;
    snprintf(folder, sizeof folder, "%s/carrel-files-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(folder) || (top = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return -1;
    top_path = folder;
    umask(0);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0 || (child = fork()) < 0)
        return -1;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        close(pair[0]);
        files_converse(pair[1], pair[1], top);
        _exit(0);
    }
    close(pair[1]);
    helper = pair[0];
    client_init(helper);
    return 0;
}

/* Names are short, so a path to the deepest folder may be too long: rename-up is not needed, the helper has removed
 * those itself. */
static int remove_all(int dir)
{
    DIR *d = fdopendir(dup(dir));

    rewinddir(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dir, e->d_name, 0) == 0)
            continue;
        (void)!fchmodat(dir, e->d_name, 0700, 0);
        int sub = openat(dir, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (sub >= 0) {
            remove_all(sub);
            close(sub);
        }
        unlinkat(dir, e->d_name, AT_REMOVEDIR);
    }
    return closedir(d);
}

int scene_teardown(void **state)
{
    int status = 0;

    (void)state;
    close(helper);
    bool ended = waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ended)
        printf("files: the helper ended with status %x\n", (unsigned)status);
    remove_all(top);
    close(top);
    return rmdir(folder) < 0 || !ended ? -1 : 0;
}

char *contents(const char *path, size_t *ret_size)
{
    struct stat st;
    int fd = openat(top, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    char *data = calloc(1, (size_t)st.st_size + 1);
    assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
    close(fd);
    if (ret_size)
        *ret_size = (size_t)st.st_size;
    return data;
}

void make_file(const char *path, const void *data, size_t size)
{
    int fd = openat(top, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_return_code(fd, errno);
    assert_int_equal(write(fd, data, size), size);
    close(fd);
}

bool exists(const char *path)
{
    return faccessat(top, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

size_t count_names(const char *path)
{
    size_t n = 0;
    int fd = openat(top, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_return_code(fd, errno);
    DIR *d = fdopendir(fd);

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

void archive_add(struct archive *a, char type, const char *name, const char *link, const void *data, size_t size)
{
    size_t padded = (size + 511) / 512 * 512;
    unsigned sum = 0;

    a->data = realloc(a->data, a->size + 512 + padded);
    char *block = a->data + a->size;
    memset(block, 0, 512 + padded);
    assert_true(strlen(name) <= 100 && strlen(link) <= 100);
    memcpy(block, name, strlen(name));
    snprintf(block + 100, 8, "%07o", type == '5' ? 0755u : 0640u);
    snprintf(block + 124, 12, "%011zo", size);
    snprintf(block + 136, 12, "%011o", 1000000000u);
    block[156] = type;
    memcpy(block + 157, link, strlen(link));
    memcpy(block + 257, "ustar\0" "00", 8);
    memset(block + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    if (size)
        memcpy(block + 512, data, size);
    a->size += 512 + padded;
}

void archive_add_records(struct archive *a, char type, const char *records)
{
    archive_add(a, type, "PaxHeader", "", records, strlen(records));
}

void archive_end(struct archive *a)
{
    a->data = realloc(a->data, a->size + 1024);
    memset(a->data + a->size, 0, 1024);
    a->size += 1024;
}
