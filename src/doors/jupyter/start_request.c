/* A request for a kernel. Gateways' clients put all options into its environment: known KERNEL_* names choose the id,
 * the template and the limits of the kernel's box; all KERNEL_* and the names in jupyter.client_envs are passed to the
 * kernel, and other variables are dropped. These rules, and those for values (text, at most 4,096 bytes, nothing that a
 * shell or a template would expand), are an Enterprise Gateway's. KERNEL_WORKING_DIR is checked by the guest: the
 * client's directory may be missing in the box, and the kernel then starts at home. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "doors/jupyter/door.h"
#include "front/secrets/secret_uses.h"

enum { ENV_MOST = 1024, VALUE_MOST = 4096, LAUNCH_MS = 60000, LAUNCH_LEAST_MS = 1000, LAUNCH_MOST_MS = 600000 };

bool jupyter_id_is_valid(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    return n >= 1 && n <= 128 && !id[n];
}

static bool is_passed_on(const struct jupyter_config *config, const char *name)
{
    const char *list = config->client_envs;

    if (strncmp(name, "KERNEL_", 7) == 0)
        return true;
    for (size_t n; *list; list += n + (list[n] == ',')) {
        n = strcspn(list, ",");
        if ((n == 1 && *list == '*') || (strlen(name) == n && memcmp(list, name, n) == 0))
            return true;
    }
    return false;
}

static int check(const struct jupyter_config *config, const char *name, json_t *value, struct err *e)
{
    if (!json_is_string(value))
        return err_set(e, EINVAL, STEP_USAGE, "env: the value of '%s' must be a string", parse_quote(name).text);
    if (!is_passed_on(config, name))
        return 0;
    if (json_string_length(value) > VALUE_MOST)
        return err_set(e, EINVAL, STEP_USAGE, "env: the value of '%s' may have %d bytes", parse_quote(name).text,
                       VALUE_MOST);
    if (strlen(json_string_value(value)) != json_string_length(value)
        || strpbrk(json_string_value(value), "$`\n\r"))
        return err_set(e, EINVAL, STEP_USAGE, "env: the value of '%s' may have no $, no `, no line end and no NUL",
                       parse_quote(name).text);
    bool good = isalpha((unsigned char)name[0]) || name[0] == '_';
    for (const char *p = name; *p && good; p++)
        good = isalnum((unsigned char)*p) || strchr("_.-", *p);
    if (!good || strlen(name) > 255)
        return err_set(e, EINVAL, STEP_USAGE, "env: '%s' cannot be the name of a variable", parse_quote(name).text);
    return 0;
}

static char *assignment(const char *name, const char *value)
{
    char *text = NULL;

    return asprintf(&text, "%s=%s", name, value) < 0 ? NULL : text;
}

/* Set by the server; the client's value is ignored. */
static bool is_set_here(const char *name)
{
    return strcmp(name, "KERNEL_ID") == 0 || strcmp(name, "KERNEL_GATEWAY") == 0
        || strcmp(name, "KERNEL_LANGUAGE") == 0;
}

static int copy_env(const struct jupyter *j, json_t *env, struct start_request *q, struct err *e)
{
    const char *name;
    json_t *value;
    size_t n = 0;

    q->env = calloc(json_object_size(env) + 4, sizeof *q->env);
    if (!q->env)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "env");
    json_object_foreach(env, name, value)
        if (is_passed_on(j->config, name) && !is_set_here(name)
            && !(q->env[n++] = assignment(name, json_string_value(value))))
            return err_at(e, ENOMEM, STEP_MEMORY, 0, "env");
    if (!(q->env[n++] = assignment("KERNEL_ID", q->id)) || !(q->env[n++] = assignment("KERNEL_GATEWAY", "1"))
        || !(q->env[n] = assignment("KERNEL_LANGUAGE", j->front->config.template[q->spec - 1].language)))
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "env");
    return 0;
}

static const char *get(json_t *env, const char *name)
{
    const char *text = json_string_value(json_object_get(env, name));

    return text && text[0] ? text : NULL;
}

/* "0.5", "2", and Kubernetes' "500m". */
static json_t *cpus(const char *text)
{
    char *end;
    unsigned long milli = strtoul(text, &end, 10);

    return end > text && strcmp(end, "m") == 0 ? json_real((double)milli / 1000) : json_string(text);
}

static int read_box(const struct front *front, json_t *env, struct start_request *q, struct err *e)
{
    const char *memory = get(env, "KERNEL_MEMORY"), *most_memory = get(env, "KERNEL_MEMORY_LIMIT");
    const char *cpu = get(env, "KERNEL_CPUS"), *most_cpu = get(env, "KERNEL_CPUS_LIMIT");
    const unsigned can = front->boxes.walls.can;
    const char *user = get(env, "KERNEL_USERNAME");
    json_t *limits = json_object(), *requests = json_object();
    json_t *labels = json_pack("{s:s,s:s}", JUPYTER_LABEL, spec_name(&front->config, q->spec), JUPYTER_LABEL "-kernel",
                               q->id);

    /* Beside a limit it is a request, alone it is the limit. A host that holds no requests starts the kernel anyway:
     * these programs have no other way to ask. */
    if (memory && most_memory && can >> WALL_MEMORY & 1)
        json_object_set_new(requests, "memory", json_string(memory));
    if (cpu && most_cpu && can >> WALL_CPUS & 1)
        json_object_set_new(requests, "cpus", cpus(cpu));
    if (memory || most_memory)
        json_object_set_new(limits, "memory", json_string(most_memory ? most_memory : memory));
    if (cpu || most_cpu)
        json_object_set_new(limits, "cpus", cpus(most_cpu ? most_cpu : cpu));
    /* Only recorded: the token identifies the caller. */
    if (user && strlen(user) <= 255)
        json_object_set_new(labels, JUPYTER_LABEL "-user", json_string(user));
    q->box = json_pack("{s:o,s:o,s:o}", "labels", labels, "limits", limits, "requests", requests);
    if (!q->box)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "the kernel's box");
    /* Names and places; these programs have no other way to ask, either. */
    const char *words = get(env, "KERNEL_SECRETS");
    json_t *secrets = NULL;
    int r = words ? secret_uses_parse("KERNEL_SECRETS", words, &secrets, e) : 0;
    if (secrets)
        json_object_set_new(q->box, "secrets", secrets);
    return r;
}

static int read_spec(const struct front *front, json_t *root, json_t *env, struct start_request *q, struct err *e)
{
    const char *name = get(env, "KERNEL_TEMPLATE");
    json_t *given = json_object_get(root, "name");
    char names[160];

    name = name ? name : get(env, "KERNEL_IMAGE");
    if (!name && given && !json_is_null(given)) {
        if (!json_is_string(given))
            return err_set(e, EINVAL, STEP_USAGE, "name must be a string");
        name = json_string_value(given)[0] ? json_string_value(given) : NULL;
    }
    q->spec = kernelspec_find(&front->config, name);
    if (q->spec)
        return 0;
    spec_names(&front->config, names, sizeof names);
    return err_set(e, EINVAL, STEP_USAGE, "there is no kernelspec '%s' here; there is: %s",
                   parse_quote(name ? name : "").text, names);
}

static int read_id(json_t *root, json_t *env, struct start_request *q, struct err *e)
{
    json_t *given = json_object_get(root, "kernel_id");
    const char *id = get(env, "KERNEL_ID");

    if (!id && given && !json_is_null(given)) {
        id = json_is_string(given) ? json_string_value(given) : "";
        q->may_exist = true;
    }
    if (id && !jupyter_id_is_valid(id))
        return err_set(e, EINVAL, STEP_USAGE,
                       "%s: a kernel's id is 1 to 128 letters, digits, '.', '_' and '-', not '%s'",
                       q->may_exist ? "kernel_id" : "KERNEL_ID", parse_quote(id).text);
    q->is_chosen = id != NULL;
    if (id)
        snprintf(q->id, sizeof q->id, "%s", id);
    else
        jupyter_uuid(q->id);
    return 0;
}

static int read_launch(json_t *env, struct start_request *q, struct err *e)
{
    const char *text = get(env, "KERNEL_LAUNCH_TIMEOUT");
    uint64_t ms = LAUNCH_MS;
    int r = text ? parse_duration("KERNEL_LAUNCH_TIMEOUT", text, &ms, e) : 0;

    q->launch_ms = (uint32_t)(ms < LAUNCH_LEAST_MS ? LAUNCH_LEAST_MS : ms > LAUNCH_MOST_MS ? LAUNCH_MOST_MS : ms);
    return r;
}

int start_request_read(const struct jupyter *j, json_t *root, struct start_request *ret, struct err *e)
{
    json_t *env = json_object_get(root, "env");
    const char *name;
    json_t *value;
    int r = 0;

    *ret = (struct start_request){ 0 };
    if (env && !json_is_null(env) && !json_is_object(env))
        return err_set(e, EINVAL, STEP_USAGE, "env must be an object of strings");
    if (json_object_size(env) > ENV_MOST)
        return err_set(e, EINVAL, STEP_USAGE, "env may have %d variables", ENV_MOST);
    if (json_is_object(env)) {
        json_object_foreach(env, name, value)
            if (r == 0)
                r = check(j->config, name, value, e);
    }
    if (r == 0)
        r = read_spec(j->front, root, env, ret, e);
    if (r == 0)
        r = read_id(root, env, ret, e);
    if (r == 0)
        r = read_launch(env, ret, e);
    if (r == 0)
        r = read_box(j->front, env, ret, e);
    if (r == 0)
        r = copy_env(j, env, ret, e);
    if (r < 0)
        start_request_done(ret);
    return r;
}

void start_request_done(struct start_request *q)
{
    for (char **p = q->env; p && *p; p++)
        free(*p);
    free(q->env);
    json_decref(q->box);
    *q = (struct start_request){ 0 };
}
