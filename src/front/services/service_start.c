/* The process of a service: an interpreter of the box with guest/service, which gets the interface file as its first
 * message. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/boxes.h"
#include "front/execs/exec_env.h"
#include "front/execs/execs.h"
#include "front/front.h"
#include "front/services/service_private.h"

enum { LOAD_MS = 600000 };

/* The values that its creator gave are in s->secrets; "secrets" of the spec only names secrets. */
static int make_env(const struct service *s, char ***ret, struct err *e)
{
    json_t *const more[] = { json_object_get(s->spec, "env"), s->secrets };

    return exec_env_make(s->box, 0, more, sizeof more / sizeof *more, json_object_get(s->spec, "secrets"), ret, e);
}

static bool is_in_every_box(const char *path)
{
    return strncmp(path, "/usr/", 5) == 0;
}

static int check_place(const struct service *s, const struct config_template *template, const char *python,
                       struct err *e)
{
    const char *guest = s->front->config.guest;

    if (!guest[0])
        return err_set(e, ENOENT, STEP_HOST,
                       "the files of services are not installed: neither beside carrel-server nor in "
                       "/usr/local/lib/carrel/guest; $CARREL_GUEST can name them");
    if (box_template(s->box) == 0 && !(is_in_every_box(python) && is_in_every_box(guest)))
        return err_set(e, EINVAL, STEP_USAGE,
                       "the box was made without a template, so the interpreter is not there; create it with "
                       "\"template\": \"%s\"",
                       template ? template->name : "python");
    return 0;
}

/* Sends the first message, with the interface to load. */
static int say_load(struct service *s, struct err *e)
{
    json_t *message = json_copy(s->spec);
    char *text = NULL;

    if (message) {
        json_object_set_new(message, SERVICE_KEY_TYPE, json_string(service_message_name(SERVICE_LOAD)));
        json_object_del(message, "env");
        json_object_del(message, "secrets");
        text = json_dumps(message, JSON_COMPACT);
    }
    json_decref(message);
    if (!text)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "service");
    service_say(s, text);
    free(text);
    return 0;
}

static void arm_load_timer(struct service *s)
{
    loop_timer_set(s->front->loop, &s->private->load_timer, s->load_timeout_ms ? s->load_timeout_ms : LOAD_MS);
}

static const struct config_template *template_of(const struct service *s)
{
    return config_template(&s->front->config, box_template(s->box) ? box_template(s->box) : 1);
}

/* NULL: none. */
static const char *python_of(const struct service *s)
{
    const char *own = json_string_value(json_object_get(s->spec, "python"));
    uint32_t template = box_template(s->box) ? box_template(s->box) : 1;

    return own ? own : box_mounts_python(s->front, &s->box->settings.mounts, template);
}

int service_launch(struct service *s, struct err *e)
{
    struct service_private *p = s->private;
    const struct config *config = &s->front->config;
    const struct config_template *template = template_of(s);
    const char *chosen = python_of(s);
    char python[4096], program[320];
    char *argv[] = { python, program, NULL };

    if (!chosen)
        return err_set(e, EINVAL, STEP_USAGE, "this server has no template, so \"python\" must name an interpreter");
    snprintf(python, sizeof python, "%s", chosen);
    snprintf(program, sizeof program, "%s/" SERVICE_PROGRAM, config->guest);
    int r = check_place(s, template, python, e);
    if (r < 0)
        return r;
    char **env = NULL;
    r = make_env(s, &env, e);
    if (r < 0)
        return r;
    json_t *about = json_pack("{s:s,s:s}", "service", s->id, "name", s->name);
    struct exec_options options = { .argv = argv, .env = env, .background = true, .owner = &services_exec_owner,
                                    .secrets = json_object_get(s->spec, "secrets"),
                                    .owned_by = s, .about = about };
    r = about ? exec_start(s->box, &options, &s->exec, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "service");
    exec_env_free(env);
    json_decref(about);
    if (r < 0) {
        s->exec = NULL;
        return r;
    }
    p->end_outcome = OUTCOME_NONE;
    s->interpreter_failed = false;
    p->load_cancelled = p->started = false;
    p->tail_size = 0;
    r = guest_link_open(&p->link, exec_link(s->exec), false);
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "service");
    arm_load_timer(s);
    return say_load(s, e);
}

/* It may still be loading; and one that was ready may no longer answer. */
void service_ask_again(struct service *s)
{
    char text[64];

    s->private->started = true;
    arm_load_timer(s);
    snprintf(text, sizeof text, "{\"" SERVICE_KEY_TYPE "\":\"%s\"}", service_message_name(SERVICE_DESCRIBE));
    service_say(s, text);
}

/* ---- a worker that did not come up ---- */

static const char *why_not_executed(int code)
{
    switch (code) {
    case ENOENT:
        return "it is not in the box, or the loader that it names is not; a box has what is below its prefix, unless a "
               "mount covers that, and /usr";
    case EACCES:
        return "the box's user may not run it; 'chmod -R go+rX' its prefix";
    case ENOEXEC:
        return "it is no program for this machine; choose another one";
    default:
        return strerror(code);
    }
}

bool service_blame_interpreter(const struct service *s, const struct exec *x, char *ret, size_t size)
{
    const char *python = python_of(s);
    char words[400];

    if (s->private->started || s->private->end_outcome || s->outcome == OUTCOME_OOM ||
        (x->failure.code && x->failure.step != STEP_EXEC))
        return false;
    bool is_unfit = guest_link_last_words(s->private->tail, s->private->tail_size, x->end.code, words, sizeof words);
    if (!json_object_get(s->spec, "python") &&
        config_awaits_setup(&s->front->config, box_template(s->box), &x->failure))
        snprintf(ret, size, "there is no Python for services on this machine yet; 'carrel setup' makes one, once");
    else if (x->failure.code)
        snprintf(ret, size, "the interpreter %s cannot be started: %s", python, why_not_executed(x->failure.code));
    else if (x->end.signal)
        snprintf(ret, size, "the interpreter %s was killed by signal %d while it started; try it outside of a box",
                 python, x->end.signal);
    else if (is_unfit)
        snprintf(ret, size, "%s", words);
    else
        snprintf(ret, size, "the interpreter %s ended with status %d before it came to the interface: %s; what it "
                 "loads must be below its prefix or /usr, or in the template's \"layers\"", python, x->end.code, words);
    front_make_utf8(ret);
    return true;
}
