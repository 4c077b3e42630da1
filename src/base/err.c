/* See err.h. err_at is called between clone and exec, so it must stay async-signal-safe: no stdio, no heap. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const step_names[STEP_COUNT] = {
    [STEP_NONE] = "none",
    [STEP_USAGE] = "usage",
    [STEP_HOST] = "host",
    [STEP_IDS] = "ids",
    [STEP_CGROUP] = "cgroup",
    [STEP_TREE] = "tree",
    [STEP_ROOT] = "root",
    [STEP_CLONE] = "clone",
    [STEP_IDMAP] = "idmap",
    [STEP_MOUNT] = "mount",
    [STEP_PIVOT] = "pivot",
    [STEP_NESTING] = "nesting",
    [STEP_NETWORK] = "network",
    [STEP_JOIN] = "join",
    [STEP_RIGHTS] = "rights",
    [STEP_LANDLOCK] = "landlock",
    [STEP_SECCOMP] = "seccomp",
    [STEP_STDIO] = "stdio",
    [STEP_WORKDIR] = "workdir",
    [STEP_EXEC] = "exec",
    [STEP_WAIT] = "wait",
    [STEP_PROTOCOL] = "protocol",
    [STEP_MEMORY] = "memory",
    [STEP_SECRET] = "secret",
};

/* An error must never look like success, whatever the caller passed. */
static int normal_code(int code)
{
    if (code < 0)
        code = -code;
    return code > 0 ? code : EIO;
}

int(err_at)(struct err *e, int code, enum step step, size_t index, const char *what)
{
    code = normal_code(code);
    if (!e)
        return -code;
    e->code = code;
    e->step = (uint16_t)step;
    e->index = index > UINT16_MAX ? UINT16_MAX : (uint16_t)index;
    size_t length = what ? strnlen(what, sizeof e->what - 1) : 0;
    if (length)
        memmove(e->what, what, length);
    memset(e->what + length, 0, sizeof e->what - length);
    return -code;
}

int(err_set)(struct err *e, int code, enum step step, const char *format, ...)
{
    char what[sizeof e->what];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_at(e, code, step, 0, n < 0 ? NULL : what);
}

int (err_file)(struct err *e, int code, const char *format, ...)
{
    char what[sizeof e->what];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(e, code, STEP_USAGE, "%.*s: %s", (int)sizeof what - 64, n < 0 ? "" : what, strerror(code));
}

const char *err_step_name(unsigned step)
{
    return step < STEP_COUNT ? step_names[step] : "unknown step";
}

/* A usage error is already a whole sentence; a reason from errno would only blur it. */
static void compose(const struct err *e, char *text, size_t size)
{
    char noun[sizeof e->what];
    memcpy(noun, e->what, sizeof noun);
    noun[sizeof noun - 1] = 0; /* it may have come from another process */

    if (!e->code)
        snprintf(text, size, "no error");
    else if (e->step == STEP_USAGE && noun[0])
        snprintf(text, size, "%s", noun);
    else if (e->step == STEP_NONE)
        snprintf(text, size, "%s%s%s", noun, noun[0] ? ": " : "", strerror(e->code));
    else if (noun[0])
        snprintf(text, size, "%s: %s: %s", err_step_name(e->step), noun, strerror(e->code));
    else if (e->index)
        snprintf(text, size, "%s %u: %s", err_step_name(e->step), e->index + 1U, strerror(e->code));
    else
        snprintf(text, size, "%s: %s", err_step_name(e->step), strerror(e->code));
}

void err_text(const struct err *e, char *text, size_t size)
{
    if (!size)
        return;
    compose(e, text, size);
    for (char *p = text; *p; p++) /* one line, and no escape sequences of a hostile file name on a terminal */
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}
