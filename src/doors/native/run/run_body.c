#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "doors/native/run/run.h"
#include "front/secrets/secret_uses.h"

static int take_code(const char *name, json_t *v, void *into, struct err *e)
{
    struct run_body *b = into;

    if (!json_is_string(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a string", name);
    b->options.code = json_string_value(v);
    b->options.code_size = json_string_length(v);
    if (b->options.code_size > CODE_MOST)
        return err_set(e, EFBIG, STEP_USAGE, "%s may have %d bytes; put more into a file of the box", name, CODE_MOST);
    return 0;
}

static int take_timeout(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_duration(name, v, &((struct run_body *)into)->options.timeout_ms, e);
}

static int take_output(const char *name, json_t *v, void *into, struct err *e)
{
    struct run_body *b = into;
    const uint64_t most = b->ask->front->config.max_output_bytes;
    int r = body_size(name, v, &b->options.output_bytes, e);

    b->has_output = true;
    if (r == 0 && b->options.output_bytes > most)
        return err_set(e, EINVAL, STEP_USAGE, "%s may be at most %s on this server (limits.output)", name,
                       parse_show_size(most).text);
    return r;
}

static int take_stdin(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct run_body *)into)->options.allow_stdin, e);
}

static int take_on_dead(const char *name, json_t *v, void *into, struct err *e)
{
    const char *text = json_is_string(v) ? json_string_value(v) : "";

    if (strcmp(text, "restart") != 0 && strcmp(text, "error") != 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be \"restart\" or \"error\"", name);
    ((struct run_body *)into)->options.restart = text[0] == 'r';
    return 0;
}

static int take_context(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, 128, &((struct run_body *)into)->kernel.name, e);
}

static int take_template(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_text(name, v, 63, &((struct run_body *)into)->kernel.spec, e);
}

static int take_cwd(const char *name, json_t *v, void *into, struct err *e)
{
    struct run_body *b = into;
    int r = json_is_null(v) ? 0 : body_text(name, v, 4095, &b->kernel.cwd, e);

    if (r == 0 && b->kernel.cwd && b->kernel.cwd[0] != '/')
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an absolute path", name);
    return r;
}

static int take_env(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct run_body *)into)->env = v;
    return body_env(name, v, e);
}

static int take_secrets(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct run_body *)into)->kernel.secrets = v;
    return secret_uses_check(name, v, e);
}

static const struct body_field kernel_fields[] = {
    { "context", take_context }, { "env", take_env }, { "secrets", take_secrets }, { "cwd", take_cwd },
    { "template", take_template },
};
static const struct body_field run_fields[] = {
    { "code", take_code },
    { "timeout", take_timeout },
    { "output_limit", take_output },
    { "allow_stdin", take_stdin },
    { "on_dead", take_on_dead },
    { "context", take_context },
    { "env", take_env },
    { "secrets", take_secrets },
    { "cwd", take_cwd },
    { "template", take_template },
};

static bool is_field(const char *name)
{
    for (size_t i = 0; i < sizeof run_fields / sizeof *run_fields; i++)
        if (strcmp(name, run_fields[i].name) == 0)
            return true;
    return false;
}

int run_body_read(struct run_body *b, json_t *root, json_t **ret_rest, struct err *e)
{
    json_t *own = json_object(), *rest = json_object(), *value;
    const char *key;
    int r = own && rest ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "run");

    b->options.restart = true;
    json_object_foreach(root, key, value) {
        bool both = ret_rest && strcmp(key, "template") == 0;       /* of the box, too */
        if (!ret_rest || is_field(key))
            (void)!json_object_set(own, key, value);
        if (ret_rest && (both || !is_field(key)))
            (void)!json_object_set(rest, key, value);
    }
    if (r == 0)
        r = body_fields(own, "", run_fields, sizeof run_fields / sizeof *run_fields, b, e);
    if (r == 0)
        r = secret_uses_check_env(b->kernel.secrets, b->env, e);
    if (r == 0 && !b->options.code)
        r = err_set(e, EINVAL, STEP_USAGE, "code is missing");
    if (!b->has_output)
        b->options.output_bytes = b->ask->front->config.output_kept_bytes;
    json_decref(own);       /* its values are the body's, too */
    if (r == 0 && ret_rest)
        *ret_rest = json_incref(rest);
    json_decref(rest);
    return r;
}

int run_body_kernel(struct run_body *b, json_t *root, struct err *e)
{
    int r = body_fields(root, "", kernel_fields, sizeof kernel_fields / sizeof *kernel_fields, b, e);

    return r < 0 ? r : secret_uses_check_env(b->kernel.secrets, b->env, e);
}

bool run_body_env(struct run_body *b)
{
    struct arena *arena = &b->ask->r->arena;
    char **env = arena_alloc(arena, (json_object_size(b->env) + 1) * sizeof *env);
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach(b->env, key, value) {
        if (env && !(env[n++] = arena_printf(arena, "%s=%s", key, json_string_value(value))))
            env = NULL;
    }
    if (env)
        env[n] = NULL;
    b->kernel.env = env;
    return env != NULL;
}
