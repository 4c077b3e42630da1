#include "cli/options/help.h"

#include "base/parse.h"
#include "proto/limits.h"

static const char head[] =
    "usage: carrel run [OPTIONS] [--] COMMAND [ARGUMENTS]\n"
    "       carrel plan [OPTIONS] [--] COMMAND [ARGUMENTS]\n"
    "\n"
    "Runs one command in a fresh box; then nothing is left. The exit status is the command's; 128+N if signal N ended "
    "it,\n"
    "124 after a timeout, 125 if carrel itself failed, 126 and 127 if the command cannot be run or found.\n"
    "\n"
    "limits\n";

static const char tail[] =
    "  --request-cpus 0.5      processors that the box is guaranteed when all are busy\n"
    "  --request-memory 256M   memory that a server guarantees\n"
    "  --timeout 30s           wall time\n"
    "  --output-limit 10M      standard output and standard error together\n"
    "\n"
    "contents of the box\n"
    "  --root host|DIR         the host's own /usr (host), or an unpacked root filesystem\n"
    "  --writable-root         changes to the root are private to the box\n"
    "  --no-proc               an empty /proc, where the kernel gives no fresh one (in some containers)\n"
    "  --mount SRC:DST[:ro|rw] a host directory or file, read-only unless rw\n"
    "  --device VENDOR/CLASS=NAME  a device of the host's CDI specifications; may be given often, as may --mount\n"
    "  --volume NAME:DST[:ro]  a volume of the running server, which then runs the command\n"
    "  --secret NAME=PLACE     a secret of the running server, which then runs the command: PLACE is a variable, or a\n"
    "                          file in /run/secrets\n"
    "  --packages 'numpy<2'    Python packages, installed once and shared; may be given often\n"
    "  --requirements FILE     the same, from a requirements or lock file\n"
    "  --python 3.12           their interpreter: a version or a path (/usr/bin/python3)\n"
    "  --env K=V  --env-file F  --pass-env NAME,...\n"
    "  --workdir DIR           (/home/box)\n"
    "  --hostname NAME         (box)\n"
    "  --user UID[:GID]        inside the box (1000; 0 with --profile system)\n"
    "  --profile strict|standard|system\n"
    "\n"
    "network (none but loopback, unless something is allowed)\n"
    "  --allow RULE            a name (index.example.org), names below one (*.example.org:443), an address or a "
    "network\n"
    "                          (10.1.0.0/16:5432); may be given often\n"
    "  --deny RULE             the same; overrides --allow\n"
    "  --net none|public       public: every public address\n"
    "  --key NAME@HOST         requests to HOST carry the value of your variable NAME; the box has a placeholder.\n"
    "                          As 'Authorization: Bearer {}', or NAME@HOST:'x-api-key: {}'; NAME=FILE@HOST: of a file\n"
    "  --net-limit connections=100,bandwidth=4M  at a time, and bytes in a second; one of them or both\n"
    "\n"
    "terminal and report\n"
    "  -i                      pass standard input on\n"
    "  -t                      a terminal of the box's own\n"
    "  --json                  one JSON object with outcome, usage and output instead of the output\n"
    "  --report FILE           the same object, without the output, in a file\n"
    "  --trace                 time per step\n";

static void print_limit(const struct limit *limit, FILE *out)
{
    char option[40];

    snprintf(option, sizeof option, "--%s %s", limit->name, limit->example);
    fprintf(out, "  %-23s %s", option, limit->what);
    if (limit->run_usual)
        fprintf(out, " (%s)", limit_show(limit, limit->run_usual).text);
    fputc('\n', out);
}

void help_print(FILE *out)
{
    fputs(head, out);
    for (size_t i = 0; i < LIMITS; i++)
        print_limit(&limit_table[i], out);
    fputs(tail, out);
}
