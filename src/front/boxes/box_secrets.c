/* Secrets that a box asks for: its own, and those of its template. Only their names are kept; a process that starts
 * gets the values (front/execs/exec_env.c). */
#include <errno.h>
#include <string.h>

#include "front/boxes/box_private.h"
#include "front/front.h"
#include "front/secrets/secret_uses.h"
#include "proto/defaults.h"

static bool has_place(const struct box_settings *s, json_t *use)
{
    const char *variable = secret_use_variable(use), *file = secret_use_file(use);
    size_t i;
    json_t *other;

    json_array_foreach(s->secrets, i, other) {
        const char *theirs = variable ? secret_use_variable(other) : secret_use_file(other);
        if (theirs && strcmp(theirs, variable ? variable : file) == 0)
            return true;
    }
    return variable && json_object_get(s->env, variable);
}

/* What the box says about a place itself comes before its template's word. */
static int add_templates(const struct config *config, struct box_settings *s, struct err *e)
{
    const struct config_template *t = config_template(config, box_mounts_template(&s->mounts));
    json_t *list = NULL, *use;
    size_t i;

    if (!t || !t->secrets[0])
        return 0;
    int r = secret_uses_parse("templates.secrets", t->secrets, &list, e);
    json_t *all = r == 0 ? json_array() : NULL;
    if (all && s->secrets)
        json_array_extend(all, s->secrets);
    json_array_foreach(list, i, use)
        if (all && !has_place(s, use))
            json_array_append(all, use);
    json_decref(list);
    if (r < 0)
        return r;
    if (json_array_size(all) > SECRET_USES_MAX) {
        json_decref(all);
        return err_set(e, EINVAL, STEP_USAGE, "a box may have %d secrets, with those of its template", SECRET_USES_MAX);
    }
    json_decref(s->secrets);
    s->secrets = all;
    return 0;
}

int box_secrets_admit(struct front *front, const char *owner, struct box_settings *s, struct err *e)
{
    int r = add_templates(&front->config, s, e);
    size_t i;
    json_t *use;

    json_array_foreach(s->secrets, i, use)
        if (r == 0 && secret_use_file(use) && box_mounts_cover(&s->mounts, BOX_SECRETS))
            r = err_set(e, EINVAL, STEP_USAGE, "secrets: files are in " BOX_SECRETS ", and a mount of this box covers "
                        "it; mount that elsewhere");
    return r < 0 ? r : secret_uses_admit(front, owner, s->secrets, e);
}
