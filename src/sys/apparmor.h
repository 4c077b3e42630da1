/* Since 23.10 Ubuntu gives user namespaces only to programs with an AppArmor profile. It refuses them to other programs
 * or, since 24.04, gives them a namespace without capabilities, so that the first use fails: writing the id map, or a
 * mount. */
#ifndef CARREL_SYS_APPARMOR_H
#define CARREL_SYS_APPARMOR_H

#include <stdbool.h>
#include <stddef.h>

enum { APPARMOR_COMMAND = 136 };

/* Whether AppArmor may be the reason for EPERM or EACCES in or for a new user namespace: the switch is on and no
 * profile lets this process make one. proc: "/proc". */
bool apparmor_restricts(const char *proc);

/* The command that gives this program a profile: "/usr/local/bin/carrel doctor --apparmor | sudo sh". */
void apparmor_command(char text[static APPARMOR_COMMAND]);

/* The script that this command pipes into sh: it writes packaging/apparmor/carrel for this program into /etc/apparmor.d
 * and loads it. -EINVAL: the path has characters with a meaning to AppArmor or a shell. -ENAMETOOLONG: the path or the
 * file's name does not fit. */
int apparmor_script(const char *program, char *text, size_t size);

#endif
