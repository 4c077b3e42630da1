/* carrel exec and carrel shell: from options to the body of POST /v1/boxes/{id}/exec. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/remote.h"

static const char exec_usage[] = "usage: carrel exec [OPTIONS] BOX [--] COMMAND [ARGUMENTS]\n"
                                 "\n"
                                 "Runs a command in a box. The exit status is the command's; 128+N if signal N ended "
                                 "it, 124 after a timeout, 125 if carrel itself failed, 126 and\n"
                                 "127 if the command cannot be run or found.\n"
                                 "\n"
                                 "  -i                      hand on standard input\n"
                                 "  -t                      a terminal; every key is the command's\n"
                                 "  -d                      in the background: prints an id for 'carrel logs', wait "
                                 "and kill\n"
                                 "  --env K=V  --workdir DIR  --user UID[:GID]\n"
                                 "  --timeout 30s  --output-limit 10M   more ends the command; without them nothing "
                                 "does\n"
                                 "  --json                  one JSON object with outcome, bill and output\n"
                                 "  --url URL\n";

static const char shell_usage[] =
    "usage: carrel shell [--env K=V] [--workdir DIR] [--user UID[:GID]] [--url URL] BOX\n"
    "\n"
    "Opens a shell in a box, with a terminal if there is one here.\n";

/* ---- options ---- */

#define FLAG(function, member)                                                     \
    static int function(void *into, const char *value, struct err *e)             \
    {                                                                              \
        (void)value;                                                               \
        (void)e;                                                                   \
        ((struct remote_command *)into)->member = true;                                   \
        return 0;                                                                  \
    }
FLAG(set_interactive, interactive)
FLAG(set_terminal, terminal)
FLAG(set_background, background)

static int set_env(void *into, const char *value, struct err *e)
{
    return take_pair("--env", value, ((struct remote_command *)into)->env, e);
}

static int set_workdir(void *into, const char *value, struct err *e)
{
    return json_object_set_new(((struct remote_command *)into)->body, "cwd", json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "--workdir is not UTF-8")
               : 0;
}

static int set_secret(void *into, const char *value, struct err *e)
{
    return take_secret("--secret", value, ((struct remote_command *)into)->body, e);
}

static int set_user(void *into, const char *value, struct err *e)
{
    uid_t uid;
    gid_t gid;
    int r = parse_user("--user", value, &uid, &gid, e);

    return r < 0 ? r : json_object_set_new(((struct remote_command *)into)->body, "user", json_string(value));
}

static int set_timeout(void *into, const char *value, struct err *e)
{
    return take_duration("--timeout", value, ((struct remote_command *)into)->body, "timeout", e);
}

static int set_output_limit(void *into, const char *value, struct err *e)
{
    return take_size("--output-limit", value, ((struct remote_command *)into)->body, "output_limit", e);
}

static int run(struct remote_command *s)
{
    int r = remote_run(s);

    if (s->follow.end) {
        tell_ending(s->follow.end);
        return exit_of(s->follow.end, 0);
    }
    return r < 0 ? EXIT_CLIENT : s->follow.cut ? 128 + SIGPIPE : 128 + s->caught;
}

static int run_in_background(struct remote_command *s)
{
    json_t *answer = NULL;

    json_object_set_new(s->body, "background", json_true());
    if (client_call(&s->client, "POST", target_box(s->follow.box, "/exec"), json_incref(s->body), &answer) < 0)
        return EXIT_CLIENT;
    if (s->client.json)
        print_json(answer);
    else
        puts(text_of(answer, "id"));
    json_decref(answer);
    return 0;
}

static int run_for_json(struct remote_command *s)
{
    json_t *answer = NULL;

    if (client_call(&s->client, "POST", target_box(s->follow.box, "/exec"), json_incref(s->body), &answer) < 0)
        return EXIT_CLIENT;
    print_json(answer);
    fflush(stdout);
    tell_ending(answer);
    int status = exit_of(answer, 0);
    json_decref(answer);
    return status;
}

int client_exec(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "interactive", 'i', false, set_interactive }, { "tty", 't', false, set_terminal },
        { "detach", 'd', false, set_background },       { "env", 'e', true, set_env },
        { "workdir", 'w', true, set_workdir },          { "timeout", 0, true, set_timeout },
        { "output-limit", 0, true, set_output_limit },  { "user", 'u', true, set_user },
        { "secret", 0, true, set_secret },
    };
    struct remote_command *s = remote_new("exec", exec_usage);
    struct words words;
    int status = client_begin(&s->client, argc, argv, flags, sizeof flags / sizeof *flags, s, true, &words);

    if (status >= 0)
        return remote_finish(s, status);
    if (words.n < 2)
        return remote_finish(s, client_misused(&s->client, words.n ? "no command; use carrel exec BOX -- COMMAND"
                                                            : "which box, and which command?"));
    if (s->client.json && (s->interactive || s->terminal) && !s->background)
        return remote_finish(s, client_misused(&s->client, "--json is for commands without -i and -t"));
    s->follow.box = words.at[0];
    json_t *list = json_array();
    for (int i = 1; i < words.n; i++)
        if (json_array_append_new(list, json_string(words.at[i])) < 0) {
            json_decref(list);
            return remote_finish(s, client_misused(&s->client, "'%s' is not UTF-8", parse_quote(words.at[i]).text));
        }
    json_object_set_new(s->body, "argv", list);
    if (remote_prepare(s) < 0)
        return remote_finish(s, EXIT_CLIENT);
    return remote_finish(s, s->background ? run_in_background(s) : s->client.json ? run_for_json(s) : run(s));
}

int client_shell(int argc, char **argv)
{
    static const struct flag flags[] = { { "env", 'e', true, set_env },
                                         { "workdir", 'w', true, set_workdir },
                                         { "user", 'u', true, set_user },
                                         { "secret", 0, true, set_secret } };
    struct remote_command *s = remote_new("shell", shell_usage);
    struct words words;
    int status = client_begin(&s->client, argc, argv, flags, sizeof flags / sizeof *flags, s, false, &words);

    if (status >= 0)
        return remote_finish(s, status);
    if (words.n != 1)
        return remote_finish(s, client_misused(&s->client,
                                        words.n ? "it takes one box; for a command use 'carrel exec'" : "which box?"));
    s->follow.box = words.at[0];
    s->interactive = true;
    s->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    json_object_set_new(s->body, "argv",
                        json_pack("[s,s,s]", "/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"));
    return remote_finish(s, remote_prepare(s) < 0 ? EXIT_CLIENT : run(s));
}
