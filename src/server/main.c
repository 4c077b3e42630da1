/* carrel-server: the server, and the commands that talk to it. The static `carrel` execs it for them. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "base/title.h"
#include "client/commands.h"
#include "server/program.h"
#include "server/supervise.h"

static const struct {
    const char *name;
    int       (*run)(int argc, char **argv);
} commands[] = {
    { "front", front_main },
    { "serve", serve_main },
    { "config", config_main },
    { "create", client_create },
    { "run", client_run },
    { "ps", client_ps },
    { "exec", client_exec },
    { "shell", client_shell },
    { "cp", client_cp },
    { "logs", client_logs },
    { "jobs", client_jobs },
    { "wait", client_wait },
    { "kill", client_kill },
    { "events", client_events },
    { "forward", client_forward },
    { "pause", client_pause },
    { "resume", client_resume },
    { "stop", client_stop },
    { "start", client_start },
    { "rm", client_rm },
    { "stats", client_stats },
    { "net", client_net },
    { "service", client_service },
    { "grant", client_grant },
    { "token", client_token },
    { "secret", client_secret },
    { "volume", client_volume },
    { "layer", client_layer },
    { "df", client_df },
    { "py", client_py },
    { "repl", client_repl },
    { "kernel", client_kernel },
    { "kernelspec", client_kernelspec },
    { "mcp", client_mcp },
};

int main(int argc, char **argv)
{
    title_remember(argc, argv);
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fputs("carrel-server: started by carrel; see 'carrel help'\n", stderr);
    return 125;
}
