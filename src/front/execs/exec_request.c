/* From what a caller wrote to argv and environment. The environment has three layers: what every box has, what this box
 * was given, what this command is given. */
#define _GNU_SOURCE
#include "doors/native/execs/command.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "front/boxes/families.h"

enum { ARGS_MAX = 65536, ARG_BYTES_MAX = 131071 /* Linux' MAX_ARG_STRLEN */, TERMINAL_SIDE_MAX = 4096 };

static int take_argv(const char *name, json_t *v, void *into, struct err *e)
{
    struct command *c = into;
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
    return body_text(name, v, 131000, &((struct command *)into)->shell, e);
}

static int take_cwd(const char *name, json_t *v, void *into, struct err *e)
{
    struct command *c = into;
    int r = json_is_null(v) ? 0 : body_text(name, v, 4095, &c->options.cwd, e);

    if (r == 0 && c->options.cwd && c->options.cwd[0] != '/')
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an absolute path", name);
    return r;
}

static int take_env(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct command *)into)->env = v;
    return body_env(name, v, e);
}

static int take_timeout(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_duration(name, v, &((struct command *)into)->options.timeout_ms, e);
}

static int take_output_limit(const char *name, json_t *v, void *into, struct err *e)
{
    struct command *c = into;
    const uint64_t most = c->ask->front->config.max_output_bytes;

    if (json_is_string(v) && strcmp(json_string_value(v), "max") == 0) {
        c->options.output_bytes = most;
        return 0;
    }
    int r = body_size(name, v, &c->options.output_bytes, e);
    if (r == 0 && c->options.output_bytes > most)
        return err_set(e, EINVAL, STEP_USAGE, "%s may be %llu bytes on this server (limits.output)", name,
                       (unsigned long long)most);
    return r;
}

static int take_tty(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct command *)into)->options.terminal, e);
}

static int take_rows(const char *name, json_t *v, void *into, struct err *e)
{
    return body_count(name, v, 1, TERMINAL_SIDE_MAX, &((struct command *)into)->rows, e);
}

static int take_columns(const char *name, json_t *v, void *into, struct err *e)
{
    return body_count(name, v, 1, TERMINAL_SIDE_MAX, &((struct command *)into)->columns, e);
}

static int take_stdin(const char *name, json_t *v, void *into, struct err *e)
{
    struct command *c = into;

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
    struct command *c = into;
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
    return body_bool(name, v, &((struct command *)into)->options.background, e);
}

static int take_delete_box(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct command *)into)->options.delete_box, e);
}

static int check(struct command *c, struct err *e)
{
    if (!c->argv == !c->shell)
        return err_set(e, EINVAL, STEP_USAGE,
                       c->argv ? "argv and shell exclude each other" : "argv or shell is missing");
    if ((c->rows || c->columns) && !c->options.terminal)
        return err_set(e, EINVAL, STEP_USAGE, "rows and cols are for a command with \"tty\": true");
    if (c->options.delete_box && !(c->ask->who.scopes & SCOPE_WRITE))
        return err_set(e, EPERM, STEP_USAGE, "delete_box needs the scope boxes:write");
    c->options.rows = (uint16_t)c->rows;
    c->options.columns = (uint16_t)c->columns;
    return 0;
}

int command_read(struct command *c, json_t *root, struct err *e)
{
    static const struct body_field fields[] = {
        { "argv", take_argv },
        { "shell", take_shell },
        { "cwd", take_cwd },
        { "user", take_user },
        { "env", take_env },
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

/* For a WebSocket, which has no body: ?argv=ls&argv=-l&tty=true&env=A=B. Texts become what they would be in JSON. */
int command_read_query(struct command *c, struct err *e)
{
    struct http_text query = c->ask->r->head.query, raw_name, raw, name, value;
    json_t *root = json_object(), *argv = json_array(), *env = json_object();
    int r = root && argv && env ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "command");

    while (r == 0 && query.data && http_query_next(&query, &raw_name, &raw)) {
        if (http_unescape(&c->ask->r->arena, raw_name, true, &name) < 0
            || http_unescape(&c->ask->r->arena, raw, true, &value) < 0) {
            r = err_set(e, EINVAL, STEP_USAGE, "the query cannot be decoded");
        } else if (http_text_is(name, "token")) {
            continue;
        } else if (http_text_is(name, "argv")) {
            r = json_array_append_new(argv, json_string(value.data)) < 0
                    ? err_set(e, EINVAL, STEP_USAGE, "argv is not UTF-8")
                    : 0;
        } else if (http_text_is(name, "env")) {
            char *equals = strchr(value.data, '=');
            if (!equals)
                r = err_set(e, EINVAL, STEP_USAGE, "env wants NAME=VALUE");
            else if (json_object_set_new(env, arena_copy(&c->ask->r->arena, value.data, (size_t)(equals - value.data)),
                                         json_string(equals + 1))
                     < 0)
                r = err_set(e, EINVAL, STEP_USAGE, "env is not UTF-8");
        } else {
            json_t *v = http_text_is(value, "true")    ? json_true()
                        : http_text_is(value, "false") ? json_false()
                                                       : json_string(value.data);
            if (json_object_set_new(root, name.data, v) < 0)
                r = err_set(e, EINVAL, STEP_USAGE, "the query is not UTF-8");
        }
    }
    if (r == 0 && json_array_size(argv))
        json_object_set(root, "argv", argv);
    if (r == 0 && json_object_size(env))
        json_object_set(root, "env", env);
    json_decref(argv);
    json_decref(env);
    c->ask->work = root;        /* the caller's to drop: the command's texts are in it */
    return r < 0 ? r : command_read(c, root, e);
}

static char **make_argv(const struct command *c, struct arena *arena)
{
    size_t n = c->shell ? 3 : json_array_size(c->argv);
    char **argv = arena_alloc(arena, (n + 1) * sizeof *argv);

    if (!argv)
        return NULL;
    /* exec_start only reads them. */
    if (c->shell) {
        argv[0] = (char *)(uintptr_t)"/bin/sh";
        argv[1] = (char *)(uintptr_t)"-c";
        argv[2] = (char *)(uintptr_t)c->shell;
    }
    for (size_t i = 0; i < n && !c->shell; i++)
        argv[i] = (char *)(uintptr_t)json_string_value(json_array_get(c->argv, i));
    argv[n] = NULL;
    return argv;
}

static char **make_env(const struct command *c, struct arena *arena)
{
    const struct front *front = c->ask->front;
    char path[CONFIG_PATH_SIZE];
    uint32_t template = families_layers(front, &c->ask->box->settings);
    json_t *all = json_pack("{s:s,s:s,s:s,s:s}", "PATH", config_template_path(&front->config, template, path),
                            "LANG", "C.UTF-8", "LC_ALL", "C.UTF-8", "HOME", "/home/box");
    const char *key;
    json_t *value;
    size_t n = 0;

    if (!all || (c->options.terminal && json_object_set_new(all, "TERM", json_string("xterm-256color")) < 0)
        || json_object_update(all, c->ask->box->settings.env) < 0 || (c->env && json_object_update(all, c->env) < 0)) {
        json_decref(all);
        return NULL;
    }
    char **env = arena_alloc(arena, (json_object_size(all) + 1) * sizeof *env);
    json_object_foreach(all, key, value) {
        if (env && !(env[n++] = arena_printf(arena, "%s=%s", key, json_string_value(value))))
            env = NULL;
    }
    if (env)
        env[n] = NULL;
    json_decref(all);
    return env;
}

int command_start(struct command *c, struct exec **ret, struct err *e)
{
    struct arena *arena = &c->ask->r->arena;

    c->options.argv = make_argv(c, arena);
    c->options.env = make_env(c, arena);
    if (!c->options.argv || !c->options.env)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "command");
    return exec_start(c->ask->box, &c->options, ret, e);
}
