/* libseccomp's view, to check against and to compare with.
 *
 *   reference names            "nr name" for every x86_64 call that libseccomp knows
 *   reference bpf linear|tree  reads "nr allow" or "nr ERRNO" (default ENOSYS), writes libseccomp's program */
#include <errno.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void names(void)
{
    for (int nr = 0; nr <= 1023; nr++) {
        char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_X86_64, nr);
        if (name)
            printf("%d %s\n", nr, name);
        free(name);
    }
}

static int bpf(uint32_t optimise)
{
    scmp_filter_ctx context = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!context || seccomp_attr_set(context, SCMP_FLTATR_CTL_OPTIMIZE, optimise) ||
        seccomp_attr_set(context, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS))
        return 1;
    int  nr;
    char action[32];
    while (scanf("%d %31s", &nr, action) == 2) {
        long code = strtol(action, NULL, 10);
        if (strcmp(action, "allow") != 0 && (code == ENOSYS || code <= 0))
            continue;
        if (seccomp_rule_add(context, code ? SCMP_ACT_ERRNO((uint32_t)code) : SCMP_ACT_ALLOW, nr, 0))
            return 1;
    }
    int r = seccomp_export_bpf(context, STDOUT_FILENO);
    seccomp_release(context);
    return r != 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "names") == 0)
        names();
    else if (argc == 3 && strcmp(argv[1], "bpf") == 0)
        return bpf(strcmp(argv[2], "tree") == 0 ? 2 : 1);
    else
        return 2;
    return 0;
}
