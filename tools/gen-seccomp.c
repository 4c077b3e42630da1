/* gen-seccomp TABLE OUTPUT: writes the table's filters as C source, `const struct policy_filter policy_filter_NAME`.
 *
 * It runs on the build machine. So the engine needs no library to make BPF, and what is loaded can be read in the
 * output. */
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen-seccomp.h"

static void write_comment(FILE *out, size_t at, const struct sock_filter *i)
{
    const size_t args = offsetof(struct seccomp_data, args);
    switch (i->code) {
    case BPF_LD | BPF_W | BPF_ABS:
        if (i->k >= args)
            fprintf(out, "load arg%zu", (i->k - args) / 8);
        else
            fprintf(out, "load %s", i->k == offsetof(struct seccomp_data, nr) ? "number" : "architecture");
        break;
    case BPF_ALU | BPF_AND | BPF_K:
        fprintf(out, "and %#x", i->k);
        break;
    case BPF_JMP | BPF_JA:
        fprintf(out, "go to %zu", at + 1 + i->k);
        break;
    case BPF_JMP | BPF_JGE | BPF_K:
    case BPF_JMP | BPF_JEQ | BPF_K:
    case BPF_JMP | BPF_JSET | BPF_K:
        fputs(BPF_OP(i->code) == BPF_JGE ? ">=" : BPF_OP(i->code) == BPF_JEQ ? "==" : "&", out);
        fprintf(out, " %u: %zu, else %zu", i->k, at + 1 + i->jt, at + 1 + i->jf);
        break;
    case BPF_RET | BPF_K:
        if (i->k == SECCOMP_RET_ALLOW)
            fputs("allow", out);
        else if (i->k == SECCOMP_RET_KILL_PROCESS)
            fputs("kill", out);
        else if (i->k == SECCOMP_RET_USER_NOTIF)
            fputs("ask", out);
        else
            fprintf(out, "errno %u", i->k & SECCOMP_RET_DATA);
        break;
    default:
        abort();
    }
}

static void write_filter(FILE *out, const char *name, const struct program *program)
{
    fprintf(out, "\nstatic const struct sock_filter %s_code[] = {\n", name);
    for (size_t i = 0; i < program->length; i++) {
        const struct sock_filter *s = &program->code[i];
        fprintf(out, "    {0x%02x, %3u, %3u, 0x%08x}, /* %3zu: ", s->code, s->jt, s->jf, s->k, i);
        write_comment(out, i, s);
        fputs(" */\n", out);
    }
    fprintf(out, "};\n\nconst struct policy_filter policy_filter_%s = {%s_code, %zu};\n", name, name, program->length);
}

int main(int argc, char **argv)
{
    static struct table   table;
    static struct program program;
    if (argc != 3) {
        fputs("usage: gen-seccomp TABLE OUTPUT\n", stderr);
        return 2;
    }
    table_read(argv[1], &table);
    FILE *out = fopen(argv[2], "we");
    if (!out) {
        perror(argv[2]);
        return 1;
    }
    fputs("/* Made by tools/gen-seccomp from src/policy/syscalls.tbl. Change that, not this. */\n", out);
    fputs("#include \"policy/filters.h\"\n", out);
    for (size_t i = 0; i < table.n_filters; i++) {
        filter_compile(&table, &table.filter[i], &program);
        write_filter(out, table.filter[i].name, &program);
    }
    if (fclose(out)) {
        perror(argv[2]);
        return 1;
    }
    return 0;
}
