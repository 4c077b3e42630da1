/* The process of a kernel: the template's interpreter with the files of the guest directory, forked from the family's
 * zygote if possible and if the request needs nothing that only the start of an interpreter can set. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/boxes.h"
#include "front/boxes/families.h"
#include "front/execs/exec_env.h"
#include "front/execs/execs.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"
#include "front/secrets/secret_uses.h"

/* Variables that an interpreter reads at its start: a forked one would ignore them. */
static bool is_early(const char *variable)
{
    return strncmp(variable, "PYTHON", 6) == 0 || strncmp(variable, "LD_", 3) == 0 ||
           strncmp(variable, "VIRTUAL_ENV=", 12) == 0;
}

static bool is_early_name(const char *name)
{
    char start[16];

    snprintf(start, sizeof start, "%.13s=", name);
    return is_early(start);
}

static bool has_early(const struct kernel *k)
{
    json_t *const secrets[] = { k->box->settings.secrets, k->secrets };
    const char *key;
    json_t *value;
    size_t at;

    for (char **v = k->env; v && *v; v++)
        if (is_early(*v))
            return true;
    json_object_foreach(k->box->settings.env, key, value)
        if (is_early_name(key))
            return true;
    for (size_t i = 0; i < 2; i++)
        json_array_foreach(secrets[i], at, value)
            if (secret_use_variable(value) && is_early_name(secret_use_variable(value)))
                return true;
    return false;
}

static int set_variable(json_t *all, const char *variable)
{
    const char *equals = strchr(variable, '=');
    char name[256];

    if (!equals || (size_t)(equals - variable) >= sizeof name)
        return -1;
    snprintf(name, sizeof name, "%.*s", (int)(equals - variable), variable);
    return json_object_set_new(all, name, json_string(equals + 1));
}

static int make_env(const struct kernel *k, uint32_t template, char ***ret, struct err *e)
{
    json_t *own = json_object();
    int r = own ? 0 : -1;

    for (char **v = k->env; r == 0 && v && *v; v++)
        r = set_variable(own, *v);
    r = r == 0 ? exec_env_make(k->box, template, &own, 1, k->secrets, ret, e)
               : err_at(e, ENOMEM, STEP_MEMORY, 0, "kernel");
    json_decref(own);
    return r;
}

static const struct config_template *find_template(const struct kernel *k, uint32_t *ret)
{
    const struct config *config = &k->front->config;

    *ret = k->spec ? config_template_find(config, k->spec) : box_template(k->box) ? box_template(k->box) : 1;
    return config_template(config, *ret);
}

/* The state that the next front needs. */
static json_t *describe(const struct kernel *k)
{
    json_t *env = json_array();

    for (char **v = k->env; v && *v; v++)
        json_array_append_new(env, json_string(*v));
    return json_pack("{s:s,s:s,s:s?,s:s?,s:i,s:o,s:O*}", "id", k->id, "name", k->name, "spec", k->spec, "cwd", k->cwd,
                     "restarts", (int)k->restarts, "env", env, "secrets", k->secrets);
}

/* Whether the template's interpreter and our files are in the kernel's box. Files under /usr are in every box. */
static bool is_there(const struct kernel *k, uint32_t template)
{
    return template == box_mounts_layers(k->front, &k->box->settings.mounts)
        || (strncmp(k->front->config.template[template - 1].python, "/usr/", 5) == 0
            && strncmp(k->front->config.guest, "/usr/", 5) == 0);
}

enum { WORDS = 64 };

/* A stock kernel behind the bridge. The words are written into room. */
static int stock_command(const struct config *config, const struct config_template *t, char *room, size_t size,
                         char *argv[WORDS], struct err *e)
{
    size_t at = (size_t)snprintf(room, size, "%s/" BRIDGE_PROGRAM, config->guest) + 1, n = 0;

    argv[n++] = room;
    if (t->interrupt_by_message)
        argv[n++] = BRIDGE_BY_MESSAGE;
    argv[n++] = BRIDGE_COMMAND;
    for (const char *word = t->kernel + strspn(t->kernel, " "); *word;) {
        size_t length = strcspn(word, " ");
        bool is_python = length == 8 && strncmp(word, "{python}", length) == 0;
        int written = snprintf(room + at, size - at, "%.*s", is_python ? (int)sizeof t->python : (int)length,
                               is_python ? t->python : word);
        if (n == WORDS - 1 || written < 0 || (size_t)written >= size - at)
            return err_set(e, E2BIG, STEP_USAGE, "the command of template '%s' has too many words", t->name);
        argv[n++] = room + at;
        at += (size_t)written + 1;
        word += length;
        word += strspn(word, " ");
    }
    argv[n] = NULL;
    return 0;
}

int kernel_launch(struct kernel *k, struct err *e)
{
    struct kernel_private *p = kernel_private(k);
    uint32_t number;
    const struct config_template *template = find_template(k, &number);
    char program[300], python[256], room[2048];
    char *argv[WORDS] = { python, program, KERNEL_AS_KERNEL, NULL };

    if (!template)
        return err_set(e, EINVAL, STEP_USAGE, "there is no template '%s' on this server; its configuration names them",
                       k->spec ? k->spec : "");
    if (!k->front->config.guest[0])
        return err_set(e, ENOENT, STEP_HOST,
                       "the files of kernels are not installed: neither beside carrel-server nor in "
                       "/usr/local/lib/carrel/guest; $CARREL_GUEST can name them");
    if (!is_there(k, number) && box_mounts_number(&k->box->settings.mounts, MOUNT_ROOT))
        return err_set(e, EINVAL, STEP_USAGE, "the box has a root filesystem of its own, in which there is no "
                       "interpreter of the template '%s'; run code in a box without \"root\"", template->name);
    if (!is_there(k, number))
        return err_set(e, EINVAL, STEP_USAGE, "the box was made without the template '%s', so its interpreter is not "
                       "there; create the box with \"template\": \"%s\"", template->name, template->name);
    snprintf(python, sizeof python, "%s", box_mounts_python(k->front, &k->box->settings.mounts, number));
    snprintf(program, sizeof program, "%s/" KERNEL_PROGRAM, k->front->config.guest);
    if (template->startup[0]) {
        argv[3] = KERNEL_STARTUP;
        argv[4] = (char *)(uintptr_t)template->startup;
    }
    if (template->kernel[0] && stock_command(&k->front->config, template, room, sizeof room, argv, e) < 0)
        return -e->code;
    bool fork = !p->must_exec && number == box_template(k->box) && family_can_fork(k->box) && !has_early(k);
    if (number == box_template(k->box) && !k->box->family)
        families_want(k->box);
    char **env = NULL;
    int r = make_env(k, number, &env, e);
    if (r < 0)
        return r;
    json_t *about = describe(k);
    struct exec_options options = {
        .argv = argv, .env = env, .secrets = k->secrets, .cwd = k->cwd, .background = true, .fork = fork,
        .owner = &kernels_exec_owner, .owned_by = k, .about = about
    };
    r = about ? exec_start(k->box, &options, &k->exec, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "kernel");
    exec_env_free(env);
    json_decref(about);
    if (r < 0) {
        k->exec = NULL;
        return r;
    }
    k->way = fork ? KERNEL_FORKED : KERNEL_COLD;
    k->started_ms = k->activity_ms = front_now_ms();
    r = guest_link_open(&p->link, exec_link(k->exec), fork);
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "kernel");
    kernel_look_at_reading(k);          /* clients that held back the last process also hold back this one */
    if (!fork)
        kernel_ask_info(k);
    return 0;
}
