#define _GNU_SOURCE
#include "front/execs/exec_env.h"

#include <stdio.h>
#include <stdlib.h>

#include "front/boxes/boxes.h"
#include "front/front.h"
#include "proto/defaults.h"

void exec_env_free(char **env)
{
    for (char **v = env; v && *v; v++)
        free(*v);
    free(env);
}

char **exec_env_list(json_t *variables)
{
    char **env = calloc(json_object_size(variables) + 1, sizeof *env);
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach(variables, key, value) {
        if (env && asprintf(&env[n], "%s=%s", key, json_string_value(value)) < 0) {
            env[n] = NULL;
            exec_env_free(env);
            env = NULL;
        }
        n++;
    }
    return env;
}

char **exec_env_make(const struct box *box, uint32_t template, json_t *const *more, size_t n_more)
{
    char path[CONFIG_PATH_SIZE];
    json_t *all = json_pack("{s:s,s:s,s:s,s:s}", "PATH", config_template_path(&box->front->config, template, path),
                            "LANG", BOX_LANG, "LC_ALL", BOX_LANG, "HOME", BOX_HOME);
    int r = all ? json_object_update(all, box->settings.env) : -1;

    for (size_t i = 0; i < n_more && r == 0; i++)
        r = more[i] ? json_object_update(all, more[i]) : 0;
    char **env = r == 0 ? exec_env_list(all) : NULL;
    json_decref(all);
    return env;
}
