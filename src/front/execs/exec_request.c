#define _GNU_SOURCE
#include "front/execs/exec_request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "front/boxes/boxes.h"
#include "front/boxes/families.h"
#include "front/execs/exec_env.h"
#include "front/front.h"
#include "front/identity/auth.h"
#include "front/request/fields.h"
#include "front/secrets/secret_uses.h"

enum { ARGS_MAX = 65536, ARG_BYTES_MAX = 131071 /* Linux' MAX_ARG_STRLEN */, TERMINAL_SIDE_MAX = 4096 };

static int take_argv(const char *name, json_t *v, void *into, struct err *e)
{
    struct exec_request *c = into;
    size_t i;
    json_t *one;

    if (!json_is_array(v) || json_array_size(v) == 0 || json_array_size(v) > ARGS_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of 1 to %d strings", name, ARGS_MAX);
    json_array_foreach(v, i, one) {
        if (!json_is_string(one))
            return err_set(e, EINVAL, STEP_USAGE, "%s[%zu] must be a string", name, i);
        if (json_string_length(one) > ARG_BYTES_MAX)
            return err_set(e, EINVAL, STEP_USAGE, "%s[%zu] has %zu bytes; Linux allows %d", name, i,
                           json_string_length(one), ARG_BYTES_MAX);
    }
    if (json_string_length(json_array_get(v, 0)) == 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s[0], the program, is empty", name);
    c->argv = v;
    return 0;
}

static int take_shell(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, 131000, &((struct exec_request *)into)->shell, e);
}

static int take_cwd(const char *name, json_t *v, void *into, struct err *e)
{
    struct exec_request *c = into;
    int r = json_is_null(v) ? 0 : body_text(name, v, 4095, &c->options.cwd, e);

    if (r == 0 && c->options.cwd && c->options.cwd[0] != '/')
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an absolute path", name);
    return r;
}

static int take_env(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct exec_request *)into)->env = v;
    return body_env(name, v, e);
}

static int take_secrets(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct exec_request *)into)->secrets = v;
    return secret_uses_check(name, v, e);
}

static int take_timeout(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_duration(name, v, &((struct exec_request *)into)->options.timeout_ms, e);
}

static int take_output_limit(const char *name, json_t *v, void *into, struct err *e)
{
    struct exec_request *c = into;
    const uint64_t most = c->box->front->config.max_output_bytes;

    if (json_is_string(v) && strcmp(json_string_value(v), "max") == 0) {
        c->options.output_bytes = most;
        return 0;
    }
    int r = body_size(name, v, &c->options.output_bytes, e);
    if (r == 0 && c->options.output_bytes > most)
        return err_set(e, EINVAL, STEP_USAGE, "%s may be at most %s on this server (limits.output)", name,
                       parse_show_size(most).text);
    return r;
}

static int take_tty(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct exec_request *)into)->options.terminal, e);
}

static int take_rows(const char *name, json_t *v, void *into, struct err *e)
{
    return body_count(name, v, 1, TERMINAL_SIDE_MAX, &((struct exec_request *)into)->rows, e);
}

static int take_columns(const char *name, json_t *v, void *into, struct err *e)
{
    return body_count(name, v, 1, TERMINAL_SIDE_MAX, &((struct exec_request *)into)->columns, e);
}

static int take_stdin(const char *name, json_t *v, void *into, struct err *e)
{
    struct exec_request *c = into;

    if (json_is_boolean(v)) {
        c->options.with_stdin = json_is_true(v);
        return 0;
    }
    if (!json_is_string(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a text to send, or true to keep it open", name);
    c->input = json_string_value(v);
    c->input_size = json_string_length(v);
    c->options.with_stdin = true;
    return 0;
}

static int take_user(const char *name, json_t *v, void *into, struct err *e)
{
    struct exec_request *c = into;
    uint32_t uid, gid;
    int r = json_is_null(v) ? 1 : body_user(name, v, &uid, &gid, e);

    if (r == 0) {
        c->options.user = uid + 1;
        c->options.group = gid + 1;
    }
    return r < 0 ? r : 0;
}

static int take_background(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct exec_request *)into)->options.background, e);
}

static int take_delete_box(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct exec_request *)into)->options.delete_box, e);
}

static int check(struct exec_request *c, struct err *e)
{
    if (!c->argv == !c->shell)
        return err_set(e, EINVAL, STEP_USAGE,
                       c->argv ? "argv and shell exclude each other" : "argv or shell is missing");
    if ((c->rows || c->columns) && !c->options.terminal)
        return err_set(e, EINVAL, STEP_USAGE, "rows and cols are for a command with \"tty\": true");
    size_t i;
    json_t *use;
    json_array_foreach(c->secrets, i, use)
        if (secret_use_file(use) && c->options.user)
            return err_set(e, EINVAL, STEP_USAGE, "secrets[%zu]: files belong to the box's own user; give a command of "
                           "another \"user\" the secret as a variable", i);
    if (c->options.delete_box && !(c->who->scopes & SCOPE_WRITE))
        return err_set(e, EPERM, STEP_USAGE, "delete_box needs the scope boxes:write");
    c->options.rows = (uint16_t)c->rows;
    c->options.columns = (uint16_t)c->columns;
    c->options.secrets = c->secrets;
    return secret_uses_check_env(c->secrets, c->env, e);
}

int exec_request_read(struct exec_request *c, json_t *root, struct err *e)
{
    static const struct body_field fields[] = {
        { "argv", take_argv },
        { "shell", take_shell },
        { "cwd", take_cwd },
        { "user", take_user },
        { "env", take_env },
        { "secrets", take_secrets },
        { "timeout", take_timeout },
        { "output_limit", take_output_limit },
        { "tty", take_tty },
        { "rows", take_rows },
        { "cols", take_columns },
        { "stdin", take_stdin },
        { "background", take_background },
        { "delete_box", take_delete_box },
    };
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, c, e);

    return r < 0 ? r : check(c, e);
}

/* exec_start only reads them. */
static char **make_argv(const struct exec_request *c)
{
    size_t n = c->shell ? 3 : json_array_size(c->argv);
    char **argv = calloc(n + 1, sizeof *argv);

    if (argv && c->shell) {
        argv[0] = (char *)(uintptr_t)"/bin/sh";
        argv[1] = (char *)(uintptr_t)"-c";
        argv[2] = (char *)(uintptr_t)c->shell;
    }
    for (size_t i = 0; argv && i < n && !c->shell; i++)
        argv[i] = (char *)(uintptr_t)json_string_value(json_array_get(c->argv, i));
    return argv;
}

static int make_env(const struct exec_request *c, char ***ret, struct err *e)
{
    const struct box_settings *s = &c->box->settings;
    json_t *terminal = c->options.terminal ? json_pack("{s:s}", "TERM", "xterm-256color") : NULL;
    /* The box's variables override those of every terminal. */
    json_t *own = json_object_get(s->env, "TERM");
    json_t *const more[] = { own ? NULL : terminal, c->env };
    int r = exec_env_make(c->box, box_mounts_layers(c->box->front, &s->mounts), more, 2, c->secrets, ret, e);

    json_decref(terminal);
    return r;
}

int exec_request_start(struct exec_request *c, struct exec **ret, struct err *e)
{
    char **argv = make_argv(c), **env = NULL;
    int r = argv ? make_env(c, &env, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "command");

    c->options.argv = argv;
    c->options.env = env;
    if (r == 0)
        r = exec_start(c->box, &c->options, ret, e);
    c->options.argv = c->options.env = NULL;
    free(argv);
    exec_env_free(env);
    return r;
}
