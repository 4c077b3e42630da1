/* Ubuntu since 23.10 keeps user namespaces for programs that have an AppArmor profile. To others it either refuses them
 * or, since 24.04, gives them without a capability, so that the first use fails: writing the id map, or a mount. */
#ifndef CARREL_SYS_APPARMOR_H
#define CARREL_SYS_APPARMOR_H

#include <stdbool.h>
#include <stddef.h>

enum { APPARMOR_COMMAND = 136 };

/* Whether EPERM or EACCES in or for a new user namespace may be AppArmor's: the switch is on, and no profile lets this
 * process make one. proc: "/proc". */
bool apparmor_restricts(const char *proc);

/* The command that gives this program a profile: "/usr/local/bin/carrel doctor --apparmor | sudo sh". */
void apparmor_command(char text[static APPARMOR_COMMAND]);

/* The script that this command pipes: writes packaging/apparmor/carrel for a program into /etc/apparmor.d and loads it.
 * -EINVAL: the path has characters that mean something to AppArmor or a shell. -ENAMETOOLONG: it, or the file's name,
 * does not fit. */
int apparmor_script(const char *program, char *text, size_t size);

#endif
