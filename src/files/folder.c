#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdalign.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files/conversation.h"

/* The kernel's layout. */
struct record {
    uint64_t      inode;
    int64_t       offset;
    uint16_t      size;
    unsigned char type;
    char          name[];
};

void folder_init(struct folder *folder, int fd)
{
    folder->fd = fd;
    folder->at = folder->end = 0;
}

int folder_next(struct folder *folder, struct folder_entry *ret)
{
    for (;;) {
        if (folder->at >= folder->end) {
            folder->at = 0;
            folder->end = syscall(SYS_getdents64, folder->fd, folder->buffer, sizeof folder->buffer);
            if (folder->end <= 0)
                return folder->end < 0 ? -errno : 0;
        }
        struct record record;
        const char *at = folder->buffer + folder->at, *name = at + offsetof(struct record, name);
        memcpy(&record, at, offsetof(struct record, name));
        folder->at += record.size;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        *ret = (struct folder_entry){ .name = name, .type = record.type, .cursor = (uint64_t)record.offset };
        return 1;
    }
}
