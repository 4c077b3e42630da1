/* A sysctl switches the restriction on; the label of the process shows whether it applies. Before the process makes a
 * namespace the label is "unconfined"; after it made one without a profile, "unprivileged_userns (enforce)". With a
 * profile for carrel it is "/usr/local/bin/carrel (unconfined)". In a container it is the runtime's label, and AppArmor
 * is then not the reason. */
#include "sys/apparmor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

static bool read_below(const char *proc, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", proc, name) < (int)sizeof path
        && fd_read_file(AT_FDCWD, path, text, size) >= 0;
}

bool apparmor_restricts(const char *proc)
{
    static const char without[] = "unconfined", stripped[] = "unprivileged_userns";
    char text[512];

    if (!read_below(proc, "sys/kernel/apparmor_restrict_unprivileged_userns", text, sizeof text) || text[0] != '1')
        return false;
    /* The second path shows the label of the first security module that has one. */
    if (!read_below(proc, "self/attr/apparmor/current", text, sizeof text) &&
        !read_below(proc, "self/attr/current", text, sizeof text))
        return true;
    size_t length = strcspn(text, " \n");
    return (length == strlen(without) && strncmp(text, without, length) == 0)
        || strncmp(text, stripped, strlen(stripped)) == 0;
}

/* A file whose name begins with a dot is not loaded at the next boot. */
static bool is_plain(const char *program)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,=:@%~ ";

    return program[0] == '/' && program[1] != '.' && program[strspn(program, letters)] == '\0';
}

void apparmor_command(char text[static APPARMOR_COMMAND])
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    const char *quote;

    program[n > 0 ? n : 0] = '\0';
    quote = strchr(program, ' ') ? "'" : "";
    if (!is_plain(program) || snprintf(text, APPARMOR_COMMAND, "%s%s%s doctor --apparmor | sudo sh", quote, program,
                                       quote) >= APPARMOR_COMMAND)
        snprintf(text, APPARMOR_COMMAND, "carrel doctor --apparmor | sudo sh");
}

int apparmor_script(const char *program, char *text, size_t size)
{
    char name[NAME_MAX + 1];

    if (!is_plain(program))
        return -EINVAL;
    if (strlen(program) > sizeof name)
        return -ENAMETOOLONG;
    snprintf(name, sizeof name, "%s", program + 1);
    for (char *at = name; (at = strchr(at, '/'));)
        *at = '.';
    int n = snprintf(text, size,
                     "# For root: carrel doctor --apparmor | sudo sh\n"
                     "set -e\n"
                     "test -e /etc/apparmor.d/abi/4.0 || {\n"
                     "    echo 'nothing is written: this host has no AppArmor that knows user namespaces' >&2\n"
                     "    exit 1\n"
                     "}\n"
                     "cat >'/etc/apparmor.d/%s' <<'END'\n"
                     "# Ubuntu lets ordinary users make user namespaces only in programs with a profile "
                     "(kernel.apparmor_restrict_unprivileged_userns).\n"
                     "# This one lets Carrel make them, and confines nothing: what runs in a box is confined by the "
                     "box.\n"
                     "abi <abi/4.0>,\n"
                     "\n"
                     "\"%s\" flags=(unconfined) {\n"
                     "  userns,\n"
                     "}\n"
                     "END\n"
                     "apparmor_parser --replace '/etc/apparmor.d/%s'\n",
                     name, program, name);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}
