/* The input's lines are the words of a command line. --env-file is left out: the fuzzer must not open files of its
 * choice. */
#include "fuzz.h"

#include "base/parse.h"
#include "cli/options/options.h"

enum { WORDS_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size), *argv[WORDS_MAX + 2], *environment[] = { (char[]){ "TERM=x" }, NULL };
    struct run_options options;
    struct err e = { 0 };
    int argc = 0;

    argv[argc++] = (char[]){ "run" };
    for (char *line = text, *next; line && argc <= WORDS_MAX; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        if (!strstr(line, "env-file"))
            argv[argc++] = line;
    }
    argv[argc] = NULL;
    int r = options_parse(argc, argv, environment, &options, &e);
    if (r < 0) {
        fuzz_check_refusal(r, &e);
    } else if (!options.help) {
        HOLDS(options.command.argv[0] && options.command.argv[0][0] && options.command.env && options.command.env[0]);
        HOLDS(options.box.uid <= PARSE_ID_MAX && options.box.profile < PROFILE_COUNT && options.box.limits.pids >= 1);
        HOLDS(options.box.limits.disk_bytes >= 64 << 10);
    }
    options_done(&options);
    free(text);
    return 0;
}
