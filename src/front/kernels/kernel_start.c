/* The process of a kernel: the template's interpreter with what is in the guest directory, forked from the family's
 * zygote where that is possible and nothing was asked for that must be there when an interpreter starts. */
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

/* Variables that an interpreter reads when it starts: one that is forked would not heed them. */
static bool is_early(const char *variable)
{
    return strncmp(variable, "PYTHON", 6) == 0 || strncmp(variable, "LD_", 3) == 0 ||
           strncmp(variable, "VIRTUAL_ENV=", 12) == 0;
}

static bool has_early(const struct kernel *k)
{
    const char *key;
    json_t *value;

    for (char **v = k->env; v && *v; v++)
        if (is_early(*v))
            return true;
    json_object_foreach(k->box->settings.env, key, value) {
        char name[16];
        snprintf(name, sizeof name, "%.13s=", key);
        if (is_early(name))
            return true;
    }
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

static char **make_env(const struct kernel *k, uint32_t template)
{
    json_t *own = json_object();
    int r = own ? 0 : -1;

    for (char **v = k->env; r == 0 && v && *v; v++)
        r = set_variable(own, *v);
    char **env = r == 0 ? exec_env_make(k->box, template, &own, 1) : NULL;
    json_decref(own);
    return env;
}

static const struct config_template *find_template(const struct kernel *k, uint32_t *ret)
{
    const struct config *config = &k->front->config;

    *ret = k->spec ? config_template_find(config, k->spec) : k->box->settings.template ? k->box->settings.template : 1;
    return config_template(config, *ret);
}

/* What the next front must know. */
static json_t *describe(const struct kernel *k)
{
    json_t *env = json_array();

    for (char **v = k->env; v && *v; v++)
        json_array_append_new(env, json_string(*v));
    return json_pack("{s:s,s:s,s:s?,s:s?,s:i,s:o}", "id", k->id, "name", k->name, "spec", k->spec, "cwd", k->cwd,
                     "restarts", (int)k->restarts, "env", env);
}

/* The template's interpreter and our files are in the kernel's box. What is under /usr is in every one. */
static bool is_there(const struct kernel *k, uint32_t template)
{
    return template == families_layers(k->front, &k->box->settings)
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
    if (!is_there(k, number) && k->box->settings.root)
        return err_set(e, EINVAL, STEP_USAGE, "the box has a root filesystem of its own, in which there is no "
                       "interpreter of the template '%s'; run code in a box without \"root\"", template->name);
    if (!is_there(k, number))
        return err_set(e, EINVAL, STEP_USAGE, "the box was made without the template '%s', so its interpreter is not "
                       "there; create the box with \"template\": \"%s\"", template->name, template->name);
    snprintf(python, sizeof python, "%s", template->python);
    snprintf(program, sizeof program, "%s/" KERNEL_PROGRAM, k->front->config.guest);
    if (template->startup[0]) {
        argv[3] = KERNEL_STARTUP;
        argv[4] = (char *)(uintptr_t)template->startup;
    }
    if (template->kernel[0] && stock_command(&k->front->config, template, room, sizeof room, argv, e) < 0)
        return -e->code;
    bool fork = !p->must_exec && number == k->box->settings.template && family_can_fork(k->box) && !has_early(k);
    if (number == k->box->settings.template && !k->box->family)
        families_want(k->box);
    char **env = make_env(k, number);
    json_t *about = describe(k);
    struct exec_options options = {
        .argv = argv, .env = env, .cwd = k->cwd, .background = true, .link = true, .fork = fork, .kernel = about
    };
    int r = env && about ? exec_start(k->box, &options, &k->exec, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "kernel");
    exec_env_free(env);
    json_decref(about);
    if (r < 0) {
        k->exec = NULL;
        return r;
    }
    k->exec->kernel = k;
    k->way = fork ? KERNEL_FORKED : KERNEL_COLD;
    k->started_ms = k->activity_ms = front_now_ms();
    r = kernel_link_open(&p->link, k->exec->link, fork);
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "kernel");
    kernel_look_at_reading(k);          /* who could not take more of the last one can take no more of this one */
    if (!fork)
        kernel_ask_info(k);
    return 0;
}
