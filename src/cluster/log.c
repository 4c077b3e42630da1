/* One line for each event: time, level, text. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "cluster/controller.h"

static enum log_level most = LOG_INFO;

void log_set(enum log_level level)
{
    most = level;
}

void log_line(enum log_level level, const char *format, ...)
{
    static const char *const names[] = { "error", "warn", "info", "debug" };
    struct timespec now;
    struct tm tm;
    char line[2048], day[32];
    va_list args;

    if (level > most)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    int n = snprintf(line, sizeof line, "%s.%03ldZ %-5s ", day, now.tv_nsec / 1000000, names[level]);
    va_start(args, format);
    int more = vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
    va_end(args);
    size_t length = (size_t)n + (more < 0 ? 0 : (size_t)more);
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ')
            line[i] = ' ';
    line[length] = '\n';
    (void)fd_write_all(2, line, length + 1);
}
