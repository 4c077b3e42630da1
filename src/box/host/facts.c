#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/plan.h"

/* Adds the name as a tree of the box if it exists: a link is copied, a folder or file is bound. */
static int add_tree(struct host_facts *facts, int root, const char *name, struct err *e)
{
    struct stat status;
    struct facts_tree *tree = &facts->tree[facts->n_trees];

    if (fstatat(root, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_at(e, errno, STEP_TREE, 0, name);
    if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
        return 0;
    if (facts->n_trees == FACTS_TREES || strlen(name) >= sizeof tree->name)
        return err_set(e, E2BIG, STEP_TREE, "the root has more than %d names, or one longer than %zu: %s", FACTS_TREES,
                       sizeof tree->name - 1, name);

    *tree = (struct facts_tree){ .is_file = S_ISREG(status.st_mode) };
    memcpy(tree->name, name, strlen(name));
    if (S_ISLNK(status.st_mode)) {
        ssize_t n = readlinkat(root, name, tree->link, sizeof tree->link - 1);
        if (n < 0)
            return err_at(e, errno, STEP_TREE, 0, name);
    }
    facts->n_trees++;
    return 0;
}

static int read_host(struct host_facts *facts, bool for_network, struct err *e)
{
    static const char *const names[] = { "usr", "bin", "sbin", "lib", "lib64", "lib32", "libx32" };
    FD root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (root < 0)
        return err_at(e, errno, STEP_TREE, 0, "/");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int r = add_tree(facts, root, names[i], e);
        if (r < 0)
            return r;
    }
    facts_read_etc(facts, for_network);
    ssize_t n = readlink("/etc/localtime", facts->zone, sizeof facts->zone - 1);
    facts->zone[n > 0 ? n : 0] = '\0';
    if (strncmp(facts->zone, "/usr/", 5) != 0)
        facts->zone[0] = '\0';
    return 0;
}

/* In a box on such a root its user must have a name. No link is followed: it would lead to the host's file. */
static void read_accounts(struct host_facts *facts, int root)
{
    static const char *const names[] = { "passwd", "group" };
    struct stat status;
    FD etc = openat(root, "etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    for (size_t i = 0; i < 2 && etc >= 0; i++) {
        FD fd = openat(etc, names[i], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size >= FACTS_ACCOUNTS)
            continue;
        ssize_t n = read(fd, facts->accounts[i], FACTS_ACCOUNTS - 1);
        facts->accounts[i][n > 0 ? n : 0] = '\0';
    }
}

int facts_read_root(struct host_facts *facts, const char *root, bool for_network, struct err *e)
{
    /* These are the box's own. */
    static const char *const own[] = { ".", "..", "dev", "proc", "sys", "tmp", "run", "home", "lost+found" };

    facts->n_trees = 0;
    facts->accounts[0][0] = facts->accounts[1][0] = '\0';
    if (!root)
        return read_host(facts, for_network, e);

    DIR *dir = opendir(root);
    if (!dir)
        return err_set(e, errno, STEP_TREE, "root directory %s", root);
    int r = 0;
    for (struct dirent *d = readdir(dir); d && r == 0; d = readdir(dir)) {
        bool is_own = false;
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            is_own |= strcmp(d->d_name, own[i]) == 0;
        if (!is_own)
            r = add_tree(facts, dirfd(dir), d->d_name, e);
    }
    if (r == 0)
        read_accounts(facts, dirfd(dir));
    closedir(dir);
    if (r == 0 && facts->n_trees == 0)
        r = err_set(e, ENOENT, STEP_TREE, "root directory %s is empty: unpack a root filesystem into it first", root);
    return r;
}
