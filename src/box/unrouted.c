/* The counters OutNoRoutes of both protocols, in /proc/PID/net of the box's init. They do not say which address it
 * was. */
#define _GNU_SOURCE
#include "box/unrouted.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/box.h"

enum { TEXT = 8192 };

/* The first piece has the lines that are needed. Empty if it cannot be read. */
static void read_text(pid_t pid, const char *name, char text[TEXT])
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, name);
    FD fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, TEXT - 1);
    text[n > 0 ? n : 0] = '\0';
}

/* "Ip: Forwarding … OutNoRoutes …", and a line with the numbers in the same order. */
static uint64_t count_v4(pid_t pid)
{
    char text[TEXT], *numbers;

    read_text(pid, "snmp", text);
    const char *name = strstr(text, " OutNoRoutes");
    if (!name || !(numbers = strchr(text, '\n')) || numbers < name)
        return 0;
    for (const char *at = text; at < name && numbers; at++)
        if (*at == ' ')
            numbers = strchr(numbers + 1, ' ');
    numbers = numbers ? strchr(numbers + 1, ' ') : NULL;
    return numbers ? strtoull(numbers, NULL, 10) : 0;
}

static uint64_t count_v6(pid_t pid)
{
    static const char name[] = "Ip6OutNoRoutes";
    char text[TEXT];

    read_text(pid, "snmp6", text);
    const char *at = strstr(text, name);
    return at ? strtoull(at + sizeof name - 1, NULL, 10) : 0;
}

uint64_t unrouted_count(const struct engine_box *box)
{
    pid_t pid = box->init.pid;

    return pid > 0 ? count_v4(pid) + count_v6(pid) : 0;
}
